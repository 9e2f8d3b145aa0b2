//! How many retries there may be beside how many calls: a share, so that a target that fails gets a quarter more, not a multiple.
//!
//! Invariants
//! 1. A retry is counted when it is decided, not when it runs: those that wait for their turn are counted (case E3).
//! 2. Within a window there are never more retries than `share` of the calls that began in it, or `floor` where that is more.

use std::time::Duration;

use crate::window::{Counts, Window};

/// How much may be retried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryLimits {
    /// Retries for each call.
    pub share: f64,
    /// Retries within a window that are always allowed: few calls have no share to speak of.
    pub floor: u64,
    /// How long calls and retries are counted.
    pub window: Duration,
}

/// Counts the calls and retries to one target. No lock.
#[derive(Debug, Default)]
pub struct RetryBudget {
    counted: Window,
}

impl RetryBudget {
    /// A call began: its first attempt.
    pub fn called(&self, limits: &RetryLimits, now: Duration) {
        self.counted.add(Counts::WELL, limits.window, now);
    }

    /// Takes one retry, from now on: also while it waits for its time. `false`: the budget is spent.
    pub fn take(&self, limits: &RetryLimits, now: Duration) -> bool {
        // Counted first and looked at then: of two that meet at the last place both may be refused, never both admitted.
        let slot = self.counted.add(Counts::ILL, limits.window, now);
        let counted = self.counted.sum(limits.window, now);
        if counted.ill <= most(limits, counted.well) {
            return true;
        }
        self.counted.take_back(Counts::ILL, slot);
        false
    }

    /// Retries taken within the window, and the most there may be now.
    pub fn used(&self, limits: &RetryLimits, now: Duration) -> (u64, u64) {
        let counted = self.counted.sum(limits.window, now);
        (counted.ill, most(limits, counted.well))
    }
}

// The share is of a count far below 2^52, and is rounded down on purpose.
#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]
fn most(limits: &RetryLimits, calls: u64) -> u64 {
    limits.floor.max((calls as f64 * limits.share) as u64)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const LIMITS: RetryLimits = RetryLimits { share: 0.25, floor: 2, window: Duration::from_secs(10) };
    const START: Duration = Duration::from_secs(100);

    #[test]
    fn e3_400_calls_that_fail_together_make_100_retries() {
        let (budget, taken, together) = (RetryBudget::default(), AtomicU64::new(0), Barrier::new(8));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    (0..50).for_each(|_| budget.called(&LIMITS, START));
                    together.wait();
                    // All wait for their back-off at once: none has run, all count.
                    for _ in 0..50 {
                        if budget.take(&LIMITS, START) {
                            taken.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        let taken = taken.into_inner();
        assert!((90..=100).contains(&taken), "never above the share, and near it: {taken}");
        let (used, most) = budget.used(&LIMITS, START);
        assert_eq!((used, most), (taken, 100));
    }

    #[test]
    fn a_few_calls_have_the_floor() {
        let budget = RetryBudget::default();
        budget.called(&LIMITS, START);
        assert!(budget.take(&LIMITS, START) && budget.take(&LIMITS, START), "the floor is two");
        assert!(!budget.take(&LIMITS, START));
        assert!(budget.take(&LIMITS, START + LIMITS.window * 2), "it comes back with time");
    }

    #[test]
    fn a_share_of_nothing_is_nothing() {
        let (budget, none) = (RetryBudget::default(), RetryLimits { share: 0.25, floor: 0, window: Duration::from_secs(10) });
        (0..3).for_each(|_| budget.called(&none, START));
        assert!(!budget.take(&none, START));
        budget.called(&none, START);
        assert!(budget.take(&none, START));
    }
}
