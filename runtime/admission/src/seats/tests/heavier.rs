//! A tenant whose calls turn out heavier than they were, and those beside it, whose calls are what they were.

use std::time::Duration;

use super::rig::{FAST, Rig, SLOW};
use super::world::{Callers, Pace, World, ms, pool, s, share};
use crate::seats::{Class, Estimate, Pool};

const FOREVER: Duration = Duration::from_secs(1_000_000);
/// The heavy one's calls take so many times longer from then on.
const HEAVIER: f64 = 100.0;

/// A tenant with so many callers of statements of 0.4 s beside one with 30 callers of a flow that turns heavier.
fn beside_a_heavier_one(callers: usize, is_heavy: fn(Duration) -> bool) -> World {
    let pool = pool(8);
    let heavy = Callers {
        tenant: "heavy",
        tenants: 1,
        share: share(&pool),
        class: Class::Agent,
        hold: ms(20),
        varies: false,
        deadline: s(8),
        patience: s(60),
        pace: Pace::Callers(30),
        attempts: 1,
        pause: ms(100),
        obeys: true,
        from: Duration::ZERO,
        until: FOREVER,
    };
    let steady = Callers { tenant: "steady", hold: ms(400), deadline: s(2), pace: Pace::Callers(callers), ..heavy.clone() };
    let slowness = move |kind, now, _| if kind == 1 && is_heavy(now) { HEAVIER } else { 1.0 };
    World::new(pool, vec![steady, heavy]).measured().slowed(slowness).play(s(27))
}

fn for_good(now: Duration) -> bool {
    now > s(3)
}
fn in_turns(now: Duration) -> bool {
    now.as_secs() % 8 >= 2
}

/// However few seats the other has, and whether it waits for them or not.
#[test]
fn promise_5_a_tenant_whose_own_statements_grow_heavier_lowers_nobody_elses_limit() {
    for (callers, is_heavy) in [1, 2, 3, 4, 12].into_iter().flat_map(|callers| [(callers, for_good as fn(_) -> _), (callers, in_turns)]) {
        let world = beside_a_heavier_one(callers, is_heavy);
        let lowest = world.samples.iter().map(|(_, _, limit)| *limit).min();
        assert_eq!(lowest, Some(8), "{callers}: {:?}", world.seats.status(s(27)).last_transitions);
    }
}

/// One call a second, far too few to prove a thing, and too short to be held when somebody looks.
#[test]
fn promise_5_a_tenant_that_calls_now_and_then_is_witness_enough_as_well() {
    let pool = pool(8);
    let rare = Callers {
        tenant: "rare",
        tenants: 1,
        share: share(&pool),
        class: Class::Interactive,
        hold: ms(5),
        varies: false,
        deadline: s(2),
        patience: s(60),
        pace: Pace::Every(ms(900)),
        attempts: 1,
        pause: ms(100),
        obeys: true,
        from: Duration::ZERO,
        until: FOREVER,
    };
    let heavy = Callers { tenant: "heavy", hold: ms(20), deadline: s(8), pace: Pace::Callers(30), ..rare.clone() };
    let slowness = |kind, now, _| if kind == 1 && for_good(now) { HEAVIER } else { 1.0 };
    let world = World::new(pool, vec![rare, heavy]).measured().slowed(slowness).play(s(27));
    assert!(world.samples.iter().all(|(_, _, limit)| *limit == 8), "{:?}", world.seats.status(s(27)).last_transitions);
}

/// Its next calls wait behind what its first one has held until now, not behind what that was expected to hold.
#[test]
fn a_call_is_charged_while_it_runs() {
    let mut rig = Rig::new(Pool { fast_only: 0, adaptive: false, ..pool(2) });
    let mut first = rig.fill("x", FAST, 2);
    let heavy = [(); 2].map(|()| rig.waits("heavy", FAST));
    let steady = [(); 2].map(|()| rig.waits("steady", Some(Estimate::from(ms(200)))));
    rig.end(first.remove(0), ms(20));
    let (ticket, _runs_on) = rig.granted();
    assert_eq!(ticket, heavy[0]);
    rig.now += ms(100);
    rig.end(first.remove(0), ms(120));
    let (ticket, held) = rig.granted();
    assert_eq!(ticket, steady[0]);
    rig.now += ms(200);
    rig.end(held, ms(200));
    assert_eq!(rig.granted().0, steady[1], "it has had 200 ms, and the other 300");
}

/// What was charged while it ran is not charged again.
#[test]
fn a_call_that_was_charged_while_it_ran_is_settled_once() {
    let mut rig = Rig::new(Pool { fast_only: 0, adaptive: false, ..pool(1) });
    let x = rig.held("x", FAST);
    let late = [(); 2].map(|()| rig.waits("late", FAST));
    let longer = Some(Estimate::from(ms(240)));
    let other = [(); 3].map(|()| rig.waits("other", longer));
    rig.end(x, ms(20));
    let (ticket, mut held) = rig.granted();
    assert_eq!(ticket, late[0]);
    for _ in 0..4 {
        rig.now += ms(100);
        assert!(rig.next().is_none());
    }
    // 400 ms for one that was charged 20; then the other has 240 twice.
    for expected in [other[0], other[1], late[1]] {
        rig.end(held, ms(400));
        let (ticket, seat) = rig.granted();
        assert_eq!(ticket, expected);
        rig.now += ms(240);
        held = seat;
    }
}

/// What it held when it grew heavier comes back only as its statements end; after that the other has its seats whenever it asks, though
/// it pauses between two calls, and though all of them end at once. The half of seven is three.
#[test]
fn promise_5_a_tenant_beside_one_that_grows_heavier_keeps_its_pace_up_to_its_half() {
    for (callers, is_heavy) in [1, 2, 3, 4, 12].into_iter().flat_map(|callers| [(callers, for_good as fn(_) -> _), (callers, in_turns)]) {
        let world = beside_a_heavier_one(callers, is_heavy);
        let steady = &world.told[0];
        let seats = f64::from(u32::try_from(callers.min(3)).expect("few"));
        let got = steady.goodput(s(5), s(27)) * 0.4;
        assert!(got >= 0.9 * seats, "{callers} callers had {got} seats beside the heavy one, {seats} alone or of their half");
        assert!(callers > 4 || steady.refusals() + steady.timed_out == 0, "{:?}", steady.refused);
        let used: f64 = world.told.iter().flat_map(|told| told.used.values()).sum();
        assert!(used >= 0.9 * 7.0 * 27.0, "{callers}: of seven seats for 27 seconds {used} were used: little is idle for it");
    }
}

/// Nobody is any heavier than before: two that flood with slow calls, and one that wants less than its third.
#[test]
fn promise_5_a_tenant_that_wants_less_than_its_share_is_not_refused_beside_two_that_flood() {
    let pool = pool(8);
    let flood = Callers {
        tenant: "flood",
        tenants: 2,
        share: share(&pool),
        class: Class::Agent,
        hold: ms(2_500),
        varies: false,
        deadline: s(4),
        patience: s(60),
        pace: Pace::Callers(60),
        attempts: 1,
        pause: ms(100),
        obeys: true,
        from: Duration::ZERO,
        until: FOREVER,
    };
    // Of seven seats it wants 1.8; a third of them, and no more, where it wants three.
    for (pause, wanted, share) in [(ms(166), 1.8, 0.9), (ms(100), 3.0, 0.9 * 7.0 / 9.0)] {
        let modest = Callers {
            tenant: "modest",
            tenants: 1,
            hold: ms(300),
            varies: true,
            deadline: s(2),
            pace: Pace::Every(pause),
            ..flood.clone()
        };
        let world = World::new(pool, vec![modest, flood.clone()]).measured().play(s(60));
        let got = world.told[0].goodput(s(3), s(60)) * 0.3;
        assert!(got >= share * wanted, "{got} seats of {wanted} that it wants: {:?}", world.told[0].refused);
    }
}

/// What is left to a tenant that wants nothing any more is given to others.
#[test]
fn seats_are_left_to_a_tenant_for_a_second_after_it_wanted_them() {
    let mut rig = Rig::new(Pool { adaptive: false, ..pool(8) });
    let mut held = rig.fill("pauses", SLOW, 3);
    held.extend(rig.fill("other", SLOW, 4));
    for _ in 0..50 {
        rig.now += ms(100);
        assert!(rig.next().is_none());
    }
    let waiting = [(); 3].map(|()| rig.waits("other", SLOW));
    held.drain(..3).for_each(|held| rig.end(held, s(2)));
    assert!(rig.next().is_none(), "three of seven are the half of the one that pauses");
    let back = rig.held("pauses", SLOW);
    rig.end(back, ms(1));
    let mut granted = Vec::new();
    for _ in 0..20 {
        rig.now += ms(100);
        granted.extend(rig.next().map(|(ticket, _)| ticket));
    }
    assert_eq!(granted, waiting);
}
