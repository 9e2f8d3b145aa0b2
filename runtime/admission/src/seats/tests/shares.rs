//! What is whose: reserved seats, limits, weights, and that nobody owes what nobody wanted.

use std::time::Duration;

use super::rig::{FAST, Rig, ticket};
use super::world::{ms, pool, s};
use crate::seats::{Class, Estimate, Pool, Share, Ticket};

#[test]
fn a_reserved_seat_is_lent_while_its_owner_is_idle_and_back_at_the_next_completion() {
    let mut rig = Rig::new(pool(4));
    let mut held = rig.fill("greedy", FAST, 4);
    let earlier = rig.waits("greedy", FAST);
    let share = Share { reserved: 1, ..rig.share };
    let owner = ticket(rig.ask_as("owner", Class::Batch, share, FAST));
    let second = ticket(rig.ask_as("owner", Class::Batch, share, FAST));
    rig.end(held.pop().expect("four"), ms(20));
    assert_eq!(rig.granted().0, owner, "before an earlier call, and one of a higher class");
    rig.end(held.pop().expect("three"), ms(20));
    assert_eq!(rig.granted().0, earlier, "one seat is reserved, not two");
    rig.end(held.pop().expect("two"), ms(20));
    assert_eq!(rig.granted().0, second);
}

#[test]
fn a_limit_is_hard_also_when_seats_are_idle_and_a_new_one_acts_at_once() {
    let mut rig = Rig::new(pool(8));
    rig.share.limit = 2;
    let held = rig.fill("t", FAST, 2);
    let third = rig.waits("t", FAST);
    assert!(rig.next().is_none());
    rig.share.limit = 4;
    let fourth = rig.waits("t", FAST);
    let (first, second) = (rig.next().expect("it may hold four"), rig.next().expect("it may hold four"));
    assert_eq!((first.0, second.0), (third, fourth));
    // Lowered below what is held: nobody is evicted, nobody gets more.
    rig.share.limit = 1;
    let fifth = rig.waits("t", FAST);
    held.into_iter().for_each(|held| rig.end(held, ms(20)));
    assert!(rig.next().is_none());
    rig.end(first.1.expect("a seat"), ms(20));
    rig.end(second.1.expect("a seat"), ms(20));
    assert_eq!(rig.granted().0, fifth);
}

#[test]
fn weights_divide_connection_seconds_not_calls() {
    let mut rig = Rig::new(Pool { fast_only: 0, adaptive: false, ..pool(1) });
    let mut held = Some(rig.held("x", FAST));
    let mut got = [Duration::ZERO; 2];
    let kinds = [("long", 1, ms(200)), ("short", 3, ms(10))];
    let mut tickets: Vec<(Ticket, usize)> = Vec::new();
    for _ in 0..2_000 {
        for (of, (tenant, weight, hold)) in kinds.into_iter().enumerate() {
            while tickets.iter().filter(|(_, other)| *other == of).count() < 2 {
                let share = Share { weight, ..rig.share };
                tickets.push((ticket(rig.ask_as(tenant, Class::Agent, share, Some(hold.into()))), of));
            }
        }
        rig.end(held.take().expect("one seat"), ms(20));
        let (granted, seat) = rig.granted();
        let at = tickets.iter().position(|(ticket, _)| *ticket == granted).expect("it waits");
        let (_, of) = tickets.swap_remove(at);
        got[of] += kinds[of].2;
        rig.now += kinds[of].2;
        held = Some(seat);
    }
    let ratio = got[1].as_secs_f64() / got[0].as_secs_f64();
    assert!((2.9..3.1).contains(&ratio), "{ratio}");
}

#[test]
fn calls_that_were_charged_too_much_do_not_hold_up_a_newcomer() {
    let long = Some(Estimate::from(ms(200)));
    let mut rig = Rig::new(Pool { fast_only: 0, adaptive: false, ..pool(5) });
    let first = rig.fill("x", FAST, 5);
    for tenant in ["a", "b", "c", "d"] {
        for _ in 0..10 {
            let _waits = rig.waits(tenant, long);
        }
    }
    // One each, and a second one for somebody: virtual time runs ahead by what they are expected to hold.
    let mut held = Vec::new();
    for one in first {
        rig.end(one, ms(20));
        held.push(rig.granted().1);
    }
    // They take far less.
    rig.now += ms(10);
    let one = held.remove(1);
    rig.end(one, ms(10));
    held.push(rig.granted().1);
    let newcomer = rig.waits("new", long);
    let mut before = 0;
    loop {
        rig.now += ms(2);
        let one = held.remove(0);
        rig.end(one, ms(10));
        let (ticket, seat) = rig.granted();
        held.push(seat);
        if ticket == newcomer {
            break;
        }
        before += 1;
    }
    assert!(before <= 5, "{before} calls went before it: no more than there are seats");
}

#[test]
fn what_was_used_while_nobody_waited_is_not_owed() {
    let mut rig = Rig::new(Pool { adaptive: false, ..pool(1) });
    // Far beyond what was expected of it.
    let alone = rig.held("early", FAST);
    rig.now += s(10);
    rig.end(alone, s(10));
    let mut held = rig.held("x", FAST);
    let tickets: Vec<Ticket> = ["early", "late", "early", "late"].map(|tenant| rig.waits(tenant, FAST)).to_vec();
    for expected in tickets {
        rig.now += ms(20);
        rig.end(held, ms(20));
        let (ticket, seat) = rig.granted();
        assert_eq!(ticket, expected);
        held = seat;
    }
}
