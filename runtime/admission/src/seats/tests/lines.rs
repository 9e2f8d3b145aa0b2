//! Lines: full ones, standing ones, and calls that would wait in vain.

use std::sync::Arc;
use std::time::Duration;

use super::rig::{FAST, Rig, SLOW, refusal};
use super::world::{ms, pool, s};
use crate::seats::{Asked, Asking, LimitReason, Pool, RefusalKind, Ticket};

#[test]
fn a_full_line_refuses_the_youngest_and_no_other_tenant() {
    let mut rig = Rig::new(pool(2));
    rig.share.line = 2;
    let _held = rig.fill("t", FAST, 2);
    let (first, second) = (rig.waits("t", FAST), rig.waits("t", FAST));
    let refused = refusal(rig.ask("t", FAST));
    assert_eq!((refused.kind, refused.waiting), (RefusalKind::LineFull, 2));
    assert!(refused.retry_after > Duration::ZERO);
    let other = rig.waits("u", FAST);
    rig.seats.leave(first, rig.now);
    assert_ne!(rig.waits("t", FAST), other);
    rig.seats.leave(second, rig.now);
    assert_eq!((rig.seats.waiting_of("t"), rig.seats.waiting()), (1, 2));
}

#[test]
fn a_call_that_would_miss_its_deadline_is_refused_at_once() {
    let mut rig = Rig::new(pool(2));
    let _held = rig.fill("t", SLOW, 1);
    let _fast = rig.fill("t", FAST, 1);
    let _ahead = rig.waits("t", SLOW);
    rig.deadline = ms(200);
    let refused = refusal(rig.ask("t", SLOW));
    assert_eq!(refused.kind, RefusalKind::WaitTooLong);
    assert!(refused.expected_wait > ms(100) && refused.retry_after > ms(100), "{refused:?}");
    let asking =
        Asking { tenant: &Arc::from("t"), share: rig.share, class: rig.class, estimate: SLOW, times: None, deadline: rig.now + ms(200) };
    assert_eq!(rig.seats.foresee(&asking, rig.now).map(|refusal| refusal.kind), Some(RefusalKind::WaitTooLong), "the gate knows");
    rig.deadline = s(60);
    assert!(matches!(rig.ask("t", SLOW), Asked::Wait(_)));
}

#[test]
fn an_estimate_alone_refuses_nobody() {
    let mut rig = Rig::new(pool(2));
    rig.deadline = ms(500);
    // It was measured while the database was ill: only a call that runs can tell that it is well again.
    let held = rig.held("t", SLOW);
    rig.end(held, ms(20));
    let _fast = rig.fill("t", FAST, 1);
    let _slow = rig.fill("t", SLOW, 1);
    assert!(matches!(rig.ask("t", SLOW), Asked::Wait(_)));
}

#[test]
fn a_call_past_its_deadline_gets_no_seat() {
    let mut rig = Rig::new(pool(2));
    let mut held = rig.fill("t", FAST, 2);
    rig.deadline = ms(50);
    let late = rig.waits("t", FAST);
    rig.deadline = s(60);
    let in_time = rig.waits("t", FAST);
    rig.now += ms(60);
    rig.end(held.pop().expect("two"), ms(60));
    let mut seen = [rig.next().expect("one"), rig.next().expect("the other")];
    seen.sort_by_key(|(ticket, _)| ticket.number());
    let [(first, dropped), (second, granted)] = seen;
    assert_eq!((first, second), (late, in_time));
    assert_eq!(dropped.expect_err("too late").kind, RefusalKind::WaitTooLong);
    let _held = granted.expect("a seat");
}

#[test]
fn a_line_that_stands_serves_newest_first_and_sheds_what_waited_too_long() {
    let mut rig = Rig::new(pool(4));
    rig.share.line = 8;
    let mut held = rig.fill("t", FAST, 4);
    let tickets: Vec<Ticket> = (0..8).map(|_| rig.waits("t", FAST)).collect();
    let mut granted = Vec::new();
    let mut shed = Vec::new();
    // Seats come back every 60 ms, so that calls wait for three times what seats are held.
    for turn in 0..3 {
        rig.now += ms(60);
        let one = held.remove(0);
        rig.end(one, ms(20));
        while let Some((ticket, result)) = rig.next() {
            match result {
                Ok(seat) => {
                    granted.push(ticket);
                    held.push(seat);
                }
                Err(refusal) => {
                    assert_eq!(refusal.kind, RefusalKind::Shed, "in turn {turn}");
                    shed.push(ticket);
                }
            }
        }
    }
    assert_eq!(granted, [tickets[0], tickets[1], tickets[7]], "oldest first, until it was seen to stand for 100 ms");
    assert_eq!(shed, tickets[2..7]);
    // Newest first also among those that have not waited too long.
    let _held = rig.fill("t", FAST, 4 - held.len());
    let older = rig.waits("t", FAST);
    let newer = rig.waits("t", FAST);
    rig.now += ms(30);
    for expected in [newer, older] {
        let one = held.remove(0);
        rig.end(one, ms(20));
        let (ticket, seat) = rig.granted();
        assert_eq!(ticket, expected);
        held.push(seat);
    }
    // Another tenant's line is its own.
    let other = rig.waits("u", FAST);
    let one = held.remove(0);
    rig.end(one, ms(20));
    let _seat = rig.granted();
    assert!(!rig.seats.status(rig.now).tenants.iter().any(|tenant| &*tenant.tenant == "u" && tenant.standing), "{other:?}");
}

#[test]
fn a_standing_line_that_is_short_again_serves_oldest_first() {
    let mut rig = Rig::new(Pool { fast_only: 0, ..pool(1) });
    rig.share.line = 4;
    let mut held = rig.held("t", FAST);
    // Comes to stand, then is empty for an interval.
    for _ in 0..3 {
        let _waits = [rig.waits("t", FAST), rig.waits("t", FAST)];
        rig.now += ms(120);
        rig.end(held, ms(20));
        let mut seat = None;
        while let Some((_, result)) = rig.next() {
            seat = result.ok().or(seat);
        }
        held = seat.expect("the newest is served however long it waited");
    }
    while rig.seats.waiting() > 0 {
        rig.now += ms(10);
        rig.end(held, ms(20));
        held = rig.granted().1;
    }
    rig.now += ms(200);
    let (first, _second) = (rig.waits("t", FAST), rig.waits("t", FAST));
    rig.now += ms(10);
    rig.end(held, ms(20));
    assert_eq!(rig.granted().0, first);
}

#[test]
fn a_line_that_is_long_because_it_may_be_does_not_stand() {
    let mut rig = Rig::new(pool(2));
    rig.share.line = 100;
    let mut held = rig.fill("t", FAST, 2);
    let tickets: Vec<Ticket> = (0..100).map(|_| rig.waits("t", FAST)).collect();
    // Alone it is served in 1 s; nobody is refused for what the line was made for.
    for expected in tickets {
        rig.now += ms(10);
        let one = held.remove(0);
        rig.end(one, ms(20));
        let (granted, seat) = rig.granted();
        assert_eq!(granted, expected);
        held.push(seat);
    }
}

#[test]
fn shed_off_refuses_for_a_full_line_only() {
    let mut rig = Rig::new(Pool { adaptive: false, ..pool(2) });
    let mut held = rig.fill("t", FAST, 2);
    let tickets: Vec<Ticket> = (0..8).map(|_| rig.waits("t", SLOW)).collect();
    rig.deadline = ms(1);
    let _hopeless = rig.waits("t", SLOW);
    for expected in &tickets[..4] {
        rig.now += ms(500);
        let one = held.remove(0);
        rig.end(one, ms(500));
        let mut granted = None;
        while let Some((ticket, result)) = rig.next() {
            if let Ok(seat) = result {
                held.push(seat);
                granted = Some(ticket);
            }
        }
        assert_eq!(granted.as_ref(), Some(expected), "oldest first");
    }
    assert_eq!(rig.seats.status(rig.now).reason, LimitReason::Pool);
}

#[test]
fn nobody_is_refused_for_a_guess() {
    let mut rig = Rig::new(pool(1));
    rig.deadline = ms(100);
    let _held = rig.held("t", None);
    assert!(matches!(rig.ask("u", None), Asked::Wait(_)), "nothing was measured yet");
}

#[test]
fn an_idle_night_is_no_stall() {
    let mut rig = Rig::new(pool(16));
    rig.deadline = s(5);
    rig.now += s(8 * 3_600);
    let _held = rig.fill("t", None, 14);
    rig.now += ms(100);
    assert!(matches!(rig.ask("u", None), Asked::Wait(_)));
    // Nothing comes back for long: that is one.
    rig.now += s(30);
    assert_eq!(refusal(rig.ask("v", None)).kind, RefusalKind::WaitTooLong);
}
