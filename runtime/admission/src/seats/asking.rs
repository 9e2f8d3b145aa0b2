//! What is asked of the seats of a database, and what they answer.

use std::sync::Arc;
use std::time::Duration;

use super::estimate::{Estimate, HoldTimes};

/// Who goes first. Each class has a floor, so that none starves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Cancels, job states, health: before all others, and capped.
    Control,
    /// A person waits.
    Interactive,
    /// An agent waits.
    Agent,
    /// Nobody waits.
    Batch,
    /// What is below the lowest class a tenant can have: a batch call that is tried again, or its queue worker.
    Background,
}

impl Class {
    /// All of them, the first to be served first.
    pub const ALL: [Class; 5] = [Class::Control, Class::Interactive, Class::Agent, Class::Batch, Class::Background];

    /// One class lower: for an attempt that is not the first, and for the attempt of a queue worker.
    pub fn lower(self) -> Class {
        match self {
            Class::Control => Class::Interactive,
            Class::Interactive => Class::Agent,
            Class::Agent => Class::Batch,
            Class::Batch | Class::Background => Class::Background,
        }
    }
    /// The word in pages and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Class::Control => "control",
            Class::Interactive => "interactive",
            Class::Agent => "agent",
            Class::Batch => "batch",
            Class::Background => "background",
        }
    }
}

/// What a tenant has of one database. Passed in with each question, so that another limit acts on the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Connection-seconds against those of other tenants that want some; 0 counts as 1.
    pub weight: u32,
    /// Seats that are its own as soon as it asks: lent to others while it does not, back at the next completion.
    pub reserved: u32,
    /// Most seats at once, also when others are idle.
    pub limit: u32,
    /// Most waiting calls.
    pub line: u32,
}

impl Share {
    /// Its `limit` while only so many of `max` seats may be held: others find as many beside it as ever. One seat and what is reserved
    /// for it stay its own.
    pub(super) fn limit_under(&self, limit: u32, max: u32) -> u32 {
        if self.limit >= max {
            // Nothing is left to others on a good day either.
            return self.limit;
        }
        limit.saturating_sub(max - self.limit).max(self.reserved).max(1).min(self.limit)
    }
}

/// What a database has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Most seats.
    pub max: u32,
    /// Seats that calls never get whose flow is slow (over 250 ms), or not yet measured.
    pub fast_only: u32,
    /// The adaptive limit never goes below this (or `max`, if that is less).
    pub floor: u32,
    /// `shed = "adaptive"`. False: neither limit below `max`, nor shedding, nor refusal for want of time; `line` and `limit` hold.
    pub adaptive: bool,
}

/// A call in need of a seat.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    /// Whose it is.
    pub tenant: &'a Arc<str>,
    /// What that tenant has of this database.
    pub share: Share,
    /// Its class; one lower ([`Class::lower`]) for an attempt that is not the first and for a queue worker's.
    pub class: Class,
    /// How long such calls hold a seat; `None`: not yet measured, which counts as slow.
    pub estimate: Option<Estimate>,
    /// Where its flow is measured: told of a call that turns out slow while it still runs.
    pub times: Option<&'a Arc<HoldTimes>>,
    /// When it must have ended.
    pub deadline: Duration,
}

/// The answer to a call.
#[derive(Debug)]
#[must_use = "a seat that is not given back is lost"]
pub enum Asked {
    /// It has a seat.
    Seat(Held),
    /// It stands in line; [`super::FairSeats::next`] will name this ticket.
    Wait(Ticket),
    /// It gets none.
    Refuse(SeatRefusal),
}

/// What comes of a waiting call.
#[derive(Debug)]
#[must_use = "a seat that is not given back is lost"]
pub enum Next {
    /// It has a seat.
    Grant {
        /// Whose.
        ticket: Ticket,
        /// The seat.
        held: Held,
    },
    /// It waited in vain.
    Drop {
        /// Whose.
        ticket: Ticket,
        /// Why.
        refusal: SeatRefusal,
    },
}

/// A place in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// Never used again.
    pub(super) number: u64,
    pub(super) tenant: usize,
    pub(super) class: Class,
    pub(super) slow: bool,
}

impl Ticket {
    /// A number no other ticket of this database has.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// A seat. It has to come back through [`super::FairSeats::end`], on every path.
#[derive(Debug)]
#[must_use = "a seat that is not given back is lost"]
pub struct Held {
    pub(super) place: usize,
}

/// Why a call gets no seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalKind {
    /// As many calls of its tenant wait as may.
    LineFull,
    /// It would not get a seat, or not be done, before its deadline.
    WaitTooLong,
    /// It waited while its tenant's line stood, and newer calls go first.
    Shed,
}

/// A call that gets no seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeatRefusal {
    /// Why.
    pub kind: RefusalKind,
    /// Calls of its tenant in line.
    pub waiting: u32,
    /// How long a call like it would wait for its seat.
    pub expected_wait: Duration,
    /// When asking again may help: a turn of its own, at the rate at which seats come free; not jittered.
    pub retry_after: Duration,
}
