//! A failure at every single call that a life of a store makes, one after the other. Each must be reached, and none may cost
//! anything that was acknowledged.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use spillgate_queue::disk::simulated::{CallKind, Failure, SimulatedDisk};
use spillgate_queue::testing::ByHand;
use spillgate_queue::{Appended, Appending, Full, Health, JobId, JobState, LaneName, Leased, StoreError, Take, TakeFrom, WhichLimit};

use crate::rig::{FILE, HandClock, Refused, Rig, UNLIMITED, content, end, lane, need, options, plain, wait};

const DISK_LIMIT: u64 = 2 * FILE;
/// No call takes more steps of the store.
const STEPS: usize = 50;

/// What was acknowledged.
#[derive(Debug, Default)]
struct Acknowledged {
    waiting: BTreeMap<JobId, Bytes>,
    ended: BTreeMap<JobId, JobState>,
    /// Asked for, and no answer: either is right.
    open: BTreeMap<JobId, Bytes>,
    /// Items that waited in all lanes, as the store said at the end of its life.
    depth: Option<u64>,
}

/// A short life with everything in it: two stores' worth of restarts, small and large items, ends, a purge. Stops at the first error.
/// The store is driven by hand, so that every life makes the same calls up to the one that fails.
fn live(disk: &SimulatedDisk, clock: &Arc<HandClock>) -> (Acknowledged, Result<(), StoreError>) {
    let mut known = Acknowledged::default();
    let outcome = (0..2).try_for_each(|round| {
        let hand = ByHand::open(options(disk, clock, DISK_LIMIT))?;
        live_once(&hand, round, &mut known)?;
        hand.look_at_volume();
        known.depth = Some(depth(&hand));
        hand.store().close();
        Ok(())
    });
    (known, outcome)
}

fn depth(hand: &ByHand) -> u64 {
    hand.store().lanes(None).iter().map(|lane| lane.waiting).sum()
}

fn ask<T>(hand: &ByHand, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    hand.run(STEPS, call).expect("it answers within so many steps")
}

fn append(hand: &ByHand, lane: &LaneName, content: Bytes) -> Result<JobId, StoreError> {
    let room = hand.store().reserve(lane, need(1, content.len()), &UNLIMITED).map_err(failed)?;
    match ask(hand, hand.store().append(Appending { room, items: vec![plain(content)] }))?.pop() {
        Some(Appended::New { job, .. }) => Ok(job),
        other => panic!("a plain item is new: {other:?}"),
    }
}

fn take(hand: &ByHand, lane: &LaneName, most: usize) -> Result<Vec<Leased>, StoreError> {
    let from = TakeFrom { lane: lane.clone(), most, lease: Duration::from_secs(60) };
    ask(hand, hand.store().take(from)).map(|taken| match taken {
        Take::Items(items) => items,
        Take::Nothing { .. } => Vec::new(),
    })
}

fn live_once(hand: &ByHand, round: u64, known: &mut Acknowledged) -> Result<(), StoreError> {
    let (anna, ben) = (lane("bookings", "anna"), lane("bookings", "ben"));
    for number in 0..6 {
        let content = content(round * 100 + number, if number == 3 { 100_000 } else { 700 });
        let name = if number % 3 == 2 { &ben } else { &anna };
        let job = append(hand, name, content.clone())?;
        known.waiting.insert(job, content);
    }
    for item in take(hand, &anna, 3)? {
        let job = item.lease.job();
        let content = known.waiting.remove(&job).expect("it was appended");
        known.open.insert(job, content);
        ask(hand, hand.store().start(&item.lease))?;
        ask(hand, hand.store().finish(item.lease, end(JobState::Succeeded, Some(Bytes::from_static(b"{}")))))?;
        known.open.remove(&job);
        known.ended.insert(job, JobState::Succeeded);
    }
    let of_ben: Vec<JobId> = known.waiting.keys().filter(|job| hand.store().was_job(**job).as_ref() == Some(&ben)).copied().collect();
    for job in &of_ben {
        known.open.extend(known.waiting.remove_entry(job));
    }
    ask(hand, hand.store().purge(&ben, false))?;
    for job in of_ben {
        known.open.remove(&job);
        known.ended.insert(job, JobState::Purged);
    }
    Ok(())
}

fn failed(full: Full) -> StoreError {
    match full.which {
        // A store that has failed gives no room.
        WhichLimit::NotServing => StoreError::Failed(String::new()),
        _ => panic!("there is room: {full:?}"),
    }
}

/// What the next start finds, on a disk that works again.
fn check(disk: SimulatedDisk, clock: Arc<HandClock>, known: &Acknowledged, what: &str) {
    let rig = Rig::open(disk, clock, DISK_LIMIT).unwrap_or_else(|error| panic!("{what}: it does not open: {error}"));
    for (job, state) in &known.ended {
        let seen = rig.store.job(*job).map(|job| job.state);
        assert_eq!(seen, Some(*state), "{what}: the end of {job} (promise 2)");
    }
    let depth: u64 = rig.store.lanes(None).iter().map(|lane| lane.waiting).sum();
    assert_eq!(depth, rig.store.status().recovered.waiting, "{what}");
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
    assert_eq!(found.len() as u64, depth, "{what}: the depth that was reported is what is drained");
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
    assert_eq!(known.depth, Some(known.waiting.len() as u64), "the depth that is reported is what is left to drain");
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
                assert!(reached.yes(), "{what}: it never came to that call");
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
fn d2_a3_no_space_at_every_sync_in_turn_loses_nothing_acknowledged() {
    each_call(CallKind::Sync, Failure::NoSpace);
    each_call(CallKind::SyncFolder, Failure::NoSpace);
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
    for kind in [CallKind::List, CallKind::Create, CallKind::Open, CallKind::Length, CallKind::Remove, CallKind::Free] {
        each_call(kind, Failure::Broken);
    }
}

/// After a failed sync the next start lets the system forget what it holds in memory, file by file.
#[test]
fn a_broken_disk_at_every_forgetting_after_a_failed_sync_loses_nothing_acknowledged() {
    let mut nth = 1;
    loop {
        let (disk, clock) = (SimulatedDisk::new(nth), HandClock::new());
        let mut known = Acknowledged::default();
        let hand = ByHand::open(options(&disk, &clock, DISK_LIMIT)).expect("a store can be made on an empty disk");
        live_once(&hand, 0, &mut known).expect("nothing fails yet");
        let reached = disk.fail(CallKind::Sync, 1, Failure::Broken);
        let unanswered = append(&hand, &lane("bookings", "anna"), content(7, 700));
        assert!(reached.yes() && matches!(unanswered, Err(StoreError::Failed(_))), "{unanswered:?}");
        drop(hand);
        let disk = disk.kill();
        let reached = disk.fail(CallKind::Forget, nth, Failure::Broken);
        let opened = ByHand::open(options(&disk, &clock, DISK_LIMIT)).map(drop);
        if !reached.yes() {
            break;
        }
        assert!(opened.is_err(), "what is on the disk cannot be told");
        check(disk.kill(), clock, &known, &format!("forgetting {nth}"));
        nth += 1;
    }
    assert!(nth > 2, "there is more than one file to forget of");
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
