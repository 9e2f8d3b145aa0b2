//! Seats for fast calls, and how long calls are expected to hold theirs.

use super::rig::{FAST, Rig, SLOW};
use super::world::{ms, pool, s};
use crate::seats::{Estimate, HoldTimes, Pool};

#[test]
fn slow_and_unmeasured_calls_never_hold_the_fast_seats() {
    let mut rig = Rig::new(pool(16));
    let mut slow = rig.fill("a", SLOW, 7);
    slow.extend(rig.fill("b", None, 7));
    let waiting = rig.waits("c", SLOW);
    assert!(rig.next().is_none(), "two seats are for fast calls");
    let fast = rig.held("d", FAST);
    let other = rig.held("d", FAST);
    assert_eq!(rig.seats.in_use(), 16);
    rig.end(fast, ms(20));
    rig.end(other, ms(20));
    assert!(rig.next().is_none());
    rig.end(slow.pop().expect("many"), s(2));
    assert_eq!(rig.granted().0, waiting);
}

#[test]
fn a_fast_call_that_hangs_gives_up_its_claim_to_the_fast_seats() {
    let mut rig = Rig::new(Pool { adaptive: false, ..pool(16) });
    let _hanging = rig.fill("a", FAST, 14);
    rig.now += s(1);
    let _fast = rig.fill("b", FAST, 1);
    let status = rig.seats.status(rig.now);
    assert_eq!((status.slow, status.in_use), (14, 15));
    let _waits = rig.waits("c", SLOW);
    assert!(rig.next().is_none());
}

#[test]
fn hold_times_follow_at_two_paces() {
    let times = HoldTimes::default();
    assert_eq!(times.estimate(), None, "not yet measured");
    (0..1_000).for_each(|call| times.record(ms(20), ms(call * 10)));
    assert_eq!(times.estimate(), Some(Estimate { hold: ms(20), usual: ms(20) }));
    // Ten times slower for two seconds.
    (0..100).for_each(|call| times.record(ms(200), s(10) + ms(call * 20)));
    let estimate = times.estimate().expect("measured");
    assert!(estimate.hold > ms(190), "{estimate:?}");
    assert!(estimate.usual < ms(30), "what is usual does not change in seconds: {estimate:?}");
    (0..10_000).for_each(|call| times.record(ms(200), s(12) + ms(call * 100)));
    assert!(times.estimate().expect("measured").usual > ms(180), "but in minutes");
}
