//! What the command line sees of a stopped store is what the store would say of itself.

#[path = "../rig/mod.rs"]
mod rig;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use spillgate_model::wall;
use spillgate_queue::disk::Disk;
use spillgate_queue::disk::simulated::{CallKind, SimulatedDisk};
use spillgate_queue::inspect::{InspectError, export, inspect, purge, verify};
use spillgate_queue::{JobState, Key, NewItem};

use crate::rig::{EXTENT, FILE, HandClock, Rig, UNLIMITED, content, end, lane, plain, wait};

const LIMIT: u64 = 3 * FILE;

/// Two lanes: waiting, handed back, ended, dead, large.
fn stopped() -> (SimulatedDisk, Vec<Bytes>) {
    let rig = Rig::new(3, LIMIT);
    // What looks at a stopped store has the machine's clock: nothing is old.
    rig.clock.set_wall(wall::milliseconds(SystemTime::now()));
    let (anna, ben) = (lane("bookings", "anna"), lane("or\"ders", "ben"));
    let mut waiting = Vec::new();
    for number in 0..40 {
        let content = content(number, if number == 20 { 150_000 } else { 900 });
        waiting.push(content.clone());
        rig.append(&anna, plain(content), &UNLIMITED).expect("there is room");
    }
    let key = Key { hash: [0xab; 16], input: [1; 16], keep: Duration::from_secs(60) };
    rig.append(&ben, NewItem { keys: vec![key], ..plain(content(1, 5)) }, &UNLIMITED).expect("there is room");
    let items = rig.take(&anna, 3);
    let states = [Some(JobState::Succeeded), Some(JobState::Dead), None];
    for (item, state) in items.into_iter().zip(states) {
        match state {
            Some(state) => wait(rig.store.finish(item.lease, end(state, Some(Bytes::from_static(b"{}"))))).expect("it ends"),
            None => wait(rig.store.release(item.lease, Duration::from_secs(5), true)).expect("it is handed back"),
        }
    }
    waiting.remove(0);
    rig.store.close();
    (rig.disk.kill(), waiting)
}

#[test]
fn lanes_and_extents_are_told_and_nothing_is_written() {
    let (disk, _) = stopped();
    let found = inspect(&disk).expect("it is a store");
    assert_eq!([CallKind::Write, CallKind::Create, CallKind::Remove, CallKind::Sync].map(|kind| disk.calls(kind)), [0; 4]);
    let lanes: Vec<_> = found.lanes.iter().map(|lane| (&*lane.name.queue, &*lane.name.tenant, lane.waiting, lane.dead)).collect();
    assert_eq!(lanes, [("bookings", "anna", 38, 1), ("or\"ders", "ben", 1, 0)]);
    assert_eq!(found.lanes[0].bytes, 37 * 900 + 150_000);
    assert!(found.quarantined.is_empty() && found.missing_files.is_empty() && found.remarks.is_empty(), "{found:?}");
    assert_eq!((found.extents_free + found.extents_open + found.extents_sealed) * EXTENT, LIMIT - EXTENT, "the head costs one");
    assert_eq!(found.lanes.iter().map(|lane| lane.disk).sum::<u64>(), (found.extents_open + found.extents_sealed) * EXTENT);

    let rig = Rig::open(disk, HandClock::new(), LIMIT).expect("it opens");
    let mut served: Vec<_> =
        rig.store.lanes(None).iter().map(|lane| (lane.name.clone(), lane.number, lane.waiting, lane.bytes, lane.dead)).collect();
    served.sort();
    let told: Vec<_> = found.lanes.iter().map(|lane| (lane.name.clone(), lane.number, lane.waiting, lane.bytes, lane.dead)).collect();
    assert_eq!(told, served);
}

#[test]
fn verify_reads_everything_and_names_the_place_of_a_wrong_bit() {
    let (disk, _) = stopped();
    let whole = verify(&disk, &mut |damage| panic!("{damage:?}")).expect("it is a store");
    assert!(whole.records >= 44 && whole.bytes > 180_000 && whole.extents >= 5 && whole.faults == 0, "{whole:?}");

    let file = disk.content("extents-0000").expect("it is there");
    let place = |wanted: &[u8]| file.windows(wanted.len()).position(|bytes| bytes == wanted).expect("it was written");
    let at = place(&content(15, 900)) + 100;
    disk.flip("extents-0000", at as u64, 3);
    let mut damages = Vec::new();
    let read = verify(&disk, &mut |damage| damages.push(damage)).expect("it is a store");
    assert_eq!((read.faults, damages.len()), (1, 1), "{damages:?}");
    let damage = &damages[0];
    assert_eq!((damage.file.as_str(), damage.extent), ("extents-0000", u32::try_from(at as u64 / EXTENT).ok()));
    let offset = damage.offset.expect("it is in a record") as usize;
    assert!((offset..offset + 900).contains(&(at % 65_536)) && damage.reason.contains("checksum"), "{damage:?}");

    // A header, and a whole file.
    disk.flip("extents-0000", 20, 1);
    let found = inspect(&disk).expect("it is a store");
    assert_eq!(found.quarantined.iter().map(|damage| damage.extent).collect::<Vec<_>>(), [Some(0)]);
    disk.put("extents-0002", Vec::new());
    disk.lose("extents-0001");
    assert_eq!(inspect(&disk).expect("it is a store").missing_files, ["extents-0001"]);
    let mut reasons = Vec::new();
    verify(&disk, &mut |damage| reasons.push(format!("{} {}", damage.file, damage.reason))).expect("it is a store");
    assert!(reasons.iter().any(|reason| reason == "extents-0001 it is missing"), "{reasons:?}");
}

#[test]
fn export_writes_a_line_for_each_item_that_waits_and_each_letter() {
    let (disk, waiting) = stopped();
    let mut out = Vec::new();
    let exported = export(&disk, &mut out).expect("it is a store");
    assert_eq!((exported.waiting, exported.dead, exported.damaged), (39, 1, 0));
    let text = String::from_utf8(out).expect("JSON is text");
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect();
    let contents: Vec<Bytes> = lines
        .iter()
        .filter(|line| line["tenant"] == "anna")
        .map(|line| Bytes::from(STANDARD.decode(line["content"].as_str().expect("text")).expect("base64")))
        .collect();
    assert!(contents == waiting, "contents, in order");
    let mut states: Vec<&str> = lines.iter().take(3).filter_map(|line| line["state"].as_str()).collect();
    states.sort_unstable();
    assert_eq!(states, ["dead", "queued", "queued"]);
    assert!(lines.iter().any(|line| line["attempts"] == 1), "attempts are told");
    let other = lines.iter().find(|line| line["queue"] == "or\"ders").expect("the other queue has one");
    assert_eq!((&other["queue"], &other["keys"][0]), (&"or\"ders".into(), &"ab".repeat(16).into()));

    // What cannot be read says so in its line.
    let file = disk.content("extents-0000").expect("it is there");
    let wanted = content(15, 900);
    let at = file.windows(wanted.len()).position(|bytes| *bytes == wanted).expect("it was written");
    disk.flip("extents-0000", at as u64, 3);
    let mut out = Vec::new();
    let exported = export(&disk, &mut out).expect("it is a store");
    assert_eq!((exported.waiting, exported.dead, exported.damaged), (39, 1, 1));
    assert!(String::from_utf8_lossy(&out).contains(r#""content":null,"damaged":"#));
}

#[test]
fn purge_ends_what_waits_in_one_lane() {
    let (disk, _) = stopped();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let nobody = purge(Arc::clone(&shared), &lane("bookings", "nobody"), false);
    assert!(matches!(nobody, Err(InspectError::NoLane(_))), "{nobody:?}");
    assert_eq!(purge(Arc::clone(&shared), &lane("bookings", "anna"), false).expect("it is a store"), 38);
    assert_eq!(purge(shared, &lane("bookings", "anna"), true).expect("it is a store"), 1, "the letter");
    let found = inspect(&disk).expect("it is a store");
    assert_eq!(found.lanes.iter().map(|lane| (lane.waiting, lane.dead)).collect::<Vec<_>>(), [(0, 0), (1, 0)]);
    assert!(found.lanes[0].disk <= 4 * EXTENT, "{found:?}");
    assert_eq!(disk.names(), ["extents-0000", "extents-0001", "extents-0002", "head", "redo"], "no file is made or given back");
}

#[test]
fn a_folder_without_a_store_says_so() {
    let disk = SimulatedDisk::new(1);
    assert!(matches!(inspect(&disk), Err(InspectError::NoStore)));
    assert!(matches!(verify(&disk, &mut |_| {}), Err(InspectError::NoStore)));
    assert!(matches!(export(&disk, &mut Vec::new()), Err(InspectError::NoStore)));
    assert!(matches!(purge(Arc::new(disk.clone()), &lane("a", "b"), false), Err(InspectError::NoStore)));
    assert!(disk.names().is_empty(), "and none is made");
}
