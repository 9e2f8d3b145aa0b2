//! How long the calls of one flow hold a seat of one database.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::running::SLOW_FROM;

/// What is known of a flow's hold times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// What the next call is expected to hold: follows the last calls.
    pub hold: Duration,
    /// What its calls hold on a healthy day: follows over minutes.
    pub usual: Duration,
    /// Its calls turned out slow, and were not quick for long enough since.
    pub slow: bool,
}

impl From<Duration> for Estimate {
    fn from(hold: Duration) -> Self {
        Estimate { hold, usual: hold, slow: hold > SLOW_FROM }
    }
}

/// A new hold time counts one eighth of the estimate.
const LAST: u64 = 8;
/// The usual hold time is the mean of so many calls, then follows at this pace.
const FIRST_CALLS: u64 = 128;
const PACE: Duration = Duration::from_secs(120);

/// A flow is slow when more than a sixth of its calls were, of about its last sixteen; again and again, and not once in a hundred.
const SPAN: u64 = 16;
const PARTS: u64 = 1 << 20;
const SLOW_PART: u64 = PARTS / 6;
/// It is fast again when so long no more than that were, and when clearly most were quick: a few quick calls tell nothing of the next.
const QUICK_FOR: Duration = Duration::from_secs(5);
const MOSTLY_QUICK: u64 = PARTS / 2;

/// Measures one flow against one database. No lock; a measurement lost to a race is made up for by the next.
#[derive(Debug, Default)]
pub struct HoldTimes {
    calls: AtomicU64,
    hold: AtomicU64,
    usual: AtomicU64,
    /// When the last call ended.
    last: AtomicU64,
    /// The part of its calls that were slow, in [`PARTS`].
    slow_part: AtomicU64,
    slow: AtomicBool,
    /// Calls that were counted as slow while they ran and have not ended, as far as is known.
    overrunning: AtomicU64,
    /// It is not fast again before.
    slow_until: AtomicU64,
}

impl HoldTimes {
    /// `None`: not yet measured.
    pub fn estimate(&self) -> Option<Estimate> {
        let read = |nanoseconds: &AtomicU64| Duration::from_nanos(nanoseconds.load(Ordering::Relaxed));
        let slow = self.slow.load(Ordering::Relaxed);
        (self.calls.load(Ordering::Relaxed) > 0).then(|| Estimate { hold: read(&self.hold), usual: read(&self.usual), slow })
    }

    /// A call has held a seat for so long.
    pub fn record(&self, took: Duration, now: Duration) {
        let (took, now) = (nanoseconds(took), nanoseconds(now));
        let calls = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let since = now.saturating_sub(self.last.swap(now, Ordering::Relaxed));
        let part = if calls <= FIRST_CALLS { calls } else { (nanoseconds(PACE) / since.max(1)).max(LAST) };
        follow(&self.hold, took, calls.min(LAST));
        follow(&self.usual, took, part);
        let was_slow = took > nanoseconds(SLOW_FROM);
        if !(was_slow && self.was_counted()) {
            self.count(was_slow, calls);
        }
        self.judge(was_slow, calls, now);
    }

    /// A call that still runs has held its seat for longer than a fast one.
    pub(super) fn overran(&self) {
        let (calls, last) = (self.calls.load(Ordering::Relaxed) + 1, self.last.load(Ordering::Relaxed));
        self.overrunning.fetch_add(1, Ordering::Relaxed);
        self.count(true, calls);
        self.judge(true, calls, last);
    }

    /// A call was cut short after so long: it says something only where that is longer than expected.
    pub fn cut_short(&self, took: Duration, now: Duration) {
        if self.estimate().is_some_and(|known| took > known.hold) {
            self.record(took, now);
        } else if took > SLOW_FROM {
            self.was_counted();
        }
    }

    /// Whether a slow call that ended was counted while it ran.
    fn was_counted(&self) -> bool {
        let one_less = |count: u64| count.checked_sub(1);
        self.overrunning.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    }

    fn count(&self, was_slow: bool, calls: u64) {
        follow(&self.slow_part, if was_slow { PARTS } else { 0 }, calls.min(SPAN));
    }

    fn judge(&self, was_slow: bool, calls: u64, now: u64) {
        let part = self.slow_part.load(Ordering::Relaxed);
        if was_slow && part > SLOW_PART {
            // The first ones may be slow for being the first.
            let until = if calls < LAST { now } else { now.saturating_add(nanoseconds(QUICK_FOR)) };
            self.slow_until.store(until, Ordering::Relaxed);
            self.slow.store(true, Ordering::Relaxed);
        } else if self.slow.load(Ordering::Relaxed) && part < MOSTLY_QUICK && now >= self.slow_until.load(Ordering::Relaxed) {
            self.slow.store(false, Ordering::Relaxed);
        }
    }
}

/// Moves a smoothed value by one part of the way to a new one.
fn follow(smoothed: &AtomicU64, new: u64, part: u64) {
    let before = smoothed.load(Ordering::Relaxed);
    let after = if new >= before { before + (new - before) / part } else { before - (before - new) / part };
    smoothed.store(after, Ordering::Relaxed);
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
