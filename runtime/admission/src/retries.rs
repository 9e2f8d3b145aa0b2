//! How many retries there may be beside how many calls: a share, so that a target that fails gets a quarter more, not a multiple. Each
//! tenant has a budget of its own at each target: what one fails takes no other's retries away.
//!
//! Invariants
//! 1. A retry is counted when it is decided, not when it runs: those that wait for their turn are counted (case E3).
//! 2. Within a window a tenant never has more retries than `share` of its own calls that began in it, or `floor` where that is more.
//! 3. What tenants have by the floor, beyond their shares, is for all of them together never more than `floors_share` of all calls, or
//!    `floors` where that is more: a thousand tenants with a call each make no thousand floors. A tenant's share needs no other's leave.
//! 4. There is one window a tenant of the plan, made with its first call that may be tried again. No lock; nothing allocated after it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::window::{Counts, Window};

/// How much may be retried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryLimits {
    /// Retries for each call of the same tenant.
    pub share: f64,
    /// Retries of a tenant within a window that need no share: few calls have none to speak of.
    pub floor: u64,
    /// Retries beyond the shares, of all tenants together, for each call of any tenant.
    pub floors_share: f64,
    /// Retries beyond the shares that all tenants together have within a window, whatever the calls.
    pub floors: u64,
    /// How long calls and retries are counted.
    pub window: Duration,
}

/// Counts the calls and retries to one target, by the tenant's place in the plan. No lock.
#[derive(Debug, Default)]
pub struct RetryBudget {
    /// Calls and retries of each.
    own: Box<[OnceLock<Arc<Window>>]>,
    /// Calls of all, and the retries beyond the shares.
    together: Arc<Window>,
}

impl RetryBudget {
    /// For a plan with so many tenants.
    pub fn new(tenants: usize) -> Self {
        RetryBudget { own: (0..tenants).map(|_| OnceLock::new()).collect(), together: Arc::default() }
    }

    /// The same budget under another plan, for each of whose tenants is told which place it has in this one, if any.
    pub fn under(&self, places: &[Option<usize>]) -> Self {
        let counted = |place: &Option<usize>| self.own.get((*place)?)?.get().cloned();
        let own = places.iter().map(|place| counted(place).map_or_else(OnceLock::new, OnceLock::from)).collect();
        RetryBudget { own, together: self.together.clone() }
    }

    /// A call of a tenant began: its first attempt.
    pub fn called(&self, tenant: usize, limits: &RetryLimits, now: Duration) {
        if let Some(own) = self.own.get(tenant) {
            own.get_or_init(Arc::default).add(Counts::WELL, limits.window, now);
            self.together.add(Counts::WELL, limits.window, now);
        }
    }

    /// Takes one retry, from now on: also while it waits for its time. `false`: the budget is spent, or the tenant made no call.
    pub fn take(&self, tenant: usize, limits: &RetryLimits, now: Duration) -> bool {
        let Some(own) = self.own.get(tenant).and_then(OnceLock::get) else { return false };
        // Counted first and looked at then: of two that meet at the last place both may be refused, never both admitted.
        let slot = own.add(Counts::ILL, limits.window, now);
        let counted = own.sum(limits.window, now);
        let share = part(limits.share, counted.well);
        if counted.ill <= share || counted.ill <= limits.floor && self.beyond_shares(limits, now) {
            return true;
        }
        own.take_back(Counts::ILL, slot);
        false
    }

    /// Retries that a tenant took within the window, and the most there may be now where others leave it its floor.
    pub fn used(&self, tenant: usize, limits: &RetryLimits, now: Duration) -> (u64, u64) {
        let own = self.own.get(tenant).and_then(OnceLock::get);
        let counted = own.map_or_else(Counts::default, |own| own.sum(limits.window, now));
        (counted.ill, limits.floor.max(part(limits.share, counted.well)))
    }

    fn beyond_shares(&self, limits: &RetryLimits, now: Duration) -> bool {
        let slot = self.together.add(Counts::ILL, limits.window, now);
        let counted = self.together.sum(limits.window, now);
        let within = counted.ill <= limits.floors.max(part(limits.floors_share, counted.well));
        if !within {
            self.together.take_back(Counts::ILL, slot);
        }
        within
    }
}

// The share is of a count far below 2^52, and is rounded down on purpose.
#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]
fn part(share: f64, calls: u64) -> u64 {
    (calls as f64 * share) as u64
}

#[cfg(test)]
mod tests;
