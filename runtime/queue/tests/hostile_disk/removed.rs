//! Files that are removed below an open store, on a real folder.

use std::sync::Arc;

use spillgate_queue::clock::MachineClock;
use spillgate_queue::disk::RealDisk;
use spillgate_queue::{Appending, Health, Store, StoreError, StoreOptions};

use crate::eventually;
use crate::rig::{FILE, UNLIMITED, lane, need, plain, wait};

#[test]
fn promise_2_nothing_is_acknowledged_into_files_that_somebody_removed() {
    let folder = std::env::temp_dir().join(format!("spillgate-removed-{}", std::process::id()));
    let disk = RealDisk::open(&folder).expect("a temporary folder can be made");
    let clock = Arc::new(MachineClock::default());
    let store =
        Store::open(StoreOptions { disk: Arc::new(disk), clock, disk_limit: 2 * FILE, disk_reserve: 0 }).expect("a store can be made");
    let name = lane("bookings", "anna");
    let append = |store: &Store| {
        let room = store.reserve(&name, need(1, 1), &UNLIMITED).map_err(StoreError::Full)?;
        wait(store.append(Appending { room, items: vec![plain("x".into())] })).map(|_| ())
    };
    append(&store).expect("there is room");
    std::fs::remove_dir_all(&folder).expect("it can be removed");
    eventually("it is noticed", || matches!(store.health(), Health::Failed { .. }));
    assert!(append(&store).is_err());
    let Health::Failed { detail } = store.health() else { panic!("it has failed") };
    assert!(detail.contains("extents-") && detail.contains("removed"), "{detail}");
    store.close();
    let _ = std::fs::remove_dir_all(&folder);
}
