//! Seats of one database: who may hold a session, who waits, and what became of abandoned ones.
//!
//! Invariants
//! 1. `in_use + idle + ending` never passes `max`: every session that may exist at the database is counted, one whose end
//!    is not confirmed among them.
//! 2. The line is first come, first served, and holds at most `line` calls of a tenant.
//! 3. A seat is given back by drop on every path. One dropped with a statement or transaction open is `ending` until
//!    the connector says what became of it.
//! 4. While the database does not answer, one call at a time tries to connect, after a shared wait that doubles; the others
//!    are refused at once.
//!
//! The lock is held for a few moves of pointers; sessions are opened, used, closed and handed over outside of it.

mod ending;
mod line;
mod seat;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use spillgate_connector::{Access, Database, Session};
use spillgate_model::{Code, Refusal};
use spillgate_telemetry::DatabaseMetrics;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::run::{Doing, Notes};
use crate::verdict::{Cause, Failed, Fallible};
use line::{Grant, Line};
pub(crate) use seat::{Purpose, Seat};

/// The first wait after a failure to connect, and the longest.
const FIRST_BACK_OFF: Duration = Duration::from_millis(250);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(5);
/// Bounds of what a refused call is told to wait.
const RETRY_AFTER: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(30));

/// What a plan allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeatLimits {
    pub(crate) max: usize,
    pub(crate) line: usize,
    pub(crate) idle: Duration,
}

/// What the seats of a database are doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeatCounts {
    /// Most sessions.
    pub max: usize,
    /// Held by calls, those connecting among them.
    pub in_use: usize,
    /// Open and free.
    pub idle: usize,
    /// Taken until the end of an abandoned statement is known.
    pub ending: usize,
    /// Calls in line.
    pub waiting: usize,
    /// Sessions whose statement was never seen to end.
    pub lost: u64,
}

/// The seats of one database.
pub(crate) struct Seats {
    database: Arc<dyn Database>,
    limits: SeatLimits,
    state: Mutex<State>,
    pub(crate) metrics: Arc<DatabaseMetrics>,
    /// Told when the database answers again.
    answered: Arc<Notify>,
}

struct State {
    in_use: usize,
    connecting: usize,
    ending: usize,
    /// Least recently used first.
    idle: VecDeque<Idle>,
    line: Line,
    /// Failures to connect in a row, and when the next try may be made.
    failures: u32,
    retry_at: Option<Instant>,
    reachable: Option<bool>,
    last_error: Option<String>,
    /// The connector says that nobody may use this database until it is mended.
    unfit: bool,
    /// How long a seat is held, smoothed.
    hold: Duration,
    lost: u64,
    /// A reload replaced this database: sessions are closed when they come back.
    retired: bool,
}

struct Idle {
    session: Box<dyn Session>,
    access: Access,
    since: Instant,
}

/// What a call in need of a seat gets at once.
enum Turn {
    /// A session that was free.
    Session(Box<dyn Session>),
    /// The right to open one.
    Connect,
    Wait,
    Refuse(Box<Failed>),
}

impl Seats {
    pub(crate) fn new(database: Arc<dyn Database>, limits: SeatLimits, metrics: Arc<DatabaseMetrics>, answered: Arc<Notify>) -> Arc<Self> {
        let state = State {
            in_use: 0,
            connecting: 0,
            ending: 0,
            idle: VecDeque::new(),
            line: Line::default(),
            failures: 0,
            retry_at: None,
            reachable: None,
            last_error: None,
            unfit: false,
            hold: Duration::from_millis(10),
            lost: 0,
            retired: false,
        };
        metrics.seats.set(limits.max as u64);
        Arc::new(Seats { database, limits, state: Mutex::new(state), metrics, answered })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change under the lock is whole before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A seat with an open session. Without waiting and without a task when a session of this kind is free.
    pub(crate) async fn acquire(self: &Arc<Self>, access: Access, purpose: Purpose<'_>, notes: &Notes) -> Fallible<Seat> {
        let (turn, closed) = {
            let mut state = self.lock();
            let turn = if state.line.is_empty() { state.take(access, &self.limits) } else { (Turn::Wait, Vec::new()) };
            self.publish(&state);
            turn
        };
        drop(closed);
        match turn {
            Turn::Session(session) => Ok(Seat::open(self, access, &purpose, session)),
            Turn::Connect => Box::pin(Seat::to_connect(self, access, &purpose).connect(notes)).await,
            Turn::Wait => Box::pin(self.wait(access, purpose, notes)).await,
            Turn::Refuse(refused) => Err(refused),
        }
    }

    /// A seat with a session opened for it, free ones left alone: the one before turned out to be dead.
    pub(crate) async fn acquire_fresh(self: &Arc<Self>, access: Access, purpose: Purpose<'_>, notes: &Notes) -> Fallible<Seat> {
        // They were opened before the link was lost: most likely they are as dead.
        let dead: Vec<Idle> = self.lock().idle.drain(..).collect();
        drop(dead);
        self.acquire(access, purpose, notes).await
    }

    async fn wait(self: &Arc<Self>, access: Access, purpose: Purpose<'_>, notes: &Notes) -> Fallible<Seat> {
        let (place, handovers) = {
            let mut state = self.lock();
            let waiting = state.line.of(purpose.tenant);
            if waiting >= self.limits.line {
                return Err(self.overloaded(&state, waiting));
            }
            let place = state.line.join(self, access, &purpose);
            // A seat may have come back since the line was found to be needed.
            (place, self.dispatch(&mut state))
        };
        handovers.into_iter().for_each(line::Handover::deliver);
        notes.set(Doing::Waiting);
        let wait = Wait { began: Instant::now(), notes, metrics: &self.metrics };
        let grant = place.granted().await;
        drop(wait);
        notes.set(Doing::Working);
        match grant {
            Grant::Seat(seat) if seat.is_open() => Ok(*seat),
            Grant::Seat(seat) => seat.connect(notes).await,
            Grant::Refused(refused) => Err(refused),
        }
    }

    fn overloaded(&self, state: &State, waiting: usize) -> Box<Failed> {
        let ahead = u32::try_from(state.line.len() + 1).unwrap_or(u32::MAX);
        let places = u32::try_from(self.limits.max).unwrap_or(1).max(1);
        let wait = (state.hold.saturating_mul(ahead) / places).clamp(RETRY_AFTER.0, RETRY_AFTER.1);
        let detail = format!("{waiting} calls of this tenant wait for this database already.");
        let refusal = Refusal::new(Code::Overloaded, detail).policy("line", self.limits.line as u64, waiting as u64).retry_after(wait);
        Failed::refused(refusal)
    }

    /// Gives seats to the first in line while there are any. Returns what to hand over once the lock is free.
    fn dispatch(self: &Arc<Self>, state: &mut State) -> Vec<line::Handover> {
        let mut handovers = Vec::new();
        while let Some(access) = state.line.front() {
            let (turn, closed) = state.take(access, &self.limits);
            let made = match turn {
                Turn::Session(session) => state.line.hand(|waiting| Grant::Seat(Box::new(Seat::for_waiting(self, waiting, Some(session))))),
                Turn::Connect => state.line.hand(|waiting| Grant::Seat(Box::new(Seat::for_waiting(self, waiting, None)))),
                Turn::Refuse(refused) => state.line.hand(|_| Grant::Refused(refused)),
                Turn::Wait => None,
            };
            let Some(handover) = made else { break };
            handovers.push(handover.with_closed(closed));
        }
        self.publish(state);
        handovers
    }

    /// Changes the state, then serves the line with what that freed.
    fn change(self: &Arc<Self>, change: impl FnOnce(&mut State)) {
        let handovers = {
            let mut state = self.lock();
            change(&mut state);
            self.dispatch(&mut state)
        };
        handovers.into_iter().for_each(line::Handover::deliver);
    }

    /// A session came back, to be used again or closed.
    fn give_back(self: &Arc<Self>, access: Access, session: Option<Box<dyn Session>>, held: Option<Duration>) {
        let mut closed = session;
        self.change(|state| {
            state.in_use = state.in_use.saturating_sub(1);
            if let Some(held) = held {
                state.hold = (state.hold * 7 + held) / 8;
            }
            if !state.retired
                && let Some(session) = closed.take()
            {
                state.idle.push_back(Idle { session, access, since: Instant::now() });
            }
        });
        drop(closed);
    }

    /// Closes sessions that were free for too long.
    pub(crate) fn close_idle(&self, now: Instant) {
        let mut closed = Vec::new();
        let mut state = self.lock();
        while state.idle.front().is_some_and(|idle| now.duration_since(idle.since) >= self.limits.idle) {
            closed.extend(state.idle.pop_front());
        }
        self.publish(&state);
        drop(state);
        drop(closed);
    }

    /// Keeps nothing open any longer than the calls that use it: another plan rules now.
    pub(crate) fn retire(&self) {
        let mut state = self.lock();
        state.retired = true;
        let closed = std::mem::take(&mut state.idle);
        drop(state);
        drop(closed);
    }

    /// Counts, whether it can be reached, and what the last failure said.
    pub(crate) fn state_of_health(&self) -> (SeatCounts, Option<bool>, Option<String>) {
        let state = self.lock();
        let counts = SeatCounts {
            max: self.limits.max,
            in_use: state.in_use,
            idle: state.idle.len(),
            ending: state.ending,
            waiting: state.line.len(),
            lost: state.lost,
        };
        (counts, state.reachable, state.last_error.clone())
    }

    fn publish(&self, state: &State) {
        if state.retired {
            // The numbers are those of the pool that took its place.
            return;
        }
        self.metrics.seats_in_use.set(state.in_use as u64);
        self.metrics.idle.set(state.idle.len() as u64);
        self.metrics.ending.set(state.ending as u64);
        self.metrics.waiting.set(state.line.len() as u64);
    }
}

/// A wait; recorded however it ends.
struct Wait<'a> {
    began: Instant,
    notes: &'a Notes,
    metrics: &'a DatabaseMetrics,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let waited = self.began.elapsed();
        self.notes.add_wait(waited);
        self.metrics.wait_seconds.record(waited);
    }
}

impl State {
    /// What a call may have now. With it, a session of the other kind that must be closed to make room.
    fn take(&mut self, access: Access, limits: &SeatLimits) -> (Turn, Vec<Idle>) {
        let mut closed = Vec::new();
        while let Some(position) = self.idle.iter().rposition(|idle| idle.access == access)
            && let Some(idle) = self.idle.remove(position)
        {
            if idle.session.usable() {
                self.in_use += 1;
                return (Turn::Session(idle.session), closed);
            }
            // It was lost while nobody used it.
            closed.push(idle);
        }
        let full = self.in_use + self.ending + self.idle.len() >= limits.max;
        if full && self.idle.is_empty() {
            return (Turn::Wait, closed);
        }
        if self.failures > 0 {
            let wait = self.retry_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
            if wait > Duration::ZERO || self.connecting > 0 {
                // Calls that run may bring their sessions back; with none running there is nothing to wait for.
                let turn = if self.in_use > self.connecting { Turn::Wait } else { Turn::Refuse(self.unreachable(wait)) };
                return (turn, closed);
            }
        }
        if full {
            closed.extend(self.idle.pop_front());
        }
        self.in_use += 1;
        self.connecting += 1;
        (Turn::Connect, closed)
    }

    fn unreachable(&self, wait: Duration) -> Box<Failed> {
        let detail = self.last_error.clone().unwrap_or_else(|| "The database could not be reached.".into());
        let mut refusal = Refusal::new(Code::DatabaseUnreachable, detail).retry_after(wait.max(FIRST_BACK_OFF));
        if self.unfit {
            (refusal.retryable, refusal.retry_after) = (false, None);
        }
        Box::new(Failed { refusal, again: !self.unfit, cause: Cause::Said })
    }

    fn connected(&mut self) {
        self.connecting = self.connecting.saturating_sub(1);
        (self.failures, self.retry_at, self.reachable, self.last_error, self.unfit) = (0, None, Some(true), None, false);
    }

    /// A try that began before the last failure was seen tells nothing new, so the wait is not doubled for it. Returns the wait.
    fn not_connected(&mut self, began: Instant, detail: String) -> Duration {
        self.connecting = self.connecting.saturating_sub(1);
        let now = Instant::now();
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
