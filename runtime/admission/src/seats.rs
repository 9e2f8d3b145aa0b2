//! The seats of one database: who holds one, who waits, who is next.
//!
//! A seat is the right to hold one connection. Seats are shared by time: start-time fair queuing on connection-seconds over the
//! tenants of each class ([`order`]). A call is charged its flow's estimate when it gets a seat, what it holds beyond that while it
//! runs, and what it really held when it gives it back.
//!
//! Invariants
//! 1. Seats held and connections held back are never more than the pool, whatever is asked; nothing is evicted.
//! 2. A tenant never gets a seat beyond its `limit`, which goes down with that of the database by as many seats. One below its `reserved` gets the next seat that comes free.
//!    Its slow calls leave to each other tenant of its class and those above the seats for slow calls that that one lately wanted, up to
//!    its fair share ([`left`]).
//! 3. Calls of flows that are slow or not yet measured ([`estimate`]) never get one of the `fast_only` seats, and fast calls keep them
//!    however low the limit is. A call that turns out slow keeps the seat it has: nobody could tell.
//! 4. No seat stays free while a call waits that may have it.
//! 5. Of two tenants of a class that always wait for the same kind of seat, neither gets more connection-seconds over its weight than
//!    the other but for a seat-time each.
//! 6. Classes are served in their order; each below the first has a floor ([`floors`]), and control is capped at a quarter.
//! 7. A line holds at most `line` calls of a tenant, the youngest is refused; a line that stands serves newest first ([`codel`]).
//! 8. A call that would miss its deadline is refused at once, when it asks or when its turn comes.
//! 9. The limit goes below the pool for a database that is slower than usual for more than half of those it works for, and back
//!    ([`adaptive`]).
//!
//! Every operation is O(log n) in what waits; ten times a second one of them looks at all that is held and at each tenant.
//! It refuses: clocks, sessions, waking anybody. Others act on what it decides.

mod adaptive;
mod asking;
mod codel;
mod estimate;
mod floors;
mod forecast;
mod left;
mod order;
mod running;
mod serving;
mod status;
mod tenants;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use adaptive::Limit;
pub use asking::{Asked, Asking, Class, Held, Next, Pool, RefusalKind, SeatRefusal, Share, Ticket};
pub use estimate::{Estimate, HoldTimes};
use floors::Floors;
use order::{Order, Virtual};
use running::Seated;
pub use status::{LimitReason, SeatStatus, TenantSeats, Transition};
use tenants::Tenants;

/// Decides; others open sessions, wait and wake.
#[derive(Debug)]
pub struct FairSeats {
    pool: Pool,
    limit: Limit,
    held_back: u32,
    seated: Seated,
    tenants: Tenants,
    order: Order,
    floors: Floors,
    /// Virtual time of each class.
    clocks: [Virtual; Class::ALL.len()],
    backlog: Backlog,
    /// Calls that waited in vain and were not yet named by [`FairSeats::next`].
    dropped: VecDeque<(Ticket, SeatRefusal)>,
    next_number: u64,
    next_turn: u64,
}

/// What waits, by class.
#[derive(Debug, Default)]
struct Backlog {
    /// Calls, by speed.
    waiting: [[u32; 2]; Class::ALL.len()],
    /// The weights of the tenants they are of.
    weights: [u64; Class::ALL.len()],
}

impl Backlog {
    fn waits(&self, class: Class) -> bool {
        self.waiting[class as usize] != [0, 0]
    }
}

impl FairSeats {
    /// All seats free.
    pub fn new(pool: Pool) -> Self {
        FairSeats {
            pool,
            limit: Limit::new(pool.max),
            held_back: 0,
            seated: Seated::new(pool.max),
            tenants: Tenants::default(),
            order: Order::default(),
            floors: Floors::default(),
            clocks: [0; Class::ALL.len()],
            backlog: Backlog::default(),
            dropped: VecDeque::new(),
            next_number: 0,
            next_turn: 0,
        }
    }

    /// Another plan: acts on the next question, evicts nobody.
    pub fn set_pool(&mut self, pool: Pool) {
        if pool.max != self.pool.max || !pool.adaptive {
            self.limit.reset(pool.max);
        }
        self.pool = pool;
        self.refile_all();
    }

    /// A call wants a seat. After [`Asked::Wait`], ask [`FairSeats::next`].
    pub fn ask(&mut self, asking: &Asking<'_>, now: Duration) -> Asked {
        self.look(now);
        let (place, changed) = self.tenants.place(asking.tenant, asking.share);
        if changed {
            self.refile(place);
        }
        if self.is_free(asking, Some(self.tenants.at(place))) {
            return Asked::Seat(self.seat(place, asking.class, (asking.estimate, asking.times.cloned()), now));
        }
        let waiting = self.tenants.get(place).waiting;
        match self.refusal_of(asking, waiting, now) {
            Some(refusal) => Asked::Refuse(refusal),
            None => Asked::Wait(self.join(place, asking, now)),
        }
    }

    /// What comes of waiting calls: to be asked until `None` after everything else but a granted [`FairSeats::ask`], and ten times a
    /// second while calls wait.
    pub fn next(&mut self, now: Duration) -> Option<Next> {
        self.look(now);
        if let Some((ticket, refusal)) = self.dropped.pop_front() {
            return Some(Next::Drop { ticket, refusal });
        }
        let served = self.serve(now);
        served.or_else(|| self.dropped.pop_front().map(|(ticket, refusal)| Next::Drop { ticket, refusal }))
    }

    /// A waiting call has gone. Without effect for a ticket that [`FairSeats::next`] has named.
    pub fn leave(&mut self, ticket: Ticket, now: Duration) {
        self.dropped.retain(|(dropped, _)| *dropped != ticket);
        let line = self.tenants.get(ticket.tenant).line(&ticket);
        if line.calls.remove(&ticket.number).is_none() {
            return;
        }
        if line.calls.is_empty() {
            line.standing.emptied(now);
        }
        self.left_line(ticket.tenant, ticket.class, usize::from(ticket.slow), 1);
        self.refile(ticket.tenant);
    }

    /// A session is being opened for this seat: that time says nothing about how fast the database is.
    pub fn connecting(&mut self, held: &Held) {
        if let Some(running) = self.seated.get(held) {
            running.connecting = true;
        }
    }

    /// The session is open.
    pub fn connected(&mut self, held: &Held, now: Duration) {
        if let Some(running) = self.seated.get(held) {
            (running.connecting, running.began, running.counted) = (false, now, now);
        }
    }

    /// A seat comes back. `took`: how long its statements took, if they were answered; `None` for one that did nothing, or was cut
    /// short. The seat of an abandoned statement is best kept until its end is known: it stays charged to its tenant.
    pub fn end(&mut self, held: Held, took: Option<Duration>, now: Duration) {
        self.look(now);
        if let Some(running) = self.seated.remove(&held, took, now) {
            self.settle(running, took.is_some(), now);
        }
    }

    /// So many seats cannot be had: their connections are ending or lost and belong to no [`Held`], or cannot be opened.
    pub fn hold_back(&mut self, connections: u32) {
        self.held_back = connections;
    }

    /// How long a call like this would wait; nothing is changed.
    pub fn expected_wait(&self, asking: &Asking<'_>, now: Duration) -> Duration {
        self.forecast(asking, now)
    }

    /// Whether a call like this would be refused now. Nothing is changed but that it is given a turn to come back. For the gate.
    pub fn foresee(&mut self, asking: &Asking<'_>, now: Duration) -> Option<SeatRefusal> {
        let tenant = self.tenants.find(asking.tenant);
        if self.is_free(asking, tenant) {
            return None;
        }
        let waiting = tenant.map_or(0, |tenant| tenant.waiting);
        self.refusal_of(asking, waiting, now)
    }

    /// Seats held.
    pub fn in_use(&self) -> u32 {
        self.seated.held()
    }
    /// Calls in line.
    pub fn waiting(&self) -> u32 {
        self.backlog.waiting.iter().flatten().sum()
    }
    /// Calls of a tenant in line.
    pub fn waiting_of(&self, tenant: &str) -> u32 {
        self.tenants.find(tenant).map_or(0, |tenant| tenant.waiting)
    }

    /// Ten times a second: what is held, against what was charged for it, and against what such calls usually hold.
    fn look(&mut self, now: Duration) {
        if !self.limit.is_due(now) {
            return;
        }
        self.charge_the_late(now);
        let (seated, tenants) = (&mut self.seated, &mut self.tenants);
        seated.look(now, |running| tenants.get(running.tenant).evidence.count(running, now));
        let (elapsed, before) = (self.limit.since(now), self.limit.seats(self.pool.max));
        self.judge(now);
        let is_another_plan = self.leave_to_others(elapsed);
        if is_another_plan || self.limit.seats(self.pool.max) != before {
            self.refile_all();
        }
    }

    /// What the limit of the database is now.
    fn judge(&mut self, now: Duration) {
        if !self.pool.adaptive {
            return self.limit.pass(now);
        }
        let bounds = (self.pool.floor.min(self.pool.max), self.pool.max);
        let held = self.seated.held();
        self.limit.look(self.tenants.iter_mut().map(|tenant| &mut tenant.evidence), bounds, |limit| held * 2 >= limit, now);
    }
}
