//! A failure at every single call that a life of a store makes, one after the other. Each must be reached, and none may cost
//! anything that was acknowledged.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use spillgate_queue::disk::simulated::{CallKind, Failure, SimulatedDisk};
use spillgate_queue::{Health, JobId, JobState, StoreError, WhichLimit};

use crate::rig::{FILE, HandClock, Refused, Rig, UNLIMITED, content, end, lane, need, plain, wait};

const DISK_LIMIT: u64 = 2 * FILE;

/// What was acknowledged.
#[derive(Debug, Default)]
struct Acknowledged {
    waiting: BTreeMap<JobId, Bytes>,
    ended: BTreeMap<JobId, JobState>,
    /// Asked for, and no answer: either is right.
    open: BTreeMap<JobId, Bytes>,
}

/// A short life with everything in it: two stores' worth of restarts, small and large items, ends, a purge. Stops at the first error.
fn live(disk: &SimulatedDisk, clock: &Arc<HandClock>) -> (Acknowledged, Result<(), StoreError>) {
    let mut known = Acknowledged::default();
    let mut outcome = Ok(());
    for round in 0..2 {
        let rig = match Rig::open(disk.clone(), Arc::clone(clock), DISK_LIMIT) {
            Ok(rig) => rig,
            Err(error) => return (known, Err(error)),
        };
        outcome = live_once(&rig, round, &mut known);
        if outcome.is_err() {
            break;
        }
    }
    (known, outcome)
}

fn live_once(rig: &Rig, round: u64, known: &mut Acknowledged) -> Result<(), StoreError> {
    let (anna, ben) = (lane("bookings", "anna"), lane("bookings", "ben"));
    for number in 0..6 {
        let content = content(round * 100 + number, if number == 3 { 100_000 } else { 700 });
        let name = if number % 3 == 2 { &ben } else { &anna };
        let job = rig.append(name, plain(content.clone()), &UNLIMITED).map_err(failed)?;
        known.waiting.insert(job, content);
    }
    for item in rig.take(&anna, 3) {
        let job = item.lease.job();
        let content = known.waiting.remove(&job).expect("it was appended");
        known.open.insert(job, content);
        wait(rig.store.start(&item.lease))?;
        wait(rig.store.finish(item.lease, end(JobState::Succeeded, Some(Bytes::from_static(b"{}")))))?;
        known.open.remove(&job);
        known.ended.insert(job, JobState::Succeeded);
    }
    let of_ben: Vec<JobId> = known.waiting.keys().filter(|job| rig.store.was_job(**job).as_ref() == Some(&ben)).copied().collect();
    for job in &of_ben {
        known.open.extend(known.waiting.remove_entry(job));
    }
    wait(rig.store.purge(&ben, false))?;
    for job in of_ben {
        known.open.remove(&job);
        known.ended.insert(job, JobState::Purged);
    }
    Ok(())
}

fn failed(refused: Refused) -> StoreError {
    match refused {
        Refused::Store(error) => error,
        // A store that has failed gives no room.
        Refused::Full(full) if full.which == WhichLimit::NotServing => StoreError::Failed(String::new()),
        Refused::Full(full) => panic!("there is room: {full:?}"),
    }
}

/// What the next start finds, on a disk that works again.
fn check(disk: SimulatedDisk, clock: Arc<HandClock>, known: &Acknowledged, what: &str) {
    let rig = Rig::open(disk, clock, DISK_LIMIT).unwrap_or_else(|error| panic!("{what}: it does not open: {error}"));
    for (job, state) in &known.ended {
        let seen = rig.store.job(*job).map(|job| job.state);
        assert_eq!(seen, Some(*state), "{what}: the end of {job} (promise 2)");
    }
    let mut found = BTreeMap::new();
    for name in [lane("bookings", "anna"), lane("bookings", "ben")] {
        loop {
            let items = rig.take(&name, 8);
            if items.is_empty() {
                break;
            }
            for item in items {
                found.insert(item.lease.job(), item.content.clone());
                wait(rig.store.finish(item.lease, end(JobState::Succeeded, None))).expect("the disk works again");
            }
        }
    }
    for (job, content) in &known.waiting {
        assert_eq!(found.remove(job).as_ref(), Some(content), "{what}: {job} was acknowledged (promise 2)");
    }
    for (job, content) in found {
        assert!(!known.ended.contains_key(&job), "{what}: {job} had ended and was handed out again");
        assert!(known.open.get(&job).is_none_or(|known| *known == content), "{what}: {job}");
    }
}

/// How many calls of a kind a whole life makes.
fn calls(kind: CallKind) -> u64 {
    let disk = SimulatedDisk::new(1);
    let (known, outcome) = live(&disk, &HandClock::new());
    assert_eq!((outcome, known.open.len()), (Ok(()), 0));
    assert!(!known.waiting.is_empty() && !known.ended.is_empty());
    disk.calls(kind)
}

/// Lets each call of a kind fail in turn.
fn each_call(kind: CallKind, failure: Failure) {
    let calls = calls(kind);
    assert!(calls > 0, "{kind:?} is never asked for");
    std::thread::scope(|scope| {
        for nth in 1..=calls {
            scope.spawn(move || {
                let what = format!("{failure:?} at {kind:?} {nth} of {calls}");
                let (disk, clock) = (SimulatedDisk::new(nth), HandClock::new());
                let reached = disk.fail(kind, nth, failure);
                let (known, outcome) = live(&disk, &clock);
                assert!(reached.yes() || outcome.is_err(), "{what}: it never came to that call");
                if failure == Failure::NoSpace && matches!(kind, CallKind::Write) {
                    assert_eq!(outcome, Ok(()), "{what}: a full volume stops nobody (promise 3)");
                }
                let disk = if nth % 2 == 0 { disk.kill() } else { disk.crash() };
                check(disk, clock, &known, &what);
            });
        }
    });
}

#[test]
fn d2_a3_no_space_at_every_write_in_turn_loses_nothing_and_is_tried_again() {
    each_call(CallKind::Write, Failure::NoSpace);
}
#[test]
fn d2_a3_a_short_write_at_every_write_in_turn_loses_nothing() {
    each_call(CallKind::Write, Failure::Short);
}
#[test]
fn d2_no_space_at_every_file_that_is_made_leaves_a_store_with_what_there_is() {
    each_call(CallKind::Create, Failure::NoSpace);
}
#[test]
fn a_broken_disk_at_every_write_in_turn_loses_nothing_acknowledged() {
    each_call(CallKind::Write, Failure::Broken);
}
#[test]
fn a_failing_sync_at_every_sync_in_turn_loses_nothing_acknowledged() {
    each_call(CallKind::Sync, Failure::Broken);
}
#[test]
fn a_failing_sync_of_the_folder_loses_nothing_acknowledged() {
    each_call(CallKind::SyncFolder, Failure::Broken);
}
#[test]
fn a_broken_disk_at_every_read_in_turn_loses_nothing_acknowledged() {
    each_call(CallKind::Read, Failure::Broken);
}
#[test]
fn a_broken_disk_at_every_other_call_in_turn_loses_nothing_acknowledged() {
    for kind in [CallKind::List, CallKind::Create, CallKind::Open, CallKind::Length] {
        each_call(kind, Failure::Broken);
    }
}
#[test]
fn a_power_cut_at_every_write_and_sync_in_turn_loses_nothing_acknowledged() {
    each_call(CallKind::Write, Failure::Stop);
    each_call(CallKind::Sync, Failure::Stop);
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged_and_readers_go_on() {
    let rig = Rig::new(1, DISK_LIMIT);
    let name = lane("bookings", "anna");
    let first = rig.append(&name, plain(content(1, 100)), &UNLIMITED).expect("there is room");
    let room = rig.store.reserve(&name, need(1, 100), &UNLIMITED).expect("there is room");
    let reached = rig.disk.fail(CallKind::Sync, 1, Failure::Broken);
    let second = rig.append(&name, plain(content(2, 100)), &UNLIMITED);
    assert!(reached.yes() && matches!(second, Err(Refused::Store(StoreError::Failed(_)))), "{second:?}");
    assert!(matches!(rig.store.health(), Health::Failed { .. }));
    // The disk works again, the store does not: what a later sync says of what an earlier one failed on is worth nothing.
    let third = wait(rig.store.append(spillgate_queue::Appending { room, items: vec![plain(content(3, 100))] }));
    assert!(matches!(third, Err(StoreError::Failed(_))), "{third:?}");
    let full = rig.store.reserve(&name, need(1, 100), &UNLIMITED).expect_err("it has failed");
    assert_eq!(full.which, WhichLimit::NotServing);
    assert_eq!(rig.store.job(first).map(|job| job.state), Some(JobState::Queued), "readers go on");
    assert_eq!(rig.store.lanes(None).len(), 1);
    let rig = rig.crash();
    assert_eq!(rig.store.health(), Health::Serving, "a restart heals it");
    let contents = rig.drain(&name);
    assert_eq!(contents[0], content(1, 100));
    assert!(contents.len() <= 3);
}

#[test]
fn d2_a_volume_that_stays_full_holds_answers_back_and_heals_by_itself() {
    let rig = Rig::new(1, DISK_LIMIT);
    let name = lane("bookings", "anna");
    let first = rig.append(&name, plain(content(1, 100)), &UNLIMITED).expect("there is room");
    rig.disk.fail_all(CallKind::Write, Failure::NoSpace);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| rig.append(&name, plain(content(2, 100)), &UNLIMITED));
        crate::eventually("the store says that the disk is low", || matches!(rig.store.health(), Health::DiskLow { .. }));
        assert!(!waiting.is_finished(), "nothing is acknowledged before it is durable (promise 2)");
        let full = rig.store.reserve(&name, need(1, 100), &UNLIMITED).expect_err("no new work");
        assert_eq!(full.which, WhichLimit::VolumeFree);
        assert_eq!(rig.store.job(first).map(|job| job.state), Some(JobState::Queued), "readers go on (promise 3)");
        rig.disk.heal();
        waiting.join().expect("no panic").expect("it is durable now");
    });
    crate::eventually("it serves again", || rig.store.health() == Health::Serving);
    assert_eq!(rig.drain(&name).len(), 2);
    rig.clock.pass(Duration::from_secs(1));
}
