//! Seats with nobody at them yet, and who asks.

use std::sync::Arc;
use std::time::Duration;

use super::world::{ms, s};
use crate::seats::{Asked, Asking, Class, Estimate, FairSeats, Held, Next, Pool, SeatRefusal, Share, Ticket};

pub(super) const FAST: Option<Estimate> = Some(Estimate { hold: ms(20), usual: ms(20), slow: false });
pub(super) const SLOW: Option<Estimate> = Some(Estimate { hold: s(2), usual: s(2), slow: true });

/// The seats, and who asks: tenants by name, one after the other.
pub(super) struct Rig {
    pub(super) seats: FairSeats,
    pub(super) share: Share,
    pub(super) class: Class,
    pub(super) deadline: Duration,
    pub(super) now: Duration,
}

impl Rig {
    pub(super) fn new(pool: Pool) -> Self {
        let share = Share { weight: 1, reserved: 0, limit: pool.max, line: 16 };
        Rig { seats: FairSeats::new(pool), share, class: Class::Agent, deadline: s(60), now: s(1) }
    }
    pub(super) fn ask_as(&mut self, tenant: &str, class: Class, share: Share, estimate: Option<Estimate>) -> Asked {
        let asking = Asking { tenant: &Arc::from(tenant), share, class, estimate, times: None, deadline: self.now + self.deadline };
        self.seats.ask(&asking, self.now)
    }
    pub(super) fn ask(&mut self, tenant: &str, estimate: Option<Estimate>) -> Asked {
        self.ask_as(tenant, self.class, self.share, estimate)
    }
    pub(super) fn held(&mut self, tenant: &str, estimate: Option<Estimate>) -> Held {
        match self.ask(tenant, estimate) {
            Asked::Seat(held) => held,
            other => panic!("a seat is free: {other:?}"),
        }
    }
    pub(super) fn waits(&mut self, tenant: &str, estimate: Option<Estimate>) -> Ticket {
        ticket(self.ask(tenant, estimate))
    }
    /// So many seats, held by so many calls.
    pub(super) fn fill(&mut self, tenant: &str, estimate: Option<Estimate>, seats: usize) -> Vec<Held> {
        (0..seats).map(|_| self.held(tenant, estimate)).collect()
    }
    pub(super) fn end(&mut self, held: Held, took: Duration) {
        self.seats.end(held, Some(took), self.now);
    }
    pub(super) fn next(&mut self) -> Option<(Ticket, Result<Held, SeatRefusal>)> {
        self.seats.next(self.now).map(|next| match next {
            Next::Grant { ticket, held } => (ticket, Ok(held)),
            Next::Drop { ticket, refusal } => (ticket, Err(refusal)),
        })
    }
    /// The one call that gets a seat now.
    pub(super) fn granted(&mut self) -> (Ticket, Held) {
        let (ticket, result) = self.next().expect("a call gets its turn");
        let held = result.expect("it gets a seat");
        assert!(self.next().is_none(), "one seat came free");
        (ticket, held)
    }
}

pub(super) fn ticket(asked: Asked) -> Ticket {
    match asked {
        Asked::Wait(ticket) => ticket,
        other => panic!("it has to wait: {other:?}"),
    }
}
pub(super) fn refusal(asked: Asked) -> SeatRefusal {
    match asked {
        Asked::Refuse(refusal) => refusal,
        other => panic!("it is refused: {other:?}"),
    }
}
