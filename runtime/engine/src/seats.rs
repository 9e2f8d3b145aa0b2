//! Seats of one database: who may hold a session, who waits, and what became of abandoned ones.
//!
//! Invariants
//! 1. `in_use + idle + ending` never passes `max`: every session that may exist at the database is counted, one whose end
//!    is not confirmed among them.
//! 2. Who is next is decided by [`spillgate_admission::FairSeats`] alone; a session that is free goes to nobody else. A line holds
//!    at most as many calls of a tenant as its share says.
//! 3. A seat is given back by drop on every path. One dropped with a statement or transaction open is `ending` until
//!    the connector says what became of it, and stays its tenant's so long.
//! 4. While the database does not answer, one call at a time tries to connect, after a shared wait that doubles; the others
//!    are refused at once.
//! 5. A call that finds a session free waits for nothing, allocates nothing and makes no task.
//!
//! The lock is held for a few moves of pointers; sessions are opened, used, closed and handed over outside of it.

mod ending;
mod flows;
mod line;
mod refused;
mod seat;
mod state;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use spillgate_admission::seats::{Asked, Held, Next, Pool, SeatRefusal, SeatStatus};
use spillgate_config::Plan;
use spillgate_config::plan::Flow;
use spillgate_connector::{Access, Database, Session};
use spillgate_model::{Code, Refusal};
use spillgate_telemetry::{DatabaseMetrics, SeatRefused};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::run::{Doing, Notes};
use crate::verdict::{Failed, Fallible};
pub(crate) use flows::FlowSeats;
use flows::Flows;
use line::{Grant, Handover, Place};
pub(crate) use seat::{CONNECT_PATIENCE, Purpose, Seat};
use state::{Got, Idle, State};

/// The first wait after a failure to connect, and the longest.
const FIRST_BACK_OFF: Duration = Duration::from_millis(250);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(5);
/// While calls wait, time alone may decide about them: so often it is asked.
const WATCH: Duration = Duration::from_millis(50);

/// What a plan allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeatLimits {
    pub(crate) pool: Pool,
    pub(crate) idle: Duration,
}

impl SeatLimits {
    fn max(&self) -> usize {
        usize::try_from(self.pool.max).unwrap_or(usize::MAX)
    }
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

/// What is known of a database's health.
#[derive(Debug)]
pub(crate) struct Health {
    pub(crate) counts: SeatCounts,
    /// Seats by tenant and class, the line, the limit now and why.
    pub(crate) fair: SeatStatus,
    pub(crate) reachable: Option<bool>,
    pub(crate) last_error: Option<String>,
}

/// The seats of one database.
pub(crate) struct Seats {
    database: Arc<dyn Database>,
    state: Mutex<State>,
    flows: Flows,
    pub(crate) metrics: Arc<DatabaseMetrics>,
    /// Told when the database answers again.
    answered: Arc<Notify>,
}

/// What a call in need of a seat gets at once.
enum Turn {
    Session(Held, Box<dyn Session>),
    Connect(Held),
    Wait(Place),
    Refuse(SeatRefusal),
    Unreachable(Box<Failed>),
}

impl Seats {
    /// `began`: when the clock of the fair order began.
    pub(crate) fn new(
        database: Arc<dyn Database>,
        limits: SeatLimits,
        metrics: Arc<DatabaseMetrics>,
        answered: Arc<Notify>,
        began: Instant,
    ) -> Arc<Self> {
        metrics.seats.set(u64::from(limits.pool.max));
        metrics.seat_limit.set(u64::from(limits.pool.max));
        let state = Mutex::new(State::new(limits, began));
        Arc::new(Seats { database, state, flows: Flows::default(), metrics, answered })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change under the lock is whole before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known here of a flow.
    pub(crate) fn flow(&self, flow: &Flow) -> Arc<FlowSeats> {
        self.flows.of(flow)
    }

    /// Another plan runs with this database in it.
    pub(crate) fn keep_flows(&self, plan: &Plan) {
        self.flows.keep(plan);
    }

    /// A seat with an open session. Without waiting and without a task when a session of this kind is free.
    pub(crate) async fn acquire(self: &Arc<Self>, access: Access, purpose: Purpose<'_>, notes: &Notes) -> Fallible<Seat> {
        let (turn, closed, handovers) = self.turn(access, &purpose);
        drop(closed);
        handovers.into_iter().for_each(Handover::deliver);
        let tenant = purpose.tenant;
        let seat = match turn {
            Turn::Session(held, session) => Ok(Seat::new(self, held, access, purpose.flow, purpose.deadline, Some(session))),
            Turn::Connect(held) => Box::pin(Seat::new(self, held, access, purpose.flow, purpose.deadline, None).connect(notes)).await,
            Turn::Wait(place) => Box::pin(self.wait(place, purpose, notes)).await,
            Turn::Refuse(refusal) => Err(self.refused(&refusal, &purpose)),
            Turn::Unreachable(failed) => Err(failed),
        };
        if let Err(failed) = &seat
            && failed.refusal.code == Code::DatabaseUnreachable
        {
            self.metrics.seat_refused(tenant, SeatRefused::Unreachable);
        }
        seat
    }

    /// The right to open another session for a seat whose own turned out to be dead. Those that are free were opened before the link was
    /// lost: most likely they are as dead.
    fn reopen(&self, held: Option<&Held>) -> Fallible<()> {
        let (dead, may_connect) = {
            let mut state = self.lock();
            (std::mem::take(&mut state.idle), state.reopen(held, Instant::now()))
        };
        drop(dead);
        may_connect
    }

    /// Whether a call would be refused its seat for want of time or room, and what it would be told. Nothing is changed. While nobody
    /// waits, that is left to the seat itself.
    pub(crate) fn foresee(&self, purpose: &Purpose<'_>) -> Option<Refusal> {
        if self.metrics.waiting.value() == 0 {
            return None;
        }
        let refusal = {
            let mut state = self.lock();
            let (asking, now) = (purpose.asking(|moment| state.at(moment)), state.at(Instant::now()));
            state.fair.foresee(&asking, now)?
        };
        Some(self.refused(&refusal, purpose).refusal)
    }

    fn turn(self: &Arc<Self>, access: Access, purpose: &Purpose<'_>) -> (Turn, Vec<Idle>, Vec<Handover>) {
        let now = Instant::now();
        let mut state = self.lock();
        state.hold_back(now);
        if state.is_out_of_reach(now) {
            return (Turn::Unreachable(state.unreachable(now)), Vec::new(), Vec::new());
        }
        let asking = purpose.asking(|moment| state.at(moment));
        let at = state.at(now);
        let (turn, closed) = match state.fair.ask(&asking, at) {
            Asked::Seat(held) => match state.session(access, now) {
                (Got::Session(session), closed) => (Turn::Session(held, session), closed),
                (Got::Connect, closed) => {
                    state.fair.connecting(&held);
                    (Turn::Connect(held), closed)
                }
                (Got::Nothing, closed) => {
                    state.end(Some(held), None, now);
                    (Turn::Unreachable(state.unreachable(now)), closed)
                }
            },
            Asked::Wait(ticket) => {
                let place = state.line.join(self, ticket, access, purpose);
                self.watch(&mut state);
                (Turn::Wait(place), Vec::new())
            }
            Asked::Refuse(refusal) => (Turn::Refuse(refusal), Vec::new()),
        };
        let handovers = if state.line.is_empty() { Vec::new() } else { self.dispatch(&mut state, now) };
        self.publish(&state);
        (turn, closed, handovers)
    }

    async fn wait(self: &Arc<Self>, place: Place, purpose: Purpose<'_>, notes: &Notes) -> Fallible<Seat> {
        notes.set(Doing::Waiting);
        let wait = Wait { began: Instant::now(), tenant: purpose.tenant, notes, metrics: &self.metrics };
        let grant = place.granted().await;
        drop(wait);
        notes.set(Doing::Working);
        match grant {
            Grant::Seat(seat) if seat.is_open() => Ok(*seat),
            Grant::Seat(seat) => seat.connect(notes).await,
            Grant::Refused(refusal) => Err(self.refused(&refusal, &purpose)),
            Grant::Failed(failed) => Err(failed),
        }
    }

    /// Gives seats to those who are next while there are any. Returns what to hand over once the lock is free.
    fn dispatch(self: &Arc<Self>, state: &mut State, now: Instant) -> Vec<Handover> {
        let mut handovers = Vec::new();
        let at = state.at(now);
        loop {
            state.hold_back(now);
            match state.fair.next(at) {
                None => break,
                Some(Next::Drop { ticket, refusal }) => {
                    handovers.extend(state.line.take(ticket).map(|waiting| waiting.told(Grant::Refused(refusal))));
                }
                Some(Next::Grant { ticket, held }) => match state.line.take(ticket) {
                    Some(waiting) => {
                        let (got, closed) = state.session(waiting.access, now);
                        let handover = match got {
                            Got::Session(session) => waiting.seated(self, held, Some(session)),
                            Got::Connect => {
                                state.fair.connecting(&held);
                                waiting.seated(self, held, None)
                            }
                            Got::Nothing => {
                                state.end(Some(held), None, now);
                                waiting.told(Grant::Failed(state.unreachable(now)))
                            }
                        };
                        handovers.push(handover.closing(closed));
                    }
                    None => state.end(Some(held), None, now),
                },
            }
        }
        if state.is_out_of_reach(now) {
            for waiting in state.line.take_all() {
                state.fair.leave(waiting.ticket(), at);
                handovers.push(waiting.told(Grant::Failed(state.unreachable(now))));
            }
        }
        handovers
    }

    /// Changes the state, then serves the line with what that freed.
    fn change(self: &Arc<Self>, change: impl FnOnce(&mut State, Instant)) {
        let now = Instant::now();
        let handovers = {
            let mut state = self.lock();
            change(&mut state, now);
            let handovers = if state.line.is_empty() { Vec::new() } else { self.dispatch(&mut state, now) };
            self.publish(&state);
            handovers
        };
        handovers.into_iter().for_each(Handover::deliver);
    }

    /// A session came back, to be used again or closed. `took`: how long its statements took, if they were answered, and whose they were.
    fn give_back(
        self: &Arc<Self>,
        access: Access,
        held: Option<Held>,
        mut session: Option<Box<dyn Session>>,
        took: Option<(Duration, &FlowSeats)>,
    ) {
        self.change(|state, now| {
            state.in_use = state.in_use.saturating_sub(1);
            state.end(held, took.map(|(took, _)| took), now);
            if let Some((took, flow)) = took {
                flow.held(took, now);
            }
            state.keep(access, &mut session, now);
        });
        // Closed outside the lock, where it was not kept.
        drop(session);
    }

    /// While calls wait, the fair order is asked again from time to time.
    fn watch(self: &Arc<Self>, state: &mut State) {
        if !state.is_watched {
            state.is_watched = true;
            tokio::spawn(watch(Arc::downgrade(self)));
        }
    }

    /// Closes sessions that were free for too long.
    pub(crate) fn close_idle(&self, now: Instant) {
        let mut closed = Vec::new();
        let mut state = self.lock();
        while state.idle.front().is_some_and(|idle| now.duration_since(idle.since) >= state.limits.idle) {
            closed.extend(state.idle.pop_front());
        }
        self.publish(&state);
        drop(state);
        drop(closed);
    }

    /// Another plan rules over the same sessions: it acts on the next question, and evicts nobody.
    pub(crate) fn set_limits(self: &Arc<Self>, limits: SeatLimits) {
        self.change(|state, _| {
            if state.limits != limits {
                state.limits = limits;
                state.fair.set_pool(limits.pool);
            }
        });
    }

    /// Keeps nothing open any longer than the calls that use it: another plan rules now.
    pub(crate) fn retire(&self) {
        let mut state = self.lock();
        state.retired = true;
        let closed = std::mem::take(&mut state.idle);
        drop(state);
        drop(closed);
    }

    /// How it is now.
    pub(crate) fn health(&self) -> Health {
        let state = self.lock();
        let counts = SeatCounts {
            max: state.limits.max(),
            in_use: state.in_use,
            idle: state.idle.len(),
            ending: state.ending,
            waiting: state.line.len(),
            lost: state.lost,
        };
        let fair = state.fair.status(state.at(Instant::now()));
        Health { counts, fair, reachable: state.reachable, last_error: state.last_error.clone() }
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

/// Asks the fair order again and again, until nobody waits any more.
async fn watch(seats: Weak<Seats>) {
    loop {
        tokio::time::sleep(WATCH).await;
        let Some(seats) = seats.upgrade() else { return };
        let mut is_over = false;
        seats.change(|state, _| {
            is_over = state.line.is_empty();
            state.is_watched = !is_over;
        });
        if is_over {
            return;
        }
    }
}

/// A wait; recorded however it ends.
struct Wait<'a> {
    began: Instant,
    tenant: &'a str,
    notes: &'a Notes,
    metrics: &'a DatabaseMetrics,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let waited = self.began.elapsed();
        self.notes.add_wait(waited);
        self.metrics.waited(self.tenant, waited);
    }
}
