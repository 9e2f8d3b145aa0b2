//! How soon a place comes free, learned from the calls that ended: what `retry_after` is made of.
//!
//! Who is refused for want of a place is given a turn of its own, a place's time after the one before, so that those who were refused
//! together do not come back together. Turns reach at most one call's time ahead: by then every place has changed hands.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A call's time while none has ended yet.
const UNMEASURED: Duration = Duration::from_millis(250);
/// Nobody is told to come back sooner, or later.
const SOONEST: Duration = Duration::from_millis(10);
const LATEST: Duration = Duration::from_secs(30);
/// A new call counts for so much of the mean: one part of eight.
const PARTS: u64 = 8;

/// How long one tenant's calls take. Two atomics, no lock; what is lost when two write at once is learned from the next call.
#[derive(Debug, Default)]
pub(crate) struct CallTime {
    /// Mean time of a call in nanoseconds; 0: none has ended.
    mean: AtomicU64,
    /// The last turn that was given, nanoseconds since the clock's start.
    turn: AtomicU64,
}

impl CallTime {
    /// A call that was let in ended after `took`.
    pub(crate) fn ended(&self, took: Duration) {
        let (took, mean) = (nanoseconds(took).max(1), self.mean.load(Ordering::Relaxed));
        let mean = if mean == 0 { took } else { mean - mean / PARTS + took / PARTS };
        self.mean.store(mean.max(1), Ordering::Relaxed);
    }

    /// The time of a call.
    pub(crate) fn mean(&self) -> Duration {
        match self.mean.load(Ordering::Relaxed) {
            0 => UNMEASURED,
            mean => Duration::from_nanos(mean),
        }
    }

    /// When somebody who is refused may come back: at a turn of its own, where `places` are at work.
    pub(crate) fn turn(&self, places: u64, now: Duration) -> Duration {
        let (mean, now) = (nanoseconds(self.mean()), nanoseconds(now));
        let apart = (mean / places.max(1)).max(1);
        let next = |last: u64| {
            let turn = last.max(now).saturating_add(apart);
            // All turns of a call's time are given: from the first again.
            Some(if turn > now.saturating_add(mean) { now.saturating_add(apart) } else { turn })
        };
        let last = self.turn.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or_else(|last| last);
        let turn = next(last).unwrap_or(now);
        Duration::from_nanos(turn - now).clamp(SOONEST, LATEST)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_are_refused_together_come_back_one_after_the_other() {
        let call_time = CallTime::default();
        call_time.ended(Duration::from_secs(2));
        let waits: Vec<_> = (0..8).map(|_| call_time.turn(8, Duration::from_secs(100))).collect();
        let apart = Duration::from_millis(250);
        assert_eq!(waits, (1..=8).map(|turn| apart * turn).collect::<Vec<_>>());
        assert_eq!(call_time.turn(8, Duration::from_secs(100)), apart, "never past one call's time");
        assert_eq!(call_time.turn(8, Duration::from_secs(200)), apart, "old turns are over");
    }

    #[test]
    fn the_time_of_calls_is_followed_within_a_few_of_them() {
        let call_time = CallTime::default();
        assert_eq!(call_time.turn(1, Duration::ZERO), UNMEASURED);
        (0..40).for_each(|_| call_time.ended(Duration::from_secs(1)));
        (0..40).for_each(|_| call_time.ended(Duration::from_millis(100)));
        assert!(call_time.mean() < Duration::from_millis(110) && call_time.mean() >= Duration::from_millis(99), "{:?}", call_time.mean());
        (0..100).for_each(|_| call_time.ended(Duration::ZERO));
        assert_eq!(call_time.turn(1_000, Duration::ZERO), SOONEST);
        (0..100).for_each(|_| call_time.ended(Duration::MAX));
        assert_eq!(call_time.turn(1, Duration::ZERO), LATEST);
    }
}
