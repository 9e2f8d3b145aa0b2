//! The rules of the module head, one by one.

use std::sync::Arc;
use std::time::Duration;

use super::world::{ms, pool, s};
use crate::seats::{
    Asked, Asking, Class, Estimate, FairSeats, Held, HoldTimes, LimitReason, Next, Pool, RefusalKind, SeatRefusal, Share, Ticket,
};

const FAST: Option<Estimate> = Some(Estimate { hold: ms(20), usual: ms(20) });
const SLOW: Option<Estimate> = Some(Estimate { hold: s(2), usual: s(2) });

/// The seats, and who asks: tenants by name, one after the other.
struct Rig {
    seats: FairSeats,
    share: Share,
    class: Class,
    deadline: Duration,
    now: Duration,
}

impl Rig {
    fn new(pool: Pool) -> Self {
        let share = Share { weight: 1, reserved: 0, limit: pool.max, line: 16 };
        Rig { seats: FairSeats::new(pool), share, class: Class::Agent, deadline: s(60), now: s(1) }
    }
    fn ask_as(&mut self, tenant: &str, class: Class, share: Share, estimate: Option<Estimate>) -> Asked {
        let asking = Asking { tenant: &Arc::from(tenant), share, class, estimate, deadline: self.now + self.deadline };
        self.seats.ask(&asking, self.now)
    }
    fn ask(&mut self, tenant: &str, estimate: Option<Estimate>) -> Asked {
        self.ask_as(tenant, self.class, self.share, estimate)
    }
    fn held(&mut self, tenant: &str, estimate: Option<Estimate>) -> Held {
        match self.ask(tenant, estimate) {
            Asked::Seat(held) => held,
            other => panic!("a seat is free: {other:?}"),
        }
    }
    fn waits(&mut self, tenant: &str, estimate: Option<Estimate>) -> Ticket {
        ticket(self.ask(tenant, estimate))
    }
    /// So many seats, held by so many calls.
    fn fill(&mut self, tenant: &str, estimate: Option<Estimate>, seats: usize) -> Vec<Held> {
        (0..seats).map(|_| self.held(tenant, estimate)).collect()
    }
    fn end(&mut self, held: Held, took: Duration) {
        self.seats.end(held, Some(took), self.now);
    }
    fn next(&mut self) -> Option<(Ticket, Result<Held, SeatRefusal>)> {
        self.seats.next(self.now).map(|next| match next {
            Next::Grant { ticket, held } => (ticket, Ok(held)),
            Next::Drop { ticket, refusal } => (ticket, Err(refusal)),
        })
    }
    /// The one call that gets a seat now.
    fn granted(&mut self) -> (Ticket, Held) {
        let (ticket, result) = self.next().expect("a call gets its turn");
        let held = result.expect("it gets a seat");
        assert!(self.next().is_none(), "one seat came free");
        (ticket, held)
    }
}

fn ticket(asked: Asked) -> Ticket {
    match asked {
        Asked::Wait(ticket) => ticket,
        other => panic!("it has to wait: {other:?}"),
    }
}
fn refusal(asked: Asked) -> SeatRefusal {
    match asked {
        Asked::Refuse(refusal) => refusal,
        other => panic!("it is refused: {other:?}"),
    }
}

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
fn classes_go_in_order_and_control_is_capped() {
    let mut rig = Rig::new(pool(8));
    let mut held = rig.fill("t", FAST, 8);
    let of: Vec<Ticket> =
        [Class::Background, Class::Batch, Class::Agent, Class::Interactive, Class::Control, Class::Control, Class::Control]
            .into_iter()
            .map(|class| ticket(rig.ask_as("u", class, rig.share, FAST)))
            .collect();
    let mut order = Vec::new();
    let mut control = Vec::new();
    while let Some(one) = held.pop() {
        rig.end(one, ms(20));
        while let Some((ticket, granted)) = rig.next() {
            order.push(ticket);
            control.push(granted.expect("a seat"));
        }
    }
    // A quarter of eight: the third waits for one of the first two, whatever is free.
    assert_eq!(order, [of[4], of[5], of[3], of[2], of[1], of[0]]);
    rig.end(control.remove(0), ms(20));
    assert_eq!(rig.granted().0, of[6]);
}

#[test]
fn an_attempt_that_is_not_the_first_is_one_class_lower() {
    let lower: Vec<Class> = Class::ALL.into_iter().map(Class::lower).collect();
    assert_eq!(lower, [Class::Interactive, Class::Agent, Class::Batch, Class::Background, Class::Background]);
}

#[test]
fn no_class_starves_under_a_flood_of_those_above() {
    let mut rig = Rig::new(Pool { adaptive: false, ..pool(4) });
    let mut held: Vec<Held> = rig.fill("x", FAST, 4);
    let classes = [Class::Interactive, Class::Agent, Class::Batch, Class::Background];
    let mut got = [0.0; 4];
    let mut tickets = Vec::new();
    for _ in 0..4_000 {
        for (class, of) in classes.into_iter().zip(0..) {
            while tickets.iter().filter(|(_, other)| *other == of).count() < 2 {
                tickets.push((ticket(rig.ask_as(class.name(), class, rig.share, FAST)), of));
            }
        }
        rig.now += ms(5);
        let one = held.remove(0);
        rig.end(one, ms(20));
        let (granted, seat) = rig.granted();
        held.push(seat);
        let at = tickets.iter().position(|(ticket, _)| *ticket == granted).expect("it waits");
        got[tickets.swap_remove(at).1] += 1.0 / 4_000.0;
    }
    let floors = [0.5, 0.15, 0.05, 0.02];
    for (got, floor) in got.into_iter().zip(floors) {
        assert!(got >= 0.95 * floor, "{got} of the seats against {floor}");
    }
    assert!(got[0] > 0.75, "the first class has the rest: {got:?}");
}

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
    let asking = Asking { tenant: &Arc::from("t"), share: rig.share, class: rig.class, estimate: SLOW, deadline: rig.now + ms(200) };
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
    let long = Some(Estimate { hold: ms(200), usual: ms(200) });
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
