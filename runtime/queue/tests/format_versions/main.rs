//! A store of every format version there ever was, as it was written then, opens for ever and holds the same.
//!
//! `SPILLGATE_WRITE_FIXTURE=1` writes the one of today's version again: only for a new version, never over one that was released.

#[path = "../rig/mod.rs"]
mod rig;

mod text;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use spillgate_queue::disk::simulated::SimulatedDisk;
use spillgate_queue::format::{
    CATALOG_AT, CATALOG_ENTRY_BYTES, CATALOG_MARK_AT, HEAD_NAME, REDO_NAME, StoreHead, VERSION, decode_entry, decode_mark, decode_redo,
    redo_announced,
};
use spillgate_queue::{Appended, Appending, Emit, End, Hash, JobId, JobState, Key, LaneName, Lease, NewItem, Take, TakeFrom, Unique};

use crate::rig::{FILE, HandClock, Rig, UNLIMITED, end, lane, need, wait};

const VERSION_1: &str = include_str!("../fixtures/version-1.txt");
const LARGE: usize = 70_000;
/// With room for a file `redo` that takes more than one batch.
const DISK_LIMIT: u64 = 8 * FILE;

fn hash(byte: u8) -> Hash {
    [byte; 16]
}

fn append(rig: &Rig, lane: &LaneName, item: NewItem) -> (JobId, Option<Lease>) {
    let room = rig.store.reserve(lane, need(1, item.content.len()), &UNLIMITED).expect("there is room");
    match wait(rig.store.append(Appending { room, items: vec![item] })).expect("it is durable").pop() {
        Some(Appended::New { job, lease }) => (job, lease),
        other => panic!("{other:?}"),
    }
}

fn take(rig: &Rig, lane: &LaneName) -> Lease {
    let from = TakeFrom { lane: lane.clone(), most: 1, lease: Duration::from_secs(60) };
    match wait(rig.store.take(from)).expect("it can be asked") {
        Take::Items(mut items) => items.pop().expect("at least one").lease,
        Take::Nothing { waits, .. } => panic!("{waits:?}"),
    }
}

fn item(content: &'static str) -> NewItem {
    NewItem { content: Bytes::from_static(content.as_bytes()), ..NewItem::default() }
}

/// Those to which the last batch hands something on.
fn handed_to() -> [LaneName; 3] {
    ["anna", "ben", "dora"].map(|tenant| lane("orders", tenant))
}

/// A store with something of everything, in all its files.
fn make() -> SimulatedDisk {
    let rig = Rig::new(1, DISK_LIMIT);
    let (anna, ben, direct) = (lane("bookings", "anna"), lane("bookings", "ben"), lane("(direct)", "anna"));
    let key = Key { hash: hash(1), input: hash(2), keep: Duration::from_secs(1_000_000) };
    let derived = Key { hash: hash(3), input: hash(2), keep: Duration::from_secs(600) };
    let unique = Unique { hash: hash(4), within: Duration::from_secs(2_000_000) };
    append(&rig, &anna, NewItem { keys: vec![key, derived], unique: Some(unique), ..item("succeeded") });
    append(&rig, &anna, item("dead"));
    append(&rig, &anna, item("started"));
    append(&rig, &anna, item("handed back"));
    append(&rig, &anna, item("cancelled"));
    append(&rig, &anna, NewItem { order: Some(7), expires_in: Some(Duration::from_secs(3_000_000)), ..item("first in order") });
    append(&rig, &anna, NewItem { order: Some(7), ..item("second in order") });
    append(&rig, &anna, NewItem { content: Bytes::from(vec![b'x'; LARGE]), ..NewItem::default() });
    append(&rig, &anna, item(""));
    append(&rig, &ben, item("purged"));
    assert_eq!(wait(rig.store.purge(&ben, false)), Ok(1));
    append(&rig, &ben, NewItem { keys: vec![Key { hash: hash(5), ..key }], ..item("keyed and waiting") });
    let carl = lane("orders", "carl");
    append(&rig, &carl, item("handing on"));
    // The catalog says all this when it was closed.
    let rig = rig.restart();

    let room = rig.store.reserve(&ben, need(1, 100), &UNLIMITED).expect("there is room");
    let finish = End {
        state: JobState::Succeeded,
        outcome: Some(Bytes::from_static(b"{\"done\":true}")),
        keep: Duration::from_secs(4_000_000),
        frees_keys: false,
        emits: vec![Emit { room, items: vec![item("handed on")] }],
        note: Some((hash(6), Bytes::from_static(b"\"2026-11-01\""))),
    };
    wait(rig.store.finish(take(&rig, &anna), finish)).expect("it ends");
    let dead = End { keep: Duration::from_secs(4_000_000), ..end(JobState::Dead, Some(Bytes::from_static(b"{\"code\":\"internal\"}"))) };
    wait(rig.store.finish(take(&rig, &anna), dead)).expect("it ends");
    let started = take(&rig, &anna);
    wait(rig.store.start(&started)).expect("it starts");
    wait(rig.store.release(take(&rig, &anna), Duration::from_secs(5), true)).expect("it is handed back");
    wait(rig.store.cancel(JobId { lane: 1, sequence: 5 })).expect("it is cancelled");
    let (_, claimed) = append(&rig, &direct, NewItem { claimed: true, ..item("claimed") });
    let handing_on = take(&rig, &carl);
    // The last batch is for many places. The power goes when it stands in `redo`, and nothing of it in its places.
    let before = rig.disk.copy(1);
    let room = |lane| rig.store.reserve(lane, need(1, 100), &UNLIMITED).expect("there is room");
    let emits = handed_to().iter().map(|lane| Emit { room: room(lane), items: vec![item("only in redo")] }).collect();
    wait(rig.store.finish(handing_on, End { keep: Duration::from_secs(4_000_000), emits, ..end(JobState::Succeeded, None) }))
        .expect("it ends");
    before.put(REDO_NAME, rig.disk.content(REDO_NAME).expect("the store is large enough for it"));
    drop((started, claimed));
    before
}

/// The last batch stands in `redo` alone, and the catalog names what stands in extents.
fn check_files(disk: &SimulatedDisk) {
    let redo = disk.content(REDO_NAME).expect("it is there");
    let head = disk.content(HEAD_NAME).expect("it is there");
    let store = StoreHead::decode(&head).expect("it is whole").store;
    let (items, writes) = decode_redo(&redo).expect("what was handed on");
    assert_eq!((items.store, items.number, writes.len()), (store, 0, 3));
    let (end, writes) = decode_redo(&redo[redo_announced(&redo, store).expect("it is whole")..]).expect("and the end of what did it");
    assert_eq!((end.epoch, end.number, writes.len()), (items.epoch, 1, 1));
    assert!(decode_mark(&head[CATALOG_MARK_AT..], store).expect("there is a mark") > 1);
    let entries = head[CATALOG_AT..].chunks(CATALOG_ENTRY_BYTES).zip(0..).filter(|(bytes, at)| {
        let entry = decode_entry(bytes, *at).expect("it is whole");
        entry.is_some()
    });
    assert!(entries.count() >= 4);

    let without = disk.copy(1);
    without.put(REDO_NAME, vec![0; redo.len()]);
    let rig = Rig::open(without, HandClock::new(), DISK_LIMIT).expect("it opens");
    assert!(rig.store.lanes(None).iter().all(|lane| !handed_to().contains(&lane.name)), "its places do not have it");
}

/// What it holds.
fn check(disk: SimulatedDisk) {
    check_files(&disk);
    let rig = Rig::open(disk, HandClock::new(), DISK_LIMIT).expect("it opens");
    let recovered = rig.store.status().recovered;
    assert_eq!((recovered.cut_records, recovered.quarantined_extents, recovered.remarks), (0, 0, Vec::new()));
    let (anna, ben, direct) = (lane("bookings", "anna"), lane("bookings", "ben"), lane("(direct)", "anna"));
    let number = |name: &LaneName| rig.store.lanes(None).into_iter().find(|lane| lane.name == *name).map_or(0, |lane| lane.number);
    let state = |name: &LaneName, sequence| rig.store.job(JobId { lane: number(name), sequence }).map(|job| job.state);
    let states: Vec<_> = (1..=9).map(|sequence| state(&anna, sequence)).collect();
    let queued = Some(JobState::Queued);
    assert_eq!(states[..5], [Some(JobState::Succeeded), Some(JobState::Dead), queued, queued, Some(JobState::Cancelled)]);
    assert!(states[5..].iter().all(|state| *state == queued), "{states:?}");
    assert_eq!([state(&ben, 1), state(&ben, 2), state(&ben, 3), state(&direct, 1)], [Some(JobState::Purged), queued, queued, queued]);

    assert_eq!(state(&lane("orders", "carl"), 1), Some(JobState::Succeeded));
    assert!(handed_to().iter().all(|name| state(name, 1) == queued));

    let id = |sequence| JobId { lane: number(&anna), sequence };
    assert_eq!(wait(rig.store.outcome(id(1))), Ok(Some(Bytes::from_static(b"{\"done\":true}"))));
    assert_eq!(wait(rig.store.note(&anna, &hash(6))), Ok(Some(Bytes::from_static(b"\"2026-11-01\""))));
    let letters = wait(rig.store.dead(&anna, None, 10)).expect("they can be listed");
    assert_eq!(letters.len(), 1);
    assert_eq!((letters[0].job, letters[0].attempts, letters[0].bytes), (id(2), 1, 4));
    let key = |byte| Key { hash: hash(byte), input: hash(2), keep: Duration::ZERO };
    assert_eq!(rig.store.find_key(&key(1)), Some((id(1), true)));
    assert_eq!(rig.store.find_key(&Key { input: hash(9), ..key(3) }), Some((id(1), false)));
    assert_eq!(rig.store.find_key(&key(5)), Some((JobId { lane: number(&ben), sequence: 2 }, true)));

    rig.clock.pass(Duration::from_secs(6));
    let mut taken = Vec::new();
    for name in [&anna, &ben, &direct].into_iter().chain(&handed_to()) {
        loop {
            let items = rig.take(name, 1);
            let Some(item) = items.into_iter().next() else { break };
            taken.push((item.content.clone(), item.attempt, item.interrupted));
            wait(rig.store.finish(item.lease, end(JobState::Succeeded, None))).expect("it ends");
        }
    }
    let plain = |content: &'static str, attempt, interrupted| (Bytes::from_static(content.as_bytes()), attempt, interrupted);
    let expected = [
        plain("started", 2, true),
        plain("handed back", 2, false),
        plain("first in order", 1, false),
        plain("second in order", 1, false),
        (Bytes::from(vec![b'x'; LARGE]), 1, false),
        plain("", 1, false),
        plain("keyed and waiting", 1, false),
        plain("handed on", 1, false),
        plain("claimed", 2, true),
        plain("only in redo", 1, false),
        plain("only in redo", 1, false),
        plain("only in redo", 1, false),
    ];
    assert_eq!(taken.iter().map(|(content, ..)| content.len()).collect::<Vec<_>>(), expected.each_ref().map(|(content, ..)| content.len()));
    assert!(taken == expected, "contents, attempts or interruptions differ");

    // A business key is still taken.
    let room = rig.store.reserve(&ben, need(1, 10), &UNLIMITED).expect("there is room");
    let again = NewItem { unique: Some(Unique { hash: hash(4), within: Duration::from_secs(1) }), ..item("again") };
    let appended = wait(rig.store.append(Appending { room, items: vec![again] })).expect("it answers").pop();
    match appended {
        Some(Appended::UniqueTaken { job, tenant }) => assert_eq!((job, tenant), (id(1), Arc::from("anna"))),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_store_of_version_1_holds_what_it_held() {
    if std::env::var_os("SPILLGATE_WRITE_FIXTURE").is_some() {
        assert_eq!(VERSION, 1, "another version has another file");
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/version-1.txt");
        std::fs::write(path, text::from_disk(&make())).expect("it can be written");
        return;
    }
    check(text::to_disk(VERSION_1));
}

#[test]
fn a_store_of_today_holds_what_the_fixture_does() {
    check(make());
}
