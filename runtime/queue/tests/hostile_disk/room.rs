//! The volume has less than the store should have.

use std::sync::Arc;

use spillgate_queue::disk::simulated::SimulatedDisk;
use spillgate_queue::{JobState, Store, StoreOptions, WhichLimit};

use crate::eventually;
use crate::rig::{EXTENT, FILE, HandClock, Rig, UNLIMITED, content, end, lane, need, options, plain, wait};

#[test]
fn d2_a_volume_with_room_for_some_files_makes_a_smaller_store_that_grows_by_itself() {
    let disk = SimulatedDisk::new(1);
    disk.set_free(FILE + FILE / 2 + 64 * 1024);
    let rig = Rig::open(disk, HandClock::new(), 4 * FILE).expect("it starts with what there is");
    let status = rig.store.status();
    assert_eq!(status.extents_total, FILE / EXTENT, "one file");
    assert!(!status.recovered.remarks.is_empty(), "and says so");
    let name = lane("bookings", "anna");
    let (jobs, full) = rig.fill(&name, 1024, &UNLIMITED);
    assert!(jobs.len() > 500 && full.which == WhichLimit::StoreDisk, "{} {full:?}", jobs.len());
    rig.disk.set_free(100 * FILE);
    eventually("the other files are made", || rig.store.status().extents_total == 4 * FILE / EXTENT - 1);
    rig.append(&name, plain(content(1, 1024)), &UNLIMITED).expect("there is room now");
    assert_eq!(rig.drain(&name).len(), jobs.len() + 1);
}

#[test]
fn a4_below_the_reserve_new_work_is_refused_and_taken_again_without_a_restart() {
    let (disk, clock) = (SimulatedDisk::new(1), HandClock::new());
    let reserve = 10 * FILE;
    let store = Store::open(StoreOptions { disk_reserve: reserve, ..options(&disk, &clock, 2 * FILE) }).expect("there is room");
    let rig = Rig { disk, clock, store, disk_limit: 2 * FILE };
    let name = lane("bookings", "anna");
    let first = rig.append(&name, plain(content(1, 100)), &UNLIMITED).expect("there is room");
    rig.disk.set_free(reserve - 1);
    eventually("intake stops", || rig.store.reserve(&name, need(1, 100), &UNLIMITED).is_err());
    let full = rig.store.reserve(&name, need(1, 100), &UNLIMITED).expect_err("it is below the reserve");
    assert_eq!((full.which, full.limit, full.used), (WhichLimit::VolumeFree, reserve, reserve - 1));
    // Everything else goes on.
    let taken = rig.take(&name, 1);
    assert_eq!(taken[0].lease.job(), first);
    drop(taken);
    assert_eq!(rig.drain(&name).len(), 1);
    rig.disk.set_free(reserve);
    eventually("intake resumes", || rig.store.reserve(&name, need(1, 100), &UNLIMITED).is_ok());
}

#[test]
fn a_limit_that_was_lowered_gives_files_back_as_they_become_free_and_a_raised_one_adds_some() {
    let rig = Rig::new(1, 4 * FILE);
    let name = lane("bookings", "anna");
    let (jobs, _) = rig.fill(&name, 4096, &UNLIMITED);
    let (disk, clock) = (rig.disk.kill(), Arc::clone(&rig.clock));
    drop(rig);
    let rig = Rig::open(disk, clock, 2 * FILE).expect("it opens with a lower limit");
    let full = rig.store.reserve(&name, need(1, 100), &UNLIMITED).expect_err("it holds more than it may");
    assert_eq!(full.which, WhichLimit::StoreDisk);
    assert_eq!(rig.drain(&name).len(), jobs.len(), "nothing is lost for it");
    eventually("files are given back", || rig.disk.names().iter().filter(|name| name.starts_with("extents")).count() == 2);
    let (_, full) = rig.fill(&name, 4096, &UNLIMITED);
    assert!(full.limit <= 2 * FILE && rig.store.status().disk_used <= 2 * FILE, "{full:?} (promise 1)");
    let (disk, clock) = (rig.disk.kill(), Arc::clone(&rig.clock));
    drop(rig);
    let rig = Rig::open(disk, clock, 3 * FILE).expect("it opens with a higher limit");
    assert_eq!(rig.store.status().extents_total, 3 * FILE / EXTENT - 1);
    rig.append(&name, plain(content(1, 100)), &UNLIMITED).expect("there is room now");
}

/// A store of 32 MiB in whose one lane so many items have ended and so many of 30 KB wait, opened again with 4 MiB.
fn lowered(ended: u64, waiting: u64) -> Rig {
    let rig = Rig::new(1, 32 * FILE);
    let name = lane("q", "t1");
    for number in 0..ended {
        rig.append(&name, plain(content(number, 100)), &UNLIMITED).expect("there is room");
        let item = rig.take(&name, 1).pop().expect("it waits");
        wait(rig.store.start(&item.lease)).expect("it starts");
        wait(rig.store.finish(item.lease, end(JobState::Succeeded, None))).expect("it ends");
    }
    rig.store.pause(&name, true);
    for number in 0..waiting {
        rig.append(&name, plain(content(number, 30_000)), &UNLIMITED).expect("there is room");
    }
    rig.store.close();
    let (disk, clock) = (rig.disk.kill(), Arc::clone(&rig.clock));
    drop(rig);
    Rig::open(disk, clock, 4 * FILE).expect("it opens with a lower limit")
}

#[test]
fn promise_3_a_limit_lowered_below_what_waits_is_drained_cancelled_and_purged() {
    let name = lane("q", "t1");
    for (ended, waiting) in [(1, 300), (0, 300), (400, 250), (5, 250)] {
        let rig = lowered(ended, waiting);
        let what = format!("{ended} ended, {waiting} wait");
        let full = rig.store.reserve(&name, need(1, 100), &UNLIMITED).expect_err("it holds more than it may");
        assert_eq!(full.which, WhichLimit::StoreDisk, "{what}");
        assert_eq!(rig.drain(&name).len() as u64, waiting, "{what}: each once");
        let files = |rig: &Rig| rig.disk.names().iter().filter(|name| name.starts_with("extents")).count();
        eventually("files are given back", || files(&rig) == 4);
        assert!(rig.disk.bytes() <= 4 * FILE, "{} (promise 1)", rig.disk.bytes());
        rig.append(&name, plain(content(1, 100)), &UNLIMITED).expect("there is room now");
    }
    let rig = lowered(1, 300);
    let first = rig.store.lanes(None)[0].number;
    wait(rig.store.cancel(spillgate_queue::JobId { lane: first, sequence: 5 })).expect("a job can be cancelled");
    assert_eq!(wait(rig.store.purge(&name, false)), Ok(299));
    let rig = rig.restart();
    eventually("everything is given back", || rig.store.status().extents_total <= 4 * FILE / EXTENT);
    rig.append(&name, plain(content(1, 100)), &UNLIMITED).expect("there is room now");
}

#[test]
fn promise_3_a_full_store_whose_free_extents_are_damaged_is_drained_and_purged() {
    // Stopped, it is certain that nothing stood there; killed, it may have: what waits is handed out as interrupted, and stays.
    for (drains, kills) in [(true, false), (true, true), (false, false)] {
        let rig = Rig::new(1, 4 * FILE);
        let name = lane("q", "t1");
        rig.store.pause(&name, true);
        let (jobs, _) = rig.fill(&name, 12_000, &UNLIMITED);
        if !kills {
            rig.store.close();
        }
        let (disk, clock) = (rig.disk.kill(), Arc::clone(&rig.clock));
        drop(rig);
        // What is blank, and what is free whatever its header says.
        let mut garbled = 0;
        for file in disk.names().into_iter().filter(|name| name.starts_with("extents")) {
            let mut bytes = disk.content(&file).expect("it is there");
            for extent in bytes.chunks_mut(65_536).filter(|extent| extent[..512].iter().all(|byte| *byte == 0)) {
                extent[..64].copy_from_slice(&[0x5b; 64]);
                garbled += 1;
            }
            disk.put(&file, bytes);
        }
        assert!(garbled > 2, "{garbled}");
        let rig = Rig::open(disk, clock, 4 * FILE).expect("it opens");
        if drains {
            assert_eq!(rig.drain(&name).len(), jobs.len(), "each once");
        } else {
            assert_eq!(wait(rig.store.cancel(jobs[3])), Ok(()));
            wait(rig.store.purge(&name, false)).expect("it can be purged");
        }
        eventually("nothing stays beyond the limit", || rig.disk.bytes() <= 4 * FILE);
        eventually("what held nothing is used again", || rig.store.status().extents_quarantined == 0);
        rig.append(&name, plain(content(1, 100)), &UNLIMITED).expect("there is room now");
    }
}
