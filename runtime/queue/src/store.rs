//! The handle of a store.
//!
//! Commands change the state under its lock and wait for the writer; see `core` and `store/writer.rs`.

mod admin;
mod appending;
pub(crate) mod catalog;
mod cleaner;
mod deciding;
mod files;
mod head;
pub(crate) mod redo;
mod shared;
pub mod testing;
mod volume;
mod worker;
mod writer;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::core::Core;
use crate::core::recover::Source as _;
use crate::disk::Disk;
use crate::item::{Key, Unique};
use crate::job::{Job, JobId};
use crate::limits::{Full, Need, QueueLimits, Room, WhichLimit};
use crate::status::{Health, LaneName};
use crate::store::files::Files;
pub(crate) use crate::store::head::{left_alone, missing_names, missing_numbers, strays, wanted_under};
use crate::store::shared::{Shared, ring};
use crate::store::writer::Writer;

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
    owner: Arc<Owner>,
}

/// When the last handle goes, the threads go.
struct Owner {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        stop(&self.shared);
    }
}

fn stop(shared: &Shared) {
    shared.closing.store(true, Ordering::Release);
    // Under the lock, so that no thread is between looking and waiting.
    drop(shared.core());
    shared.wake.notify_all();
    shared.watch.notify_all();
    if shared.by_hand {
        shared.end(&StoreError::Closing);
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Store")
    }
}

impl Store {
    /// Opens or makes a store: allocates its files, recovers, starts its threads. Blocks; ready when it returns.
    pub fn open(options: StoreOptions) -> Result<Store, StoreError> {
        Store::open_from(options, 0)
    }

    /// The same. Where nothing is there, a store that was there before is gone: numbers of lanes, and with them of jobs, begin at
    /// `first_number`, as it gave out others ([`Store::numbers_below`]).
    pub fn open_from(options: StoreOptions, first_number: u64) -> Result<Store, StoreError> {
        let store = Store::prepare(options, first_number, false)?;
        let writing = store.shared().clone();
        let watching = store.shared().clone();
        let threads = [
            std::thread::Builder::new().name("store-writer".to_owned()).spawn(move || Writer::default().run(&writing)),
            std::thread::Builder::new().name("store-watch".to_owned()).spawn(move || volume::run(&watching)),
        ];
        for thread in threads {
            let thread = thread.map_err(|error| StoreError::Unusable(format!("a thread cannot be started: {error}")))?;
            store.owner.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        Ok(store)
    }

    /// Everything but the threads.
    fn prepare(options: StoreOptions, first_number: u64, by_hand: bool) -> Result<Store, StoreError> {
        let StoreOptions { disk, clock, disk_limit, disk_reserve } = options;
        let wall = clock.wall_milliseconds();
        let (files, report) = Files::open(disk, disk_limit)?;
        let mut core = Core::new(files.store(), files.extents(), 0, wall);
        core.recover(&files, report, wall);
        if files.is_new() {
            core.begin_at(first_number);
        }
        // Before anybody acts on what was found it must outlive a power cut: a process that was killed leaves writes that are not durable.
        files.settle(&std::mem::take(&mut core.mends), !by_hand)?;
        let (entries, complete_below) = core.take_uncatalogued();
        if files.make_catalog(&entries, complete_below).is_err() {
            // It is behind, and says so with the next that is written.
            core.put_back_uncatalogued(entries);
            core.catalog_is_behind();
        }
        if let Err(error) = files.write_head(core.serials_in_doubt()) {
            core.recovered.remarks.push(format!("the file head could not be written: {error}"));
            core.leave_out_serials();
        }
        let shared = Arc::new(Shared::new(core, files, clock, disk_reserve, by_hand));
        volume::look(&shared, 0);
        Ok(Store { owner: Arc::new(Owner { shared, threads: Mutex::default() }) })
    }

    /// Whether it was made when it was opened.
    pub fn is_new(&self) -> bool {
        self.shared().files.is_new()
    }

    /// Numbers of lanes below this one may be given out before it is opened again. Whoever remembers it can tell a store that is gone from
    /// one that never was.
    pub fn numbers_below(&self) -> u64 {
        self.shared().numbers_below
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.owner.shared
    }

    /// Finishes the batch at hand, acknowledges it and stops. Later calls answer `Closing`. Blocks.
    pub fn close(&self) {
        stop(self.shared());
        let threads = std::mem::take(&mut *self.owner.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // A thread that panicked has nothing more to finish.
            let _ = thread.join();
        }
        // What was written last, and that it is complete.
        catalog::flush(self.shared());
        catalog::flush(self.shared());
    }

    /// Asks for room. No waiting, no I/O.
    pub fn reserve(&self, lane: &LaneName, need: Need, limits: &QueueLimits) -> Result<Room, Full> {
        let shared = self.shared();
        if shared.is_closing() {
            return Err(Full { which: WhichLimit::NotServing, limit: 0, used: 0, own_share: false, retry_after: None });
        }
        let (reserved, looks) = {
            let mut core = shared.core();
            let reserved = core.reserve(lane, need, limits);
            (reserved, core.room_wanted && core.may_look)
        };
        if reserved.is_err() && looks {
            // Cleaning may make room for the next one.
            shared.wake_writer();
        }
        let index = reserved?;
        Ok(Room {
            store: self.clone(),
            index,
            lane: lane.clone(),
            items: need.items,
            bytes: need.bytes,
            limits: *limits,
            shed_oldest: need.shed_oldest,
        })
    }

    /// The job that a key stands for, and whether the input is the same: known before any room is asked for.
    pub fn find_key(&self, key: &Key) -> Option<(JobId, bool)> {
        self.shared().core().find_key(key)
    }

    /// The job that has a business key, and its tenant. A key that is claimed meanwhile is told at the append.
    pub fn find_unique(&self, unique: &Unique) -> Option<(JobId, Arc<str>)> {
        self.shared().core().find_unique(unique)
    }

    /// Told whenever a queue may have something to take: an append, a release, an end, a lost lease, a resumed lane.
    pub fn work(&self, queue: &str) -> Arc<Notify> {
        self.shared().core().queue(&Arc::from(queue)).work.clone()
    }

    /// What is known of a job. `None`: there never was one, or nothing is kept of it; see [`Store::was_job`].
    pub fn job(&self, id: JobId) -> Option<Job> {
        self.shared().core().job(id)
    }

    /// The lane an id was given out by, whether or not anything is still kept of the job.
    pub fn was_job(&self, id: JobId) -> Option<LaneName> {
        let core = self.shared().core();
        let lane = &core.lanes[core.lane_of(id)?];
        (id.sequence > 0 && id.sequence < lane.durable_next && !lane.left_out.contains(&id.sequence)).then(|| lane.name.clone())
    }

    /// How the store is.
    pub fn health(&self) -> Health {
        self.shared().core().health.clone()
    }

    /// Tells a queue that there may be something to take.
    fn ring(&self, queue: &Arc<str>) {
        let work = self.shared().core().queue(queue).work.clone();
        ring(&work);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if self.items == 0 && self.bytes == 0 {
            return;
        }
        let rest = crate::core::room::promise(self.items, self.bytes);
        self.store.shared().core().promise(self.index, rest, false);
    }
}

#[cfg(test)]
mod tests;
