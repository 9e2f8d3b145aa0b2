//! What is kept in the data folder: operator state and the queue store, opened behind the listeners and closed in order.
//!
//! Invariants
//! 1. Direct flows wait for nothing here: both are opened on a blocking thread after the listeners are bound.
//! 2. Operator state comes first: a lane that an operator paused is paused before the store serves, and limits that operators set
//!    are in force before anybody can change them.
//! 3. The two together hold `disk_limit`: control has its share, the store the rest.
//! 4. A store that does not open, or breaks off opening, stops nothing but durable work.
//! 5. A stop closes the store, then the operator state; a store that is still being opened is left to the next start.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use spillgate_config::Plan;
use spillgate_control::{Began, Control, ControlOptions};
use spillgate_engine::{Durable, Engine};
use spillgate_model::limits::{operator_share, store_share};
use spillgate_queue::clock::MachineClock;
use spillgate_queue::disk::RealDisk;
use spillgate_queue::{LaneName, Store, StoreOptions};
use spillgate_telemetry::happened::{self, StoreFound};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use crate::data_dir::DataDir;
use crate::store_known::{self, GONE};
use crate::{breakers, overrides};

/// The longest that a stop waits for files to be closed: what was acknowledged is on disk already.
const CLOSING: Duration = Duration::from_secs(5);

/// The longest that an operator's request waits for operator state to be read.
const READING: Duration = Duration::from_secs(5);

/// Said until the next start.
const FORGOTTEN: &str = "the operator state of this store is gone: lanes that an operator had paused are served, and the audit begins anew";

/// Owns both.
pub(crate) struct Keeping {
    engine: Engine,
    folder: DataDir,
    disk_limit: u64,
    disk_reserve: u64,
    /// Operator state, or why there is none; `None`: it is being read.
    control: watch::Sender<Option<Result<Control, String>>>,
    /// There is a store, and its operator state was gone.
    forgotten: AtomicBool,
    /// There was a store, and it was gone.
    gone: AtomicBool,
    /// What operators had set and cannot be read.
    unread: OnceLock<Vec<String>>,
    /// What the store's start found that strangers may hear of.
    found: OnceLock<Vec<String>>,
    /// Whether the store was opened or tried; held while it is.
    begun: Mutex<bool>,
    stopping: AtomicBool,
}

impl Keeping {
    pub(crate) fn new(engine: Engine, folder: DataDir, plan: &Plan) -> Arc<Keeping> {
        let (disk_limit, disk_reserve) = (plan.server.disk_limit, plan.server.disk_reserve);
        let (control, found) = (watch::Sender::new(None), OnceLock::new());
        let (begun, stopping) = (Mutex::new(false), AtomicBool::new(false));
        let (forgotten, gone) = (AtomicBool::new(false), AtomicBool::new(false));
        // Said before anybody can ask.
        engine.store_absent(!is_wanted(plan, &folder));
        let unread = OnceLock::new();
        Arc::new(Keeping { engine, folder, disk_limit, disk_reserve, control, forgotten, gone, unread, found, begun, stopping })
    }

    /// Opens what the plan that runs needs and is not open yet: at the start, and after a reload that may have brought the first
    /// queue.
    pub(crate) async fn open(self: &Arc<Self>) {
        let opening = self.clone();
        if let Err(panic) = spawn_blocking(move || opening.open_here()).await {
            tracing::error!(%panic, "opening the data folder broke off");
            self.engine.store_failed("opening it broke off".into());
        }
    }

    fn open_here(&self) {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = is_wanted(&self.engine.live().plan, &self.folder);
        self.engine.store_absent(!wanted);
        self.open_control();
        if *begun || !wanted || self.stopping.load(Ordering::SeqCst) {
            return;
        }
        *begun = true;
        let since = Instant::now();
        let control = self.opened_control();
        let numbers_below = control.as_ref().and_then(store_known::numbers_below);
        match self.open_store(numbers_below.unwrap_or(0)) {
            Ok(store) => {
                self.gone.store(store.is_new() && numbers_below.is_some(), Ordering::SeqCst);
                control.iter().for_each(|control| store_known::remember(control, &store));
                self.serve(store, since.elapsed());
            }
            Err(detail) => {
                happened::store_failed(&detail);
                self.engine.store_failed(detail);
            }
        }
    }

    fn open_control(&self) {
        if self.control.borrow().is_some() {
            return;
        }
        let options = ControlOptions { folder: self.folder.control(), share: operator_share(self.disk_limit) };
        let opened = Control::open(&options).map_err(|error| format!("operator state is not kept: {error}"));
        let began = opened.as_ref().map_or(Began::Kept, Control::began);
        // It is made before the store is: a store without one has lost it.
        self.forgotten.store(began == Began::Lost || (began == Began::New && self.folder.store().is_dir()), Ordering::SeqCst);
        if let Ok(control) = &opened {
            let _unread_once = self.unread.set(overrides::put_in_force(&self.engine, control));
            breakers::restore(&self.engine, control);
        }
        self.control.send_replace(Some(opened));
        if self.is_forgotten() {
            tracing::error!("{FORGOTTEN}");
        }
        for remark in self.remarks() {
            tracing::warn!(remark, "operator state");
        }
    }

    fn open_store(&self, first_number: u64) -> Result<Store, String> {
        let disk = RealDisk::open(self.folder.store()).map_err(|error| error.to_string())?;
        let options = StoreOptions {
            disk: Arc::new(disk),
            clock: Arc::new(MachineClock::default()),
            disk_limit: store_share(self.disk_limit),
            disk_reserve: self.disk_reserve,
        };
        Store::open_from(options, first_number).map_err(|error| error.to_string())
    }

    fn serve(&self, store: Store, took: Duration) {
        let recovered = store.status().recovered;
        let found = StoreFound {
            lanes: recovered.lanes,
            waiting: recovered.waiting,
            cut_bytes: recovered.cut_bytes,
            cut_records: recovered.cut_records,
            quarantined_extents: recovered.quarantined_extents,
            missing_files: &recovered.missing_files,
            losses: &recovered.losses,
            remarks: &recovered.remarks,
        };
        happened::store_recovered(&found, took);
        if self.gone.load(Ordering::SeqCst) {
            tracing::error!("{GONE}");
        }
        let mut found = Vec::new();
        if recovered.quarantined_extents > 0 {
            found.push(format!("{} extents of the store could not be read", recovered.quarantined_extents));
        }
        if !recovered.missing_files.is_empty() {
            found.push(format!("files of the store are missing: {}", recovered.missing_files.join(", ")));
        }
        let _found_once = self.found.set(found);
        for lane in self.opened_control().map(|control| control.paused()).unwrap_or_default() {
            store.pause(&LaneName { queue: lane.queue.into(), tenant: lane.tenant.into() }, true);
        }
        if self.stopping.load(Ordering::SeqCst) {
            return store.close();
        }
        self.engine.attach_store(store);
    }

    /// Operator state, or why there is none. Waited for: what an operator does in the first moments is kept like anything else.
    pub(crate) async fn control(&self) -> Result<Control, String> {
        let mut opened = self.control.subscribe();
        let control = tokio::time::timeout(READING, opened.wait_for(Option::is_some)).await;
        let control = control.ok().and_then(Result::ok).and_then(|control| control.clone());
        control.unwrap_or_else(|| Err("operator state is still being read".into()))
    }
    /// Answers when operator state was read, or cannot be.
    pub(crate) async fn is_read(&self) -> Result<(), String> {
        let mut opened = self.control.subscribe();
        let read = tokio::time::timeout(READING, opened.wait_for(Option::is_some)).await;
        read.map(|_| ()).map_err(|_| "operator state is still being read".to_owned())
    }
    fn opened_control(&self) -> Option<Control> {
        self.control.borrow().clone()?.ok()
    }
    /// What operators should know of it, a sentence each.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let forgotten = self.is_forgotten().then(|| FORGOTTEN.to_owned());
        let others = match &*self.control.borrow() {
            None => Vec::new(),
            Some(Ok(control)) => control.remarks(),
            Some(Err(never)) => vec![never.clone()],
        };
        forgotten.into_iter().chain(others).chain(self.unread.get().into_iter().flatten().cloned()).collect()
    }
    fn is_forgotten(&self) -> bool {
        self.forgotten.load(Ordering::SeqCst)
    }
    /// Why the server is degraded, beyond the store's health; for anybody to read.
    pub(crate) fn reasons(&self) -> Vec<String> {
        let mut reasons = self.found.get().cloned().unwrap_or_default();
        if self.gone.load(Ordering::SeqCst) {
            reasons.push(GONE.to_owned());
        }
        if let Durable::Serving(store) = self.engine.store()
            && store.losses() > 0
        {
            // Lanes have names of tenants, which are not for anybody.
            reasons.push(
                "acknowledged work was lost with damaged files: `losses` in /admin/v1/queues on the admin listener says what".to_owned(),
            );
        }
        if self.is_forgotten() {
            reasons.push(FORGOTTEN.to_owned());
        } else if !self.remarks().is_empty() {
            reasons.push("the operator state needs a look: /admin/v1/config on the admin listener says why".to_owned());
        }
        reasons
    }

    /// Closes what is open.
    pub(crate) async fn close(self: Arc<Self>) {
        self.stopping.store(true, Ordering::SeqCst);
        let closed = spawn_blocking(move || {
            if let Durable::Serving(store) = self.engine.store() {
                store.close();
            }
            if let Some(control) = self.opened_control() {
                breakers::keep(&self.engine, &control);
                control.close();
            }
        });
        if tokio::time::timeout(CLOSING, closed).await.is_err() {
            tracing::warn!("the data folder could not be closed in time; nothing that was acknowledged is lost");
        }
    }
}

/// Without queues, keys and schedules nothing is ever put into a store, so none is made and no disk is taken. One that is there is
/// opened all the same: its items can be seen, and its jobs asked for.
fn is_wanted(plan: &Plan, folder: &DataDir) -> bool {
    needs_store(plan) || folder.store().is_dir()
}

/// Whether anything of a plan is ever put into a store.
fn needs_store(plan: &Plan) -> bool {
    let keeps = |flow: &Arc<spillgate_config::plan::Flow>| {
        flow.queue.is_some() || flow.idempotency.is_some() || flow.unique.is_some() || flow.schedule.is_some()
    };
    !plan.queues.is_empty() || plan.flows.iter().any(keeps)
}
