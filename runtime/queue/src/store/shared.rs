//! What all handles of a store share: the state behind its lock, the files, the clock, and who waits for what.
//!
//! Invariants
//! 1. The lock is never held across a read, a write, a sync or an await.
//! 2. Whoever waits for a batch is told when it is durable, or that it never will be.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, watch};

use crate::clock::Clock;
use crate::core::batch::Effects;
use crate::core::lookup::{Plan, Record, read};
use crate::core::{Core, Refused, Ticket};
use crate::job::JobId;
use crate::status::{Health, SyncTimes};
use crate::store::StoreError;
use crate::store::catalog;
use crate::store::files::Files;

/// Content that may be on its way to the disk at once, in KiB.
pub(crate) const STAGED_KIB: u32 = 32 * 1024;
/// Callers that may wait for ends at once.
const MOST_WAITING: usize = 1 << 16;
/// More extents than are taken into use between two starts.
const SERIALS_OF_A_RUN: u64 = 1 << 40;
/// Rounds of the writer that a command waits for room in its journal before it gives up.
const MOST_ROUNDS: u64 = 10_000;
/// Of these, rounds on end after which nothing had become durable.
const MOST_IDLE_ROUNDS: u64 = 100;

/// How far the writer is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    /// Every batch up to it is durable.
    pub(crate) committed: Ticket,
    /// Counts what the writer did, also where nothing became durable.
    pub(crate) rounds: u64,
    /// Nothing becomes durable any more.
    pub(crate) over: Option<StoreError>,
}

/// See the module.
pub(crate) struct Shared {
    core: Mutex<Core>,
    pub(crate) files: Files,
    clock: Arc<dyn Clock>,
    /// Store time and the monotonic clock at the start.
    began: (u64, Duration),
    /// Tells the writer that there is something to do.
    pub(crate) wake: Condvar,
    /// Tells the watch over the volume that the store is closed.
    pub(crate) watch: Condvar,
    pub(crate) progress: watch::Sender<Progress>,
    pub(crate) staged: Arc<Semaphore>,
    waiting: Mutex<HashMap<JobId, Arc<Notify>>>,
    pub(crate) closing: AtomicBool,
    /// The writer waits a moment for more, and need not be woken.
    pub(crate) gathers: AtomicBool,
    pub(crate) disk_reserve: u64,
    /// The writer is driven by hand, in tests.
    pub(crate) by_hand: bool,
    pub(crate) sync_times: Mutex<SyncTimes>,
    pub(crate) volume_free: std::sync::atomic::AtomicU64,
    pub(crate) catalogued: Mutex<catalog::Progress>,
    /// Serials given out by this run are below it.
    pub(crate) numbers_below: u64,
}

impl Shared {
    pub(crate) fn new(core: Core, files: Files, clock: Arc<dyn Clock>, disk_reserve: u64, by_hand: bool) -> Self {
        let below = core.catalogued_below();
        let catalogued = catalog::Progress { durable: below, marked: below };
        let began = (core.now, clock.monotonic());
        let numbers_below = core.serials_in_doubt().saturating_add(SERIALS_OF_A_RUN);
        Shared {
            core: Mutex::new(core),
            files,
            clock,
            began,
            wake: Condvar::new(),
            watch: Condvar::new(),
            progress: watch::Sender::new(Progress::default()),
            staged: Arc::new(Semaphore::new(STAGED_KIB as usize)),
            waiting: Mutex::default(),
            closing: AtomicBool::new(false),
            gathers: AtomicBool::new(false),
            disk_reserve,
            by_hand,
            sync_times: Mutex::default(),
            volume_free: std::sync::atomic::AtomicU64::new(u64::MAX),
            catalogued: Mutex::new(catalogued),
            numbers_below,
        }
    }

    /// The state, at the present time.
    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        let mut core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = self.clock.monotonic().saturating_sub(self.began.1);
        core.advance(self.began.0.saturating_add(u64::try_from(passed.as_millis()).unwrap_or(u64::MAX)), self.clock.wall_milliseconds());
        core
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// The writer has something to do.
    pub(crate) fn wake_writer(&self) {
        if !self.gathers.load(Ordering::Acquire) {
            self.wake.notify_one();
        }
    }

    /// Whether commands are still taken.
    pub(crate) fn open(&self) -> Result<(), StoreError> {
        if self.is_closing() { Err(StoreError::Closing) } else { Ok(()) }
    }

    /// Does a command under the lock and waits until it is durable; where its journal is full, after it was cleaned.
    pub(crate) async fn durably<T>(&self, mut command: impl FnMut(&mut Core) -> Result<(T, Ticket), Refused>) -> Result<T, StoreError> {
        let (answer, ticket) = self.commanded(&mut command).await?;
        self.durable(ticket).await?;
        Ok(answer)
    }

    /// As [`Shared::durably`], without waiting for the disk.
    pub(crate) async fn commanded<T>(&self, mut command: impl FnMut(&mut Core) -> Result<T, Refused>) -> Result<T, StoreError> {
        let mut progress = self.progress.subscribe();
        let (mut committed, mut idle) = (0, 0);
        for _ in 0..MOST_ROUNDS {
            self.open()?;
            let Progress { rounds, committed: now, .. } = *progress.borrow_and_update();
            (committed, idle) = if now == committed { (now, idle + 1) } else { (now, 0) };
            if idle > MOST_IDLE_ROUNDS {
                break;
            }
            let (done, has_work) = {
                let mut core = self.core();
                let done = command(&mut core);
                (done, core.has_batch() || core.wants_cleaning())
            };
            if has_work {
                self.wake_writer();
            }
            match done {
                Ok(answer) => return Ok(answer),
                Err(Refused::Error(error)) => return Err(error),
                Err(Refused::Later) => self.next_round(&mut progress, rounds).await?,
            }
        }
        Err(StoreError::Full(crate::limits::Full {
            which: crate::limits::WhichLimit::StoreDisk,
            limit: self.files.disk_limit(),
            used: self.files.disk_limit(),
            own_share: false,
            retry_after: None,
        }))
    }

    async fn next_round(&self, progress: &mut watch::Receiver<Progress>, rounds: u64) -> Result<(), StoreError> {
        let seen = progress.wait_for(|progress| progress.rounds > rounds || progress.over.is_some()).await;
        let over = seen.map_or(Some(StoreError::Closing), |progress| progress.over.clone());
        over.map_or(Ok(()), Err)
    }

    /// Answers when a batch is durable.
    pub(crate) async fn durable(&self, ticket: Ticket) -> Result<(), StoreError> {
        let mut progress = self.progress.subscribe();
        let seen = progress.wait_for(|progress| progress.committed >= ticket || progress.over.is_some()).await;
        match seen {
            Ok(progress) if progress.committed >= ticket => Ok(()),
            Ok(progress) => Err(progress.over.clone().unwrap_or(StoreError::Closing)),
            Err(_) => Err(StoreError::Closing),
        }
    }

    /// Reads, off the async threads where there are any.
    pub(crate) async fn read(self: &Arc<Self>, plan: Plan) -> (Plan, io::Result<Vec<Record>>) {
        if self.by_hand || tokio::runtime::Handle::try_current().is_err() {
            let records = read(&self.files, &plan);
            return (plan, records);
        }
        let shared = self.clone();
        let failed = plan.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let records = read(&shared.files, &plan);
            (plan, records)
        });
        reading.await.unwrap_or_else(|_| (failed, Err(io::Error::other("the reading thread was stopped"))))
    }

    /// Tells those whom a durable batch concerns.
    pub(crate) fn tell(&self, effects: &Effects) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.is_empty() {
            return;
        }
        for job in &effects.ended {
            if let Some(notify) = waiting.remove(job) {
                notify.notify_waiters();
            }
        }
        for lane in &effects.purged {
            waiting.retain(|job, notify| {
                if job.lane == *lane {
                    notify.notify_waiters();
                }
                job.lane != *lane
            });
        }
    }

    /// To be told of the end of a job.
    pub(crate) fn wait_for(&self, job: JobId) -> Option<Arc<Notify>> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() >= MOST_WAITING {
            // Those that nobody waits for any more are forgotten first.
            waiting.retain(|_, notify| Arc::strong_count(notify) > 1);
        }
        if waiting.len() >= MOST_WAITING && !waiting.contains_key(&job) {
            return None;
        }
        Some(waiting.entry(job).or_default().clone())
    }

    /// Nothing becomes durable any more.
    pub(crate) fn end(&self, error: &StoreError) {
        self.progress.send_modify(|progress| {
            progress.over.get_or_insert(error.clone());
        });
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        waiting.values().for_each(|notify| notify.notify_waiters());
    }

    /// Tells the queues of these lanes that there may be something to take.
    pub(crate) fn work(core: &Core, lanes: &[usize]) -> Vec<Arc<Notify>> {
        let mut queues: Vec<&Arc<str>> = lanes.iter().map(|lane| &core.lanes[*lane].name.queue).collect();
        queues.sort_unstable();
        queues.dedup();
        queues.into_iter().filter_map(|queue| core.queues.get(queue)).map(|queue| queue.work.clone()).collect()
    }

    /// Whether a failure was noted before.
    pub(crate) fn failure(&self) -> Option<String> {
        match &self.core().health {
            Health::Failed { detail } => Some(detail.clone()),
            _ => None,
        }
    }
}

/// Tells everybody who waits, and whoever comes next.
pub(crate) fn ring(notify: &Notify) {
    notify.notify_waiters();
    notify.notify_one();
}
