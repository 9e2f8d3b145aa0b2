//! How long the calls of one flow hold a seat of one database.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What is known of a flow's hold times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// What the next call is expected to hold: follows the last calls.
    pub hold: Duration,
    /// What its calls hold on a healthy day: follows over minutes.
    pub usual: Duration,
}

impl From<Duration> for Estimate {
    fn from(hold: Duration) -> Self {
        Estimate { hold, usual: hold }
    }
}

/// A new hold time counts one eighth of the estimate.
const LAST: u64 = 8;
/// The usual hold time is the mean of so many calls, then follows at this pace.
const FIRST_CALLS: u64 = 128;
const PACE: Duration = Duration::from_secs(120);

/// Measures one flow against one database. No lock; a measurement lost to a race is made up for by the next.
#[derive(Debug, Default)]
pub struct HoldTimes {
    calls: AtomicU64,
    hold: AtomicU64,
    usual: AtomicU64,
    /// When the last call ended.
    last: AtomicU64,
}

impl HoldTimes {
    /// `None`: not yet measured.
    pub fn estimate(&self) -> Option<Estimate> {
        let read = |nanoseconds: &AtomicU64| Duration::from_nanos(nanoseconds.load(Ordering::Relaxed));
        (self.calls.load(Ordering::Relaxed) > 0).then(|| Estimate { hold: read(&self.hold), usual: read(&self.usual) })
    }

    /// A call has held a seat for so long.
    pub fn record(&self, took: Duration, now: Duration) {
        let (took, now) = (nanoseconds(took), nanoseconds(now));
        let calls = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let since = now.saturating_sub(self.last.swap(now, Ordering::Relaxed));
        let part = if calls <= FIRST_CALLS { calls } else { (nanoseconds(PACE) / since.max(1)).max(LAST) };
        follow(&self.hold, took, calls.min(LAST));
        follow(&self.usual, took, part);
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
