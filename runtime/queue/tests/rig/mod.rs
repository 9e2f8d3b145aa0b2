//! What the tests of a whole store stand on: a clock that is set by hand, a store on a simulated disk, short ways to ask it.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use spillgate_queue::clock::Clock;
use spillgate_queue::disk::simulated::SimulatedDisk;
use spillgate_queue::{
    Appended, Appending, End, Full, JobId, JobState, LaneName, Leased, Need, NewItem, QueueLimits, Store, StoreError, StoreOptions, Take,
    TakeFrom,
};

/// One mebibyte: the smallest store file.
pub(crate) const FILE: u64 = 1 << 20;
/// A place for one lane's bytes.
pub(crate) const EXTENT: u64 = 64 * 1024;

/// Time set by hand.
#[derive(Debug)]
pub(crate) struct HandClock {
    monotonic: AtomicU64,
    wall: AtomicU64,
}

impl HandClock {
    /// Some day.
    pub(crate) fn new() -> Arc<HandClock> {
        Arc::new(HandClock { monotonic: AtomicU64::new(1_000_000), wall: AtomicU64::new(1_700_000_000_000) })
    }
    /// Both clocks go on.
    pub(crate) fn pass(&self, time: Duration) {
        let milliseconds = u64::try_from(time.as_millis()).expect("not that long");
        self.monotonic.fetch_add(milliseconds, Ordering::SeqCst);
        self.wall.fetch_add(milliseconds, Ordering::SeqCst);
    }
    /// The wall clock alone is set.
    pub(crate) fn set_wall(&self, milliseconds: u64) {
        self.wall.store(milliseconds, Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.monotonic.load(Ordering::SeqCst))
    }
    fn wall_milliseconds(&self) -> u64 {
        self.wall.load(Ordering::SeqCst)
    }
}

/// No limit but the store's.
pub(crate) const UNLIMITED: QueueLimits = QueueLimits {
    queue_items: u64::MAX,
    queue_bytes: u64::MAX,
    tenant_items: u64::MAX,
    tenant_bytes: u64::MAX,
    tenant_disk: u64::MAX,
    shared: false,
    item_bytes: u64::MAX,
    outcome_bytes: 256 * 1024,
};

/// Waits for an answer of the store on this thread.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime can be made");
    }
    RUNTIME.with(|runtime| runtime.block_on(future))
}

/// A lane's name.
pub(crate) fn lane(queue: &str, tenant: &str) -> LaneName {
    LaneName { queue: Arc::from(queue), tenant: Arc::from(tenant) }
}

/// Content of a length that tells items apart.
pub(crate) fn content(number: u64, length: usize) -> Bytes {
    let mut bytes = number.to_le_bytes().repeat(length.div_ceil(8));
    bytes.truncate(length);
    if let Some(last) = bytes.last_mut() {
        *last = 0x5a;
    }
    Bytes::from(bytes)
}

/// An item with nothing but content.
pub(crate) fn plain(content: Bytes) -> NewItem {
    NewItem { content, ..NewItem::default() }
}

/// An end of a kind, kept for an hour.
pub(crate) fn end(state: JobState, outcome: Option<Bytes>) -> End {
    End { state, outcome, keep: Duration::from_secs(3600), frees_keys: false, emits: Vec::new(), note: None }
}

/// A store that is open on a simulated disk.
pub(crate) struct Rig {
    pub(crate) disk: SimulatedDisk,
    pub(crate) clock: Arc<HandClock>,
    pub(crate) store: Store,
    pub(crate) disk_limit: u64,
}

impl Rig {
    /// A new one.
    pub(crate) fn new(seed: u64, disk_limit: u64) -> Rig {
        Rig::open(SimulatedDisk::new(seed), HandClock::new(), disk_limit).expect("a store can be made on an empty disk")
    }

    /// On what is there.
    pub(crate) fn open(disk: SimulatedDisk, clock: Arc<HandClock>, disk_limit: u64) -> Result<Rig, StoreError> {
        let store = Store::open(options(&disk, &clock, disk_limit))?;
        Ok(Rig { disk, clock, store, disk_limit })
    }

    /// The process is killed and starts again.
    pub(crate) fn kill(self) -> Rig {
        let disk = self.disk.kill();
        self.store.close();
        Rig::open(disk, Arc::clone(&self.clock), self.disk_limit).expect("a store opens after a kill")
    }
    /// The power goes, and the process starts again.
    pub(crate) fn crash(self) -> Rig {
        let disk = self.disk.crash();
        self.store.close();
        Rig::open(disk, Arc::clone(&self.clock), self.disk_limit).expect("a store opens after a crash")
    }
    /// It is closed and opened.
    pub(crate) fn restart(self) -> Rig {
        self.store.close();
        let disk = self.disk.kill();
        Rig::open(disk, Arc::clone(&self.clock), self.disk_limit).expect("a store opens after it was closed")
    }

    /// Appends one item.
    pub(crate) fn append(&self, lane: &LaneName, item: NewItem, limits: &QueueLimits) -> Result<JobId, Refused> {
        let room = self.store.reserve(lane, need(1, item.content.len()), limits).map_err(Refused::Full)?;
        match wait(self.store.append(Appending { room, items: vec![item] })).map_err(Refused::Store)?.pop() {
            Some(Appended::New { job, .. }) => Ok(job),
            other => panic!("a plain item is new: {other:?}"),
        }
    }
    /// Appends plain items until there is no room: their jobs, and what the refusal said.
    pub(crate) fn fill(&self, lane: &LaneName, length: usize, limits: &QueueLimits) -> (Vec<JobId>, Full) {
        let mut jobs = Vec::new();
        loop {
            match self.append(lane, plain(content(jobs.len() as u64, length)), limits) {
                Ok(job) => jobs.push(job),
                Err(Refused::Full(full)) => return (jobs, full),
                Err(Refused::Store(error)) => panic!("the store serves: {error}"),
            }
        }
    }
    /// Takes what there is, at most so many.
    pub(crate) fn take(&self, lane: &LaneName, most: usize) -> Vec<Leased> {
        let from = TakeFrom { lane: lane.clone(), most, lease: Duration::from_secs(60) };
        match wait(self.store.take(from)).expect("a lane can be asked") {
            Take::Items(items) => items,
            Take::Nothing { .. } => Vec::new(),
        }
    }
    /// Takes everything and ends it as succeeded: the contents.
    pub(crate) fn drain(&self, lane: &LaneName) -> Vec<Bytes> {
        let mut contents = Vec::new();
        loop {
            let items = self.take(lane, 16);
            if items.is_empty() {
                return contents;
            }
            for item in items {
                contents.push(item.content);
                wait(self.store.finish(item.lease, end(JobState::Succeeded, None))).expect("a leased item can be ended");
            }
        }
    }
    /// Bytes of disk that a lane holds.
    pub(crate) fn disk_of(&self, lane: &LaneName) -> u64 {
        self.store.lanes(None).iter().find(|status| status.name == *lane).map_or(0, |status| status.disk)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.store.close();
    }
}

/// Why an item was not appended.
#[derive(Debug)]
pub(crate) enum Refused {
    Full(Full),
    Store(StoreError),
}

/// What one append needs.
pub(crate) fn need(items: u64, bytes: usize) -> Need {
    Need { items, bytes: bytes as u64, shed_oldest: false }
}

/// To open a store with.
pub(crate) fn options(disk: &SimulatedDisk, clock: &Arc<HandClock>, disk_limit: u64) -> StoreOptions {
    StoreOptions { disk: Arc::new(disk.clone()), clock: Arc::<HandClock>::clone(clock), disk_limit, disk_reserve: 0 }
}
