//! What may run: rates, budgets and permits. Pure; time is passed in.
//!
//! Invariants
//! 1. A refusal gives back everything that was taken for the call, rate included.
//! 2. A permit gives everything back by drop, on every path, but what the call used up: its rate and a call of its run.
//! 3. No counter ever passes its limit, whatever the interleaving.
//! 4. A limit lowered below what is in use refuses new work and evicts nothing.
//!
//! It refuses: waiting, clocks, anything about HTTP.

mod breaker;
mod budget;
mod call_time;
mod gate;
mod rate;
mod recovery;
mod repeat;
mod retries;
mod run;
pub mod seats;
mod stages;
mod window;

pub use breaker::{
    Breaker, BreakerLimits, BreakerState, BreakerStatus, LONGEST_COOL_DOWN, Move, Moved, Outage, Pass, Said, Shut, TenantBreakers,
};
pub use budget::{Budget, Reservation};
pub use gate::{Entering, PayloadMemory, Permit, TenantGate, TenantLimits};
pub use rate::RateLimiter;
pub use recovery::Cause;
pub use repeat::{FAILED_FOR, Likeness, Repeats};
pub use retries::{RetryBudget, RetryLimits};
pub use run::{RunLimits, Runs};
pub use seats::FairSeats;
pub use stages::{Moment, Stage, describe};
