//! What pages show of the seats of a database.

use std::sync::Arc;
use std::time::Duration;

use super::FairSeats;
use super::asking::Class;
use super::order::SLOW;
use super::tenants::Tenant;

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
    /// Seats it may hold now in all its classes, but for those that are held back.
    pub limit: u32,
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
    /// Seats that may be held now, but for those that are held back.
    pub limit: u32,
    /// Why.
    pub reason: LimitReason,
    /// Seats held.
    pub in_use: u32,
    /// Of those, held by calls that are slow or not yet measured.
    pub slow: u32,
    /// Seats that nobody can have.
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

impl FairSeats {
    /// For pages. Not for the path of a call.
    pub fn status(&self, now: Duration) -> SeatStatus {
        let limit = self.limit.seats(self.pool.max);
        SeatStatus {
            limit,
            reason: self.limit.reason(),
            in_use: self.in_use(),
            slow: self.seated.held_at(SLOW),
            held_back: self.held_back,
            waiting: self.waiting(),
            tenants: self.tenants.iter().flat_map(|tenant| seats_of(tenant, self.limit_of(&tenant.share).min(limit), now)).collect(),
            transitions: self.limit.transitions,
            last_transitions: self.limit.last.iter().copied().collect(),
        }
    }
}

fn seats_of(tenant: &Tenant, limit: u32, now: Duration) -> impl Iterator<Item = TenantSeats> {
    let used = Class::ALL.into_iter().zip(&tenant.queues).filter(|(_, queue)| queue.held > 0 || queue.waiting() > 0);
    used.map(move |(class, queue)| TenantSeats {
        tenant: tenant.name.clone(),
        class,
        limit,
        held: queue.held,
        waiting: queue.waiting(),
        oldest_wait: queue.lines.iter().map(|line| line.oldest_wait(now)).max().unwrap_or_default(),
        standing: queue.lines.iter().any(|line| line.standing.stands() && !line.calls.is_empty()),
    })
}
