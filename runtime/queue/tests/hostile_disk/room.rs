//! The volume has less than the store should have.

use std::sync::Arc;

use spillgate_queue::disk::simulated::SimulatedDisk;
use spillgate_queue::{Store, StoreOptions, WhichLimit};

use crate::eventually;
use crate::rig::{EXTENT, FILE, HandClock, Rig, UNLIMITED, content, lane, need, options, plain};

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
