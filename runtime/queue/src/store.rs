//! The handle of a store.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::disk::Disk;
use crate::item::{Appended, Appending, Hash, Key, Lease, Take, TakeFrom};
use crate::job::{End, Job, JobId, Resolution};
use crate::limits::{Full, Need, QueueLimits, Room};
use crate::status::{DeadLetter, Health, LaneName, LaneStatus, StoreStatus};

/// What a store is opened with.
#[derive(Clone)]
pub struct StoreOptions {
    /// Its folder.
    pub disk: Arc<dyn Disk>,
    /// Its time.
    pub clock: Arc<dyn Clock>,
    /// Bytes of all its files together, hard.
    pub disk_limit: u64,
    /// Free space of the volume below which no new work is taken.
    pub disk_reserve: u64,
}

/// What a store can answer besides a refusal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The folder or a file cannot be used at all.
    #[error("{0}")]
    Unusable(String),
    /// A sync failed before: nothing is acknowledged any more.
    #[error("the store has stopped: {0}")]
    Failed(String),
    /// The store is being closed.
    #[error("the store is closing")]
    Closing,
    /// The lease was lost: another attempt may be running.
    #[error("the lease was lost")]
    LeaseLost,
    /// There is no such job, lane or letter.
    #[error("not found")]
    NotFound,
    /// The job is not in a state in which that can be done.
    #[error("the job is {}", .0.name())]
    WrongState(crate::job::JobState),
    /// The stored copy is damaged.
    #[error("the stored copy is damaged")]
    Damaged,
    /// There is no room for what is needed.
    #[error("there is no room")]
    Full(Full),
}

/// Cheap handle.
#[derive(Clone)]
pub struct Store {
    _inner: Arc<()>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Store")
    }
}

impl Store {
    /// Opens or makes a store: allocates its files, recovers, starts its threads. Blocks; ready when it returns.
    pub fn open(_options: StoreOptions) -> Result<Store, StoreError> {
        unimplemented!()
    }
    /// Finishes the batch at hand, acknowledges it and stops. Later calls answer `Closing`. Blocks.
    pub fn close(&self) {
        unimplemented!()
    }

    /// Asks for room. No waiting, no I/O.
    pub fn reserve(&self, _lane: &LaneName, _need: Need, _limits: &QueueLimits) -> Result<Room, Full> {
        unimplemented!()
    }
    /// Appends items to the room's lane, in order, all in one batch; answers when they are durable. What it appended stays
    /// appended when the caller goes away.
    pub async fn append(&self, _appending: Appending) -> Result<Vec<Appended>, StoreError> {
        unimplemented!()
    }
    /// The job that a key stands for, and whether the input is the same: known before any room is asked for.
    pub fn find_key(&self, _key: &Key) -> Option<(JobId, bool)> {
        unimplemented!()
    }

    /// Takes items of a lane for work. One item of each `order` value at a time. Items that expired meanwhile are ended here.
    pub async fn take(&self, _from: TakeFrom) -> Result<Take, StoreError> {
        unimplemented!()
    }
    /// Told whenever a queue may have something to take: an append, a release, an end, a lost lease, a resumed lane.
    pub fn work(&self, _queue: &str) -> Arc<Notify> {
        unimplemented!()
    }
    /// Prolongs a lease.
    pub fn renew(&self, _lease: &Lease, _lease_time: Duration) -> Result<(), StoreError> {
        unimplemented!()
    }
    /// A write is about to be sent: durable when it answers. From here on a crash leaves the item `interrupted`.
    pub async fn start(&self, _lease: &Lease) -> Result<(), StoreError> {
        unimplemented!()
    }
    /// Ends an item; durable when it answers.
    pub async fn finish(&self, _lease: Lease, _end: End) -> Result<(), StoreError> {
        unimplemented!()
    }
    /// Hands an item back for another attempt after `pause`, proven not to have executed. `counts`: the attempt is counted.
    pub async fn release(&self, _lease: Lease, _pause: Duration, _counts: bool) -> Result<(), StoreError> {
        unimplemented!()
    }

    /// What is known of a job. `None`: there never was one, or nothing is kept of it; see [`Store::was_job`].
    pub fn job(&self, _id: JobId) -> Option<Job> {
        unimplemented!()
    }
    /// The lane an id was given out by, whether or not anything is still kept of the job.
    pub fn was_job(&self, _id: JobId) -> Option<LaneName> {
        unimplemented!()
    }
    /// The result or problem object of a job that ended. `None`: it had none, or it was pushed out.
    pub async fn outcome(&self, _id: JobId) -> Result<Option<Bytes>, StoreError> {
        unimplemented!()
    }
    /// Answers when the job has ended (at once if it has). Bounded by the caller's own deadline.
    pub async fn ended(&self, _id: JobId) -> Result<Job, StoreError> {
        unimplemented!()
    }
    /// Ends a waiting job as `cancelled`; a running or ended one is `WrongState`.
    pub async fn cancel(&self, _id: JobId) -> Result<(), StoreError> {
        unimplemented!()
    }
    /// Ends an `unknown` job as an operator decided.
    pub async fn resolve(&self, _id: JobId, _resolution: Resolution) -> Result<(), StoreError> {
        unimplemented!()
    }

    /// Stops or resumes dispatch of a lane. Kept in memory only: whoever asks keeps it across restarts.
    pub fn pause(&self, _lane: &LaneName, _paused: bool) {
        unimplemented!()
    }
    /// Ends everything that waits in a lane as `purged`, at once whatever its size: how many. Dead letters too if asked.
    pub async fn purge(&self, _lane: &LaneName, _dead_too: bool) -> Result<u64, StoreError> {
        unimplemented!()
    }
    /// Dead letters of a lane after `after`, oldest first.
    pub async fn dead(&self, _lane: &LaneName, _after: Option<JobId>, _most: usize) -> Result<Vec<DeadLetter>, StoreError> {
        unimplemented!()
    }
    /// Appends a dead letter's content as a new item in `room` and forgets the letter: the new job.
    pub async fn replay(&self, _letter: JobId, _room: Room) -> Result<JobId, StoreError> {
        unimplemented!()
    }
    /// How many dead letters each lane of a queue may hold: a lane that has as many is not served.
    pub fn set_dead_letters(&self, _queue: &str, _most: u64, _keep: Duration) {
        unimplemented!()
    }

    /// The last note kept under a name in a lane.
    pub async fn note(&self, _lane: &LaneName, _name: &Hash) -> Result<Option<Bytes>, StoreError> {
        unimplemented!()
    }

    /// How the store is.
    pub fn health(&self) -> Health {
        unimplemented!()
    }
    /// The store's numbers.
    pub fn status(&self) -> StoreStatus {
        unimplemented!()
    }
    /// Lanes in name order, of one queue or of all.
    pub fn lanes(&self, _queue: Option<&str>) -> Vec<LaneStatus> {
        unimplemented!()
    }
}
