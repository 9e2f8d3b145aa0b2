//! What an engine holds of durable work: its store, the tasks that serve queues, and what they wait for.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use spillgate_model::{Code, Refusal};
use spillgate_queue::{LaneName, Store};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::dispatch::{self, Signals};
use super::turns::HeldBy;
use super::unserved::{self, Unserved};
use super::{Durable, schedule};
use crate::Live;
use crate::once;
use crate::reload::Inner;

/// What an engine holds of its store. Nothing here costs a direct flow anything.
#[derive(Debug, Default)]
pub(crate) struct Durability {
    opened: OnceLock<Result<Store, String>>,
    /// There is none to open, as long as no plan needs one.
    absent: AtomicBool,
    /// Another plan runs.
    pub(super) reloaded: Arc<Notify>,
    /// A database that could not be reached answers again.
    pub(crate) answered: Arc<Notify>,
    pub(super) holding: Holding,
    served: Mutex<HashMap<Arc<str>, DropGuard>>,
    /// Queues with lanes that the plan does not serve.
    unserved: Mutex<Vec<Arc<str>>>,
    /// Every queue's task ends with it.
    stop: CancellationToken,
    cut_off: CancellationToken,
    tasks: TaskTracker,
}

impl Durability {
    /// It is open: everything that works on it starts. Once.
    pub(crate) fn attach(&self, engine: &Arc<Inner>, store: Store) {
        if self.opened.set(Ok(store.clone())).is_err() {
            return;
        }
        self.follow(engine);
        self.tasks.spawn(until_stopped(self.stop.clone(), once::watch(Arc::downgrade(engine), store.clone())));
        let left_over =
            dispatch::serve(Arc::downgrade(engine), store.clone(), schedule::SCHEDULE.into(), self.signals(self.stop.child_token()));
        self.tasks.spawn(left_over);
        self.tasks.spawn(schedule::run(Arc::downgrade(engine), store, self.signals(self.stop.child_token())));
    }
    /// It would not open.
    pub(crate) fn failed(&self, detail: String) {
        let _said_before = self.opened.set(Err(detail));
    }
    pub(crate) fn state(&self) -> Durable {
        match self.opened.get() {
            None if self.absent.load(Ordering::Relaxed) => Durable::Absent,
            None => Durable::Recovering,
            Some(Ok(store)) => Durable::Serving(store.clone()),
            Some(Err(detail)) => Durable::Failed(detail.clone()),
        }
    }
    /// There is none to open, or (a reload) there will be.
    pub(crate) fn set_absent(&self, absent: bool) {
        self.absent.store(absent, Ordering::Relaxed);
    }
    /// Where jobs are looked for: without a store there never was one.
    pub(crate) fn of_jobs(&self) -> Result<&Store, Refusal> {
        match self.state() {
            Durable::Absent => Err(Refusal::new(Code::UnknownJob, "There is no such job.")),
            _ => self.store(),
        }
    }
    /// The store, or why there is none.
    pub(crate) fn store(&self) -> Result<&Store, Refusal> {
        match self.opened.get() {
            Some(Ok(store)) => Ok(store),
            None => Err(Refusal::new(Code::Recovering, "The store of durable work is being opened.")),
            Some(Err(detail)) => Err(Refusal::new(Code::StoreFailed, "The store of durable work cannot be used.").internal(detail.clone())),
        }
    }

    /// Another plan runs: queues that came are served, those that left are not.
    pub(crate) fn follow(&self, engine: &Arc<Inner>) {
        let Some(Ok(store)) = self.opened.get() else { return };
        let live = engine.live.load_full();
        self.set_dead_letters(store, &live);
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        served.retain(|queue, _| live.plan.queues.iter().any(|plan| plan.name == *queue));
        for plan in &live.plan.queues {
            if !served.contains_key(&plan.name) && !self.stop.is_cancelled() {
                let stop = self.stop.child_token();
                served.insert(plan.name.clone(), stop.clone().drop_guard());
                self.tasks.spawn(dispatch::serve(Arc::downgrade(engine), store.clone(), plan.name.clone(), self.signals(stop)));
            }
        }
        drop(served);
        *self.unserved.lock().unwrap_or_else(PoisonError::into_inner) = unserved::told(store, &live);
        self.reloaded.notify_waiters();
    }

    fn set_dead_letters(&self, store: &Store, live: &Live) {
        for queue in &live.plan.queues {
            store.set_dead_letters(&queue.name, queue.dead_items, queue.dead_keep);
        }
    }

    fn signals(&self, stop: CancellationToken) -> Signals {
        Signals { stop, cut_off: self.cut_off.clone() }
    }

    /// Cancelled once no more items are taken.
    pub(super) fn stopping(&self) -> &CancellationToken {
        &self.stop
    }
    /// No more items are taken.
    pub(crate) fn stop_taking(&self) {
        self.stop.cancel();
        self.tasks.close();
    }
    /// Ends when nothing works on items any more, which it does by itself once nothing is taken.
    pub(crate) async fn drained(&self) {
        self.stop_taking();
        self.tasks.wait().await;
    }
    /// Ends what still works on items.
    pub(crate) async fn cut_off(&self) {
        self.stop_taking();
        self.cut_off.cancel();
        self.tasks.wait().await;
    }
    /// Lanes that are held back by what the store does not know of.
    pub(crate) fn held(&self, live: &Live) -> Vec<HeldLane> {
        let mut held = self.holding.all();
        if let Some(Ok(store)) = self.opened.get() {
            held.extend(unserved::lanes(store, live));
        }
        held
    }
    /// What waits for another configuration. Cheap where nothing does.
    pub(crate) fn unserved(&self, live: &Live) -> Unserved {
        let queues = self.unserved.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let items = match self.opened.get() {
            Some(Ok(store)) => queues.iter().map(|queue| unserved::items(store, live, queue)).sum(),
            _ => 0,
        };
        Unserved { items, lanes: self.holding.count(HeldBy::Configuration) }
    }
}

impl Drop for Durability {
    fn drop(&mut self) {
        // Tasks that wait hold no engine: they end with it.
        self.stop.cancel();
    }
}

async fn until_stopped(stop: CancellationToken, work: impl Future<Output = ()>) {
    let _stopped = stop.run_until_cancelled(work).await;
}

/// A lane that is not served though it has work.
#[derive(Clone, Debug)]
pub struct HeldLane {
    /// Which.
    pub lane: LaneName,
    /// By what.
    pub by: HeldBy,
    /// Since when.
    pub since: std::time::Instant,
}

/// One of a queue.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) tenant: Arc<str>,
    pub(super) by: HeldBy,
    pub(super) since: Instant,
}

/// What the tasks of all queues say about their lanes.
#[derive(Debug, Default)]
pub(super) struct Holding {
    held: Mutex<HashMap<Arc<str>, Vec<Held>>>,
    parked: Mutex<HashSet<LaneName>>,
}

impl Holding {
    pub(super) fn set(&self, queue: &Arc<str>, lanes: Vec<Held>) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if lanes.is_empty() {
            held.remove(queue);
        } else {
            held.insert(queue.clone(), lanes);
        }
    }
    /// Dead letters fill a lane. True: that is news.
    pub(super) fn parked(&self, lane: &LaneName) -> bool {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner).insert(lane.clone())
    }
    pub(super) fn served(&self, lane: &LaneName) {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner).remove(lane);
    }
    fn count(&self, by: HeldBy) -> usize {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.values().flatten().filter(|held| held.by == by).count()
    }
    fn all(&self) -> Vec<HeldLane> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |queue: &Arc<str>, held: &Held| HeldLane {
            lane: LaneName { queue: queue.clone(), tenant: held.tenant.clone() },
            by: held.by,
            since: held.since.into_std(),
        };
        held.iter().flat_map(|(queue, lanes)| lanes.iter().map(move |held| of(queue, held))).collect()
    }
}
