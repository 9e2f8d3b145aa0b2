//! Whatever is asked in any order. The numbers are those of the invariants in the module head.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::world::ms;
use crate::seats::order::{FAST, SLOW};
use crate::seats::serving::is_slow;
use crate::seats::{Asked, Asking, Class, FairSeats, Held, Next, Pool, Share, Ticket};

#[derive(Clone, Debug)]
enum Move {
    Ask { tenant: usize, class: usize, hold: Option<u64>, deadline: u64 },
    End { which: usize, answered: bool },
    Leave { which: usize },
    Pass(u64),
    HoldBack(u32),
    Share { tenant: usize, share: Share },
    Pool(Pool),
}

fn share() -> impl Strategy<Value = Share> {
    (0..4u32, 0..3u32, 1..6u32, 0..5u32).prop_map(|(weight, reserved, limit, line)| Share { weight, reserved, limit, line })
}
fn pool() -> impl Strategy<Value = Pool> {
    (1..9u32, 0..3u32, 1..5u32, any::<bool>()).prop_map(|(max, fast_only, floor, adaptive)| Pool {
        max,
        fast_only: fast_only.min(max - 1),
        floor,
        adaptive,
    })
}
fn moves() -> impl Strategy<Value = Vec<Move>> {
    let hold = prop_oneof![Just(None), Just(Some(20)), Just(Some(2_000))];
    let one = prop_oneof![
        8 => (0..4usize, 0..5usize, hold, 1..5_000u64)
            .prop_map(|(tenant, class, hold, deadline)| Move::Ask { tenant, class, hold, deadline }),
        5 => (any::<usize>(), any::<bool>()).prop_map(|(which, answered)| Move::End { which, answered }),
        1 => any::<usize>().prop_map(|which| Move::Leave { which }),
        3 => (0..400u64).prop_map(Move::Pass),
        1 => (0..3u32).prop_map(Move::HoldBack),
        1 => (0..4usize, share()).prop_map(|(tenant, share)| Move::Share { tenant, share }),
        1 => pool().prop_map(Move::Pool),
    ];
    prop::collection::vec(one, 1..200)
}

struct Holder {
    tenant: usize,
    slow: bool,
    since: Duration,
    held: Held,
}
struct Waiter {
    tenant: usize,
    class: Class,
    slow: bool,
    ticket: Ticket,
}

/// The seats, and what a caller could know of them.
struct Model {
    seats: FairSeats,
    pool: Pool,
    names: Vec<Arc<str>>,
    shares: Vec<Share>,
    holders: Vec<Holder>,
    waiters: Vec<Waiter>,
    held_back: u32,
    now: Duration,
}

impl Model {
    fn new(pool: Pool, shares: Vec<Share>) -> Self {
        let names = (0..shares.len()).map(|number| number.to_string().into()).collect();
        let seats = FairSeats::new(pool);
        Model { seats, pool, names, shares, holders: Vec::new(), waiters: Vec::new(), held_back: 0, now: ms(1) }
    }
    fn held_by(&self, tenant: usize) -> u32 {
        u32::try_from(self.holders.iter().filter(|holder| holder.tenant == tenant).count()).expect("few")
    }
    /// What a tenant leaves to others of the whole pool it leaves to them of a lowered limit.
    fn limit_of(&self, share: &Share) -> u32 {
        let (limit, max) = (self.seats.status(self.now).limit, self.pool.max);
        let left_to_others = max.saturating_sub(share.limit);
        let kept = share.reserved.max(1).min(share.limit);
        if left_to_others == 0 { share.limit } else { limit.saturating_sub(left_to_others).max(kept) }
    }
    /// Invariants 1, 2 and 3, at each grant.
    fn granted(&mut self, tenant: usize, slow: bool, held: Held) {
        self.holders.push(Holder { tenant, slow, since: self.now, held });
        assert!(self.seats.in_use() + self.held_back <= self.pool.max, "over-admitted");
        assert!(self.held_by(tenant) <= self.limit_of(&self.shares[tenant]), "beyond its limit: {:?}", self.seats.status(self.now));
        let slow_held = self.holders.iter().filter(|holder| holder.slow).count();
        let may = self.pool.max.saturating_sub(self.pool.fast_only).max(1) as usize;
        assert!(!slow || slow_held <= may, "a slow call holds a seat of the fast ones");
    }
    fn step(&mut self, step: &Move) {
        match *step {
            Move::Ask { tenant, class, hold, deadline } => self.ask(tenant, Class::ALL[class], hold, deadline),
            Move::End { which, answered } if !self.holders.is_empty() => {
                let holder = self.holders.swap_remove(which % self.holders.len());
                self.seats.end(holder.held, answered.then(|| self.now - holder.since), self.now);
            }
            Move::Leave { which } if !self.waiters.is_empty() => {
                let waiter = self.waiters.swap_remove(which % self.waiters.len());
                self.seats.leave(waiter.ticket, self.now);
                // Twice is as good as once.
                self.seats.leave(waiter.ticket, self.now);
            }
            Move::End { .. } | Move::Leave { .. } => {}
            Move::Pass(time) => self.now += ms(time),
            Move::HoldBack(connections) => {
                self.held_back = connections.min(self.pool.max.saturating_sub(self.seats.in_use()));
                self.seats.hold_back(self.held_back);
            }
            Move::Share { tenant, share } => self.shares[tenant] = share,
            Move::Pool(pool) if pool.max >= self.seats.in_use() + self.held_back => {
                self.pool = pool;
                self.seats.set_pool(pool);
            }
            Move::Pool(_) => {}
        }
        self.serve();
        self.check();
    }
    fn ask(&mut self, tenant: usize, class: Class, hold: Option<u64>, deadline: u64) {
        let estimate = hold.map(|hold| ms(hold).into());
        let (slow, share) = (is_slow(estimate), self.shares[tenant]);
        let asking = Asking { tenant: &self.names[tenant], share, class, estimate, times: None, deadline: self.now + ms(deadline) };
        let told = self.seats.tenants.find(&self.names[tenant]).is_some_and(|tenant| tenant.share == share);
        let (foreseen, waiting) = (self.seats.foresee(&asking, self.now).is_some(), self.seats.waiting_of(&self.names[tenant]));
        let asked = self.seats.ask(&asking, self.now);
        match asked {
            Asked::Seat(held) => self.granted(tenant, slow, held),
            Asked::Wait(ticket) => {
                assert!(waiting < share.line, "longer than its line");
                self.waiters.push(Waiter { tenant, class, slow, ticket });
            }
            Asked::Refuse(refusal) => {
                assert!(foreseen || !told, "the gate did not foresee it");
                assert_eq!(refusal.waiting, waiting);
                assert!(refusal.retry_after > Duration::ZERO);
            }
        }
    }
    fn serve(&mut self) {
        while let Some(next) = self.seats.next(self.now) {
            let (Next::Grant { ticket, .. } | Next::Drop { ticket, .. }) = next;
            let at = self.waiters.iter().position(|waiter| waiter.ticket == ticket).expect("it waits, and is named once");
            let waiter = self.waiters.swap_remove(at);
            if let Next::Grant { held, .. } = next {
                // What was told with the tenant's last question rules.
                let told = self.seats.tenants.find(&self.names[waiter.tenant]).expect("it is known").share;
                let latest = std::mem::replace(&mut self.shares[waiter.tenant], told);
                self.granted(waiter.tenant, waiter.slow, held);
                self.shares[waiter.tenant] = latest;
            }
        }
    }
    /// Invariant 4, and that both count alike.
    fn check(&self) {
        let room = self.seats.room();
        for waiter in &self.waiters {
            let tenant = self.seats.tenants.find(&self.names[waiter.tenant]).expect("it waits");
            let leaves = tenant.leaves_enough(usize::from(waiter.slow));
            let may =
                leaves && tenant.held < self.limit_of(&tenant.share) && (waiter.class != Class::Control || self.seats.control_has_room());
            assert!(!may || !room[usize::from(waiter.slow)], "a seat stays free while a call waits");
        }
        let status = self.seats.status(self.now);
        assert_eq!(status.in_use as usize, self.holders.len());
        assert_eq!(status.waiting as usize, self.waiters.len());
        assert_eq!(status.tenants.iter().map(|tenant| tenant.held).sum::<u32>(), status.in_use);
        assert_eq!(status.tenants.iter().map(|tenant| tenant.waiting).sum::<u32>(), status.waiting);
    }
    /// Everything is given back, in whatever state it was left.
    fn wind_up(mut self) {
        self.seats.hold_back(0);
        while let Some(waiter) = self.waiters.pop() {
            self.seats.leave(waiter.ticket, self.now);
        }
        while let Some(holder) = self.holders.pop() {
            self.seats.end(holder.held, None, self.now);
        }
        let FairSeats { order, backlog, seated, .. } = &self.seats;
        assert_eq!((seated.held(), seated.of_control()), (0, 0));
        assert!(!order.any([true, true]));
        assert_eq!((backlog.waiting, backlog.weights), Default::default());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn never_over_admitted_never_idle_and_everything_given_back(
        pool in pool(), shares in prop::collection::vec(share(), 4), moves in moves()
    ) {
        let mut model = Model::new(pool, shares);
        moves.iter().for_each(|step| model.step(step));
        model.wind_up();
    }

    /// Invariant 5. Calls that run count in full; the estimates are right, or all the same.
    #[test]
    fn tenants_that_always_wait_get_connection_seconds_by_weight(
        weights in prop::collection::vec(1..5u32, 2..6),
        holds in prop::collection::vec(5..200u64, 64),
        seats in 1..8u32,
        right in any::<bool>(),
    ) {
        let pool = Pool { max: seats, fast_only: 0, floor: 4, adaptive: false };
        let mut fair = FairSeats::new(pool);
        let names: Vec<Arc<str>> = (0..weights.len()).map(|number| number.to_string().into()).collect();
        let mut pick = 0;
        let mut hold = || { pick += 1; ms(holds[pick * 7 % holds.len()]) };
        let mut got = vec![0.0; weights.len()];
        let mut waiting: Vec<(Ticket, usize, Duration)> = Vec::new();
        let mut running: Vec<(Duration, usize, Held, Duration)> = Vec::new();
        let mut now = Duration::ZERO;
        for _ in 0..400 {
            for tenant in 0..weights.len() {
                // More than there are seats, so that nobody's line runs dry.
                while waiting.iter().filter(|(_, of, _)| *of == tenant).count() < 8 {
                    let share = Share { weight: weights[tenant], reserved: 0, limit: u32::MAX, line: 16 };
                    let hold = hold();
                    let estimate = Some(if right { hold } else { ms(100) }.into());
                    let asking = Asking { tenant: &names[tenant], share, class: Class::Agent, estimate, times: None, deadline: Duration::MAX };
                    match fair.ask(&asking, now) {
                        // Nobody waits yet: that is not shared.
                        Asked::Seat(held) => fair.end(held, Some(Duration::ZERO), now),
                        Asked::Wait(ticket) => waiting.push((ticket, tenant, hold)),
                        Asked::Refuse(refusal) => panic!("{refusal:?}"),
                    }
                    if fair.in_use() == 0 && waiting.is_empty() {
                        // Seats are taken by nobody, so that all tenants wait from the start.
                        fair.hold_back(seats);
                    }
                }
            }
            fair.hold_back(0);
            while let Some(Next::Grant { ticket, held }) = fair.next(now) {
                let at = waiting.iter().position(|(of, ..)| *of == ticket).expect("it waits");
                let (_, tenant, hold) = waiting.swap_remove(at);
                got[tenant] += hold.as_secs_f64() / f64::from(weights[tenant]);
                running.push((now + hold, tenant, held, hold));
            }
            running.sort_unstable_by_key(|(end, ..)| std::cmp::Reverse(*end));
            let (end, _, held, hold) = running.pop().expect("somebody has a seat");
            now = end;
            fair.end(held, Some(hold), now);
            // What runs on a wrong estimate is settled when it ends.
            let unsettled = if right { 0 } else { seats };
            let (most, least) = got.iter().fold((f64::MIN, f64::MAX), |(most, least), got| (most.max(*got), least.min(*got)));
            prop_assert!(most - least <= 0.2 * f64::from(2 + 2 * unsettled), "{got:?} after {now:?}");
        }
    }
}

#[test]
fn what_is_known_of_tenants_is_bounded_by_those_that_are_there() {
    let pool = Pool { max: 4, fast_only: 0, floor: 4, adaptive: true };
    let mut seats = FairSeats::new(pool);
    let share = Share { weight: 1, reserved: 0, limit: 4, line: 4 };
    for number in 0..10_000 {
        let now = ms(number);
        let asking =
            Asking { tenant: &number.to_string().into(), share, class: Class::Agent, estimate: None, times: None, deadline: now + ms(50) };
        let Asked::Seat(held) = seats.ask(&asking, now) else { panic!("nobody else is there") };
        seats.end(held, Some(ms(1)), now);
    }
    assert!(seats.tenants.iter().count() <= 512, "{}", seats.tenants.iter().count());
    assert!(seats.tenants.iter_mut().count() <= 512);
    assert_eq!((seats.seated.held_at(FAST), seats.seated.held_at(SLOW)), (0, 0));
}
