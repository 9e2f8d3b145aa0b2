//! How fast jobs end, and so how soon there may be room: measured where jobs end, told to whoever finds none.
//!
//! Counted over the last full second of work and the one under way. What has been quiet for longer than its time between two
//! ends is as slow as it has been quiet. What had nothing to do is not slow: work that comes after a rest begins a new measure.

use std::time::Duration;

use crate::core::Core;
use crate::format::EXTENT_BYTES;
use crate::item::Waits;
use crate::limits::{Full, Need, WhichLimit};

/// Nobody is told to come back sooner, or later.
pub(crate) const SOONEST: Duration = Duration::from_millis(100);
pub(crate) const LATEST: Duration = Duration::from_secs(30);
/// The time between two ends where there was none yet.
const UNMEASURED: Duration = Duration::from_secs(1);
/// A measure goes over so long at least.
const MEASURED_MS: u64 = 1_000;

/// The rate at which jobs of a lane, a queue or the store end. Times in milliseconds of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndRate {
    /// The measure before: how long it went, and how many ended.
    before: (u64, u64),
    /// When the measure under way began, and how many have ended in it.
    since: u64,
    ended: u64,
    /// When the last one ended, or work began.
    last: u64,
}

impl EndRate {
    /// There is work again.
    pub(crate) fn begin(&mut self, now: u64) {
        (self.since, self.ended, self.last) = (now, 0, now);
    }
    /// A job ended.
    pub(crate) fn ended(&mut self, now: u64) {
        let passed = now.saturating_sub(self.since);
        (self.ended, self.last) = (self.ended + 1, now);
        if passed >= MEASURED_MS {
            self.before = (passed, self.ended);
            (self.since, self.ended) = (now, 0);
        }
    }
    /// The time until so many have ended.
    pub(crate) fn until(&self, jobs: u64, now: u64) -> Duration {
        let quiet = Duration::from_millis(now.saturating_sub(self.last));
        let ended = self.before.1 + self.ended;
        let between = if ended == 0 {
            UNMEASURED
        } else {
            Duration::from_millis(self.before.0 + now.saturating_sub(self.since)) / u32::try_from(ended).unwrap_or(u32::MAX)
        };
        between.max(quiet).saturating_mul(u32::try_from(jobs).unwrap_or(u32::MAX)).clamp(SOONEST, LATEST)
    }
}

impl Core {
    /// A job of the lane ended.
    pub(crate) fn rate_end(&mut self, lane: usize) {
        let now = self.now;
        self.end_rate.ended(now);
        self.lanes[lane].end_rate.ended(now);
        if let Some(queue) = self.queues.get_mut(&self.lanes[lane].name.queue) {
            queue.end_rate.ended(now);
        }
    }

    /// A lane that had nothing has something.
    pub(crate) fn begin_rates(&mut self, lane: usize) {
        let now = self.now;
        if self.queues.values().all(|queue| queue.busy == 0) {
            self.end_rate.begin(now);
        }
        self.lanes[lane].end_rate.begin(now);
        if let Some(queue) = self.queues.get_mut(&self.lanes[lane].name.queue).filter(|queue| queue.busy == 0) {
            queue.end_rate.begin(now);
        }
    }

    /// The same, with when there may be room.
    pub(crate) fn timed(&self, full: Full, lane: usize, need: Need) -> Full {
        let of = &self.lanes[lane];
        let of_tenant = matches!(full.which, WhichLimit::TenantItems | WhichLimit::TenantBytes | WhichLimit::TenantDisk);
        let own = full.own_share || of_tenant;
        let each = (need.bytes / need.items.max(1)).max(1);
        let beyond = |more: u64| full.used.saturating_add(more).saturating_sub(full.limit).max(1);
        let jobs = match full.which {
            WhichLimit::QueueItems | WhichLimit::LaneItems | WhichLimit::TenantItems => beyond(need.items),
            WhichLimit::QueueBytes | WhichLimit::LaneBytes | WhichLimit::TenantBytes => beyond(need.bytes).div_ceil(each),
            // Disk comes free by the extent: when as many have ended as stand in one.
            WhichLimit::TenantDisk | WhichLimit::StoreDisk => need.bytes.max(EXTENT_BYTES as u64).div_ceil(each),
            WhichLimit::ItemBytes | WhichLimit::VolumeFree | WhichLimit::NotServing => return full,
        };
        let stands = of.paused || matches!(of.waits, Waits::Paused | Waits::DeadLetters);
        let retry_after = match full.which {
            WhichLimit::StoreDisk => self.end_rate.until(jobs, self.now),
            _ if own && of.is_busy && stands => LATEST,
            _ if own && of.is_busy => of.end_rate.until(jobs, self.now),
            WhichLimit::QueueItems | WhichLimit::QueueBytes => self.queues[&of.name.queue].end_rate.until(jobs, self.now),
            // Other lanes of the tenant hold it.
            _ => self.end_rate.until(jobs, self.now),
        };
        Full { retry_after: Some(retry_after), ..full }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_followed_down_and_up_and_a_rest_is_not_slowness() {
        let mut rate = EndRate::default();
        rate.begin(5_000);
        assert_eq!(rate.until(1, 5_000), UNMEASURED);
        (1..=40).for_each(|end| rate.ended(5_000 + end * 250));
        let slow = rate.until(1, 15_000);
        assert!((240..=300).contains(&slow.as_millis()), "{slow:?}");
        assert_eq!(rate.until(1, 19_000), Duration::from_secs(4), "as slow as it has been quiet");
        assert_eq!(rate.until(1_000, 15_000), LATEST);
        rate.begin(900_000);
        (1..=400).for_each(|end| rate.ended(900_000 + end * 5));
        assert_eq!(rate.until(1, 902_000), SOONEST);
        let hundred = rate.until(100, 902_000);
        assert!((450..=600).contains(&hundred.as_millis()), "{hundred:?}");
    }
}
