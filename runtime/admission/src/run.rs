//! Budgets of agent runs: what one run may do, and how many runs a tenant has.
//!
//! A run is named by its caller. It begins with its first call and is over when nobody calls for it any more: `ttl` after the last call
//! that was let in, or when the tenant has begun so many others that it is the oldest one at rest. Its budget ends with it.
//!
//! Invariants
//! 1. There are at most `live` runs of a tenant, and never more than [`MOST_RUNS`].
//! 2. A run with a call in flight is never ended.
//! 3. A call that is refused later gives back what it took, the call itself included; a run that did nothing leaves nothing.
//! 4. No counter passes its limit.
//!
//! Calls that name no run do not come here.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use spillgate_model::{Code, Refusal, Scope};

use crate::recovery::{Cause, Causes};

/// Most runs of a tenant, whatever its limits say.
pub(crate) const MOST_RUNS: u64 = 100_000;

/// What a run may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunLimits {
    /// Runs of a tenant at once.
    pub live: u64,
    /// Calls of a run.
    pub calls: u64,
    /// Its calls at once.
    pub in_flight: u64,
    /// Its repeats of calls that had failed.
    pub retries: u64,
    /// Hops that a call may have behind it.
    pub depth: u64,
    /// It is over when no call was let in for so long.
    pub ttl: Duration,
}

impl Default for RunLimits {
    fn default() -> Self {
        RunLimits { live: 500, calls: 200, in_flight: 16, retries: 20, depth: 4, ttl: Duration::from_secs(30 * 60) }
    }
}

/// The runs of one tenant.
#[derive(Debug, Default)]
pub struct Runs {
    table: Mutex<Table>,
    /// Runs with causes, so that a success that has nothing to tell takes no lock.
    failing: AtomicUsize,
}

#[derive(Debug, Default)]
struct Table {
    runs: HashMap<Arc<str>, Run>,
    /// Runs without a call in flight, by their last call: the oldest first.
    resting: BTreeMap<(Duration, u64), Arc<str>>,
    /// Tells apart what came at the same moment.
    entries: u64,
}

#[derive(Debug, Default)]
struct Run {
    calls: u64,
    in_flight: u64,
    retries: u64,
    /// Its last call, and the place in `resting` that goes with it.
    last: (Duration, u64),
    causes: Causes,
}

/// One call of a run. Dropping it ends the call, not what it used up.
#[derive(Debug)]
pub(crate) struct RunPlace {
    runs: Arc<Runs>,
    run: Arc<str>,
    given_back: AtomicBool,
}

impl Runs {
    /// Asks for one call of a run.
    pub(crate) fn enter(self: &Arc<Self>, run: &Arc<str>, limits: &RunLimits, now: Duration) -> Result<RunPlace, Refusal> {
        let mut guard = self.lock();
        let table = &mut *guard;
        self.end_rested(table, now.checked_sub(limits.ttl));
        if !table.runs.contains_key(run) {
            self.make_room(table, limits.live)?;
        }
        table.entries += 1;
        let entry = (now, table.entries);
        let (name, known) = match table.runs.get_key_value(run) {
            Some((name, _)) => (name.clone(), true),
            None => (run.clone(), false),
        };
        let state = table.runs.entry(name.clone()).or_default();
        if let Err(refusal) = state.check(limits) {
            if !known {
                table.runs.remove(&name);
            }
            return Err(refusal);
        }
        if state.in_flight == 0 {
            table.resting.remove(&state.last);
        }
        (state.calls, state.in_flight, state.last) = (state.calls + 1, state.in_flight + 1, entry);
        Ok(RunPlace { runs: self.clone(), run: name, given_back: AtomicBool::new(false) })
    }

    /// Runs that are known.
    pub fn live(&self) -> u64 {
        self.lock().runs.len() as u64
    }

    /// What a run has used: calls, calls at once, repeats.
    pub fn used(&self, run: &str) -> Option<(u64, u64, u64)> {
        self.lock().runs.get(run).map(|state| (state.calls, state.in_flight, state.retries))
    }

    /// A call of this run failed for a cause that may pass. Nothing is kept of a run that is not known.
    pub(crate) fn met(&self, run: &str, cause: Cause) {
        let mut table = self.lock();
        let Some(state) = table.runs.get_mut(run) else { return };
        if state.causes.is_empty() {
            self.failing.fetch_add(1, Ordering::Relaxed);
        }
        state.causes.met(cause);
    }

    /// A call of this run succeeded: what it shows to have passed.
    pub(crate) fn passed(&self, run: &str, shows: impl Fn(&Cause) -> bool) -> Vec<Cause> {
        if self.failing.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let mut table = self.lock();
        let Some(state) = table.runs.get_mut(run).filter(|state| !state.causes.is_empty()) else { return Vec::new() };
        let passed = state.causes.passed(shows);
        if state.causes.is_empty() {
            self.failing.fetch_sub(1, Ordering::Relaxed);
        }
        passed
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends runs whose last call came at `until` or before.
    fn end_rested(&self, table: &mut Table, until: Option<Duration>) {
        let Some(until) = until else { return };
        while table.resting.first_key_value().is_some_and(|((last, _), _)| *last <= until) {
            self.end_oldest(table);
        }
    }

    fn end_oldest(&self, table: &mut Table) -> bool {
        let Some((_, run)) = table.resting.pop_first() else { return false };
        self.forget(table, &run);
        true
    }

    fn forget(&self, table: &mut Table, run: &str) {
        if table.runs.remove(run).is_some_and(|state| !state.causes.is_empty()) {
            self.failing.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Room for one more run: the oldest one at rest gives way.
    fn make_room(&self, table: &mut Table, live: u64) -> Result<(), Refusal> {
        let most = live.min(MOST_RUNS);
        while table.runs.len() as u64 >= most {
            if !self.end_oldest(table) {
                let used = table.runs.len() as u64;
                let mut refusal =
                    Refusal::new(Code::InFlightExceeded, format!("{used} runs have calls in flight; this would be one more."));
                refusal.scope = Scope::Tenant;
                return Err(refusal.policy("run.live", most, used));
            }
        }
        Ok(())
    }
}

impl Run {
    fn check(&self, limits: &RunLimits) -> Result<(), Refusal> {
        if self.calls >= limits.calls {
            let detail = format!("This run has made {} calls; it has a budget of {}.", self.calls, limits.calls);
            return Err(Refusal::new(Code::RunExhausted, detail).policy("run.calls", limits.calls, self.calls));
        }
        if self.in_flight >= limits.in_flight {
            let mut refusal = Refusal::new(Code::InFlightExceeded, format!("{} calls of this run are running.", self.in_flight));
            refusal.scope = Scope::Run;
            return Err(refusal.policy("run.in_flight", limits.in_flight, self.in_flight));
        }
        Ok(())
    }

    fn did_nothing(&self) -> bool {
        self.calls == 0 && self.in_flight == 0 && self.retries == 0 && self.causes.is_empty()
    }
}

/// Refuses a call that has too many hops behind it: it may be one that agents hand on in a ring.
pub(crate) fn check_depth(depth: u64, limits: &RunLimits) -> Result<(), Refusal> {
    if depth <= limits.depth {
        return Ok(());
    }
    let detail = format!("This call has {depth} hops behind it; a run may have {}.", limits.depth);
    Err(Refusal::new(Code::RunExhausted, detail).policy("run.depth", limits.depth, depth))
}

impl RunPlace {
    /// The call was refused before any work was done for it: it was none. Once.
    pub(crate) fn give_back(&self) {
        if self.given_back.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Some(state) = self.runs.lock().runs.get_mut(&self.run) {
            state.calls = state.calls.saturating_sub(1);
        }
    }

    /// The call repeats one that failed: draws on the run's retries.
    pub(crate) fn retry(&self, limits: &RunLimits) -> Result<(), Refusal> {
        let mut table = self.runs.lock();
        let Some(state) = table.runs.get_mut(&self.run) else { return Ok(()) };
        if state.retries >= limits.retries {
            let detail = format!("This run has repeated {} failed calls; it has a budget of {}.", state.retries, limits.retries);
            return Err(Refusal::new(Code::RunExhausted, detail).policy("run.retries", limits.retries, state.retries));
        }
        state.retries += 1;
        Ok(())
    }

    /// The repeat was refused after all.
    pub(crate) fn give_back_retry(&self) {
        if let Some(state) = self.runs.lock().runs.get_mut(&self.run) {
            state.retries = state.retries.saturating_sub(1);
        }
    }
}

impl Drop for RunPlace {
    fn drop(&mut self) {
        let mut guard = self.runs.lock();
        let table = &mut *guard;
        let Some(state) = table.runs.get_mut(&self.run) else { return };
        state.in_flight = state.in_flight.saturating_sub(1);
        if state.did_nothing() {
            table.runs.remove(&self.run);
        } else if state.in_flight == 0 {
            table.resting.insert(state.last, self.run.clone());
        }
    }
}

#[cfg(test)]
mod tests;
