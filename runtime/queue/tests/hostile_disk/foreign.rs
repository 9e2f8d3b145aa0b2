//! Files and extents that are none of the store's, or not where they belong: named, left alone, and suspect to nobody.

use std::sync::Arc;
use std::time::Duration;

use spillgate_queue::clock::MachineClock;
use spillgate_queue::disk::RealDisk;
use spillgate_queue::disk::simulated::SimulatedDisk;
use spillgate_queue::inspect::{inspect, verify};
use spillgate_queue::{Appended, Appending, JobState, Key, NewItem, Recovered, Store, StoreError, StoreOptions};

use crate::rig::{EXTENT, FILE, HandClock, Rig, UNLIMITED, content, end, lane, need, plain, wait};

const LIMIT: u64 = 4 * FILE;
const ITEMS: usize = 60;

/// Items that wait and were never started, stopped.
fn stopped() -> (SimulatedDisk, Arc<HandClock>) {
    let rig = Rig::new(11, LIMIT);
    for number in 0..ITEMS as u64 {
        rig.append(&lane("q", "a"), plain(content(number, 4_000)), &UNLIMITED).expect("there is room");
    }
    rig.store.close();
    (rig.disk.kill(), Arc::clone(&rig.clock))
}

fn open(disk: SimulatedDisk, clock: &Arc<HandClock>) -> Rig {
    Rig::open(disk, Arc::clone(clock), LIMIT).expect("it opens")
}

fn faults(disk: &SimulatedDisk) -> Vec<String> {
    let mut faults = Vec::new();
    verify(disk, &mut |damage| faults.push(format!("{} {}", damage.file, damage.reason))).expect("it is a store");
    faults
}

/// Ends all that waits: how many, none of them as if it had been started.
fn drained(rig: &Rig, what: &str) -> usize {
    let mut count = 0;
    loop {
        let items = rig.take(&lane("q", "a"), 16);
        if items.is_empty() {
            return count;
        }
        for item in items {
            assert!(!item.interrupted, "{what}: {} was never started", item.lease.job());
            wait(rig.store.finish(item.lease, end(JobState::Succeeded, None))).expect("it ends");
            count += 1;
        }
    }
}

fn is_quiet(recovered: &Recovered) -> bool {
    recovered.losses.is_empty() && recovered.missing_files.is_empty() && recovered.quarantined_extents == 0
}

#[test]
fn a_stray_file_is_named_left_as_it_is_and_makes_nothing_suspect() {
    let (disk, clock) = stopped();
    let junk = |length: u32| (0..length).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect::<Vec<u8>>();
    let other = Rig::new(12, LIMIT);
    other.append(&lane("q", "a"), plain(content(1, 4_000)), &UNLIMITED).expect("there is room");
    let of_another_store = other.disk.content("extents-0000").expect("it is there");
    let copy = disk.content("extents-0000").expect("it is there");
    let blank = vec![0; 3 * 65_536];
    let forms =
        [("junk", junk(70_000)), ("two bytes", vec![1, 2]), ("another store's", of_another_store), ("a copy", copy), ("zeros", blank)];
    for (form, bytes) in forms {
        for name in ["extents-9999", "extents-0017"] {
            let what = format!("{name}, {form}");
            let disk = disk.copy(1);
            disk.put(name, bytes.clone());
            let headless = disk.copy(1);
            headless.lose("head");
            assert!(inspect(&headless).expect("it is a store").missing_files.is_empty(), "{what}, without a head");
            assert_eq!(faults(&disk), Vec::<String>::new(), "{what}");
            assert!(inspect(&disk).expect("it is a store").missing_files.is_empty(), "{what}");
            let rig = open(disk, &clock);
            let recovered = rig.store.status().recovered;
            assert!(is_quiet(&recovered), "{what}: {recovered:?}");
            assert!(recovered.remarks.iter().any(|remark| remark.contains(name)), "{what}: {recovered:?}");
            assert_eq!(drained(&rig, &what), ITEMS, "{what}");
            let next = rig.append(&lane("q", "a"), plain(content(1, 10)), &UNLIMITED).expect("there is room");
            assert_eq!(next.sequence, ITEMS as u64 + 1, "{what}: no number is left out");
            assert_eq!(rig.disk.content(name), Some(bytes.clone()), "{what}: it is not touched");
        }
    }
}

#[test]
fn a_name_that_is_taken_costs_one_file_and_is_named() {
    let (disk, clock) = stopped();
    // Beyond the limit, and within the next one.
    disk.put("extents-0004", vec![7; 100]);
    let rig = Rig::open(disk, clock, 2 * LIMIT).expect("it opens");
    let recovered = rig.store.status().recovered;
    assert!(is_quiet(&recovered), "{recovered:?}");
    let named = |remark: &String| remark.contains("extents-0004") && remark.contains("could not be made");
    assert!(recovered.remarks.iter().any(named), "{recovered:?}");
    assert!(!recovered.remarks.iter().any(|remark| remark.contains("no space")), "{recovered:?}");
    let used = rig.store.status().extents_total;
    assert!(used >= 6 * FILE / EXTENT, "the others were made: {used}");
    assert_eq!(drained(&rig, "a name that is taken"), ITEMS);
}

#[test]
fn a_folder_in_the_place_of_a_file_is_told_as_what_it_is() {
    let folder = std::env::temp_dir().join(format!("spillgate-in-the-way-{}", std::process::id()));
    let open = || {
        let disk = Arc::new(RealDisk::open(&folder).expect("a temporary folder can be made"));
        Store::open(StoreOptions { disk, clock: Arc::new(MachineClock::default()), disk_limit: 3 * FILE, disk_reserve: 0 })
    };
    open().expect("a store can be made").close();
    std::fs::remove_file(folder.join("extents-0000")).expect("it is there");
    std::fs::create_dir(folder.join("extents-0000")).expect("it can be made");
    let store = open().expect("it opens");
    let remarks = store.status().recovered.remarks;
    assert!(remarks.iter().any(|remark| remark.contains("extents-0000") && remark.contains("exists")), "{remarks:?}");
    assert!(!remarks.iter().any(|remark| remark.contains("no space")), "{remarks:?}");
    let room = store.reserve(&lane("q", "a"), need(1, 1), &UNLIMITED).map_err(StoreError::Full).expect("there is room");
    wait(store.append(Appending { room, items: vec![plain("x".into())] })).expect("it serves");
    store.close();
    std::fs::remove_dir_all(&folder).expect("it can be removed");
}

#[test]
fn what_was_told_once_is_told_to_verify_no_more_even_after_a_kill() {
    let (disk, clock) = stopped();
    // Garbage over all that holds nothing: a header that cannot be read in each extent.
    let garbled = disk.copy(1);
    garbled.put("extents-0003", (0..disk.content("extents-0003").expect("it is there").len()).map(|at| at.to_le_bytes()[0] | 1).collect());
    assert_eq!(faults(&garbled), Vec::<String>::new(), "nothing that was needed stood there");
    let rig = open(garbled, &clock);
    let recovered = rig.store.status().recovered;
    assert!(is_quiet(&recovered) && recovered.remarks.iter().any(|remark| remark.contains("used again")), "{recovered:?}");
    // An extent is taken into use a moment before the end: what was told is not told again as something that may be lost.
    rig.append(&lane("q", "b"), plain(content(1, 4_000)), &UNLIMITED).expect("there is room");
    let rig = rig.kill();
    let recovered = rig.store.status().recovered;
    assert!(is_quiet(&recovered) && recovered.remarks.is_empty(), "{recovered:?}");
    rig.store.close();
    assert_eq!(faults(&rig.disk.kill()), Vec::<String>::new());
}

#[test]
fn garbage_over_what_was_needed_is_told_once_and_gone_after_a_kill() {
    let (disk, clock) = stopped();
    let mut bytes = disk.content("extents-0000").expect("it is there");
    bytes.iter_mut().for_each(|byte| *byte |= 0x11);
    disk.put("extents-0000", bytes);
    assert!(!faults(&disk).is_empty());
    let rig = open(disk, &clock);
    assert!(!rig.store.status().recovered.losses.is_empty());
    crate::eventually("it goes back to use", || rig.store.status().extents_quarantined == 0);
    let new = rig.append(&lane("q", "a"), plain(content(1, 10)), &UNLIMITED).expect("there is room");
    // Closed, the catalog has it as well; in the next life an extent is taken into use a moment before the end.
    let rig = rig.restart();
    assert!(is_quiet(&rig.store.status().recovered), "{:?}", rig.store.status().recovered);
    rig.append(&lane("q", "b"), plain(content(1, 10)), &UNLIMITED).expect("there is room");
    let rig = rig.kill();
    let recovered = rig.store.status().recovered;
    assert!(is_quiet(&recovered), "{recovered:?}");
    assert_eq!(rig.store.job(new).map(|job| job.state), Some(JobState::Queued));
    rig.store.close();
    assert_eq!(faults(&rig.disk.kill()), Vec::<String>::new());
}

#[test]
fn copies_in_a_wrong_place_are_used_again_and_what_stands_nowhere_else_is_left() {
    let (disk, clock) = stopped();
    let first = disk.content("extents-0000").expect("it is there");
    let copied = disk.copy(1);
    copied.put("extents-0003", first.clone());
    let rig = open(copied, &clock);
    let (recovered, status) = (rig.store.status().recovered, rig.store.status());
    assert!(is_quiet(&recovered) && status.extents_quarantined == 0, "{status:?}");
    assert_eq!(drained(&rig, "a copy"), ITEMS);

    // The file of another store stands where nothing of this one did.
    let other = Rig::new(13, LIMIT);
    other.append(&lane("q", "a"), plain(content(1, 4_000)), &UNLIMITED).expect("there is room");
    let foreign = other.disk.content("extents-0000").expect("it is there");
    let held = foreign.chunks(65_536).filter(|extent| extent[0] != 0).count() as u64;
    let replaced = disk.copy(1);
    replaced.put("extents-0003", foreign.clone());
    assert_eq!(faults(&replaced), Vec::<String>::new());
    let mut rig = open(replaced, &clock);
    for start in 0..2 {
        let status = rig.store.status();
        assert!(is_quiet(&status.recovered) && status.extents_quarantined == held, "start {start}: {status:?}");
        assert!(status.recovered.remarks.iter().any(|remark| remark.contains("left as they are")), "start {start}: {status:?}");
        rig = rig.restart();
    }
    assert_eq!(drained(&rig, "another store's"), ITEMS);
    let left = rig.disk.content("extents-0003").expect("it is there");
    assert!(left == foreign[..left.len()], "it is not written over");
}

#[test]
fn what_is_of_another_store_and_replaced_something_is_a_loss_told_once() {
    let (disk, clock) = stopped();
    let other = Rig::new(13, LIMIT);
    other.append(&lane("q", "a"), plain(content(1, 4_000)), &UNLIMITED).expect("there is room");
    disk.put("extents-0000", other.disk.content("extents-0000").expect("it is there"));
    let rig = open(disk, &clock);
    assert!(!rig.store.status().recovered.losses.is_empty());
    rig.append(&lane("q", "b"), plain(content(1, 10)), &UNLIMITED).expect("there is room");
    let rig = rig.restart();
    let recovered = rig.store.status().recovered;
    assert!(is_quiet(&recovered), "{recovered:?}");
    assert!(rig.store.status().extents_quarantined > 0, "and is not written over");
}

#[test]
fn promise_7_an_item_that_cannot_be_read_ends_as_dead_says_what_to_do_and_frees_its_key() {
    let key = |number: u8| Key { hash: [number; 16], input: [number; 16], keep: Duration::from_secs(3_600) };
    let rig = Rig::new(11, LIMIT);
    // The first extent is full, and has a footer that names all that is in it.
    let items = (0..30).map(|number| NewItem { keys: vec![key(number)], ..plain(content(u64::from(number), 4_000)) });
    let jobs: Vec<_> = items.map(|item| rig.append(&lane("q", "a"), item, &UNLIMITED).expect("there is room")).collect();
    rig.store.close();
    let disk = rig.disk.kill();
    let mut bytes = disk.content("extents-0000").expect("it is there");
    let wanted = content(5, 4_000);
    let at = bytes.windows(wanted.len()).position(|window| window == wanted).expect("it was written");
    bytes[at + 1_000..at + 1_512].fill(0);
    disk.put("extents-0000", bytes);
    let rig = open(disk, &rig.clock);
    assert!(is_quiet(&rig.store.status().recovered), "its turn has not come");
    assert_eq!(drained(&rig, "one damaged item"), 29);
    let status = rig.store.lanes(None).remove(0);
    assert_eq!((status.ended[JobState::Dead as usize], status.dead), (1, 0), "it is counted, and there is no letter without content");
    let losses = rig.store.status().recovered.losses;
    assert!(losses.iter().any(|loss| loss.contains(&jobs[5].to_string())), "{losses:?}");
    let told = wait(rig.store.outcome(jobs[5])).expect("it can be read").expect("it says why");
    let told: serde_json::Value = serde_json::from_slice(&told).expect("JSON");
    assert_eq!((&told["code"], &told["request_id"]), (&"internal".into(), &jobs[5].to_string().into()), "{told}");
    assert!(
        told["advice"].as_str().is_some_and(|advice| advice.contains("send the work again")) && told["retry_after_ms"].is_null(),
        "{told}"
    );
    let key_of = |rig: &Rig, number: u8| rig.store.find_key(&key(number)).map(|(job, _)| job);
    assert_eq!(key_of(&rig, 4), Some(jobs[4]), "those of work that was done are kept");
    assert_eq!(key_of(&rig, 5), None);
    let again = NewItem { keys: vec![key(5)], ..plain(content(5, 100)) };
    let room = rig.store.reserve(&lane("q", "a"), need(1, 100), &UNLIMITED).map_err(StoreError::Full).expect("there is room");
    let appended = wait(rig.store.append(Appending { room, items: vec![again] })).expect("it is appended");
    let Some(Appended::New { job: new, .. }) = appended.first() else { panic!("{appended:?}") };
    // And a later start knows the same.
    let (new, rig) = (*new, rig.kill());
    assert_eq!(key_of(&rig, 5), Some(new));
    assert_eq!(rig.store.job(jobs[5]).map(|job| job.state), Some(JobState::Dead));
}

#[test]
fn promise_7_a_started_item_that_cannot_be_read_is_unknown_and_keeps_its_key() {
    let key = Key { hash: [3; 16], input: [3; 16], keep: Duration::from_secs(3_600) };
    let rig = Rig::new(11, LIMIT);
    let item = NewItem { keys: vec![key], ..plain(content(5, 4_000)) };
    let job = rig.append(&lane("q", "a"), item, &UNLIMITED).expect("there is room");
    for number in 6..26 {
        rig.append(&lane("q", "a"), plain(content(number, 4_000)), &UNLIMITED).expect("there is room");
    }
    let leased = rig.take(&lane("q", "a"), 1).pop().expect("it waits");
    wait(rig.store.start(&leased.lease)).expect("it starts");
    rig.store.close();
    let disk = rig.disk.kill();
    let mut bytes = disk.content("extents-0000").expect("it is there");
    let wanted = content(5, 4_000);
    let at = bytes.windows(wanted.len()).position(|window| window == wanted).expect("it was written");
    bytes[at + 1_000..at + 1_512].fill(0);
    disk.put("extents-0000", bytes);
    let rig = open(disk, &rig.clock);
    assert!(rig.take(&lane("q", "a"), 2).iter().all(|leased| leased.lease.job() != job));
    crate::eventually("it ends", || rig.store.job(job).is_some_and(|job| job.state.is_end()));
    assert_eq!(rig.store.job(job).map(|job| job.state), Some(JobState::Unknown), "its write may have been done");
    let told = wait(rig.store.outcome(job)).expect("it can be read").expect("it says why");
    let told: serde_json::Value = serde_json::from_slice(&told).expect("JSON");
    assert_eq!(told["code"], "outcome_unknown", "{told}");
    assert_eq!(rig.store.find_key(&key), Some((job, true)));
}

#[test]
fn a_store_that_takes_the_place_of_one_that_is_gone_gives_out_other_numbers() {
    let rig = Rig::new(11, LIMIT);
    assert!(rig.store.is_new());
    let old = rig.append(&lane("q", "a"), plain(content(1, 10)), &UNLIMITED).expect("there is room");
    let below = rig.store.numbers_below();
    assert!(old.lane < below);
    let rig = rig.restart();
    assert!(!rig.store.is_new() && rig.store.numbers_below() >= below);
    rig.store.close();
    let options = crate::rig::options(&SimulatedDisk::new(12), &rig.clock, LIMIT);
    let store = Store::open_from(options.clone(), rig.store.numbers_below()).expect("it is made");
    let room = store.reserve(&lane("q", "a"), need(1, 1), &UNLIMITED).map_err(StoreError::Full).expect("there is room");
    let appended = wait(store.append(Appending { room, items: vec![plain("x".into())] })).expect("it serves");
    let Some(Appended::New { job: new, .. }) = appended.first() else { panic!("{appended:?}") };
    assert!(new.lane >= rig.store.numbers_below(), "{new} could have been given out before");
    assert!(store.is_new() && store.job(old).is_none(), "{old} is unknown, not the job of somebody else");
    store.close();
    // One that is there goes on with its own.
    let store = Store::open_from(options, u64::MAX / 2).expect("it opens");
    assert!(!store.is_new() && store.numbers_below() < u64::MAX / 4 && store.job(*new).is_some());
    store.close();
}
