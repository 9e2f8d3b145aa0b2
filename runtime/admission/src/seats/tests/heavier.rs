//! A tenant whose calls turn out heavier than they were, and those beside it, whose calls are what they were.

use std::time::Duration;

use super::rig::{FAST, Rig};
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
