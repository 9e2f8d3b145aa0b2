//! Files damaged in any way give faults or a plan, never a panic; and places are right whatever the line ends.

use std::path::Path;

use proptest::prelude::*;
use spillgate_config::load_from;
use spillgate_config::source::Memory;

const SERVER: &str = include_str!("../../../flows/fleet/server.toml");
const FLOWS: [&str; 3] = [
    include_str!("../../../flows/fleet/flows/truck_status.toml"),
    include_str!("../../../flows/fleet/flows/book_trip.toml"),
    include_str!("../../../flows/fleet/flows/trips.toml"),
];

fn damaged(text: &str, cuts: &[(usize, usize, String)]) -> String {
    let mut letters: Vec<char> = text.chars().collect();
    for (start, length, insert) in cuts {
        let start = start % (letters.len() + 1);
        let end = (start + length).min(letters.len());
        letters.splice(start..end, insert.chars());
    }
    letters.into_iter().collect()
}

fn cuts() -> impl Strategy<Value = Vec<(usize, usize, String)>> {
    let insert = prop::sample::select(vec![
        "",
        "\"",
        "'",
        "\"\"\"",
        "[",
        "]",
        "{",
        "}",
        "=",
        ".",
        "\n",
        "\\",
        "é",
        ":x",
        "[[step]]\n",
        "name = 1\n",
        "unlimited",
        "-1",
        "[input.é]\n",
        "\\u00e9",
    ]);
    prop::collection::vec((any::<usize>(), 0usize..12, insert.prop_map(str::to_owned)), 1..5)
}

proptest! {
    #[test]
    fn damaged_files_never_panic(which in 0usize..4, cuts in cuts()) {
        let text = |index: usize, text: &str| if which == index { damaged(text, &cuts) } else { text.to_owned() };
        let source = Memory::default()
            .file("server.toml", text(3, SERVER))
            .file("flows/a.toml", text(0, FLOWS[0]))
            .file("flows/b.toml", text(1, FLOWS[1]))
            .file("flows/c.toml", text(2, FLOWS[2]))
            .file("flows/trips.sql", "SELECT ID FROM TRIP WHERE :company = :status OR :truck = 1 OR :from < :until");
        if let Err(faults) = load_from(&source, Path::new("server.toml")) {
            prop_assert!(!faults.is_empty());
            prop_assert!(faults.iter().all(|fault| fault.line > 0 && fault.column > 0 && !fault.message.is_empty()));
        }
    }
}

/// A flow that has everything durable, and its server file.
const DURABLE: [&str; 2] = [
    "[database.fleet]\ndriver = \"sqlite\"\nconnection = \"fleet.db\"\naccess = \"read-write\"\n[queue.one]\nitems = 5\nresults = { keep = \"1h\" }\n[queue.two]\n[tenant.a]\nkeys = [\"k\"]\nqueued = { disk = \"8MiB\" }\n",
    r#"name = "a"
effect = "write"
idempotency = { key = "optional", record = "DONE" }
unique = { by = ["x"], within = "1h" }
[schedule]
cron = "*/5 2-4 * jan-mar,7 mon"
tenant = "a"
[input.x]
type = "integer"
default = 1
[[step]]
name = "look"
sql = "SELECT A FROM T WHERE A = :x"
columns = { A = "integer" }
[[step]]
queue = "one"
expires = "1h"
order_by = "input.x"
[[step]]
sql = "DELETE FROM T WHERE A = :x AND J = :job"
[[step]]
emit = "b"
each = "steps.look.rows.map(row, {'x': row.A})"
"#,
];
const TARGET: &str = "name = \"b\"\n[input.x]\ntype = \"integer\"\n[[step]]\nqueue = \"two\"\n[[step]]\nmap = \"input.x\"\n";

fn durable(texts: [String; 3]) -> Memory {
    let [server, flow, target] = texts;
    Memory::default().file("server.toml", server).file("flows/a.toml", flow).file("flows/b.toml", target)
}

#[test]
fn the_durable_files_are_sound_before_they_are_damaged() {
    let source = durable([DURABLE[0].into(), DURABLE[1].into(), TARGET.into()]);
    if let Err(faults) = load_from(&source, Path::new("server.toml")) {
        panic!("{faults:#?}");
    }
}

proptest! {
    #[test]
    fn damaged_durable_files_never_panic(which in 0usize..3, cuts in cuts()) {
        let text = |index: usize, text: &str| if which == index { damaged(text, &cuts) } else { text.to_owned() };
        let source = durable([text(0, DURABLE[0]), text(1, DURABLE[1]), text(2, TARGET)]);
        if let Err(faults) = load_from(&source, Path::new("server.toml")) {
            prop_assert!(!faults.is_empty());
            prop_assert!(faults.iter().all(|fault| fault.line > 0 && fault.column > 0 && !fault.message.is_empty()));
        }
    }
}

#[test]
fn places_inside_texts_are_right_with_either_line_end_and_with_escapes() {
    let flow = "name = \"a\"\nabout = \"A.\"\nhttp = \"GET /a\"\n[[step]]\ndatabase = \"fleet\"\nsql = \"\"\"\nSELECT 'é', \\\n   \\u00e9,\n  :nothing\n\"\"\"\n";
    for flow in [flow.to_owned(), flow.replace('\n', "\r\n")] {
        let source = Memory::default().file("server.toml", SERVER).file("flows/a.toml", flow);
        let faults = load_from(&source, Path::new("server.toml")).expect_err("a parameter without input");
        let places: Vec<(usize, usize)> = faults.iter().map(|fault| (fault.line, fault.column)).collect();
        assert_eq!(places, [(9, 3)], "{faults:?}");
    }
}
