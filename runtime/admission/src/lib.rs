//! What may run: rates, budgets and permits. Pure; time is passed in.
//!
//! Invariants
//! 1. A refusal gives back everything that was taken for the call, rate included.
//! 2. A permit gives everything but the rate back by drop, on every path.
//! 3. No counter ever passes its limit, whatever the interleaving.
//! 4. A limit lowered below what is in use refuses new work and evicts nothing.
//!
//! It refuses: waiting, clocks, anything about HTTP.

mod budget;
mod gate;
mod rate;
pub mod seats;

pub use budget::{Budget, Reservation};
pub use gate::{PayloadMemory, Permit, TenantGate, TenantLimits};
pub use rate::RateLimiter;
pub use seats::FairSeats;
