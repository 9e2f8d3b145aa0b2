//! How soon a place comes free, learned from the calls that ended: what `retry_after` is made of.
//!
//! Who is refused for want of a place is given a turn of its own, a place's time after the one before, so that those who were refused
//! together do not come back together. Turns reach at most one call's time ahead: by then every place has changed hands.
//!
//! What has ended may have been quicker than what runs. So while calls are refused and no place comes free, a call's time is taken to be
//! at least as long as that has lasted: who is refused again is told to wait longer. A place that comes free ends that, whoever had it:
//! also one whose caller hung up, or that was refused later on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A call's time while none has ended yet.
const UNMEASURED: Duration = Duration::from_millis(250);
/// Nobody is told to come back sooner, or later.
const SOONEST: Duration = Duration::from_millis(10);
const LATEST: Duration = Duration::from_secs(30);
/// So long after the last turn nobody is waiting for one any more.
const OVER: Duration = Duration::from_secs(1);
/// A new call counts for so much of the mean: one part of eight.
const PARTS: u64 = 8;

/// How long one tenant's calls take. Three atomics, no lock; what is lost when two write at once is learned from the next call.
#[derive(Debug, Default)]
pub(crate) struct CallTime {
    /// Mean time of a call in nanoseconds; 0: none has ended.
    mean: AtomicU64,
    /// The last turn that was given, nanoseconds since the clock's start.
    turn: AtomicU64,
    /// The first refusal since a place came free, on the same clock; 0: there was none.
    refused: AtomicU64,
}

/// Places at the moment of a refusal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    /// Taken. More than there are where the limit was lowered.
    pub(crate) taken: u64,
    pub(crate) limit: u64,
}

impl CallTime {
    /// A call that was let in ended after `took`.
    pub(crate) fn ended(&self, took: Duration) {
        let (took, mean) = (nanoseconds(took).max(1), self.mean.load(Ordering::Relaxed));
        let mean = if mean == 0 { took } else { mean - mean / PARTS + took / PARTS };
        self.mean.store(mean.max(1), Ordering::Relaxed);
    }

    /// A place came free.
    pub(crate) fn freed(&self) {
        if self.refused.load(Ordering::Relaxed) != 0 {
            self.refused.store(0, Ordering::Relaxed);
        }
    }

    /// The time of a call.
    pub(crate) fn mean(&self) -> Duration {
        match self.mean.load(Ordering::Relaxed) {
            0 => UNMEASURED,
            mean => Duration::from_nanos(mean),
        }
    }

    /// When somebody who is refused may come back: at a turn of its own.
    pub(crate) fn turn(&self, places: Places, now: Duration) -> Duration {
        let now = nanoseconds(now);
        let time = nanoseconds(self.mean()).max(self.stalled(now));
        let apart = (time / places.taken.min(places.limit).max(1)).max(1);
        // Beyond a lowered limit, so many must end before anybody gets a place.
        let ends_apart = time / places.taken.max(1);
        let first = now.saturating_add(ends_apart.saturating_mul(places.taken.saturating_sub(places.limit)));
        let next = |last: u64| {
            let turn = last.max(first).saturating_add(apart);
            // All turns of a call's time are given: from the first again.
            Some(if turn > first.saturating_add(time) { first.saturating_add(apart) } else { turn })
        };
        let last = self.turn.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or_else(|last| last);
        let turn = next(last).unwrap_or(now);
        Duration::from_nanos(turn - now).clamp(SOONEST, LATEST)
    }

    /// For how long calls have been refused while no place came free: those who come back as they were told, one after the other.
    fn stalled(&self, now: u64) -> u64 {
        let since = self.refused.load(Ordering::Relaxed);
        let is_over = now > self.turn.load(Ordering::Relaxed).saturating_add(nanoseconds(OVER));
        if since == 0 || is_over {
            self.refused.store(now.max(1), Ordering::Relaxed);
            return 0;
        }
        now.saturating_sub(since)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    fn full(limit: u64) -> Places {
        Places { taken: limit, limit }
    }

    #[test]
    fn those_who_are_refused_together_come_back_one_after_the_other() {
        let call_time = CallTime::default();
        call_time.ended(Duration::from_secs(2));
        let waits: Vec<_> = (0..8).map(|_| call_time.turn(full(8), NOW)).collect();
        let apart = Duration::from_millis(250);
        assert_eq!(waits, (1..=8).map(|turn| apart * turn).collect::<Vec<_>>());
        assert_eq!(call_time.turn(full(8), NOW), apart, "never past one call's time");
        call_time.ended(Duration::from_secs(2));
        assert_eq!(call_time.turn(full(8), NOW * 2), apart, "old turns are over");
    }

    #[test]
    fn the_time_of_calls_is_followed_within_a_few_of_them() {
        let call_time = CallTime::default();
        assert_eq!(call_time.turn(full(1), Duration::ZERO), UNMEASURED);
        (0..40).for_each(|_| call_time.ended(Duration::from_secs(1)));
        (0..40).for_each(|_| call_time.ended(Duration::from_millis(100)));
        assert!(call_time.mean() < Duration::from_millis(110) && call_time.mean() >= Duration::from_millis(99), "{:?}", call_time.mean());
        (0..100).for_each(|_| call_time.ended(Duration::ZERO));
        assert_eq!(call_time.turn(full(1_000), Duration::ZERO), SOONEST);
        (0..100).for_each(|_| call_time.ended(Duration::MAX));
        assert_eq!(call_time.turn(full(1), Duration::ZERO), LATEST);
    }

    #[test]
    fn beyond_a_lowered_limit_the_wait_is_for_as_many_as_must_end_first() {
        let call_time = CallTime::default();
        call_time.ended(Duration::from_secs(12));
        let lowered = Places { taken: 12, limit: 1 };
        let waits = [call_time.turn(lowered, NOW), call_time.turn(lowered, NOW)];
        assert_eq!(waits, [Duration::from_secs(11 + 12); 2], "eleven of them, then one more: there is one place, and one turn in its time");
        assert_eq!(call_time.turn(Places { taken: 12, limit: 6 }, NOW + Duration::from_secs(1)), Duration::from_secs(6 + 2));
    }

    #[test]
    fn while_no_place_comes_free_those_who_come_again_are_told_to_wait_longer() {
        let call_time = CallTime::default();
        call_time.ended(Duration::from_millis(20));
        let after = |seconds: u64| call_time.turn(full(1), NOW + Duration::from_secs(seconds));
        assert_eq!([after(0), after(1), after(2)], [Duration::from_millis(20), Duration::from_secs(1), Duration::from_secs(2)]);
        assert_eq!(after(60), Duration::from_millis(20), "whoever was refused then is gone, and so may the calls be that ran");
        assert_eq!(after(61), Duration::from_secs(1));
        call_time.freed();
        assert_eq!(after(62), Duration::from_millis(20), "a place has changed hands");
    }
}
