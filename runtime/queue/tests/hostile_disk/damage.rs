//! Bytes that are wrong, cut off or gone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use spillgate_queue::disk::simulated::{Chance, SimulatedDisk};
use spillgate_queue::{JobId, JobState, LaneName, Recovered};

use crate::rig::{EXTENT, FILE, HandClock, Rig, UNLIMITED, content, end, lane, plain, wait};

/// A store with items in some lanes, closed.
struct Stored {
    disk: SimulatedDisk,
    clock: Arc<HandClock>,
    limit: u64,
    items: BTreeMap<JobId, (LaneName, Bytes)>,
    ended: Vec<JobId>,
}

fn stored(lanes: u64, items: u64, length: usize, limit: u64) -> Stored {
    let rig = Rig::new(7, limit);
    let mut kept = BTreeMap::new();
    let names: Vec<LaneName> = (0..lanes).map(|number| lane("bookings", &format!("tenant-{number}"))).collect();
    for number in 0..items {
        for name in &names {
            let content = content(number, length);
            let job = rig.append(name, plain(content.clone()), &UNLIMITED).expect("there is room");
            kept.insert(job, (name.clone(), content));
        }
    }
    let mut ended = Vec::new();
    for name in &names {
        for item in rig.take(name, 10) {
            let job = item.lease.job();
            wait(rig.store.finish(item.lease, end(JobState::Succeeded, Some(Bytes::from_static(b"{\"a\":1}"))))).expect("it ends");
            kept.remove(&job);
            ended.push(job);
        }
    }
    rig.store.close();
    Stored { disk: rig.disk.kill(), clock: Arc::clone(&rig.clock), limit, items: kept, ended }
}

/// What is said of what is missing.
fn is_reported(recovered: &Recovered) -> bool {
    recovered.cut_records + recovered.quarantined_extents > 0
        || !recovered.missing_files.is_empty()
        || !recovered.remarks.is_empty()
        || !recovered.losses.is_empty()
}

/// Starts on a damaged disk and drains it: how many items are missing.
fn drained(stored: &Stored, disk: SimulatedDisk, what: &str) -> (usize, Recovered) {
    let begun = Instant::now();
    let rig = Rig::open(disk, Arc::clone(&stored.clock), stored.limit).unwrap_or_else(|error| panic!("{what}: it does not open: {error}"));
    assert!(begun.elapsed().as_secs() < 5, "{what}: a start takes {:?}", begun.elapsed());
    let recovered = rig.store.status().recovered;
    let mut found = 0;
    for status in rig.store.lanes(None) {
        let mut before = None;
        let mut leases = Vec::new();
        loop {
            let items = rig.take(&status.name, 512);
            if items.is_empty() {
                break;
            }
            for item in items {
                let job = item.lease.job();
                assert!(before < Some(job), "{what}: {job} is out of order");
                before = Some(job);
                leases.push(item.lease);
                if stored.ended.contains(&job) {
                    // What said that it ended is lost: it may come again, but not as if nothing had been.
                    assert!(item.interrupted && is_reported(&recovered), "{what}: {job} had ended and is run again");
                    continue;
                }
                let (name, content) = stored.items.get(&job).unwrap_or_else(|| panic!("{what}: {job} never was"));
                assert_eq!((name, content), (&status.name, &item.content), "{what}: {job}");
                found += 1;
            }
        }
        if let Some(lease) = leases.pop() {
            wait(rig.store.finish(lease, end(JobState::Succeeded, None))).unwrap_or_else(|error| panic!("{what}: {error}"));
        }
    }
    // And it takes new work.
    rig.append(&lane("bookings", "new"), plain(content(1, 100)), &UNLIMITED).unwrap_or_else(|error| panic!("{what}: {error:?}"));
    assert_eq!(rig.drain(&lane("bookings", "new")).len(), 1, "{what}");
    // Some of what is missing is only seen when it is read.
    (stored.items.len() - found, rig.store.status().recovered)
}

#[test]
fn d1_the_newest_file_cut_at_any_length_starts_at_once_delivers_whole_records_once_and_counts_the_rest() {
    let stored = stored(1, 1_000, 120, 2 * FILE);
    let used = |name: &str| {
        let content = stored.disk.content(name).expect("it is there");
        content.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
    };
    let name = stored.disk.names().into_iter().rfind(|name| name.starts_with("extents") && used(name) > 0).expect("something was written");
    let (whole, used) = (stored.disk.content(&name).expect("it is there"), used(&name));
    let mut lengths: Vec<usize> =
        (used - 300..used + 3).chain((0..used).step_by(1_777)).chain([whole.len() - 1, used + 5_000, 1, 0]).collect();
    lengths.extend((0..=used / 65_536).flat_map(|extent| [0, 1, 511, 512, 513].map(|more| extent * 65_536 + more)));
    lengths.retain(|length| *length <= whole.len());
    for length in lengths {
        let disk = stored.disk.copy(1);
        disk.put(&name, whole[..length].to_vec());
        let (missing, recovered) = drained(&stored, disk, &format!("cut to {length} of {used}"));
        assert!(missing == 0 || is_reported(&recovered), "cut to {length} of {used}: {missing} are missing and nobody says so");
        assert!(missing == 0 || length < used, "cut to {length} of {used}: {missing} are missing");
    }
}

#[test]
fn a_wrong_bit_costs_what_it_hits_is_reported_and_stops_nobody() {
    let stored = stored(3, 150, 700, 2 * FILE);
    let mut chance = Chance::new(42);
    let mut hits = 0;
    for _ in 0..150 {
        let disk = stored.disk.copy(1);
        let name = "extents-0000";
        let content = disk.content(name).expect("it is there");
        let at = loop {
            let at = chance.below(content.len() as u64);
            // In an extent that somebody uses.
            let extent = usize::try_from(at / EXTENT * EXTENT).expect("small");
            if content[extent..extent + 8].iter().any(|byte| *byte != 0) {
                break at;
            }
        };
        disk.flip(name, at, u8::try_from(chance.below(8)).expect("small"));
        let what = format!("a wrong bit at {at}, {} in its extent", at % EXTENT);
        let (missing, recovered) = drained(&stored, disk, &what);
        // A header names a whole extent, anything else one record.
        let most = if at % EXTENT < 512 { 100 } else { 1 };
        assert!(missing <= most, "{what}: {missing} are missing");
        assert!(missing == 0 || is_reported(&recovered), "{what}: {missing} are missing and nobody says so: {recovered:?}");
        hits += usize::from(missing > 0);
    }
    assert!(hits > 10, "{hits}");
}

#[test]
fn a_file_that_is_gone_is_named_and_passed_over() {
    let stored = stored(2, 600, 3_000, 6 * FILE);
    for name in ["extents-0000", "extents-0001", "extents-0002"] {
        let disk = stored.disk.copy(1);
        disk.lose(name);
        let (missing, recovered) = drained(&stored, disk, name);
        assert!(recovered.missing_files.iter().any(|missing| missing == name), "{name} is not named: {recovered:?}");
        assert!(missing < stored.items.len(), "the others are served");
    }
}

#[test]
fn a_head_that_is_gone_torn_or_of_a_later_version() {
    let stored = stored(2, 50, 700, 2 * FILE);
    for (what, head) in [("gone", None), ("torn", Some(vec![0; 4096])), ("short", Some(vec![1; 10])), ("garbage", Some(vec![0x55; 4096]))] {
        let disk = stored.disk.copy(1);
        match head {
            None => disk.lose("head"),
            Some(head) => disk.put("head", head),
        }
        let (missing, _) = drained(&stored, disk, what);
        assert_eq!(missing, 0, "{what}: it is made again from the extents");
    }
    let disk = stored.disk.copy(1);
    let mut head = disk.content("head").expect("it is there");
    head[8] = 2;
    let checksum = crc32fast::hash(&head[..48]).to_le_bytes();
    head[48..52].copy_from_slice(&checksum);
    disk.put("head", head.clone());
    let error = Rig::open(disk.clone(), Arc::clone(&stored.clock), stored.limit).err().expect("a later version is not touched");
    assert!(error.to_string().contains("version 2"), "{error}");
    assert_eq!(disk.content("head"), Some(head));
}

#[test]
fn ends_outlive_damage_elsewhere_and_are_not_run_again() {
    let stored = stored(2, 100, 700, 2 * FILE);
    let rig = Rig::open(stored.disk.copy(1), Arc::clone(&stored.clock), stored.limit).expect("it opens");
    for job in &stored.ended {
        assert_eq!(rig.store.job(*job).map(|job| job.state), Some(JobState::Succeeded));
        assert_eq!(wait(rig.store.outcome(*job)), Ok(Some(Bytes::from_static(b"{\"a\":1}"))));
    }
}
