//! What a start costs: it grows with the extents in use, not with the items in them.

use spillgate_queue::disk::simulated::{CallKind, SimulatedDisk};
use spillgate_queue::{Appended, Appending, Health, LaneName};

use crate::rig::{EXTENT, FILE, HandClock, Rig, UNLIMITED, content, lane, need, plain, wait};

const LANES: u64 = 50;
const ITEM_BYTES: usize = 200;
/// Of one lane, in the smaller store: an extent and a half.
const ITEMS: u64 = 400;
/// Appended together: less than what stands in the last extent of a lane, so that in both stores nothing before it is looked at whole.
const TOGETHER: usize = 40;
const DISK_LIMIT: u64 = 64 * FILE;

fn lanes() -> Vec<LaneName> {
    (0..LANES).map(|tenant| lane("bookings", &format!("tenant-{tenant}"))).collect()
}

/// What the next start finds of so many items of each lane.
fn filled(items: u64) -> SimulatedDisk {
    let rig = Rig::new(1, DISK_LIMIT);
    for name in lanes() {
        for first in (0..items).step_by(TOGETHER) {
            let room = rig.store.reserve(&name, need(TOGETHER as u64, TOGETHER * ITEM_BYTES), &UNLIMITED).expect("there is room");
            let items = (first..first + TOGETHER as u64).map(|number| plain(content(number, ITEM_BYTES))).collect();
            let appended = wait(rig.store.append(Appending { room, items })).expect("it is durable");
            assert!(appended.iter().all(|one| matches!(one, Appended::New { .. })));
        }
    }
    rig.store.close();
    rig.disk.kill()
}

/// What a start did.
#[derive(Debug)]
struct Start {
    reads: u64,
    bytes: u64,
    extents: u64,
}

fn start(items: u64) -> Start {
    let disk = filled(items);
    let rig = Rig::open(disk.clone(), HandClock::new(), DISK_LIMIT).expect("it opens");
    let (reads, bytes) = (disk.calls(CallKind::Read), disk.bytes_read());
    let status = rig.store.status();
    assert_eq!((status.health, status.recovered.waiting), (Health::Serving, LANES * items));
    assert!(rig.store.lanes(None).iter().all(|lane| lane.waiting == items), "the depth of every lane is right at once");
    for name in [&lanes()[0], &lanes()[49]] {
        let first = rig.take(name, 1).pop().expect("something waits");
        assert_eq!(first.content, content(0, ITEM_BYTES));
    }
    Start { reads, bytes, extents: status.disk_used / EXTENT }
}

#[test]
fn d3_a_start_reads_extents_and_not_items() {
    let (small, large) = (start(ITEMS), start(4 * ITEMS));
    let more = large.extents - small.extents;
    assert!((3 * LANES..=5 * LANES).contains(&more), "{small:?} {large:?}");
    // A header, a footer, and seldom the rest of a footer.
    assert!(large.reads.saturating_sub(small.reads) <= 3 * more, "{small:?} {large:?}");
    assert!(large.bytes.saturating_sub(small.bytes) <= more * EXTENT / 16, "contents are not read: {small:?} {large:?}");
    // With the headers of extents that are free, and the ends of lanes, which alone are read whole.
    assert!(large.reads <= DISK_LIMIT / EXTENT + 8 * LANES + 3 * large.extents, "{large:?}");
    assert!(large.reads * 20 < 4 * ITEMS * LANES, "{large:?}");
}
