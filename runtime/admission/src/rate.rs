//! A rate limit as one number: the generic cell rate algorithm (ITU-T I.371, virtual scheduling).
//!
//! The state is the theoretical arrival time of the next call, in nanoseconds on the caller's monotonic clock. A call
//! is let through while that time is at most `burst` intervals ahead.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use spillgate_model::units::Rate;

/// The longest that a caller may have looked at the clock before it asks.
const LATE: u64 = 1_000_000_000;

/// Admits calls at a rate. One atomic, no lock.
#[derive(Debug, Default)]
pub struct RateLimiter {
    /// Theoretical arrival time, nanoseconds since the clock's start.
    arrival: AtomicU64,
}

impl RateLimiter {
    /// Takes one call. `now` is monotonic time since any fixed start. On refusal: how long until one will be let through.
    pub fn take(&self, rate: Rate, now: Duration) -> Result<(), Duration> {
        if rate.calls == u64::MAX {
            return Ok(());
        }
        let (interval, ahead) = spacing(rate);
        let now = nanoseconds(now);
        let mut seen = self.arrival.load(Ordering::Relaxed);
        loop {
            let base = seen.max(now);
            // Nothing taken at this rate puts the next call so far off: it was taken at a slower one, which is not in force any more.
            let most = ahead.saturating_add(interval);
            let base = if base - now > most.saturating_add(LATE) { now + most } else { base };
            if base - now > ahead {
                if base < seen {
                    let _others_know_better = self.arrival.compare_exchange(seen, base, Ordering::Relaxed, Ordering::Relaxed);
                }
                return Err(Duration::from_nanos(base - now - ahead));
            }
            match self.arrival.compare_exchange_weak(seen, base.saturating_add(interval), Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(other) => seen = other,
            }
        }
    }

    /// Gives one call back: it was refused later for another reason (case E1).
    pub fn give_back(&self, rate: Rate) {
        if rate.calls == u64::MAX {
            return;
        }
        let (interval, _) = spacing(rate);
        let _ = self.arrival.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |arrival| Some(arrival.saturating_sub(interval)));
    }

    /// Calls that would be let through at once.
    pub fn remaining(&self, rate: Rate, now: Duration) -> u64 {
        if rate.calls == u64::MAX {
            return u64::MAX;
        }
        let (interval, ahead) = spacing(rate);
        let lead = self.arrival.load(Ordering::Relaxed).saturating_sub(nanoseconds(now));
        (ahead + interval).saturating_sub(lead) / interval
    }
}

/// Nanoseconds between calls, and how far ahead of its time a call may come.
fn spacing(rate: Rate) -> (u64, u64) {
    let interval = (nanoseconds(rate.period) / rate.calls.max(1)).max(1);
    (interval, interval.saturating_mul(rate.burst.saturating_sub(1)))
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn per_minute(calls: u64, burst: u64) -> Rate {
        Rate { calls, period: Duration::from_secs(60), burst }
    }

    #[test]
    fn a_burst_passes_then_the_rate_holds() {
        let (limiter, rate) = (RateLimiter::default(), per_minute(60, 3));
        let start = Duration::from_secs(5);
        for _ in 0..3 {
            assert_eq!(limiter.take(rate, start), Ok(()));
        }
        assert_eq!(limiter.take(rate, start), Err(Duration::from_secs(1)));
        assert_eq!(limiter.take(rate, start + Duration::from_secs(1)), Ok(()));
        assert!(limiter.take(rate, start + Duration::from_secs(1)).is_err());
        assert_eq!(limiter.remaining(rate, start + Duration::from_secs(60)), 3);
    }

    #[test]
    fn a_rate_that_was_raised_is_in_force_for_the_next_call() {
        let (limiter, slow, fast) =
            (RateLimiter::default(), Rate { period: Duration::from_secs(3_600), ..per_minute(1, 1) }, per_minute(60, 2));
        let now = Duration::from_secs(5);
        assert_eq!(limiter.take(slow, now), Ok(()));
        assert_eq!(limiter.take(slow, now), Err(Duration::from_secs(3_600)));
        assert_eq!(limiter.take(fast, now), Err(Duration::from_secs(1)), "as if its burst had just been used");
        assert_eq!(limiter.remaining(fast, now + Duration::from_secs(1)), 1);
        assert_eq!(limiter.take(fast, now + Duration::from_secs(1)), Ok(()));
        let late = now + Duration::from_millis(500);
        assert!(limiter.take(fast, late).is_err(), "whoever looked at the clock earlier is let in no sooner");
        assert_eq!(limiter.take(fast, now + Duration::from_secs(2)), Ok(()), "nor does it let in others");
        assert!(limiter.take(fast, now + Duration::from_secs(2)).is_err());
    }

    #[test]
    fn e1_a_call_refused_later_costs_no_rate() {
        let (limiter, rate) = (RateLimiter::default(), per_minute(2, 2));
        assert_eq!(limiter.take(rate, Duration::ZERO), Ok(()));
        assert_eq!(limiter.take(rate, Duration::ZERO), Ok(()));
        limiter.give_back(rate);
        assert_eq!(limiter.take(rate, Duration::ZERO), Ok(()));
        assert!(limiter.take(rate, Duration::ZERO).is_err());
    }
}
