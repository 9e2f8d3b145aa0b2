//! Writing what waits, and dead letters, as lines of JSON.

use std::fmt::Write as _;
use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::core::Core;
use crate::core::lane::Phase;
use crate::core::lookup::{Plan, read};
use crate::format::{Kind, decode_item};
use crate::inspect::Exported;
use crate::inspect::look::Look;
use crate::record::ItemRecord;

/// What is being written, and to where.
pub(super) struct Export<'a> {
    pub(super) look: &'a Look,
    pub(super) core: &'a Core,
    pub(super) out: &'a mut dyn Write,
    pub(super) exported: Exported,
}

impl Export<'_> {
    /// A lane: what stands in its items stream, then copies.
    pub(super) fn lane(&mut self, lane: usize) -> io::Result<()> {
        let of = &self.core.lanes[lane];
        for (at, extent) in of.items.extents.iter().enumerate() {
            let wanted: Vec<u64> = (extent.first..extent.end()).filter(|sequence| !extent.is_over(*sequence)).collect();
            self.extent(lane, &self.core.plan_items(lane, at), &wanted)?;
        }
        let copies = of.jobs.iter().filter_map(|(sequence, job)| Some((*sequence, job.kept?)));
        let letters = of.letters.iter().filter_map(|(sequence, letter)| Some((*sequence, letter.kept?)));
        let mut kept: Vec<(u64, u64)> = copies.chain(letters).collect();
        kept.sort_unstable();
        for (sequence, serial) in kept {
            match self.core.plan_kept(lane, serial, sequence) {
                Some(plan) => self.extent(lane, &plan, &[sequence])?,
                None => self.line(lane, sequence, Err("it cannot be found"))?,
            }
        }
        Ok(())
    }

    /// Those of the wanted items that are readable, and a line for each that is not.
    fn extent(&mut self, lane: usize, plan: &Plan, wanted: &[u64]) -> io::Result<()> {
        if wanted.is_empty() {
            return Ok(());
        }
        let records = read(self.look, plan).unwrap_or_default();
        let mut items = records.iter().filter(|record| record.kind == Kind::Item).filter_map(|record| decode_item(&record.bytes).ok());
        let mut missing = wanted.iter().copied().peekable();
        for item in items.by_ref().filter(|item| wanted.contains(&item.sequence)) {
            while let Some(sequence) = missing.next_if(|sequence| *sequence < item.sequence) {
                self.line(lane, sequence, Err("it cannot be read"))?;
            }
            missing.next_if_eq(&item.sequence);
            self.line(lane, item.sequence, Ok(&item))?;
        }
        for sequence in missing {
            self.line(lane, sequence, Err("it cannot be read"))?;
        }
        Ok(())
    }

    fn line(&mut self, lane: usize, sequence: u64, item: Result<&ItemRecord, &str>) -> io::Result<()> {
        let of = &self.core.lanes[lane];
        let (job, letter) = (of.jobs.get(&sequence), of.letters.get(&sequence));
        if job.is_some_and(|job| matches!(job.phase, Phase::Hidden)) {
            return Ok(());
        }
        let state = if letter.is_some() { "dead" } else { "queued" };
        match letter {
            Some(_) => self.exported.dead += 1,
            None => self.exported.waiting += 1,
        }
        let attempts = job.map(|job| job.attempts).or(letter.map(|letter| letter.attempts)).unwrap_or(0);
        let (job, queue, tenant) = (self.core.id(lane, sequence), json(&of.name.queue), json(&of.name.tenant));
        write!(self.out, r#"{{"job":"{job}","queue":{queue},"tenant":{tenant},"state":"{state}","attempts":{attempts}"#)?;
        match item {
            Ok(item) => {
                let age = self.core.now.saturating_sub(item.appended_at);
                let keys: Vec<String> = item.keys.iter().map(|key| format!("\"{}\"", hex(&key.hash))).collect();
                write!(self.out, r#","age_ms":{age},"keys":[{}],"content":""#, keys.join(","))?;
                // A part at a time: the text is a third longer than the content.
                for part in item.content.chunks(48 * 1024) {
                    self.out.write_all(STANDARD.encode(part).as_bytes())?;
                }
                self.out.write_all(b"\"}\n")
            }
            Err(why) => {
                self.exported.damaged += 1;
                writeln!(self.out, r#","content":null,"damaged":"{why}"}}"#)
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A JSON string.
fn json(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            letter if letter < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::json;

    #[test]
    fn names_are_json_strings() {
        assert_eq!(json("a\"b\\c\nd"), r#""a\"b\\c\u000ad""#);
    }
}
