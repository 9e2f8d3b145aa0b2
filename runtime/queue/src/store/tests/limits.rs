//! At the limits: what was promised is there, and what is not needed is given back.

use std::time::Duration;

use bytes::Bytes;

use crate::format::EXTENT_BYTES;
use crate::item::{Appended, Appending, NewItem};
use crate::job::{End, JobState};
use crate::limits::{Need, QueueLimits, WhichLimit};
use crate::store::StoreError;
use crate::store::tests::{MIB, Rig, UNLIMITED, end, item, lane};

fn fill(rig: &Rig, tenant: &str, bytes: usize) -> u64 {
    let mut appended = 0;
    while rig.append(tenant, vec![item(vec![7; bytes])]).is_ok() {
        appended += 1;
    }
    appended
}

#[test]
fn promise_3_a_store_that_is_full_to_the_last_extent_starts_ends_hands_back_purges_and_restarts() {
    let rig = Rig::new(2 * MIB);
    let lanes = ["a", "b", "c"];
    let appended: u64 = lanes.iter().map(|tenant| fill(&rig, tenant, 300)).sum();
    assert!(appended > 3_000, "{appended}");
    // Every job uses more of its lane's journal than its end: only cleaning makes room for that.
    for round in 0..3 {
        for tenant in lanes {
            for leased in rig.take(tenant, 200) {
                rig.run(rig.hand.store().start(&leased.lease)).expect("there is room for it");
                rig.run(rig.hand.store().release(leased.lease, Duration::ZERO, true)).unwrap_or_else(|error| panic!("{round}: {error}"));
            }
        }
    }
    let rig = rig.crash();
    let mut ended = 0;
    for tenant in ["a", "b"] {
        loop {
            let taken = rig.take(tenant, 16);
            if taken.is_empty() {
                break;
            }
            for leased in taken {
                rig.run(rig.hand.store().start(&leased.lease)).expect("there is room for it");
                rig.finish(leased, JobState::Succeeded);
                ended += 1;
            }
        }
    }
    let purged = rig.run(rig.hand.store().purge(&lane("c"), false)).expect("it can be purged");
    assert_eq!(ended + purged, appended);
    rig.hand.settle(1_000);
    let used = rig.hand.store().status().disk_used;
    // The states that are kept, an open extent of each stream, and what is not worth cleaning.
    assert!(used <= 12 * EXTENT_BYTES as u64, "{used}");
    assert!(fill(&rig.crash(), "a", 300) > appended / 2);
}

#[test]
fn outcomes_take_spare_room_and_make_way_for_work() {
    let rig = Rig::new(4 * MIB);
    let outcome = Bytes::from(vec![b'1'; 20_000]);
    let mut jobs = Vec::new();
    for _ in 0..300 {
        jobs.push(rig.append_one("a", item("x")));
        let leased = rig.take("a", 1).pop().expect("it waits");
        let done = End { outcome: Some(outcome.clone()), ..end(JobState::Succeeded) };
        rig.run(rig.hand.store().finish(leased.lease, done)).expect("it ends");
    }
    let kept = |rig: &Rig| jobs.iter().filter(|job| rig.hand.store().job(**job).is_some_and(|job| job.has_outcome)).count();
    let before = kept(&rig);
    assert!(before > 100 && before < 300, "{before}");
    // Work gets what they hold, the oldest first; states stay.
    let mut refused = 0;
    let mut appended = 0;
    while appended < 150 && refused < 150 {
        match rig.append("a", vec![item(vec![1; 20_000])]) {
            Ok(_) => appended += 1,
            Err(StoreError::Full(_)) => {
                refused += 1;
                rig.hand.settle(100);
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(appended, 150, "{refused} refusals");
    let known: Vec<_> = jobs.iter().map(|job| rig.hand.store().job(*job).expect("its state is kept")).collect();
    assert!(known.iter().all(|job| job.state == JobState::Succeeded && job.has_outcome != job.outcome_gone));
    let first_kept = known.iter().position(|job| job.has_outcome).unwrap_or(jobs.len());
    let after = kept(&rig);
    assert!(after < before && first_kept > 0, "{before} {after} {first_kept}");
    for job in known.iter().filter(|job| job.has_outcome) {
        assert_eq!(rig.run(rig.hand.store().outcome(job.id)), Ok(Some(outcome.clone())));
    }
}

#[test]
fn promise_2_an_end_outlives_its_time_as_long_as_its_item_stands_on_disk() {
    let rig = Rig::new(4 * MIB);
    let short = rig.append_one("a", item("short"));
    rig.append_one("a", item("stays"));
    let leased = rig.take("a", 1).pop().expect("it waits");
    let done = End { keep: Duration::from_secs(1), ..end(JobState::Succeeded) };
    rig.run(rig.hand.store().finish(leased.lease, done)).expect("it ends");
    rig.pass(Duration::from_secs(100));
    assert_eq!(rig.state(short), None, "its time is over");
    // The journal turns over many times.
    for _ in 0..2_000 {
        let leased = rig.take("a", 1).pop().expect("it waits");
        rig.run(rig.hand.store().release(leased.lease, Duration::ZERO, true)).expect("it can be handed back");
    }
    rig.pass(Duration::from_secs(100));
    let rig = rig.crash();
    assert_eq!(rig.state(short), None);
    let taken = rig.take("a", 10);
    assert_eq!(taken.iter().map(|leased| leased.content.clone()).collect::<Vec<_>>(), [Bytes::from_static(b"stays")]);
}

#[test]
fn a_journal_is_cleaned_when_it_turns_over() {
    let rig = Rig::new(4 * MIB);
    rig.append_one("a", item("x"));
    for _ in 0..2_000 {
        let leased = rig.take("a", 1).pop().expect("it waits");
        rig.run(rig.hand.store().start(&leased.lease)).expect("it starts");
        rig.run(rig.hand.store().release(leased.lease, Duration::ZERO, false)).expect("it can be handed back");
    }
    let used = rig.hand.store().status().disk_used;
    assert!(used <= 6 * EXTENT_BYTES as u64, "{used}");
}

#[test]
fn promise_1_shedding_ends_the_oldest_of_the_own_lane_and_never_passes_the_limit() {
    let rig = Rig::new(4 * MIB);
    let limits = QueueLimits { queue_items: 10, ..UNLIMITED };
    let reserve = |shed_oldest| rig.hand.store().reserve(&lane("a"), Need { items: 1, bytes: 1, shed_oldest }, &limits);
    let mut jobs = Vec::new();
    for _ in 0..25 {
        let room = reserve(true).expect("older ones make way");
        let appended = rig.run(rig.hand.store().append(Appending { room, items: vec![item("x")] })).expect("there is room");
        assert!(matches!(appended[0], Appended::New { .. }));
        if let Appended::New { job, .. } = appended[0] {
            jobs.push(job);
        }
        assert!(rig.hand.store().lanes(None)[0].waiting <= 10);
    }
    assert!(jobs[..15].iter().all(|job| rig.state(*job) == Some(JobState::Shed)));
    assert!(jobs[15..].iter().all(|job| rig.state(*job) == Some(JobState::Queued)));
    let full = reserve(false).expect_err("nobody makes way");
    assert_eq!((full.which, full.own_share), (WhichLimit::QueueItems, true));
    // What is at work does not make way.
    let at_work = rig.take("a", 10);
    assert_eq!((at_work.len(), reserve(true).expect_err("all are at work").which), (10, WhichLimit::QueueItems));
}

#[test]
fn a_lease_that_is_dropped_hands_back_and_costs_nothing() {
    let rig = Rig::new(4 * MIB);
    rig.append("a", vec![item("1"), NewItem { order: Some(4), ..item("2") }, NewItem { order: Some(4), ..item("3") }])
        .expect("there is room");
    for attempt in 1..50 {
        let taken = rig.take("a", 10);
        assert_eq!(taken.iter().map(|leased| (leased.content[0], leased.attempt)).collect::<Vec<_>>(), [(b'1', attempt), (b'2', attempt)]);
    }
    assert_eq!(rig.hand.store().lanes(None)[0].running, 0);
}

#[test]
fn a_full_lane_says_when_it_will_have_room_by_the_pace_of_its_ends() {
    let rig = Rig::new(4 * MIB);
    let few = QueueLimits { queue_items: 20, ..UNLIMITED };
    let full = |tenant: &str, items: u64| {
        let reserved = rig.hand.store().reserve(&lane(tenant), Need { items, bytes: 64, shed_oldest: false }, &few);
        reserved.map(drop).expect_err("it is full").retry_after.expect("a time")
    };
    rig.append("fast", (0..20).map(|_| item("x")).collect()).expect("there is room");
    assert_eq!(full("fast", 1), Duration::from_secs(1), "none has ended yet");
    // Ten a second, one after the other, and as many come.
    for _ in 0..30 {
        let leased = rig.take("fast", 1).pop().expect("something waits");
        rig.pass(Duration::from_millis(100));
        rig.finish(leased, JobState::Succeeded);
        rig.append_one("fast", item("x"));
    }
    let (one, ten, other) = (full("fast", 1), full("fast", 10), full("other", 1));
    assert!((100..=120).contains(&one.as_millis()) && (950..=1_200).contains(&ten.as_millis()), "{one:?} {ten:?}");
    assert_eq!(other, one, "who has nothing in the queue waits for the ends of those that have");
    rig.hand.store().pause(&lane("fast"), true);
    assert_eq!(full("fast", 1), Duration::from_secs(30));
    rig.hand.store().pause(&lane("fast"), false);
    rig.pass(Duration::from_secs(7));
    assert_eq!(full("fast", 1), Duration::from_secs(7), "as slow as it has been quiet");
}

#[test]
fn promise_5_no_lane_of_a_shared_queue_leaves_nothing_to_the_others() {
    let rig = Rig::new(16 * MIB);
    let limits = QueueLimits { queue_items: 512, queue_bytes: MIB, shared: true, ..UNLIMITED };
    let fill = |tenant: &str, bytes: usize| {
        let mut jobs = 0;
        loop {
            let need = Need { items: 1, bytes: bytes as u64, shed_oldest: false };
            match rig.hand.store().reserve(&lane(tenant), need, &limits) {
                Ok(room) => drop(rig.run(rig.hand.store().append(Appending { room, items: vec![item(vec![1; bytes])] })).expect("room")),
                Err(full) => return (jobs, full),
            }
            jobs += 1;
        }
    };
    // Seven eighths of what the others leave, again and again: each finds room, however many came before.
    for (tenant, most) in [("a", 448), ("b", 56), ("c", 7), ("d", 1)] {
        let (jobs, full) = fill(tenant, 1);
        assert_eq!((jobs, full.which, full.used, full.limit), (most, WhichLimit::LaneItems, most, most), "{tenant}");
        assert!(full.own_share && full.retry_after.is_some(), "{tenant}: {full:?}");
    }
    let (jobs, full) = fill("e", 1);
    assert_eq!((jobs, full.which, full.own_share), (0, WhichLimit::QueueItems, false), "to the last item");
    for tenant in ["a", "b", "c", "d"] {
        rig.run(rig.hand.store().purge(&lane(tenant), true)).expect("it is emptied");
    }
    // Bytes as items, also where they are asked for to the last one.
    for bytes in [100_000, 10_000, 3_000] {
        fill("a", bytes);
    }
    let (_, full) = fill("a", 1_000);
    assert!(full.which == WhichLimit::LaneBytes && full.used > MIB * 7 / 8 - 1_000 && full.limit == MIB * 7 / 8, "{full:?}");
    assert!(fill("b", 100_000).0 == 1, "an item of the size of what is left");
    let alone = QueueLimits { shared: false, ..limits };
    let room = rig.hand.store().reserve(&lane("a"), Need { items: 1, bytes: 10_000, shed_oldest: false }, &alone);
    assert!(room.is_ok(), "a queue that one tenant uses is wholly its own");
}

#[test]
fn promise_5_a_lane_beyond_its_part_sheds_no_more_than_comes() {
    let rig = Rig::new(4 * MIB);
    let limits = QueueLimits { queue_items: 32, shared: true, ..UNLIMITED };
    let append = |tenant: &str| {
        let reserved = rig.hand.store().reserve(&lane(tenant), Need { items: 1, bytes: 1, shed_oldest: true }, &limits);
        let appended = rig.run(rig.hand.store().append(Appending { room: reserved?, items: vec![item("x")] })).expect("there is room");
        assert!(matches!(appended[0], Appended::New { .. }));
        Ok::<(), crate::Full>(())
    };
    let waiting = |tenant: &str| {
        let lanes = rig.hand.store().lanes(None);
        lanes.iter().find(|seen| &*seen.name.tenant == tenant).expect("it is known").waiting
    };
    (0..40).for_each(|_| append("a").expect("older ones make way"));
    assert_eq!(waiting("a"), 28);
    (0..2).for_each(|_| append("b").expect("an eighth was left"));
    // Its part is 26 now; what it has stays, and it does not grow.
    (0..3).for_each(|_| append("a").expect("older ones make way"));
    assert_eq!((waiting("a"), waiting("b")), (28, 2));
}
