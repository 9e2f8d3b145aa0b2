//! A store's files as text: lines of 64 bytes, those of zeros left out, those that repeat written once.
//!
//! `file NAME LENGTH`, then `OFFSET COUNT HEX` in hexadecimal.

use std::fmt::Write as _;

use spillgate_queue::disk::simulated::SimulatedDisk;

const LINE: usize = 64;

pub(crate) fn from_disk(disk: &SimulatedDisk) -> String {
    let mut text = String::from("# A store as it was written by the version in this file's name. Never changed.\n");
    for name in disk.names() {
        let content = disk.content(&name).expect("it was listed");
        writeln!(text, "file {name} {:x}", content.len()).expect("text takes everything");
        let lines: Vec<&[u8]> = content.chunks(LINE).collect();
        let mut at = 0;
        while at < lines.len() {
            let count = lines[at..].iter().take_while(|line| **line == lines[at]).count();
            if lines[at].iter().any(|byte| *byte != 0) {
                write!(text, "{:x} {count:x} ", at * LINE).expect("text takes everything");
                lines[at].iter().for_each(|byte| write!(text, "{byte:02x}").expect("text takes everything"));
                text.push('\n');
            }
            at += count;
        }
    }
    text
}

pub(crate) fn to_disk(text: &str) -> SimulatedDisk {
    let disk = SimulatedDisk::new(1);
    let number = |text: &str| usize::from_str_radix(text, 16).expect("a hexadecimal number");
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["file", name, length] => files.push((name.to_owned(), vec![0; number(length)])),
            [offset, count, hex] => {
                let bytes: Vec<u8> =
                    (0..hex.len() / 2).map(|at| u8::try_from(number(&hex[at * 2..at * 2 + 2])).expect("two digits")).collect();
                let content = &mut files.last_mut().expect("a file comes first").1;
                for line in 0..number(count) {
                    let at = number(offset) + line * LINE;
                    content[at..at + bytes.len()].copy_from_slice(&bytes);
                }
            }
            _ => panic!("not a line of a fixture: {line}"),
        }
    }
    for (name, content) in files {
        disk.put(&name, content);
    }
    disk
}
