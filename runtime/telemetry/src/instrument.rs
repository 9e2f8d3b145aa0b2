//! The three instruments: plain atomics, made once, held by whoever counts.
//!
//! Invariants
//! 1. Counting takes no lock, allocates nothing and never waits.
//! 2. An instrument's size is fixed: a histogram keeps counts per bucket, never samples.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// Only goes up.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn increment(&self) {
        self.add(1);
    }
    /// Several more.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }
    /// What was counted.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// One more.
    pub fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    /// One less.
    pub fn decrement(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
    /// Several more.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(i64::try_from(amount).unwrap_or(i64::MAX), Ordering::Relaxed);
    }
    /// As it is now.
    pub fn set(&self, value: u64) {
        self.0.store(i64::try_from(value).unwrap_or(i64::MAX), Ordering::Relaxed);
    }
    /// As it was last seen.
    pub fn value(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Upper bounds of the buckets in microseconds; one more bucket holds what is longer.
pub(crate) const BOUNDS_US: [u64; 15] =
    [500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000];

const _: () = {
    let mut index = 1;
    while index < BOUNDS_US.len() {
        assert!(BOUNDS_US[index - 1] < BOUNDS_US[index], "bounds rise");
        index += 1;
    }
};

/// Counts times by bucket.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_ns: AtomicU64,
}

impl Histogram {
    /// Counts one time.
    pub fn record(&self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let index = BOUNDS_US.iter().position(|bound| nanoseconds <= bound * 1_000).unwrap_or(BOUNDS_US.len());
        self.buckets[index].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(nanoseconds, Ordering::Relaxed);
    }
    /// Times counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum()
    }
    /// Counts up to and with each bound, the last one without a bound; and the sum of all times.
    pub(crate) fn cumulative(&self) -> ([u64; BOUNDS_US.len() + 1], Duration) {
        let mut total = 0;
        let counts = std::array::from_fn(|index| {
            total += self.buckets[index].load(Ordering::Relaxed);
            total
        });
        (counts, Duration::from_nanos(self.sum_ns.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_falls_into_the_first_bucket_that_holds_it() {
        let histogram = Histogram::default();
        for time in [Duration::ZERO, Duration::from_micros(500), Duration::from_nanos(500_001), Duration::from_secs(31)] {
            histogram.record(time);
        }
        let (counts, sum) = histogram.cumulative();
        assert_eq!((counts[0], counts[1], counts[14], counts[15]), (2, 3, 3, 4));
        assert_eq!(histogram.count(), 4);
        assert_eq!(sum, Duration::from_nanos(31_001_000_001));
    }
}
