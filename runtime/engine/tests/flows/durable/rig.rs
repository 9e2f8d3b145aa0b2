//! A server with a store, over files that outlive it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use spillgate_engine::{Call, Durable, Engine, JobView, Outcome};
use spillgate_model::Refusal;
use spillgate_queue::clock::{Clock, MachineClock};
use spillgate_queue::disk::simulated::SimulatedDisk;
use spillgate_queue::{JobId, JobState, LaneName, LaneStatus, Store, StoreOptions};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::support::{Faults, PATIENCE, Settings, call, make_tables, patiently, refusal, start, write_files};

/// Changes the stock by an amount, behind the cut; below 0 the table refuses.
pub(super) const BOOK: &str = r#"
name = "book"
http = "POST /book"
effect = "write"
deadline = "20s"
[input.amount]
type = "integer"
[[step]]
queue = "work"
[[step]]
name = "stock"
database = "main"
sql = "UPDATE STOCK SET AMOUNT = AMOUNT + :amount WHERE ID = 1"
max_affected = 1
[[step]]
name = "answer"
map = "{'booked': input.amount, 'changed': steps.stock.value.affected}"
"#;

/// Reads, behind the cut.
pub(super) const LOOK: &str = r#"
name = "look"
http = "POST /look"
effect = "read"
deadline = "20s"
[input.id]
type = "integer"
[[step]]
queue = "work"
[[step]]
name = "item"
database = "main"
sql = "SELECT ID, NAME FROM ITEM WHERE ID = :id"
columns = { ID = "integer", NAME = "text" }
"#;

/// Two workers, three attempts.
pub(super) const QUEUE: &str = "[queue.work]\nworkers = 2\nattempts = 3\n";

/// The machine's clock, which a test sets forward for the store alone: leases run out by it.
#[derive(Debug, Default)]
pub(super) struct SetClock {
    machine: MachineClock,
    ahead_milliseconds: AtomicU64,
}

impl SetClock {
    pub(super) fn forward(&self, by: Duration) {
        self.ahead_milliseconds.fetch_add(u64::try_from(by.as_millis()).expect("not so far"), Ordering::SeqCst);
    }
}

impl Clock for SetClock {
    fn monotonic(&self) -> Duration {
        self.machine.monotonic() + Duration::from_millis(self.ahead_milliseconds.load(Ordering::SeqCst))
    }
    fn wall_milliseconds(&self) -> u64 {
        self.machine.wall_milliseconds()
    }
}

/// Files and tables that outlive servers.
pub(super) struct Ground {
    pub(super) folder: PathBuf,
    settings: Settings,
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _left_behind = std::fs::remove_dir_all(&self.folder);
    }
}

impl Ground {
    pub(super) fn new(queues: &str, flows: &[&str]) -> Ground {
        Ground::with(Settings { more: queues.into(), ..Settings::default() }, flows)
    }
    pub(super) fn with(settings: Settings, flows: &[&str]) -> Ground {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let folder = std::env::temp_dir().join(format!("spillgate-durable-{}-{number}", std::process::id()));
        std::fs::create_dir_all(folder.join("flows")).expect("a folder for the test");
        make_tables(&folder.join("main.db"));
        if settings.second {
            make_tables(&folder.join("second.db"));
        }
        write_files(&folder, &settings, flows);
        Ground { folder, settings }
    }
    /// The first life.
    pub(super) fn start(&self) -> Life<'_> {
        self.start_on(SimulatedDisk::new(7))
    }
    pub(super) fn start_on(&self, disk: SimulatedDisk) -> Life<'_> {
        let life = self.start_without_store(disk);
        life.attach();
        life
    }
    pub(super) fn start_without_store(&self, disk: SimulatedDisk) -> Life<'_> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        let faults = Arc::new(Faults::default());
        let engine = {
            let _inside = runtime.enter();
            start(&self.folder, &faults, [7; 32])
        };
        Life { ground: self, runtime, engine, faults, disk, clock: Arc::default() }
    }
    /// Straight from the file, past the engine.
    pub(super) fn count(&self, sql: &str) -> i64 {
        let file = rusqlite::Connection::open(self.folder.join("main.db")).expect("the file is there");
        file.busy_timeout(PATIENCE).expect("a setting");
        file.query_row(sql, [], |row| row.get(0)).expect("a number")
    }
    pub(super) fn execute(&self, sql: &str) {
        let file = rusqlite::Connection::open(self.folder.join("main.db")).expect("the file is there");
        file.busy_timeout(PATIENCE).expect("a setting");
        file.execute_batch(sql).expect("the statement runs");
    }
    pub(super) fn stock(&self) -> i64 {
        self.count("SELECT AMOUNT FROM STOCK WHERE ID = 1")
    }
}

/// From a start to a crash.
pub(super) struct Life<'a> {
    ground: &'a Ground,
    runtime: Runtime,
    pub(super) engine: Engine,
    pub(super) faults: Arc<Faults>,
    pub(super) disk: SimulatedDisk,
    pub(super) clock: Arc<SetClock>,
}

impl Life<'_> {
    pub(super) fn attach(&self) {
        let options = StoreOptions { disk: Arc::new(self.disk.clone()), clock: self.clock.clone(), disk_limit: 16 << 20, disk_reserve: 0 };
        let store = Store::open(options).expect("the store opens");
        let _inside = self.runtime.enter();
        self.engine.attach_store(store);
    }
    pub(super) fn store(&self) -> Store {
        match self.engine.store() {
            Durable::Serving(store) => store,
            other => panic!("no store: {other:?}"),
        }
    }
    /// Writes the files anew and applies them.
    pub(super) fn reload(&self, queues: &str, flows: &[&str]) {
        write_files(&self.ground.folder, &Settings { more: queues.into(), ..self.ground.settings.clone() }, flows);
        let _inside = self.runtime.enter();
        self.engine.apply(Arc::new(crate::support::load(&self.ground.folder))).expect("the plan can be built");
    }
    pub(super) fn call(&self, tenant: &str, flow: &str, input: &str) -> Call {
        call(&self.engine, tenant, flow, input)
    }
    pub(super) fn send_call(&self, call: Call) -> JoinHandle<Outcome> {
        let engine = self.engine.clone();
        self.runtime.spawn(async move { engine.run(call).await })
    }
    pub(super) fn run_call(&self, call: Call) -> Outcome {
        self.block_on("a call", self.send_call(call)).expect("no panic")
    }
    pub(super) fn refusal(&self, tenant: &str, flow: &str, input: &str) -> Refusal {
        refusal(self.run_call(self.call(tenant, flow, input)))
    }
    /// Appends an item: its job.
    pub(super) fn append(&self, flow: &str, input: &str) -> JobId {
        self.append_as("one", flow, input)
    }
    pub(super) fn append_as(&self, tenant: &str, flow: &str, input: &str) -> JobId {
        view(self.run_call(self.call(tenant, flow, input))).id
    }
    /// The job when it has ended.
    pub(super) fn ended(&self, job: JobId) -> JobView {
        let store = self.store();
        let job = self.block_on("the end of a job", store.ended(job)).expect("the job is known");
        self.job(&job.lane.tenant, job.id).expect("its tenant sees it")
    }
    /// State and outcome of a job that has ended.
    pub(super) fn end(&self, job: JobId) -> (JobState, String) {
        let view = self.ended(job);
        (view.state, view.outcome.map(|outcome| String::from_utf8(outcome.to_vec()).expect("JSON is text")).unwrap_or_default())
    }
    pub(super) fn job(&self, tenant: &str, job: JobId) -> Result<JobView, Refusal> {
        self.job_by_text(tenant, &job.to_string())
    }
    pub(super) fn job_by_text(&self, tenant: &str, id: &str) -> Result<JobView, Refusal> {
        let live = self.engine.live();
        self.block_on("a job", self.engine.job(&live, self.tenant(tenant), id))
    }
    pub(super) fn cancel(&self, tenant: &str, job: JobId) -> Result<JobView, Refusal> {
        let live = self.engine.live();
        self.block_on("a cancel", self.engine.cancel_job(&live, self.tenant(tenant), &job.to_string()))
    }
    pub(super) fn tenant(&self, name: &str) -> usize {
        self.engine.live().tenants.iter().position(|tenant| &*tenant.plan.name == name).expect("a tenant")
    }
    pub(super) fn block_on<T>(&self, what: &str, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(patiently(what, work))
    }
    pub(super) fn until(&self, what: &str, done: impl FnMut() -> bool) {
        self.runtime.block_on(crate::support::until(what, done));
    }
    pub(super) fn lane(&self, queue: &str, tenant: &str) -> LaneStatus {
        let name = lane(queue, tenant);
        self.store().lanes(Some(queue)).into_iter().find(|lane| lane.name == name).unwrap_or_else(|| panic!("no lane {name:?}"))
    }
    pub(super) fn pause(&self, queue: &str, tenant: &str, paused: bool) {
        self.store().pause(&lane(queue, tenant), paused);
    }
    /// The process is gone, and what was not synced with it.
    pub(super) fn crash(self) -> SimulatedDisk {
        let disk = self.disk.crash();
        drop(self.engine);
        // Drops what still runs, as a crash would: open sessions are closed by that, and their transactions rolled back.
        self.runtime.shutdown_timeout(PATIENCE);
        disk
    }
}

pub(super) fn lane(queue: &str, tenant: &str) -> LaneName {
    LaneName { queue: queue.into(), tenant: tenant.into() }
}

pub(super) fn view(outcome: Outcome) -> JobView {
    match outcome {
        Outcome::Job(view) => view,
        other => panic!("no job: {other:?}"),
    }
}

/// The same call with another deadline.
pub(super) fn within(mut call: Call, deadline: Duration) -> Call {
    call.flowfile.deadline = (Instant::now() + deadline).into_std();
    call
}
