//! Batches for many lanes, which stand in the file `redo` before they are durable in their places.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use bytes::Bytes;
use spillgate_queue::disk::simulated::{CallKind, Chance, Failure, SimulatedDisk};
use spillgate_queue::format::{REDO_NAME, REDO_PAGE_BYTES};
use spillgate_queue::inspect::{export, verify};
use spillgate_queue::testing::ByHand;
use spillgate_queue::{Appended, Appending, JobId, JobState, Store};

use crate::rig::{FILE, HandClock, Rig, UNLIMITED, content, end, lane, need, options, plain, wait};

/// Room for some batches in `redo`, so that it is begun anew now and then.
const DISK_LIMIT: u64 = 6 * FILE;
const LANES: u64 = 8;
const STEPS: usize = 50;

type Items = BTreeMap<JobId, Bytes>;

fn open(disk: &SimulatedDisk, disk_limit: u64) -> ByHand {
    ByHand::open(options(disk, &HandClock::new(), disk_limit)).expect("it opens")
}

async fn append(store: &Store, tenant: u64, content: Bytes) -> Option<(JobId, Bytes)> {
    let room = store.reserve(&lane("bookings", &format!("tenant-{tenant}")), need(1, content.len()), &UNLIMITED).ok()?;
    let appended = store.append(Appending { room, items: vec![plain(content.clone())] }).await.ok()?;
    appended.first().map(|one| match one {
        Appended::New { job, .. } => (*job, content),
        other => panic!("a plain item is new: {other:?}"),
    })
}

/// One batch with an item for every lane; those that were acknowledged.
fn append_to_all(hand: &ByHand, number: u64, length: usize) -> Vec<(JobId, Bytes)> {
    type Call<'a> = Pin<Box<dyn Future<Output = Option<(JobId, Bytes)>> + 'a>>;
    let call = |tenant| -> Call<'_> { Box::pin(append(hand.store(), tenant, content(number * LANES + tenant, length))) };
    let mut calls: Vec<(Call<'_>, bool)> = (0..LANES).map(|tenant| (call(tenant), false)).collect();
    let mut known = Vec::new();
    let all = poll_fn(|context| {
        for (call, is_done) in calls.iter_mut().filter(|(_, is_done)| !is_done) {
            if let Poll::Ready(answer) = call.as_mut().poll(context) {
                *is_done = true;
                known.extend(answer);
            }
        }
        if calls.iter().all(|(_, is_done)| *is_done) { Poll::Ready(()) } else { Poll::Pending }
    });
    hand.run(STEPS, all);
    known
}

/// Batches of random sizes; every few of them one lane alone writes, which goes past `redo` or through it.
fn live(hand: &ByHand, chance: &mut Chance, batches: u64, known: &mut Items) {
    for number in 0..batches {
        let length = usize::try_from(100 + chance.below(1200)).expect("small");
        known.extend(append_to_all(hand, number, length));
        if chance.one_in(4) {
            let length = if chance.one_in(2) { 100 } else { 60_000 };
            known.extend(hand.run(STEPS, append(hand.store(), 0, content(number, length))).flatten());
        }
    }
}

/// A look at the folder finds all of it, and a start, which leaves nothing unfinished behind.
fn check(disk: &SimulatedDisk, known: &Items, what: &str) {
    if known.is_empty() {
        open(disk, DISK_LIMIT);
        return;
    }
    let exported = export(disk, &mut Vec::new()).expect("it is a store");
    assert!(exported.waiting >= known.len() as u64 && exported.damaged == 0, "{what}: {exported:?} of {}", known.len());
    let disk = disk.copy(1);
    drop(open(&disk, DISK_LIMIT));
    let mut faults = Vec::new();
    verify(&disk, &mut |damage| faults.push(damage)).expect("it is a store");
    // What a write left behind that was not finished, and so not acknowledged, is told as well, but not as damage.
    faults.retain(|damage| damage.reason.contains("damaged") || damage.reason.contains("does not name"));
    assert_eq!(faults, [], "{what}");
    let rig = Rig::open(disk, HandClock::new(), DISK_LIMIT).unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut found = Items::new();
    for status in rig.store.lanes(None) {
        for item in std::iter::from_fn(|| Some(rig.take(&status.name, 64)).filter(|items| !items.is_empty())).flatten() {
            found.insert(item.lease.job(), item.content.clone());
            wait(rig.store.finish(item.lease, end(JobState::Succeeded, None))).expect("a leased item can be ended");
        }
    }
    for (job, content) in known {
        assert_eq!(found.get(job), Some(content), "{what}: {job} was acknowledged (promise 2)");
    }
}

#[test]
fn what_is_not_in_its_place_yet_survives_a_power_cut_and_a_kill_over_many_starts() {
    for seed in 0..40 {
        let (mut chance, mut known) = (Chance::new(seed), Items::new());
        let mut disk = SimulatedDisk::new(seed);
        for start in 0..3 {
            let hand = open(&disk, DISK_LIMIT);
            let batches = 1 + chance.below(20);
            live(&hand, &mut chance, batches, &mut known);
            let is_used = disk.content(REDO_NAME).is_some_and(|redo| redo.iter().any(|byte| *byte != 0));
            assert!(is_used, "seed {seed}, start {start}: nothing went through it");
            disk = if chance.one_in(3) { disk.kill() } else { disk.crash() };
        }
        check(&disk, &known, &format!("seed {seed}"));
    }
}

#[test]
fn a_power_cut_and_a_full_volume_at_every_write_and_sync_in_turn_lose_nothing_acknowledged() {
    let life = |disk: &SimulatedDisk| {
        let mut known = Items::new();
        if let Ok(hand) = ByHand::open(options(disk, &HandClock::new(), DISK_LIMIT)) {
            live(&hand, &mut Chance::new(5), 8, &mut known);
        }
        known
    };
    let calm = SimulatedDisk::new(1);
    let all = life(&calm).len();
    let kinds = [
        (CallKind::Write, Failure::Stop),
        (CallKind::Sync, Failure::Stop),
        (CallKind::Sync, Failure::Broken),
        (CallKind::Write, Failure::NoSpace),
    ];
    for (kind, failure) in kinds {
        // Every fourth: there are as many writes as lanes in each batch.
        let step = if kind == CallKind::Write { 4 } else { 1 };
        for nth in (1..=calm.calls(kind)).step_by(step) {
            let disk = SimulatedDisk::new(nth);
            let reached = disk.fail(kind, nth, failure);
            let known = life(&disk);
            let what = format!("{failure:?} at {kind:?} {nth}");
            assert!(reached.yes(), "{what}: it never came to that call");
            if failure == Failure::NoSpace {
                assert_eq!(known.len(), all, "{what}: a full volume stops nobody (promise 3)");
            }
            check(&disk.crash(), &known, &what);
        }
    }
}

#[test]
fn a_limit_that_changes_makes_it_anew_and_loses_nothing() {
    let (mut chance, mut known) = (Chance::new(3), Items::new());
    let mut disk = SimulatedDisk::new(3);
    for limit in [DISK_LIMIT, 9 * FILE, DISK_LIMIT] {
        live(&open(&disk, limit), &mut chance, 5, &mut known);
        assert!(disk.bytes() <= 9 * FILE, "{} (promise 1)", disk.bytes());
        assert_eq!(disk.content(REDO_NAME).map(|redo| redo.len() as u64), Some(limit / 128 / 4096 * 4096));
        disk = disk.crash();
    }
    check(&disk, &known, "at last");
}

#[test]
fn a_store_for_which_it_cannot_be_made_does_without() {
    let disk = SimulatedDisk::new(1);
    let reached = disk.fail(CallKind::Create, 2, Failure::NoSpace);
    let mut known = Items::new();
    let hand = open(&disk, DISK_LIMIT);
    assert!(reached.yes() && hand.store().status().recovered.remarks.iter().any(|remark| remark.contains(REDO_NAME)));
    live(&hand, &mut Chance::new(1), 5, &mut known);
    assert_eq!(disk.content(REDO_NAME), None);
    check(&disk.crash(), &known, "without");
}

#[test]
fn damage_in_it_is_told_and_what_stands_behind_is_used() {
    let (disk, mut known) = (SimulatedDisk::new(1), Items::new());
    let hand = open(&disk, DISK_LIMIT);
    for number in 0..4 {
        known.extend(append_to_all(&hand, number, 100));
    }
    let disk = disk.crash();
    disk.flip(REDO_NAME, REDO_PAGE_BYTES as u64 * 2 + 70, 3);
    let rig = Rig::open(disk.copy(2), HandClock::new(), DISK_LIMIT).expect("it opens");
    let remarks = rig.store.status().recovered.remarks;
    assert!(remarks.iter().any(|remark| remark.contains(REDO_NAME)), "{remarks:?}");
    let waiting: u64 = rig.store.lanes(None).iter().map(|lane| lane.waiting).sum();
    assert!(waiting >= 2 * LANES, "{waiting}: those of the first and the last batch at least");
}
