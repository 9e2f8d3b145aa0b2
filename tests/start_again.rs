//! Case D1: whatever a hard stop leaves of the record that was being written, the next start is ready within seconds, delivers every
//! whole record once, says what was lost, and obeys SIGTERM.
//!
//! Store files are allocated ahead, so there is no end of a file to cut. What stands in is what a torn write leaves: the last bytes of
//! the newest record are as they were before it.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use spillgate_test_support::durable::{PEOPLE, job_of, state_of};
use spillgate_test_support::ledger::Ledger;
use spillgate_test_support::server::{Options, Server};

const ITEMS: usize = 1_000;
/// Bytes of a record's frame: its length, batch, kind and checksum.
const FRAME: usize = 10;
const STORE: &str = "[store]\ndisk_limit = \"16MiB\"\ndisk_reserve = \"1MiB\"\n";
const QUEUE: &str = "[queue.bookings]\nmax_item = \"16KiB\"\nbytes = \"4MiB\"\nworkers = 4\n";
const BOOK: &str = r#"
name = "book"
about = "Books."
http = "POST /book"
effect = "write"
[input.reference]
type = "text"
about = "Yours."
[[step]]
queue = "bookings"
[[step]]
database = "main"
sql = "INSERT INTO BOOKING (REFERENCE, TENANT) VALUES (:reference, 'x')"
"#;

/// Every file of extents with its bytes.
type Files = BTreeMap<PathBuf, Vec<u8>>;

fn files(store: &Path) -> Files {
    let entries = fs::read_dir(store).expect("the store is there").flatten().map(|entry| entry.path());
    let extents = entries.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("extents-")));
    extents.map(|path| (path.clone(), fs::read(&path).expect("a store file can be read"))).collect()
}

/// The one place that differs.
fn newest_region(before: &Files, after: &Files) -> (PathBuf, Range<usize>) {
    assert!(before.keys().eq(after.keys()), "files are allocated ahead");
    let changed: Vec<(PathBuf, Range<usize>)> = before
        .iter()
        .filter_map(|(path, old)| {
            let new = &after[path];
            let first = old.iter().zip(new).position(|(old, new)| old != new)?;
            let last = old.iter().zip(new).rposition(|(old, new)| old != new)?;
            Some((path.clone(), first..last + 1))
        })
        .collect();
    let [region] = &changed[..] else { panic!("one append is written to one place: {changed:?}") };
    region.clone()
}

fn book(server: &Server, reference: &str) -> String {
    job_of(&server.post("key-one-1", "/api/book", &format!("{{\"reference\":\"{reference}\"}}")))
}

#[test]
fn d1_a_torn_last_record_is_cut_counted_and_costs_nothing_else() {
    let ledger = Ledger::new();
    let server = format!("{STORE}{PEOPLE}{QUEUE}{}", ledger.section());
    let options = Options { binary: env!("CARGO_BIN_EXE_spillgate"), server: &server, flows: &[("book.toml", BOOK)], environment: &[] };
    let mut server = Server::start(&options);
    server.wait_for_durable();
    server.operate_lane("bookings", "one", "pause", "");
    std::thread::scope(|threads| {
        for part in 0..8 {
            let server = &server;
            threads.spawn(move || (part..ITEMS).step_by(8).for_each(|number| drop(book(server, &format!("D-{number}")))));
        }
    });
    let store = server.folder.join("data/store");
    server.kill();
    let before = files(&store);
    server.start_again();
    server.wait_for_durable();
    let last = book(&server, "D-last");
    server.kill();
    let after = files(&store);
    let (path, region) = newest_region(&before, &after);

    let length = region.len();
    let cuts = (1..=12).chain((13..length).step_by(17)).chain([length]).filter(|cut| *cut <= length);
    for cut in cuts {
        restore(&after);
        // The last `cut` bytes of the record never reached the disk.
        let torn = region.end - cut..region.end;
        let file = fs::File::options().write(true).open(&path).expect("a store file can be written");
        file.write_all_at(&before[&path][torn.clone()], torn.start as u64).expect("the cut is made");
        drop(file);
        let begun = Instant::now();
        server.start_again();
        server.wait_for_durable();
        assert!(begun.elapsed() < Duration::from_secs(5), "{cut} bytes cut: ready after {:?}", begun.elapsed());
        let (lane, recovered) = (server.lane("bookings", "one"), server.store()["recovered"].take());
        let told = format!("{cut} of {length} bytes cut: {lane} {recovered}");
        assert_eq!(lane["waiting"], ITEMS, "every whole record is there: {told}");
        let lost = recovered["cut_records"].as_u64().expect("a count");
        // A record whose frame is not whole cannot be told from what an earlier use of the place left behind.
        let is_seen = (FRAME..length).contains(&(length - cut));
        assert!(lost == u64::from(is_seen) || (!is_seen && lost <= 1), "loss is reported with a count: {told}");
        assert_eq!(recovered["quarantined_extents"], 0, "{told}");
        assert_eq!(server.job("key-one-1", &last).status, 404, "{told}");
        server.signal("TERM");
        assert!(server.ended().success(), "SIGTERM works: {told}");
    }

    // Whole again, it is there as it was acknowledged; then everything is delivered, each record once.
    restore(&after);
    server.start_again();
    server.wait_for_durable();
    assert_eq!(state_of(&server.job("key-one-1", &last)), "queued");
    server.operate_lane("bookings", "one", "resume", "");
    server.wait_until_drained("bookings", "one");
    assert_eq!(ledger.count("SELECT COUNT(*) FROM BOOKING"), ITEMS as i64 + 1);
    assert_eq!(ledger.count("SELECT COUNT(DISTINCT REFERENCE) FROM BOOKING"), ITEMS as i64 + 1);
}

fn restore(files: &Files) {
    for (path, bytes) in files {
        fs::write(path, bytes).expect("a store file can be written");
    }
}
