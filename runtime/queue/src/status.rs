//! What can be seen of a store from outside.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::item::Waits;
use crate::job::{JobId, JobState};

/// A queue and a tenant: the name of a lane.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneName {
    /// Queue; names in parentheses are the engine's own.
    pub queue: Arc<str>,
    /// Tenant.
    pub tenant: Arc<str>,
}

/// How the store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It takes work.
    Serving,
    /// The volume's free space is below the reserve, or the volume is full: no new work, everything else goes on.
    DiskLow {
        /// Free bytes.
        free: u64,
        /// `disk_reserve`.
        reserve: u64,
    },
    /// A sync or a write failed: nothing is acknowledged any more until a restart.
    Failed {
        /// What the system said.
        detail: String,
    },
}

/// A lane as operators see it.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneStatus {
    /// Which.
    pub name: LaneName,
    /// Its number: the first half of its job ids.
    pub number: u64,
    /// Items that wait.
    pub waiting: u64,
    /// Of these, items that wait for another attempt.
    pub set_aside: u64,
    /// Items at work.
    pub running: u64,
    /// Dead letters.
    pub dead: u64,
    /// Content bytes of items that have not ended.
    pub bytes: u64,
    /// Bytes of disk it holds, whole extents.
    pub disk: u64,
    /// Age of the oldest item that has not ended.
    pub oldest_age: Option<Duration>,
    /// Whether dispatch is stopped by an operator.
    pub paused: bool,
    /// What its head waits for.
    pub waits: Waits,
    /// Since when.
    pub waits_for: Duration,
    /// Items appended to it since the start of the process.
    pub appended: u64,
    /// Items of it that ended since the start of the process, by [`crate::JobState`] (`state as usize`).
    pub ended: [u64; JobState::ALL.len()],
}

/// A dead letter.
#[derive(Clone, Debug, PartialEq)]
pub struct DeadLetter {
    /// Its job.
    pub job: JobId,
    /// Its problem object, JSON.
    pub outcome: Option<Bytes>,
    /// Since it died.
    pub age: Duration,
    /// Content bytes.
    pub bytes: u64,
    /// Attempts made.
    pub attempts: u32,
}

/// What a start found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Lanes.
    pub lanes: u64,
    /// Items that wait.
    pub waiting: u64,
    /// Bytes of unfinished records cut off the ends of lanes.
    pub cut_bytes: u64,
    /// Unfinished records cut off.
    pub cut_records: u64,
    /// Extents that cannot be read; they are left as they are and not used.
    pub quarantined_extents: u64,
    /// Names of store files that are missing; where there are many, the last entry says how many more.
    pub missing_files: Vec<String>,
    /// What was acknowledged and is lost, a sentence each.
    pub losses: Vec<String>,
    /// What else a person should know, a sentence each.
    pub remarks: Vec<String>,
}

/// The store as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct StoreStatus {
    pub health: Health,
    /// Bytes of all store files.
    pub disk_limit: u64,
    /// Bytes of extents in use by lanes.
    pub disk_used: u64,
    pub extents_total: u64,
    pub extents_free: u64,
    pub extents_quarantined: u64,
    /// Batches made durable, since the start.
    pub batches: u64,
    /// Syncs they took.
    pub syncs: u64,
    pub appended: u64,
    pub ended: u64,
    /// Items and records moved to free extents.
    pub moved: u64,
    pub keys: u64,
    /// Bytes of the volume that were free when it was last looked at.
    pub volume_free: u64,
    /// How long syncs took.
    pub sync_times: SyncTimes,
    /// What the start found.
    pub recovered: Recovered,
}

/// Times of syncs since the start, counted by bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncTimes {
    /// Syncs that took at most the bound of [`SyncTimes::BOUNDS_US`] (and longer than the one before); the last: longer than all.
    pub counts: [u64; SyncTimes::BOUNDS_US.len() + 1],
    /// Of all of them.
    pub total: Duration,
}

impl SyncTimes {
    /// Upper bounds of the buckets, in microseconds.
    pub const BOUNDS_US: [u64; 15] = [
        500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000,
        30_000_000,
    ];

    /// Counts one sync.
    pub fn record(&mut self, time: Duration) {
        let index = Self::BOUNDS_US.iter().position(|bound| time <= Duration::from_micros(*bound)).unwrap_or(Self::BOUNDS_US.len());
        self.counts[index] += 1;
        self.total += time;
    }
}
