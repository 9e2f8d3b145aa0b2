//! A number of things (bytes, calls) that may be out at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts what is out. The limit is passed with each reservation, so that it may change while things are out.
#[derive(Debug, Default)]
pub struct Budget {
    used: AtomicU64,
}

impl Budget {
    /// What is out now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes `amount` if that keeps the sum at or below `limit`; else says what is out. Given back by drop.
    pub fn reserve(self: &Arc<Self>, amount: u64, limit: u64) -> Result<Reservation, u64> {
        let fits = |used: u64| used.checked_add(amount).filter(|sum| *sum <= limit);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(Reservation { budget: self.clone(), amount: AtomicU64::new(amount) }),
            Err(used) => Err(used),
        }
    }
}

/// Something taken from a [`Budget`]. Dropping it gives it back.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<Budget>,
    amount: AtomicU64,
}

impl Reservation {
    /// How much is reserved.
    pub fn amount(&self) -> u64 {
        self.amount.load(Ordering::Relaxed)
    }
    /// Gives back what is above `amount`.
    pub fn shrink_to(&self, amount: u64) {
        let before = self.amount.fetch_min(amount, Ordering::Relaxed);
        self.budget.used.fetch_sub(before.saturating_sub(amount), Ordering::Relaxed);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(*self.amount.get_mut(), Ordering::Relaxed);
    }
}
