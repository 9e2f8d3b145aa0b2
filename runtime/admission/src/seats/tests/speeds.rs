//! Seats for fast calls, and how long calls are expected to hold theirs.

use std::sync::Arc;
use std::time::Duration;

use super::rig::{FAST, Rig, SLOW};
use super::world::{ms, pool, s};
use crate::seats::{Asked, Asking, Estimate, HoldTimes, Pool};

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
    assert_eq!(times.estimate(), Some(Estimate::from(ms(20))));
    // Ten times slower for two seconds.
    (0..100).for_each(|call| times.record(ms(200), s(10) + ms(call * 20)));
    let estimate = times.estimate().expect("measured");
    assert!(estimate.hold > ms(190), "{estimate:?}");
    assert!(estimate.usual < ms(30), "what is usual does not change in seconds: {estimate:?}");
    (0..10_000).for_each(|call| times.record(ms(200), s(12) + ms(call * 100)));
    assert!(times.estimate().expect("measured").usual > ms(180), "but in minutes");
}

/// Whether it is slow after so many calls that took so long, one every 10 ms.
fn slow_after(times: &HoldTimes, now: &mut Duration, calls: u64, took: Duration) -> bool {
    for _ in 0..calls {
        *now += ms(10);
        times.record(took, *now);
    }
    times.estimate().expect("measured").slow
}

#[test]
fn a_flow_whose_calls_turn_out_slow_is_not_fast_again_for_a_few_quick_ones() {
    let (times, mut now) = (HoldTimes::default(), s(1));
    assert!(!slow_after(&times, &mut now, 300, ms(5)));
    assert!(slow_after(&times, &mut now, 3, s(4)), "at once");
    assert!(slow_after(&times, &mut now, 480, ms(5)), "five seconds are not over");
    assert!(!slow_after(&times, &mut now, 30, ms(5)), "now they are");
    // A pause proves nothing.
    assert!(slow_after(&times, &mut now, 50, s(4)));
    now += s(60);
    assert!(slow_after(&times, &mut now, 5, ms(5)), "clearly most of the last ones were slow");
    assert!(!slow_after(&times, &mut now, 10, ms(5)));
}

#[test]
fn one_slow_call_in_a_hundred_makes_no_flow_slow_nor_does_a_cold_first_one_for_long() {
    let (times, mut now) = (HoldTimes::default(), s(1));
    assert!(slow_after(&times, &mut now, 1, s(1)), "nothing else is known of it");
    assert!(!slow_after(&times, &mut now, 2, ms(5)));
    assert!(!slow_after(&times, &mut now, 97, ms(5)));
    for _ in 0..20 {
        assert!(!slow_after(&times, &mut now, 1, s(3)), "a cold cache");
        assert!(!slow_after(&times, &mut now, 99, ms(5)));
    }
}

#[test]
fn a_flow_that_was_slow_for_a_while_is_fast_five_seconds_after_its_database_healed() {
    let (times, mut now) = (HoldTimes::default(), s(1));
    assert!(!slow_after(&times, &mut now, 300, ms(5)));
    assert!(slow_after(&times, &mut now, 6_000, s(1)));
    now += s(4);
    assert!(!slow_after(&times, &mut now, 101, ms(5)));
}

#[test]
fn calls_that_still_run_make_their_flow_slow_but_one_alone_does_not() {
    let times = Arc::new(HoldTimes::default());
    let is_slow = || times.estimate().expect("measured").slow;
    (0..100).for_each(|call| times.record(ms(5), ms(call * 10)));
    let mut rig = Rig::new(pool(16));
    let mut held = Vec::new();
    let mut run = |rig: &mut Rig, calls: usize| {
        for _ in 0..calls {
            let (share, class, deadline) = (rig.share, rig.class, rig.now + s(5));
            let tenant = Arc::from("t");
            let asking = Asking { tenant: &tenant, share, class, estimate: times.estimate(), times: Some(&times), deadline };
            let Asked::Seat(seat) = rig.seats.ask(&asking, rig.now) else { panic!("a seat is free") };
            held.push(seat);
        }
        rig.now += ms(400);
        assert!(rig.next().is_none());
    };
    run(&mut rig, 1);
    assert!(!is_slow());
    run(&mut rig, 2);
    assert!(is_slow(), "three have run for too long, and none has ended");
    held.into_iter().for_each(|seat| rig.end(seat, ms(400)));
    (0..3).for_each(|_| times.record(ms(400), s(2)));
    (0..12).for_each(|call| times.record(ms(5), s(2) + ms(call)));
    assert!(is_slow());
    times.record(ms(5), s(8));
    assert!(!is_slow(), "each was counted once");
}
