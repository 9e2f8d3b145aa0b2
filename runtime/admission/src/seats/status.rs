//! What pages show of the seats of a database.

use std::sync::Arc;
use std::time::Duration;

use super::asking::Class;

/// Why the limit is what it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LimitReason {
    /// All seats of the pool may be held.
    Pool,
    /// Calls hold their seats so many times longer than usual.
    Slowed {
        /// How many times, when the limit was last lowered.
        times: f64,
    },
    /// It was lowered, and rises again.
    Recovering,
}

/// The limit changed its reason.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transition {
    /// When.
    pub at: Duration,
    /// The limit from then on.
    pub limit: u32,
    /// Why.
    pub reason: LimitReason,
}

/// Seats and line of one tenant in one class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantSeats {
    /// Who.
    pub tenant: Arc<str>,
    /// In which class.
    pub class: Class,
    /// Seats it holds.
    pub held: u32,
    /// Calls in line.
    pub waiting: u32,
    /// How long the oldest of them has waited.
    pub oldest_wait: Duration,
    /// Its line stands: newest go first, what waited too long is shed.
    pub standing: bool,
}

/// All of it.
#[derive(Clone, Debug, PartialEq)]
pub struct SeatStatus {
    /// Seats that may be held now.
    pub limit: u32,
    /// Why.
    pub reason: LimitReason,
    /// Seats held.
    pub in_use: u32,
    /// Of those, held by calls that are slow or not yet measured.
    pub slow: u32,
    /// Seats that nobody can have: their connections are ending, or lost.
    pub held_back: u32,
    /// Calls in line.
    pub waiting: u32,
    /// By tenant and class; those with neither seat nor line are left out.
    pub tenants: Vec<TenantSeats>,
    /// Limit changes since the start.
    pub transitions: u64,
    /// The last of them, oldest first.
    pub last_transitions: Vec<Transition>,
}
