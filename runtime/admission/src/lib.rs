//! What may run: rates, budgets and permits. Pure; time is passed in.
//!
//! Invariants
//! 1. A refusal gives back everything that was taken for the call, rate included.
//! 2. A permit gives everything but the rate back by drop, on every path.
//! 3. No counter ever passes its limit, whatever the interleaving.
//! 4. A limit lowered below what is in use refuses new work and evicts nothing.
//!
//! It refuses: waiting, clocks, anything about HTTP.

mod breaker;
mod budget;
mod gate;
mod rate;
mod retries;
mod window;
pub mod seats;

pub use breaker::{Breaker, BreakerLimits, BreakerState, BreakerStatus, LONGEST_COOL_DOWN, Outage, Pass, Said, Shut};
pub use budget::{Budget, Reservation};
pub use gate::{PayloadMemory, Permit, TenantGate, TenantLimits};
pub use rate::RateLimiter;
pub use retries::{Retry, RetryBudget, RetryLimits};
pub use seats::FairSeats;
