//! The gate of one tenant: rate, then in flight, then memory, in one permit.

use std::sync::Arc;
use std::time::Duration;

use spillgate_model::units::Rate;
use spillgate_model::{Code, Refusal};

use crate::budget::{Budget, Reservation};
use crate::rate::RateLimiter;

/// Limits in force for a tenant at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantLimits {
    /// Calls in a period.
    pub rate: Rate,
    /// Calls at once.
    pub in_flight: u64,
    /// Bytes of payloads at once.
    pub memory: u64,
}

/// What a tenant has taken. Outlives reloads; limits are passed in.
#[derive(Debug, Default)]
pub struct TenantGate {
    rate: RateLimiter,
    in_flight: Arc<Budget>,
    memory: Arc<Budget>,
}

/// The right to do one call. Dropping it gives everything back but the rate.
#[derive(Debug)]
pub struct Permit {
    _in_flight: Reservation,
    memory: PayloadMemory,
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
}

/// The memory of one call, in its tenant's share and in the server's. Dropping it gives it back.
#[derive(Debug)]
pub struct PayloadMemory {
    tenant: Reservation,
    server: Reservation,
}

/// How long a caller over its in-flight or memory limit is told to wait: about one call's time.
const BUSY_RETRY_AFTER: Duration = Duration::from_millis(250);

impl TenantGate {
    /// Asks in the order of the contract: rate, in flight, memory (tenant's share, then the server's).
    pub fn enter(
        &self,
        limits: &TenantLimits,
        memory: u64,
        server: &Arc<Budget>,
        server_limit: u64,
        now: Duration,
    ) -> Result<Permit, Refusal> {
        self.take_rate(limits, now)?;
        self.reserve(limits, memory, server, server_limit).inspect_err(|_| self.give_back_rate(limits))
    }

    /// Asks for the rate alone.
    pub fn take_rate(&self, limits: &TenantLimits, now: Duration) -> Result<(), Refusal> {
        self.rate.take(limits.rate, now).map_err(|wait| {
            Refusal::new(Code::RateExceeded, format!("More than {} calls.", limits.rate))
                .policy("rate", limits.rate.calls, limits.rate.calls)
                .retry_after(wait)
        })
    }

    /// Gives the rate of one call back: it was refused later, before any work was done for it (case E1).
    pub fn give_back_rate(&self, limits: &TenantLimits) {
        self.rate.give_back(limits.rate);
    }

    fn reserve(&self, limits: &TenantLimits, memory: u64, server: &Arc<Budget>, server_limit: u64) -> Result<Permit, Refusal> {
        let in_flight = self.in_flight.reserve(1, limits.in_flight).map_err(|used| {
            Refusal::new(Code::InFlightExceeded, format!("{used} calls are running."))
                .policy("in_flight", limits.in_flight, used)
                .retry_after(BUSY_RETRY_AFTER)
        })?;
        Ok(Permit { _in_flight: in_flight, memory: self.reserve_memory(limits, memory, server, server_limit)? })
    }

    /// Asks for memory alone: the tenant's share, then the server's.
    pub fn reserve_memory(
        &self,
        limits: &TenantLimits,
        memory: u64,
        server: &Arc<Budget>,
        server_limit: u64,
    ) -> Result<PayloadMemory, Refusal> {
        let full = |name: &'static str, limit: u64, used: u64| {
            Refusal::new(Code::MemoryFull, "The memory for results is in use.").policy(name, limit, used).retry_after(BUSY_RETRY_AFTER)
        };
        let tenant = self.memory.reserve(memory, limits.memory).map_err(|used| full("tenant.memory", limits.memory, used))?;
        let server = server.reserve(memory, server_limit).map_err(|used| full("server.memory", server_limit, used))?;
        Ok(PayloadMemory { tenant, server })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> TenantLimits {
        TenantLimits { rate: Rate { calls: 2, period: Duration::from_secs(60), burst: 2 }, in_flight: 1, memory: 100 }
    }

    #[test]
    fn e1_refused_calls_give_back_all_they_took() {
        let (gate, server) = (TenantGate::default(), Arc::new(Budget::default()));
        let enter = |memory| gate.enter(&limits(), memory, &server, 1_000, Duration::ZERO);
        let first = enter(10).expect("A runs");
        assert_eq!(enter(10).expect_err("B is refused").code, Code::InFlightExceeded);
        drop(first);
        assert_eq!(enter(101).expect_err("over its memory").code, Code::MemoryFull);
        drop(enter(100).expect("C passes"));
        assert_eq!(enter(1).expect_err("the third in a minute").code, Code::RateExceeded);
        assert_eq!((gate.in_flight(), gate.memory(), server.used()), (0, 0, 0));
    }

    #[test]
    fn a_call_that_needs_less_gives_back_the_rest_once() {
        let (gate, server) = (TenantGate::default(), Arc::new(Budget::default()));
        let permit = gate.enter(&limits(), 90, &server, 1_000, Duration::ZERO).expect("it runs");
        for (bytes, left) in [(40, 40), (40, 40), (70, 40), (0, 0)] {
            permit.shrink_memory(bytes);
            assert_eq!((gate.memory(), server.used()), (left, left), "{bytes}");
        }
        drop(permit);
        assert_eq!((gate.in_flight(), gate.memory(), server.used()), (0, 0, 0));
    }

    #[test]
    fn a_lowered_limit_refuses_and_evicts_nothing() {
        let budget = Arc::new(Budget::default());
        let held: Vec<_> = (0..5).map(|_| budget.reserve(1, 5).expect("below the limit")).collect();
        assert_eq!(budget.reserve(1, 2).expect_err("above the lowered limit"), 5);
        drop(held);
        assert!(budget.reserve(2, 2).is_ok());
    }
}
