//! The gate of one tenant: rate, run, in flight, memory, asked in that order and given out as one permit.
//!
//! Invariants
//! 1. A refusal gives back what was taken before it: at the gate at once, behind it by [`Permit::give_back`].
//! 2. Calls that name no run touch no table of runs; a gate at rest takes no lock.
//! 3. Control (looking at a job, cancelling it) is counted apart: work never stands in its way, and it has its own caps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use spillgate_model::units::Rate;
use spillgate_model::{Code, Refusal, Scope};

use crate::budget::{Budget, Reservation};
use crate::call_time::{CallTime, Places};
use crate::rate::RateLimiter;
use crate::recovery::{Cause, Recovery};
use crate::repeat::Repeats;
use crate::run::{RunLimits, RunPlace, Runs, check_depth};

/// Limits in force for a tenant at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantLimits {
    /// Calls in a period.
    pub rate: Rate,
    /// Calls at once.
    pub in_flight: u64,
    /// Bytes of payloads at once.
    pub memory: u64,
    /// Repeats of calls that have just failed.
    pub repeat_budget: Rate,
    /// Of each of its runs.
    pub run: RunLimits,
}

impl Default for TenantLimits {
    fn default() -> Self {
        TenantLimits {
            rate: Rate { calls: 6_000, period: Duration::from_secs(60), burst: 6_000 },
            in_flight: 64,
            memory: 64 << 20,
            repeat_budget: Rate { calls: 1, period: Duration::from_secs(1), burst: 20 },
            run: RunLimits::default(),
        }
    }
}

/// Looks at jobs, and wishes to cancel them, that a tenant may have open at once.
const CONTROL_AT_ONCE: u64 = 256;
/// Of these, looks that wait for a job's end: the rest is never held for long.
const WAITS_AT_ONCE: u64 = 192;

/// What a tenant has taken. Outlives reloads; limits are passed in.
#[derive(Debug, Default)]
pub struct TenantGate {
    rate: RateLimiter,
    in_flight: Arc<Budget>,
    memory: Arc<Budget>,
    call_time: CallTime,
    runs: Arc<Runs>,
    repeats: Repeats,
    recovery: Recovery,
    control_rate: RateLimiter,
    control: Arc<Budget>,
}

/// A call at the gate.
#[derive(Clone, Copy, Debug)]
pub struct Entering<'a> {
    /// The run it names.
    pub run: Option<&'a Arc<str>>,
    /// Hops of its run that it has behind it.
    pub depth: u64,
    /// Bytes it may need.
    pub memory: u64,
    /// Monotonic time since the clock's start.
    pub now: Duration,
}

/// The right to do one call. Dropping it gives everything back but what the call used up: rate, and a call of its run.
#[derive(Debug)]
pub struct Permit {
    place: Place,
    rate: Rate,
    given_back: AtomicBool,
    run: Option<RunPlace>,
    memory: PayloadMemory,
}

/// One of the calls at once of a tenant.
#[derive(Debug)]
struct Place {
    gate: Arc<TenantGate>,
    _in_flight: Reservation,
}

impl Drop for Place {
    fn drop(&mut self) {
        // However the call ended: a place is free for those who were refused.
        self.gate.call_time.freed();
    }
}

impl Permit {
    /// The call has ended, its reply has not been sent: gives back the call, keeps the memory.
    pub fn into_memory(self) -> PayloadMemory {
        self.memory
    }
    /// The call needs no more than so much from here on: gives back the rest.
    pub fn shrink_memory(&self, bytes: u64) {
        self.memory.tenant.shrink_to(bytes);
        self.memory.server.shrink_to(bytes);
    }
    /// The call was refused before any work was done for it: it costs neither rate nor a call of its run (case E1). Once.
    pub fn give_back(&self) {
        if self.given_back.swap(true, Ordering::Relaxed) {
            return;
        }
        self.place.gate.rate.give_back(self.rate);
        if let Some(run) = &self.run {
            run.give_back();
        }
    }
    /// The call is a repeat of one that has just failed: draws on its run's retries, then on the tenant's budget.
    pub fn repeat(&self, limits: &TenantLimits, now: Duration) -> Result<(), Refusal> {
        if let Some(run) = &self.run {
            run.retry(&limits.run)?;
        }
        self.place.gate.repeats.draw(limits.repeat_budget, now).inspect_err(|_| {
            if let Some(run) = &self.run {
                run.give_back_retry();
            }
        })
    }
}

/// The memory of one call, in its tenant's share and in the server's. Dropping it gives it back.
#[derive(Debug)]
pub struct PayloadMemory {
    tenant: Reservation,
    server: Reservation,
}

impl TenantGate {
    /// Asks in the order of the contract: rate, run, in flight, memory (tenant's share, then the server's).
    pub fn enter(
        self: &Arc<Self>,
        limits: &TenantLimits,
        call: &Entering<'_>,
        server: &Arc<Budget>,
        server_limit: u64,
    ) -> Result<Permit, Refusal> {
        self.rate.take(limits.rate, call.now).map_err(|wait| rate_exceeded(limits, wait))?;
        self.behind_rate(limits, call, server, server_limit).inspect_err(|_| self.rate.give_back(limits.rate))
    }

    fn behind_rate(
        self: &Arc<Self>,
        limits: &TenantLimits,
        call: &Entering<'_>,
        server: &Arc<Budget>,
        server_limit: u64,
    ) -> Result<Permit, Refusal> {
        let run = match call.run {
            Some(run) => {
                check_depth(call.depth, &limits.run)?;
                Some(self.runs.enter(run, &limits.run, call.now).map_err(|refusal| self.timed(refusal, limits, call.now))?)
            }
            None => None,
        };
        let behind_run = || {
            let in_flight = self.reserve_place(limits)?;
            Ok((in_flight, self.reserve_memory(limits, call.memory, server, server_limit)?))
        };
        let (in_flight, memory) = behind_run().map_err(|refusal| {
            if let Some(run) = &run {
                run.give_back();
            }
            self.timed(refusal, limits, call.now)
        })?;
        let place = Place { gate: self.clone(), _in_flight: in_flight };
        Ok(Permit { place, rate: limits.rate, given_back: AtomicBool::new(false), run, memory })
    }

    fn reserve_place(&self, limits: &TenantLimits) -> Result<Reservation, Refusal> {
        self.in_flight.reserve(1, limits.in_flight).map_err(|used| {
            Refusal::new(Code::InFlightExceeded, format!("{used} calls are running.")).policy("in_flight", limits.in_flight, used)
        })
    }

    /// When to come back: when a place that is taken now will have changed hands.
    fn timed(&self, refusal: Refusal, limits: &TenantLimits, now: Duration) -> Refusal {
        if !refusal.retryable {
            return refusal;
        }
        let places = Places { taken: self.in_flight.used(), limit: limits.in_flight };
        refusal.retry_after(self.call_time.turn(places, now))
    }

    /// Asks for memory alone: the tenant's share, then the server's.
    pub fn reserve_memory(
        &self,
        limits: &TenantLimits,
        memory: u64,
        server: &Arc<Budget>,
        server_limit: u64,
    ) -> Result<PayloadMemory, Refusal> {
        let full = |scope: Scope, detail: &str, policy: (&'static str, u64, u64)| {
            let refusal = Refusal { scope, ..Refusal::new(Code::MemoryFull, detail) };
            refusal.policy(policy.0, policy.1, policy.2).retry_after(self.call_time.mean())
        };
        let tenant = self.memory.reserve(memory, limits.memory).map_err(|used| {
            full(Scope::Tenant, "This tenant's part of the memory is in use by its other calls.", ("tenant.memory", limits.memory, used))
        })?;
        let server = server
            .reserve(memory, server_limit)
            .map_err(|used| full(Scope::Server, "The server's memory for results is in use.", ("server.memory", server_limit, used)))?;
        Ok(PayloadMemory { tenant, server })
    }

    /// Asks for what control needs: as often as calls, counted apart from them, and so many at once; where it `waits`, not the last
    /// of them.
    pub fn enter_control(&self, limits: &TenantLimits, now: Duration, waits: bool) -> Result<Reservation, Refusal> {
        self.control_rate.take(limits.rate, now).map_err(|wait| rate_exceeded(limits, wait))?;
        let most = if waits { WAITS_AT_ONCE } else { CONTROL_AT_ONCE };
        self.control.reserve(1, most).map_err(|used| {
            self.control_rate.give_back(limits.rate);
            Refusal::new(Code::InFlightExceeded, format!("{used} jobs are being looked at.")).policy("control", most, used)
        })
    }

    /// A call that was let in ended after so long.
    pub fn ended(&self, took: Duration) {
        self.call_time.ended(took);
    }
    /// What failed lately.
    pub fn repeats(&self) -> &Repeats {
        &self.repeats
    }
    /// Its runs.
    pub fn runs(&self) -> &Arc<Runs> {
        &self.runs
    }

    /// A call failed for a cause that may pass: of this run, or of those that name none.
    pub fn met(&self, run: Option<&str>, cause: Cause) {
        match run {
            Some(run) => self.runs.met(run, cause),
            None => self.recovery.met(cause),
        }
    }
    /// A call succeeded: what it shows to have passed, told once.
    pub fn passed(&self, run: Option<&str>, shows: impl Fn(&Cause) -> bool) -> Vec<Cause> {
        match run {
            Some(run) => self.runs.passed(run, shows),
            None => self.recovery.passed(shows),
        }
    }

    /// Calls that the rate would let through at once.
    pub fn rate_remaining(&self, rate: Rate, now: Duration) -> u64 {
        self.rate.remaining(rate, now)
    }
    /// Calls running.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.used()
    }
    /// Bytes reserved.
    pub fn memory(&self) -> u64 {
        self.memory.used()
    }
}

fn rate_exceeded(limits: &TenantLimits, wait: Duration) -> Refusal {
    let refusal = Refusal::new(Code::RateExceeded, format!("More than {} calls.", limits.rate));
    refusal.policy("rate", limits.rate.calls, limits.rate.calls).retry_after(wait)
}

#[cfg(test)]
mod tests;
