//! The seats of one database: who holds one, who waits, who is next.

mod asking;
mod estimate;
mod status;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

pub use asking::{Asked, Asking, Class, Held, Next, Pool, RefusalKind, SeatRefusal, Share, Ticket};
pub use estimate::{Estimate, HoldTimes};
pub use status::{LimitReason, SeatStatus, TenantSeats, Transition};

/// Decides; others open sessions, wait and wake.
#[derive(Debug)]
pub struct FairSeats {
    pool: Pool,
    in_use: u32,
    held_back: u32,
    next_number: u64,
    line: VecDeque<(Ticket, Arc<str>, Duration)>,
}

impl FairSeats {
    /// All seats free.
    pub fn new(pool: Pool) -> Self {
        FairSeats { pool, in_use: 0, held_back: 0, next_number: 0, line: VecDeque::new() }
    }

    /// Another plan: acts on the next question, evicts nobody.
    pub fn set_pool(&mut self, pool: Pool) {
        self.pool = pool;
    }

    /// A call wants a seat. Call [`FairSeats::next`] after it: room may have been made in the meantime.
    pub fn ask(&mut self, asking: &Asking<'_>, now: Duration) -> Asked {
        if self.line.is_empty() && self.has_room() {
            self.in_use += 1;
            return Asked::Seat(Held { place: 0 });
        }
        let waiting = self.waiting_of(asking.tenant);
        if waiting >= asking.share.line {
            return Asked::Refuse(SeatRefusal {
                kind: RefusalKind::LineFull,
                waiting,
                expected_wait: self.expected_wait(asking, now),
                retry_after: self.expected_wait(asking, now),
            });
        }
        let ticket = Ticket { number: self.next_number, tenant: 0, class: asking.class, slow: false };
        self.next_number += 1;
        self.line.push_back((ticket, asking.tenant.clone(), now));
        Asked::Wait(ticket)
    }

    /// What comes of waiting calls: to be called until `None` after every other call, and about every 100 ms while calls wait.
    pub fn next(&mut self, _now: Duration) -> Option<Next> {
        if !self.has_room() {
            return None;
        }
        let (ticket, ..) = self.line.pop_front()?;
        self.in_use += 1;
        Some(Next::Grant { ticket, held: Held { place: 0 } })
    }

    /// A waiting call has gone. Without effect for a ticket that [`FairSeats::next`] has named.
    pub fn leave(&mut self, ticket: Ticket, _now: Duration) {
        self.line.retain(|(waiting, ..)| *waiting != ticket);
    }

    /// A session is being opened for this seat: that time says nothing about the database's speed.
    pub fn connecting(&mut self, _held: &Held, _now: Duration) {}

    /// The session is open.
    pub fn connected(&mut self, _held: &Held, _now: Duration) {}

    /// A seat comes back. `took`: how long its statements took, if they were answered; `None` for one that did nothing, or was cut
    /// short. The seat of an abandoned statement is best kept until its end is known: it stays charged to its tenant.
    pub fn end(&mut self, _held: Held, _took: Option<Duration>, _now: Duration) {
        self.in_use = self.in_use.saturating_sub(1);
    }

    /// So many connections that belong to no [`Held`] take room: they are ending, or lost.
    pub fn hold_back(&mut self, connections: u32) {
        self.held_back = connections;
    }

    /// How long a call like this would wait; nothing is changed.
    pub fn expected_wait(&self, _asking: &Asking<'_>, _now: Duration) -> Duration {
        Duration::from_millis(10) * u32::try_from(self.line.len()).unwrap_or(u32::MAX) / self.pool.max.max(1)
    }

    /// Whether a call like this would be refused now; nothing is changed. For the gate.
    pub fn foresee(&self, _asking: &Asking<'_>, _now: Duration) -> Option<SeatRefusal> {
        None
    }

    /// Seats held.
    pub fn in_use(&self) -> u32 {
        self.in_use
    }
    /// Calls in line.
    pub fn waiting(&self) -> u32 {
        u32::try_from(self.line.len()).unwrap_or(u32::MAX)
    }
    /// Calls of a tenant in line.
    pub fn waiting_of(&self, tenant: &str) -> u32 {
        u32::try_from(self.line.iter().filter(|(_, of, _)| **of == *tenant).count()).unwrap_or(u32::MAX)
    }
    /// For pages. Not for the path of a call.
    pub fn status(&self, _now: Duration) -> SeatStatus {
        SeatStatus {
            limit: self.pool.max,
            reason: LimitReason::Pool,
            in_use: self.in_use,
            slow: 0,
            held_back: self.held_back,
            waiting: self.waiting(),
            tenants: Vec::new(),
            transitions: 0,
            last_transitions: Vec::new(),
        }
    }

    fn has_room(&self) -> bool {
        self.in_use + self.held_back < self.pool.max
    }
}
