//! Seats that cannot be had: connections held back, and the limit below the pool.

use super::rig::{FAST, Rig, SLOW};
use super::world::{ms, pool};
use crate::seats::{Held, Share};

#[test]
fn connections_that_are_held_back_take_room() {
    let mut rig = Rig::new(pool(4));
    rig.seats.hold_back(3);
    let held = rig.held("t", FAST);
    let waits = rig.waits("t", FAST);
    rig.end(held, ms(20));
    let (_, seat) = rig.granted();
    rig.seats.leave(waits, rig.now);
    rig.end(seat, ms(20));
    assert_eq!((rig.seats.in_use(), rig.seats.waiting()), (0, 0), "a ticket that was named cannot leave");
    rig.seats.hold_back(4);
    let waits = rig.waits("t", FAST);
    assert!(rig.next().is_none());
    rig.seats.hold_back(0);
    assert_eq!(rig.granted().0, waits);
}

#[test]
fn one_seat_within_reach_is_for_any_call() {
    // As where a database did not answer, and one call may try.
    for estimate in [FAST, SLOW, None] {
        let mut rig = Rig::new(pool(16));
        rig.seats.hold_back(15);
        let _held = rig.held("t", estimate);
        let _waits = rig.waits("t", estimate);
        assert!(rig.next().is_none());
    }
}

#[test]
fn time_spent_on_opening_sessions_does_not_lower_the_limit() {
    for (connecting, lowered) in [(true, false), (false, true)] {
        let mut rig = Rig::new(pool(16));
        let held = rig.fill("t", FAST, 16);
        if connecting {
            held.iter().for_each(|held| rig.seats.connecting(held));
        }
        for _ in 0..20 {
            rig.now += ms(100);
            assert!(rig.next().is_none());
        }
        assert_eq!(rig.seats.status(rig.now).limit < 16, lowered);
        held.iter().for_each(|held| rig.seats.connected(held, rig.now));
    }
}

/// Calls of this tenant hang until the database may be asked no more than `limit` at once.
fn hang(rig: &mut Rig, tenant: &str, seats: usize, limit: u32) -> Vec<Held> {
    let hanging = rig.fill(tenant, FAST, seats);
    while rig.seats.status(rig.now).limit > limit {
        rig.now += ms(100);
        assert!(rig.next().is_none());
    }
    hanging
}

/// Invariant 2.
#[test]
fn a_tenant_leaves_as_many_seats_to_others_of_a_lowered_limit() {
    let mut rig = Rig::new(pool(8));
    rig.share.limit = 6;
    let mut hanging = hang(&mut rig, "greedy", 6, 4);
    let waiting = [(); 4].map(|()| rig.waits("greedy", SLOW));
    for held in hanging.drain(..4) {
        rig.end(held, ms(20));
        assert!(rig.next().is_none(), "two of four are its own");
    }
    let _others = [rig.held("other", SLOW), rig.held("other", FAST)];
    rig.end(hanging.pop().expect("two are left"), ms(20));
    assert_eq!(rig.granted().0, waiting[0], "and it has those two");
}

/// Invariant 7: the line may be as long as that.
#[test]
fn a_line_does_not_stand_because_its_tenant_may_hold_less_for_now() {
    let mut rig = Rig::new(pool(8));
    rig.share.limit = 6;
    for held in hang(&mut rig, "t", 6, 4) {
        rig.end(held, ms(20));
    }
    let mut held = rig.fill("t", FAST, 2);
    let line = [(); 16].map(|()| rig.waits("t", FAST));
    for expected in line {
        rig.now += ms(30);
        let one = held.remove(0);
        rig.end(one, ms(60));
        let (granted, seat) = rig.granted();
        assert_eq!((granted, rig.seats.status(rig.now).limit), (expected, 4), "oldest first, and nobody is shed");
        held.push(seat);
    }
}

/// Pages say what a tenant may hold now.
#[test]
fn the_limit_of_a_tenant_that_is_shown_is_the_one_in_force() {
    let mut rig = Rig::new(pool(8));
    let wide = Share { limit: u32::MAX, ..rig.share };
    rig.share.limit = 6;
    let shown = |rig: &Rig| {
        let mut tenants: Vec<_> =
            rig.seats.status(rig.now).tenants.iter().map(|tenant| (tenant.tenant.to_string(), tenant.limit)).collect();
        tenants.sort_unstable();
        tenants
    };
    let of = |tenant: &str, limit| (tenant.to_owned(), limit);
    let _wide = rig.ask_as("wide", rig.class, wide, FAST);
    let _hanging = rig.fill("t", FAST, 6);
    assert_eq!(shown(&rig), [of("t", 6), of("wide", 8)]);
    while rig.seats.status(rig.now).limit > 4 {
        rig.now += ms(100);
        assert!(rig.next().is_none());
    }
    assert_eq!(shown(&rig), [of("t", 2), of("wide", 4)]);
}

#[test]
fn calls_get_their_turn_when_the_limit_rises_though_nothing_else_happens() {
    let mut rig = Rig::new(pool(8));
    rig.share.limit = 6;
    let hanging = hang(&mut rig, "t", 6, 4);
    for held in hanging {
        rig.end(held, ms(20));
    }
    let _held = rig.fill("t", SLOW, 2);
    let waiting = [(); 4].map(|()| rig.waits("t", SLOW));
    let mut granted = Vec::new();
    let mut seats = Vec::new();
    for _ in 0..100 {
        rig.now += ms(100);
        while let Some((ticket, seat)) = rig.next() {
            granted.push(ticket);
            seats.push(seat.expect("a seat"));
        }
    }
    assert_eq!(granted, waiting);
}

#[test]
fn a_limit_of_a_tenant_goes_down_by_as_many_seats_as_that_of_the_database() {
    let under = |limit: u32, reserved: u32, now: u32| Share { weight: 1, reserved, limit, line: 16 }.limit_under(now, 8);
    assert_eq!([8, 7, 6, 5, 4].map(|now| under(6, 0, now)), [6, 5, 4, 3, 2]);
    assert_eq!(under(2, 0, 4), 1, "never below one");
    assert_eq!((under(6, 3, 4), under(2, 3, 4)), (3, 2), "what is reserved for it stays its own, within its limit");
    assert_eq!((under(8, 0, 4), under(u32::MAX, 0, 4)), (8, u32::MAX), "one that leaves nothing to others has only the database's");
}
