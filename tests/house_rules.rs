//! House rules that no lint knows, as failing tests. Each message says what to do.
//!
//! Code lines are counted without blank lines, comments and test modules: explaining costs nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Code lines of one file outside tests.
const FILE_LINES: usize = 400;
/// No exception goes beyond this.
const FILE_LINES_HARD: usize = 500;
/// Files over [`FILE_LINES`], each with the reason. Shrinks only.
const LONG_FILES: &[(&str, &str)] = &[];
/// Names that say nothing about what a module owns.
const EMPTY_NAMES: &[&str] = &["util", "utils", "common", "manager", "helper", "helpers", "misc"];
/// Where `unsafe` may stand: the ODBC foreign function module, and drivers that tests load.
const UNSAFE_PLACES: &[&str] = &["connectors/odbc/src/driver", "tests/support/"];
/// Folders that are not ours.
const NOT_OURS: &[&str] = &["target", ".git", ".test-tools", "data", "node_modules", "__pycache__"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file of the checkout whose name ends so, with its path from the root.
fn files(ending: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root().to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the checkout can be read") {
            let path: PathBuf = entry.expect("an entry can be read").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && !path.is_symlink() && !NOT_OURS.contains(&name.as_str()) {
                folders.push(path);
            } else if path.is_file() && name.ends_with(ending) {
                let shown = path.strip_prefix(root()).expect("it lies below the root").to_string_lossy().into_owned();
                if let Ok(text) = fs::read_to_string(&path) {
                    found.insert(shown, text);
                }
            }
        }
    }
    found
}

/// Whether a file holds tests only.
fn is_test(path: &str) -> bool {
    path.starts_with("tests/") || path.contains("/tests/") || path.ends_with("/tests.rs") || path.ends_with("_tests.rs")
}

/// The source with comments and the insides of strings blanked; lines stay where they are.
fn code_of(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut code = String::with_capacity(source.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => source[at..].find('\n').map_or(bytes.len(), |length| at + length),
            b'/' if bytes[at..].starts_with(b"/*") => source[at..].find("*/").map_or(bytes.len(), |length| at + length + 2),
            b'r' if !word_before(bytes, at) && raw_string_end(source, at).is_some() => raw_string_end(source, at).unwrap_or(bytes.len()),
            b'"' => string_end(bytes, at),
            b'\'' => character_end(source, at),
            _ => at,
        };
        if end == at {
            let letter = source[at..].chars().next().expect("not at the end");
            code.push(letter);
            at += letter.len_utf8();
        } else {
            let blanked = &source[at..end];
            code.push_str(if blanked.starts_with('/') { "" } else { "\"\"" });
            code.extend(blanked.chars().filter(|letter| *letter == '\n'));
            at = end;
        }
    }
    code
}

fn word_before(bytes: &[u8], at: usize) -> bool {
    at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_') && bytes[at - 1] != b'b'
}

fn raw_string_end(source: &str, at: usize) -> Option<usize> {
    let rest = &source[at + 1..];
    let hashes = rest.bytes().take_while(|byte| *byte == b'#').count();
    let body = rest[hashes..].strip_prefix('"')?;
    let closing = format!("\"{}", "#".repeat(hashes));
    body.find(&closing).map(|length| at + 1 + hashes + 1 + length + closing.len())
}

fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut end = at + 1;
    while end < bytes.len() && bytes[end] != b'"' {
        end += if bytes[end] == b'\\' { 2 } else { 1 };
    }
    (end + 1).min(bytes.len())
}

/// The end of a character literal, or `at` for a lifetime.
fn character_end(source: &str, at: usize) -> usize {
    let mut letters = source[at + 1..].char_indices();
    match letters.next() {
        Some((_, '\\')) => source[at + 3..].find('\'').map_or(at, |length| at + 3 + length + 1),
        Some(_) => letters.next().filter(|(_, letter)| *letter == '\'').map_or(at, |(length, _)| at + 1 + length + 1),
        None => at,
    }
}

/// The code without the test module that ends a file.
fn without_tests(code: &str) -> &str {
    let mut from = 0;
    while let Some(found) = code[from..].find("#[cfg(test)]") {
        let start = from + found;
        let after = code[start + "#[cfg(test)]".len()..].trim_start();
        if after.starts_with("mod ") && after.lines().next().is_some_and(|line| line.ends_with('{')) {
            return &code[..start];
        }
        from = start + 1;
    }
    code
}

fn words_of(line: &str) -> impl Iterator<Item = &str> {
    line.split(|letter: char| !letter.is_alphanumeric() && letter != '_').filter(|word| !word.is_empty())
}

fn report(rule: &str, faults: &[String]) {
    assert!(faults.is_empty(), "{rule}\n  {}", faults.join("\n  "));
}

#[test]
fn a_file_holds_one_idea_of_at_most_400_code_lines() {
    let mut faults = Vec::new();
    for (path, source) in files(".rs") {
        if is_test(&path) {
            continue;
        }
        let lines = without_tests(&code_of(&source)).lines().filter(|line| !line.trim().is_empty()).count();
        let excused = LONG_FILES.iter().any(|(known, _)| *known == path);
        let limit = if excused { FILE_LINES_HARD } else { FILE_LINES };
        if lines > limit {
            faults.push(format!("{path}: {lines} code lines, at most {limit}"));
        }
        if excused && lines <= FILE_LINES {
            faults.push(format!("{path}: {lines} code lines now; take it out of LONG_FILES"));
        }
    }
    report("split these files by what they own:", &faults);
}

#[test]
fn nothing_is_left_unfinished() {
    let words = ["todo", "unimplemented", "dbg"].map(|word| format!("{word}!"));
    let notes = [concat!("FIX", "ME"), concat!("TO", "DO:"), concat!("TO", "DO("), concat!("XX", "X:")];
    let mut faults = Vec::new();
    for (path, source) in files(".rs") {
        for (index, (line, written)) in code_of(&source).lines().zip(source.lines()).enumerate() {
            let place = format!("{path}:{}", index + 1);
            for word in words.iter().filter(|word| line.contains(word.as_str())) {
                faults.push(format!("{place}: {word} (finish it, or refuse the case with a typed error)"));
            }
            if line.contains(concat!("#[ign", "ore")) {
                faults.push(format!("{place}: an ignored test (mend it or delete it)"));
            }
            for note in notes.iter().filter(|note| written.contains(**note)) {
                faults.push(format!("{place}: {note} (do it now, or write it down outside the code)"));
            }
        }
    }
    report("unfinished work:", &faults);
}

#[test]
fn every_channel_has_a_bound() {
    let banned = [concat!("unbo", "unded"), concat!("unbo", "unded_channel")];
    let mut faults = Vec::new();
    for (path, source) in files(".rs") {
        for (index, line) in code_of(&source).lines().enumerate() {
            if words_of(line).any(|word| banned.contains(&word)) {
                faults.push(format!("{path}:{}: give it a capacity and say what happens when it is full", index + 1));
            }
        }
    }
    report("channels without a bound:", &faults);
}

#[test]
fn unsafe_stands_only_at_the_foreign_interface_and_with_its_reason() {
    let mut faults = Vec::new();
    for (path, source) in files(".rs") {
        let lines: Vec<&str> = source.lines().collect();
        let allowed = UNSAFE_PLACES.iter().any(|place| path.starts_with(place));
        for (index, line) in code_of(&source).lines().enumerate() {
            if words_of(line).all(|word| word != "unsafe") {
                continue;
            }
            if !allowed {
                faults.push(format!("{path}:{}: unsafe outside {UNSAFE_PLACES:?}", index + 1));
            } else if !lines[index.saturating_sub(6)..=index].iter().any(|above| above.contains("SAFETY") || above.contains("# Safety")) {
                faults.push(format!("{path}:{}: say in a `// SAFETY:` comment why this holds", index + 1));
            }
        }
    }
    report("unsafe code:", &faults);
}

#[test]
fn no_file_names_a_place_of_one_machine() {
    let places = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
    let mut faults = Vec::new();
    for ending in [".rs", ".toml", ".md", ".sh", ".sql", ".json", ".py", ".service", "Makefile", "run"] {
        for (path, source) in files(ending) {
            for (index, line) in source.lines().enumerate() {
                if places.iter().any(|place| line.contains(place)) {
                    faults.push(format!("{path}:{}: {}", index + 1, line.trim()));
                }
            }
        }
    }
    report("use paths relative to the checkout, or an environment variable:", &faults);
}

#[test]
fn every_module_says_what_it_owns() {
    let mut faults = Vec::new();
    for (path, source) in files(".rs") {
        if path.starts_with("tests/") && path.ends_with("/tests.rs") {
            continue;
        }
        let in_a_test_module = is_test(&path) && !path.starts_with("tests/");
        if !in_a_test_module && !source.trim_start().starts_with("//!") {
            faults.push(format!("{path}: begin with a `//!` head: what it owns, its invariants, what it refuses"));
        }
    }
    report("modules without a head:", &faults);
}

#[test]
fn names_say_what_a_module_owns() {
    let mut faults = Vec::new();
    for (path, source) in files(".rs") {
        let parts = path.trim_end_matches(".rs").split('/');
        for part in parts.filter(|part| EMPTY_NAMES.contains(part)) {
            faults.push(format!("{path}: {part:?} says nothing; name it after what it owns"));
        }
        for (index, line) in code_of(&source).lines().enumerate() {
            let mut words = words_of(line);
            if let Some(name) = words.find(|word| *word == "mod").and_then(|_| words.next()).filter(|name| EMPTY_NAMES.contains(name)) {
                faults.push(format!("{path}:{}: module {name:?} says nothing; name it after what it owns", index + 1));
            }
        }
    }
    report("empty names:", &faults);
}

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    let faults: Vec<String> = files("Cargo.toml")
        .into_iter()
        .filter(|(_, text)| text.contains("[package]") && !text.contains("[lints]\nworkspace = true"))
        .map(|(path, _)| format!("{path}: add [lints] workspace = true"))
        .collect();
    report("crates with lints of their own:", &faults);
}

#[test]
fn the_scanner_sees_code_and_nothing_else() {
    let source = "let a = \"todo // \\\" x\"; // unsafe\nlet b = r#\"un\"safe\"#; let c = '\"'; /* dbg\n */ fn d<'a>() {}\n";
    assert_eq!(code_of(source), "let a = \"\"; \nlet b = \"\"; let c = \"\"; \n fn d<'a>() {}\n");
    assert_eq!(without_tests("fn a() {}\n#[cfg(test)]\nmod tests {\nfn b() {}\n}\n"), "fn a() {}\n");
}
