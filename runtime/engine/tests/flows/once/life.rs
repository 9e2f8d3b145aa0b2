//! One life of a server: from a start to a crash.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use spillgate_engine::{Call, Durable, Engine, Outcome, reply};
use spillgate_model::{Code, Refusal};
use spillgate_queue::clock::MachineClock;
use spillgate_queue::disk::simulated::SimulatedDisk;
use spillgate_queue::{Job, JobId, JobState, LaneName, Store, StoreOptions};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::support::{Faults, PATIENCE, Settings, call, make_tables, patiently, refusal, start, write_files};

const DISK_LIMIT: u64 = 16 << 20;

/// Books an amount; the table takes no negative one.
pub(super) fn booking(name: &str, once: &str) -> String {
    format!(
        r#"
name = "{name}"
http = "POST /{name}"
effect = "write"
deadline = "10s"
{once}
[input.trip]
type = "integer"
[input.amount]
type = "integer"
[[step]]
name = "book"
database = "main"
sql = "INSERT INTO BOOKED (TRIP, AMOUNT) VALUES (:trip, :amount) RETURNING ID, TRIP, AMOUNT"
max_affected = 1
"#
    )
}

/// The same, from a queue.
pub(super) fn queued(name: &str, once: &str, cut: &str) -> String {
    booking(name, once).replacen("[[step]]", &format!("[[step]]\nqueue = \"jobs\"\n{cut}\n[[step]]"), 1)
}

/// A queue whose items have two attempts, and a tenant that may have one item at a time.
const MORE: &str = r#"
[queue.jobs]
workers = 2
attempts = 2
lease = "5s"
[tenant.small]
keys = ["key-of-small"]
attributes = { company = "SMALL" }
queued = { items = 1 }
"#;

/// Files and tables that outlive crashes.
pub(super) struct Ground {
    folder: PathBuf,
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _left_behind = std::fs::remove_dir_all(&self.folder);
    }
}

impl Ground {
    pub(super) fn new(flows: &[&str]) -> Ground {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let folder = std::env::temp_dir().join(format!("spillgate-once-{}-{number}", std::process::id()));
        std::fs::create_dir_all(folder.join("flows")).expect("a folder for the test");
        make_tables(&folder.join("main.db"));
        let ground = Ground { folder };
        ground.execute(
            "CREATE TABLE BOOKED (ID INTEGER PRIMARY KEY, TRIP INTEGER NOT NULL, AMOUNT INTEGER NOT NULL CHECK (AMOUNT >= 0));
             CREATE TABLE DONE (TENANT TEXT NOT NULL, FLOW TEXT NOT NULL, IDEMPOTENCY_KEY TEXT NOT NULL, JOB TEXT NOT NULL,
                DONE_AT TEXT NOT NULL, PRIMARY KEY (TENANT, FLOW, IDEMPOTENCY_KEY));",
        );
        write_files(&ground.folder, &Settings::default(), flows);
        let server = ground.folder.join("server.toml");
        let written = std::fs::read_to_string(&server).expect("it was written");
        std::fs::write(&server, written + MORE).expect("written");
        ground
    }
    /// The first life.
    pub(super) fn start(&self) -> Life {
        self.start_on(SimulatedDisk::new(7))
    }
    pub(super) fn start_on(&self, disk: SimulatedDisk) -> Life {
        let life = self.start_without_store(disk);
        let options = StoreOptions {
            disk: Arc::new(life.disk.clone()),
            clock: Arc::new(MachineClock::default()),
            disk_limit: DISK_LIMIT,
            disk_reserve: 0,
        };
        let store = Store::open(options).expect("the store opens");
        life.enter(|engine| engine.attach_store(store));
        life
    }
    pub(super) fn start_without_store(&self, disk: SimulatedDisk) -> Life {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        let faults = Arc::new(Faults::default());
        let engine = {
            let _inside = runtime.enter();
            start(&self.folder, &faults, [7; 32])
        };
        Life { runtime, engine, faults, disk }
    }
    /// Straight in the file, past the engine.
    pub(super) fn execute(&self, sql: &str) {
        self.file().execute_batch(sql).expect("the statement runs");
    }
    pub(super) fn count(&self, sql: &str) -> i64 {
        self.file().query_row(sql, [], |row| row.get(0)).expect("a number")
    }
    /// How often something was booked.
    pub(super) fn booked(&self) -> i64 {
        self.count("SELECT count(*) FROM BOOKED")
    }
    /// The job that the record names.
    pub(super) fn job(&self) -> String {
        self.file().query_row("SELECT JOB FROM DONE", [], |row| row.get(0)).expect("a row of the record")
    }
    fn file(&self) -> rusqlite::Connection {
        let file = rusqlite::Connection::open(self.folder.join("main.db")).expect("the file is there");
        file.busy_timeout(PATIENCE).expect("a setting");
        file
    }
}

/// From a start to a crash.
pub(super) struct Life {
    runtime: Runtime,
    engine: Engine,
    pub(super) faults: Arc<Faults>,
    disk: SimulatedDisk,
}

/// A call as a test writes it.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) tenant: &'a str,
    pub(super) flow: &'a str,
    pub(super) input: &'a str,
    pub(super) key: Option<&'a str>,
    pub(super) run: Option<&'a str>,
    pub(super) deadline: Option<Duration>,
}

impl<'a> Asked<'a> {
    pub(super) fn new(flow: &'a str, input: &'a str) -> Self {
        Asked { tenant: "one", flow, input, key: None, run: None, deadline: None }
    }
    pub(super) fn key(self, key: &'a str) -> Self {
        Asked { key: Some(key), ..self }
    }
    pub(super) fn run(self, run: &'a str) -> Self {
        Asked { run: Some(run), ..self }
    }
    pub(super) fn tenant(self, tenant: &'a str) -> Self {
        Asked { tenant, ..self }
    }
    pub(super) fn within(self, milliseconds: u64) -> Self {
        Asked { deadline: Some(Duration::from_millis(milliseconds)), ..self }
    }
}

impl Life {
    fn enter<T>(&self, inside: impl FnOnce(&Engine) -> T) -> T {
        let _inside = self.runtime.enter();
        inside(&self.engine)
    }
    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }
    pub(super) fn store(&self) -> Store {
        match self.engine.store() {
            Durable::Serving(store) => store,
            other => panic!("no store: {other:?}"),
        }
    }
    pub(super) fn call(&self, asked: Asked<'_>) -> Call {
        let mut call = call(&self.engine, asked.tenant, asked.flow, asked.input);
        call.key = asked.key.map(Arc::from);
        call.flowfile.run = asked.run.map(Arc::from);
        if let Some(deadline) = asked.deadline {
            call.flowfile.deadline = (Instant::now() + deadline).into_std();
        }
        call
    }
    /// Sends a call without waiting for its end.
    pub(super) fn send(&self, asked: Asked<'_>) -> JoinHandle<Outcome> {
        let (engine, call) = (self.engine.clone(), self.call(asked));
        self.runtime.spawn(async move { engine.run(call).await })
    }
    pub(super) fn wait(&self, sent: JoinHandle<Outcome>) -> Outcome {
        self.block_on("a call", sent).expect("no panic")
    }
    pub(super) fn run(&self, asked: Asked<'_>) -> Outcome {
        self.wait(self.send(asked))
    }
    /// The body of a call that succeeds.
    pub(super) fn body(&self, asked: Asked<'_>) -> String {
        body(&self.run(asked))
    }
    pub(super) fn refusal(&self, asked: Asked<'_>) -> Refusal {
        refusal(self.run(asked))
    }
    pub(super) fn code(&self, asked: Asked<'_>) -> Code {
        self.refusal(asked).code
    }
    pub(super) fn block_on<T>(&self, what: &str, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(patiently(what, work))
    }
    pub(super) fn until(&self, what: &str, done: impl FnMut() -> bool) {
        self.runtime.block_on(crate::support::until(what, done));
    }
    /// The job of a call that was queued.
    pub(super) fn job(&self, asked: Asked<'_>) -> JobId {
        self.job_of(self.run(asked))
    }
    pub(super) fn job_of(&self, outcome: Outcome) -> JobId {
        match outcome {
            Outcome::Job(job) => job.id,
            other => panic!("no job: {other:?}"),
        }
    }
    /// Stops or resumes dispatch of a tenant's lane.
    pub(super) fn pause(&self, tenant: &str, paused: bool) {
        self.store().pause(&LaneName { queue: "jobs".into(), tenant: tenant.into() }, paused);
    }
    /// A job when it has ended.
    pub(super) fn ended(&self, job: JobId) -> Job {
        let store = self.store();
        self.block_on("the end of a job", store.ended(job)).expect("the job is known")
    }
    /// Its kept outcome as text.
    pub(super) fn outcome(&self, job: JobId) -> String {
        let store = self.store();
        let kept = self.block_on("an outcome", store.outcome(job)).expect("the store reads");
        String::from_utf8(kept.expect("it is kept").to_vec()).expect("JSON is text")
    }
    /// The job that a detail names.
    pub(super) fn job_in(refusal: &Refusal) -> JobId {
        let words = refusal.detail.split([' ', '.', ';', ':', ',']);
        words.filter_map(|word| word.parse().ok()).next().unwrap_or_else(|| panic!("no job in {:?}", refusal.detail))
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

pub(super) fn body(outcome: &Outcome) -> String {
    let body = reply::body(outcome).unwrap_or_else(|| panic!("no success: {outcome:?}"));
    String::from_utf8(body).expect("JSON is text")
}

/// The state of a job, as callers see it.
pub(super) fn state(job: &Job) -> &'static str {
    assert_ne!(job.state, JobState::Queued);
    job.state.name()
}
