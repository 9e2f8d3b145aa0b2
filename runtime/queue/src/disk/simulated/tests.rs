//! The simulated disk keeps and loses what it says.

use super::{CallKind, Failure, SimulatedDisk};
use crate::disk::Disk;

const NAME: &str = "extents-0000";

fn made(seed: u64) -> SimulatedDisk {
    let disk = SimulatedDisk::new(seed);
    let file = disk.create(NAME, 8192).expect("there is room");
    file.sync().expect("it syncs");
    disk.sync_folder().expect("it syncs");
    disk
}

#[test]
fn synced_content_outlives_every_crash_and_unsynced_content_only_some() {
    let (mut kept, mut lost) = (0, 0);
    for seed in 0..200 {
        let disk = made(seed);
        let file = disk.open(NAME).expect("it is there");
        file.write_at(&[1; 4096], 0).expect("it writes");
        file.sync().expect("it syncs");
        file.write_at(&[2; 4096], 2048).expect("it writes");
        let after = disk.crash();
        assert!(file.write_at(&[3], 0).is_err() && disk.list().is_err(), "a dead process writes no more");
        let content = after.content(NAME).expect("its name was synced");
        assert!(content[..2048].iter().all(|byte| *byte == 1));
        for sector in content[2048..6144].chunks(512) {
            assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is whole");
            if sector[0] == 2 { kept += 1 } else { lost += 1 }
        }
    }
    assert!(kept > 100 && lost > 100, "{kept} kept, {lost} lost");
}

#[test]
fn names_that_were_not_synced_may_be_lost_or_come_back() {
    let (mut new, mut old) = (0, 0);
    for seed in 0..100 {
        let disk = made(seed);
        disk.create("extents-0001", 512).expect("there is room");
        disk.remove(NAME).expect("it is there");
        let names = disk.crash().names();
        new += names.iter().filter(|name| *name == "extents-0001").count();
        old += names.iter().filter(|name| *name == NAME).count();
    }
    assert!((10..90).contains(&new) && (10..90).contains(&old), "{new} {old}");
}

#[test]
fn a_failed_sync_is_not_made_good_by_the_next_one() {
    let mut lost = 0;
    for seed in 0..100 {
        let disk = made(seed);
        let file = disk.open(NAME).expect("it is there");
        file.write_at(&[2; 512], 0).expect("it writes");
        let reached = disk.fail(CallKind::Sync, 1, Failure::Broken);
        file.sync().expect_err("it was planned");
        assert!(reached.yes());
        file.sync().expect("the system has forgotten");
        if seed % 2 == 0 {
            file.forget_cached().expect("it can be asked");
            let mut read = [0];
            file.read_at(&mut read, 0).expect("it reads");
            assert_eq!(disk.crash().content(NAME).expect("its name was synced")[0], read[0], "what is read is what there is");
            continue;
        }
        lost += usize::from(disk.crash().content(NAME).expect("its name was synced")[0] == 0);
    }
    assert!((5..45).contains(&lost), "{lost}");
}

#[test]
fn planned_failures_come_at_their_call_and_are_seen() {
    let disk = made(1);
    let file = disk.open(NAME).expect("it is there");
    let second = disk.fail(CallKind::Write, 2, Failure::NoSpace);
    file.write_at(&[1], 0).expect("the first works");
    assert!(!second.yes());
    let full = file.write_at(&[1], 0).expect_err("the second does not");
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    file.write_at(&[1], 0).expect("the third does");
    disk.fail(CallKind::Read, 1, Failure::Flip);
    let mut read = [0; 8];
    file.read_at(&mut read, 0).expect("it reads");
    assert_ne!(read, [1, 0, 0, 0, 0, 0, 0, 0]);
    disk.set_free(100);
    assert!(disk.create("extents-0001", 101).is_err());
    disk.fail(CallKind::Write, 1, Failure::Stop);
    file.write_at(&[1; 4096], 0).expect_err("the machine stops");
    assert!(disk.has_stopped() && file.sync().is_err() && disk.list().is_err());
    assert_eq!(disk.crash().names(), [NAME]);
}
