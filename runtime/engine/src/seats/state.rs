//! What one database has: sessions, the fair order in front of them, and what is known of its health. Only decided here, under the lock.

use std::collections::VecDeque;
use std::time::Duration;

use spillgate_admission::seats::{FairSeats, Held, Ticket};
use spillgate_connector::{Access, Session};
use spillgate_model::{Code, Refusal};
use tokio::time::Instant;

use super::line::Line;
use super::{FIRST_BACK_OFF, LONGEST_BACK_OFF, SeatLimits};
use crate::verdict::{Cause, Failed, Fallible};

pub(super) struct State {
    /// What the plan that runs allows. The number of sessions never changes: another one is another pool.
    pub(super) limits: SeatLimits,
    /// Who may hold a seat. A seat counts there until its session is back or gone: as long as its end is not known, too.
    pub(super) fair: FairSeats,
    /// When its clock began: with the engine.
    began: Instant,
    pub(super) line: Line,
    /// Somebody looks at the line from time to time.
    pub(super) is_watched: bool,
    /// Held by calls.
    pub(super) in_use: usize,
    pub(super) connecting: usize,
    pub(super) ending: usize,
    /// Least recently used first.
    pub(super) idle: VecDeque<Idle>,
    /// Failures to connect in a row, and when the next try may be made.
    failures: u32,
    retry_at: Option<Instant>,
    pub(super) reachable: Option<bool>,
    pub(super) last_error: Option<String>,
    /// The connector says that nobody may use this database until it is mended.
    pub(super) unfit: bool,
    pub(super) lost: u64,
    /// A reload replaced this database: sessions are closed when they come back.
    pub(super) retired: bool,
}

pub(super) struct Idle {
    session: Box<dyn Session>,
    access: Access,
    pub(super) since: Instant,
}

/// What a call with a seat gets.
pub(super) enum Got {
    /// A session that was free.
    Session(Box<dyn Session>),
    /// The right to open one.
    Connect,
    /// Neither is to be had.
    Nothing,
}

impl State {
    pub(super) fn new(limits: SeatLimits, began: Instant) -> Self {
        State {
            limits,
            fair: FairSeats::new(limits.pool),
            began,
            line: Line::default(),
            is_watched: false,
            in_use: 0,
            connecting: 0,
            ending: 0,
            idle: VecDeque::new(),
            failures: 0,
            retry_at: None,
            reachable: None,
            last_error: None,
            unfit: false,
            lost: 0,
            retired: false,
        }
    }

    /// A moment on the clock of the fair order.
    pub(super) fn at(&self, moment: Instant) -> Duration {
        moment.saturating_duration_since(self.began)
    }

    /// A session for a call that holds a seat, or the right to open one. With it, sessions that are closed to make room.
    pub(super) fn session(&mut self, access: Access, now: Instant) -> (Got, Vec<Idle>) {
        let mut closed = Vec::new();
        while let Some(position) = self.idle.iter().rposition(|idle| idle.access == access)
            && let Some(idle) = self.idle.remove(position)
        {
            if idle.session.usable() {
                self.in_use += 1;
                return (Got::Session(idle.session), closed);
            }
            // It was lost while nobody used it.
            closed.push(idle);
        }
        if self.failures > 0 && !self.may_try(now) {
            return (Got::Nothing, closed);
        }
        if self.in_use + self.ending + self.idle.len() >= self.limits.max() {
            closed.extend(self.idle.pop_front());
        }
        self.in_use += 1;
        self.connecting += 1;
        (Got::Connect, closed)
    }

    /// The right of a seat that has none any more to open a session.
    pub(super) fn reopen(&mut self, held: Option<&Held>, now: Instant) -> Fallible<()> {
        if self.failures > 0 && !self.may_try(now) {
            return Err(self.unreachable(now));
        }
        self.connecting += 1;
        if let Some(held) = held {
            self.fair.connecting(held);
        }
        Ok(())
    }

    /// Keeps a session for the next call.
    pub(super) fn keep(&mut self, access: Access, session: &mut Option<Box<dyn Session>>, now: Instant) {
        if !self.retired
            && let Some(session) = session.take()
        {
            self.idle.push_back(Idle { session, access, since: now });
        }
    }

    /// A call left the line.
    pub(super) fn leave(&mut self, ticket: Ticket, now: Instant) {
        if self.line.take(ticket).is_some() {
            self.fair.leave(ticket, self.at(now));
        }
    }

    /// A seat comes back; `took`: how long its statements took, if they were answered.
    pub(super) fn end(&mut self, held: Option<Held>, took: Option<Duration>, now: Instant) {
        if let Some(held) = held {
            self.fair.end(held, took, self.at(now));
        }
    }

    /// While the database does not answer, only sessions that are open count as seats, and one more while a try may be made.
    pub(super) fn hold_back(&mut self, now: Instant) {
        let reachable = match self.failures {
            0 => self.limits.max(),
            _ => self.in_use + self.ending + self.idle.len() + usize::from(self.may_try(now)),
        };
        let out_of_reach = self.limits.max().saturating_sub(reachable);
        self.fair.hold_back(u32::try_from(out_of_reach).unwrap_or(u32::MAX));
    }

    /// No session is open or may be opened now, and none is coming back: there is nothing to wait for.
    pub(super) fn is_out_of_reach(&self, now: Instant) -> bool {
        self.failures > 0 && self.in_use == self.connecting && self.idle.is_empty() && !self.may_try(now)
    }

    /// While the database does not answer, one call at a time tries, after a wait.
    fn may_try(&self, now: Instant) -> bool {
        self.connecting == 0 && self.retry_at.is_none_or(|at| at <= now)
    }

    pub(super) fn unreachable(&self, now: Instant) -> Box<Failed> {
        let wait = self.retry_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        let detail = self.last_error.clone().unwrap_or_else(|| "The database could not be reached.".into());
        let refusal = Refusal::new(Code::DatabaseUnreachable, detail);
        let refusal = if self.unfit { refusal.never() } else { refusal.retry_after(wait.max(FIRST_BACK_OFF)) };
        Box::new(Failed { refusal, again: !self.unfit, cause: Cause::NotTried })
    }

    pub(super) fn connected(&mut self) {
        self.connecting = self.connecting.saturating_sub(1);
        (self.failures, self.retry_at, self.reachable, self.last_error, self.unfit) = (0, None, Some(true), None, false);
    }

    /// A try that began before the last failure was seen tells nothing new, so the wait is not doubled for it. Returns the wait.
    pub(super) fn not_connected(&mut self, began: Instant, detail: String, now: Instant) -> Duration {
        self.connecting = self.connecting.saturating_sub(1);
        (self.reachable, self.last_error) = (Some(false), Some(detail));
        let known = self.retry_at.is_some_and(|at| began < at);
        if !known {
            self.failures = self.failures.saturating_add(1);
            let doubled = FIRST_BACK_OFF.saturating_mul(1 << (self.failures - 1).min(8));
            self.retry_at = Some(now + doubled.min(LONGEST_BACK_OFF));
        }
        self.retry_at.map_or(FIRST_BACK_OFF, |at| at.saturating_duration_since(now)).max(FIRST_BACK_OFF)
    }
}
