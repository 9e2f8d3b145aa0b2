//! Limits are the limits, and disk is given back.

use std::time::Duration;

use spillgate_queue::{JobState, QueueLimits, WhichLimit};

use crate::eventually;
use crate::rig::{EXTENT, FILE, Refused, Rig, UNLIMITED, content, end, lane, need, plain, wait};

#[test]
fn d5_a_tenant_never_holds_more_than_its_share_and_each_limit_speaks_for_itself() {
    let rig = Rig::new(1, 6 * FILE);
    let name = lane("bookings", "anna");
    let limits = QueueLimits { tenant_disk: FILE, item_bytes: 300_000, ..UNLIMITED };
    let mut appended = 0_u64;
    let full = loop {
        match rig.append(&name, plain(content(appended, 3000)), &limits) {
            Ok(_) => appended += 1,
            Err(Refused::Full(full)) => break full,
            Err(other) => panic!("{other:?}"),
        }
        assert!(rig.disk_of(&name) <= FILE, "{} (promise 1)", rig.disk_of(&name));
    };
    assert_eq!((full.which, full.limit), (WhichLimit::TenantDisk, FILE));
    assert!(full.used <= full.limit && appended * 3000 > FILE * 3 / 4, "{appended} items fit into {full:?}");
    // Another tenant is not concerned.
    let other = lane("bookings", "ben");
    rig.append(&other, plain(content(1, 3000)), &limits).expect("it has a share of its own");
    // An item above the limit of one, and one that could never fit, say so at once.
    for bytes in [300_001, 2 << 20] {
        let full = rig.store.reserve(&other, need(1, bytes), &limits).expect_err("it is too large");
        assert_eq!(full.which, WhichLimit::ItemBytes);
    }
    let over = QueueLimits { item_bytes: u64::MAX, ..limits };
    let full = rig.store.reserve(&other, need(1, 1 << 20), &over).expect_err("it could never fit its tenant's share");
    assert_eq!(full.which, WhichLimit::ItemBytes);
    // One that is larger than an extent is an item like any other.
    let large = content(7, 290_000);
    rig.append(&other, plain(large.clone()), &limits).expect("it fits");
    assert_eq!(rig.drain(&other)[1], large);
}

#[test]
fn d5_shares_whose_sum_exceeds_the_store_end_at_the_store() {
    let rig = Rig::new(1, 2 * FILE);
    let limits = QueueLimits { tenant_disk: 2 * FILE, ..UNLIMITED };
    let mut fulls = Vec::new();
    for tenant in ["anna", "ben", "carl"] {
        fulls.push(rig.fill(&lane("bookings", tenant), 2000, &limits).1);
        let status = rig.store.status();
        assert!(status.disk_used <= 2 * FILE, "{} (promise 1)", status.disk_used);
    }
    assert!(fulls.iter().all(|full| full.which == WhichLimit::StoreDisk && full.limit <= 2 * FILE), "{fulls:?}");
    assert!(rig.disk.bytes() <= 2 * FILE, "{}: the small file counts too", rig.disk.bytes());
    // What is full can be drained, by the last of them as by the first.
    for tenant in ["carl", "anna", "ben"] {
        rig.drain(&lane("bookings", tenant));
    }
    eventually("everything is given back", || rig.store.status().disk_used <= 6 * EXTENT);
}

#[test]
fn a2_disk_falls_to_what_parked_items_need_plus_one_extent() {
    let rig = Rig::new(1, 16 * FILE);
    let name = lane("bookings", "anna");
    let (mut parked, size) = (Vec::new(), 100_000);
    for number in 0..100 {
        rig.append(&name, plain(content(number, size)), &UNLIMITED).expect("there is room");
    }
    for number in 0..100_u64 {
        let item = rig.take(&name, 1).pop().expect("it waits");
        if number.is_multiple_of(20) {
            parked.push(item.content.clone());
            wait(rig.store.release(item.lease, Duration::from_secs(3600), true)).expect("it can be handed back");
        } else {
            wait(rig.store.finish(item.lease, end(JobState::Succeeded, None))).expect("it can be ended");
        }
    }
    // Their content, what became of the others, and one extent more for each stream.
    let needed = (parked.len() * size) as u64;
    let most = needed + needed / 16 + 4 * EXTENT;
    eventually("disk falls", || rig.disk_of(&name) <= most);
    let rig = rig.crash();
    assert!(rig.disk_of(&name) <= most, "{} of {most}", rig.disk_of(&name));
    rig.clock.pass(Duration::from_secs(3601));
    assert_eq!(rig.drain(&name), parked, "and they are all there");
}

#[test]
fn d4_an_idle_tenant_pins_nothing() {
    let rig = Rig::new(1, 2 * FILE);
    let (idle, busy) = (lane("bookings", "anna"), lane("bookings", "ben"));
    rig.append(&idle, plain(content(1, 100)), &UNLIMITED).expect("there is room");
    assert_eq!(wait(rig.store.purge(&idle, false)), Ok(1));
    let limits = QueueLimits { tenant_disk: FILE / 2, ..UNLIMITED };
    let mut through = 0_u64;
    while through < 100 * limits.tenant_disk {
        let (jobs, full) = rig.fill(&busy, 40_000, &limits);
        assert!(full.which == WhichLimit::TenantDisk && jobs.len() > 4, "{} {full:?}", jobs.len());
        assert!(rig.disk_of(&busy) <= limits.tenant_disk, "{} (promise 1)", rig.disk_of(&busy));
        through += jobs.len() as u64 * 40_000;
        assert_eq!(rig.drain(&busy).len(), jobs.len());
    }
    assert!(rig.disk_of(&idle) <= 3 * EXTENT, "{}", rig.disk_of(&idle));
    let rig = rig.crash();
    let used = rig.store.status().disk_used;
    assert!(used <= limits.tenant_disk + 3 * EXTENT, "{used}");
}

#[test]
fn promise_1_dead_letters_never_pass_their_limit_whoever_is_at_work() {
    let rig = Rig::new(1, 4 * FILE);
    let name = lane("bookings", "anna");
    rig.store.set_dead_letters("bookings", 5, Duration::from_secs(3600));
    for number in 0..30 {
        rig.append(&name, plain(content(number, 100)), &UNLIMITED).expect("there is room");
    }
    let mut died = 0;
    loop {
        // Four workers, and all of them fail.
        let at_work: Vec<_> = (0..4).flat_map(|_| rig.take(&name, 1)).collect();
        if at_work.is_empty() {
            break;
        }
        for item in at_work {
            // One in three is done after all: its place is free again.
            let state = if died % 3 == 1 { JobState::Succeeded } else { JobState::Dead };
            wait(rig.store.finish(item.lease, end(state, None))).expect("it ends");
            died += 1;
            assert!(rig.store.lanes(None)[0].dead <= 5, "{}", rig.store.lanes(None)[0].dead);
        }
    }
    let status = rig.store.lanes(None).remove(0);
    assert_eq!((status.dead, status.running, status.waits), (5, 0, spillgate_queue::Waits::DeadLetters));
    assert_eq!(rig.take(&name, 16).len(), 0);
    // Where they were dealt with, as many may be at work as there are places.
    assert!(wait(rig.store.purge(&name, true)).is_ok());
    for number in 0..9 {
        rig.append(&name, plain(content(number, 100)), &UNLIMITED).expect("there is room");
    }
    assert_eq!(rig.take(&name, 16).len(), 5);
}

#[test]
fn promise_2_a_replayed_letter_points_to_its_new_job_as_long_as_it_is_known() {
    let rig = Rig::new(1, 4 * FILE);
    let name = lane("bookings", "anna");
    let letter = rig.append(&name, plain(content(1, 100)), &UNLIMITED).expect("there is room");
    let item = rig.take(&name, 1).pop().expect("it waits");
    wait(rig.store.finish(item.lease, end(JobState::Dead, None))).expect("it ends");
    let room = rig.store.reserve(&name, need(1, 100), &UNLIMITED).expect("there is room");
    let new = wait(rig.store.replay(letter, room)).expect("it is replayed");
    let seen = |rig: &Rig| rig.store.job(letter).map(|job| (job.state, job.replayed_as));
    assert_eq!(seen(&rig), Some((JobState::Dead, Some(new))));
    let rig = rig.crash();
    assert_eq!(seen(&rig), Some((JobState::Dead, Some(new))));
    assert_eq!(rig.take(&name, 1)[0].lease.job(), new);
    rig.clock.pass(Duration::from_secs(8 * 24 * 3600));
    assert_eq!(seen(&rig), None, "nothing is kept of it");
    eventually("and nothing of the pointer", || seen(&rig).is_none());
}
