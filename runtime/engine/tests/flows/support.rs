//! An engine over a SQLite file, built from files like any other, and a connector that can be told to fail.

use std::collections::VecDeque;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use spillgate_config::Plan;
use spillgate_config::plan::Driver;
use spillgate_connector::{Access, Database, DatabaseError, Ended, Failure, ReadLimits, Session, Statement, Written};
use spillgate_engine::intake::{self, Given};
use spillgate_engine::{Call, Engine, MakeDatabase, Outcome, SeatCounts};
use spillgate_model::{Datum, Flowfile, Refusal, Rows, Value, Work};
use spillgate_sqlite::{Sqlite, SqliteOptions};
use spillgate_telemetry::{Telemetry, TelemetryOptions};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// How long a test waits for anything before it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) async fn patiently<T>(what: &str, work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.unwrap_or_else(|_| panic!("waited too long: {what}"))
}

pub(crate) async fn until(what: &str, mut done: impl FnMut() -> bool) {
    patiently(what, async {
        while !done() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// A statement that works for many seconds unless it is ended.
pub(crate) const ENDLESS: &str =
    "WITH RECURSIVE N(X) AS (SELECT 1 UNION ALL SELECT X + 1 FROM N WHERE X < 2000000000) SELECT count(*) AS C FROM N";

/// A flow that counts items: answered at once.
pub(crate) const QUICK: &str = r#"
name = "quick"
http = "GET /quick"
effect = "read"
deadline = "20s"
[[step]]
name = "s"
database = "main"
sql = "SELECT count(*) AS N FROM ITEM"
"#;

const SERVER: &str = r#"
[server]
data_dir = "data"
flows = "flows"
CACHE
HOSTS
[database.main]
driver = "sqlite"
connection = "main.db"
access = "read-write"
statement_timeout = "60s"
POOL
OTHER
[tenant.one]
keys = ["key-of-one"]
attributes = { company = "ACME" }
[tenant.two]
keys = ["key-of-two"]
attributes = { company = "BOREAL" }
"#;

/// What a test changes about the server file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) pool: Option<&'static str>,
    pub(crate) cache: Option<&'static str>,
    pub(crate) hosts: Vec<String>,
    /// A second database with the same tables.
    pub(crate) second: bool,
    /// What else stands in the server file.
    pub(crate) more: String,
}

/// What the connectors of a test do besides reaching SQLite.
#[derive(Default)]
pub(crate) struct Faults {
    pub(crate) connects: AtomicUsize,
    pub(crate) reads: AtomicUsize,
    /// What the next reads fail with.
    pub(crate) next_reads: Mutex<VecDeque<Failure>>,
    pub(crate) next_writes: Mutex<VecDeque<Failure>>,
    /// Every read fails with that.
    pub(crate) all_reads: Mutex<Option<Failure>>,
    /// Transactions that were begun, or tried to.
    pub(crate) begins: AtomicUsize,
    pub(crate) commits_hang: AtomicBool,
    /// What happens at the next commits.
    pub(crate) next_commits: Mutex<VecDeque<CommitFault>>,
    /// Commits that were done and then hung.
    pub(crate) commits_done: AtomicUsize,
    pub(crate) writes_panic: AtomicBool,
    /// Writes wait for `writes_go` before they are sent.
    pub(crate) writes_wait: AtomicBool,
    pub(crate) writes_waiting: AtomicUsize,
    pub(crate) writes_go: tokio::sync::Notify,
    pub(crate) reads_panic: AtomicBool,
    /// So many of the next reads wait for `reads_go`.
    pub(crate) reads_wait: AtomicUsize,
    pub(crate) reads_go: tokio::sync::Notify,
    pub(crate) connects_hang: AtomicBool,
    pub(crate) connects_fail: AtomicBool,
    /// What the last engine that was started with these counts.
    counted: Mutex<Option<Telemetry>>,
}

/// What can happen at a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitFault {
    /// It is never sent, and nothing is said.
    HangsBefore,
    /// It is done, and never answered.
    HangsAfter,
    /// The link is lost before it is sent.
    LostBefore,
    /// It is done, and the link is lost before the answer.
    LostAfter,
}

impl Faults {
    pub(crate) fn at_commit(&self, fault: CommitFault) {
        self.next_commits.lock().expect("not poisoned").push_back(fault);
    }
    /// Whether every fault that was planned for a commit has come.
    pub(crate) fn commits_reached(&self) -> bool {
        self.next_commits.lock().expect("not poisoned").is_empty()
    }
    /// The metrics page of the engine.
    pub(crate) fn metrics(&self) -> String {
        self.counted.lock().expect("not poisoned").as_ref().expect("an engine was started").render_metrics()
    }
    pub(crate) fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }
    pub(crate) fn fail_reads(&self, failures: impl IntoIterator<Item = Failure>) {
        self.next_reads.lock().expect("not poisoned").extend(failures);
    }
}

pub(crate) struct World {
    pub(crate) folder: PathBuf,
    pub(crate) engine: Engine,
    pub(crate) faults: Arc<Faults>,
}

impl Drop for World {
    fn drop(&mut self) {
        let _left_behind = std::fs::remove_dir_all(&self.folder);
    }
}

impl World {
    pub(crate) fn new(flows: &[&str]) -> World {
        World::with(&Settings::default(), flows)
    }
    pub(crate) fn with(settings: &Settings, flows: &[&str]) -> World {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let folder = std::env::temp_dir().join(format!("spillgate-engine-{}-{number}", std::process::id()));
        std::fs::create_dir_all(folder.join("flows")).expect("a folder for the test");
        make_tables(&folder.join("main.db"));
        if settings.second {
            make_tables(&folder.join("second.db"));
        }
        let faults = Arc::new(Faults::default());
        write_files(&folder, settings, flows);
        let engine = start(&folder, &faults, [7; 32]);
        World { folder, engine, faults }
    }
    /// Writes the files anew and applies them.
    pub(crate) fn reload(&self, settings: &Settings, flows: &[&str]) -> Result<(), Vec<String>> {
        write_files(&self.folder, settings, flows);
        self.engine.apply(Arc::new(load(&self.folder)))
    }
    pub(crate) fn call(&self, flow: &str, input: &str) -> Call {
        self.call_as("one", flow, input)
    }
    pub(crate) fn call_as(&self, tenant: &str, flow: &str, input: &str) -> Call {
        call(&self.engine, tenant, flow, input)
    }
    /// A call without input that goes on beside the test.
    pub(crate) fn spawn(&self, flow: &str) -> JoinHandle<Outcome> {
        self.spawn_as("one", flow)
    }
    pub(crate) fn spawn_as(&self, tenant: &str, flow: &str) -> JoinHandle<Outcome> {
        let (engine, call) = (self.engine.clone(), self.call_as(tenant, flow, "{}"));
        tokio::spawn(async move { engine.run(call).await })
    }
    pub(crate) async fn run(&self, flow: &str, input: &str) -> Outcome {
        patiently(flow, self.engine.run(self.call(flow, input))).await
    }
    pub(crate) async fn rows(&self, flow: &str, input: &str) -> Arc<Rows> {
        rows(self.run(flow, input).await)
    }
    pub(crate) async fn value(&self, flow: &str, input: &str) -> String {
        match self.run(flow, input).await {
            Outcome::Value { value, .. } => json(&value),
            other => panic!("no value: {other:?}"),
        }
    }
    pub(crate) async fn refusal(&self, flow: &str, input: &str) -> Refusal {
        refusal(self.run(flow, input).await)
    }
    pub(crate) fn seats(&self) -> SeatCounts {
        self.engine.live().databases[0].status().seats
    }
    /// Straight from the file, past the engine.
    pub(crate) fn count(&self, sql: &str) -> i64 {
        let file = rusqlite::Connection::open(self.folder.join("main.db")).expect("the file is there");
        file.query_row(sql, [], |row| row.get(0)).expect("a number")
    }
}

/// A second engine over the same files.
pub(crate) fn start(folder: &Path, faults: &Arc<Faults>, cursor_key: [u8; 32]) -> Engine {
    let telemetry = Telemetry::start(TelemetryOptions::default()).expect("nothing to open");
    *faults.counted.lock().expect("not poisoned") = Some(telemetry.clone());
    Engine::start(Arc::new(load(folder)), connectors(faults), telemetry, cursor_key).expect("the plan can be built")
}

pub(crate) fn call(engine: &Engine, tenant: &str, flow: &str, input: &str) -> Call {
    let live = engine.live();
    let flow = live.plan.flows.iter().position(|known| &*known.name == flow).expect("the flow is there");
    let tenant = live.tenants.iter().position(|known| &*known.plan.name == tenant).expect("the tenant is there");
    let plan = live.plan.flows[flow].clone();
    let given = Given { body: Some(input.as_bytes()), ..Given::default() };
    let intake = intake::read(&plan, &live.tenants[tenant].plan, &given).expect("the input fits");
    let deadline = (Instant::now() + plan.deadline.value).into_std();
    let name = live.tenants[tenant].plan.name.clone();
    let flowfile = Flowfile { id: "test".into(), tenant: name, run: None, input: intake.values, deadline };
    Call { page: intake.page, ..Call::new(live, flow, tenant, flowfile) }
}

pub(crate) fn rows(outcome: Outcome) -> Arc<Rows> {
    match outcome {
        Outcome::Rows { rows, .. } => rows,
        other => panic!("no rows: {other:?}"),
    }
}

pub(crate) fn refusal(outcome: Outcome) -> Refusal {
    match outcome {
        Outcome::Refused(refusal) => *refusal,
        other => panic!("not refused: {other:?}"),
    }
}

pub(crate) fn json(value: &Datum) -> String {
    let mut out = Vec::new();
    spillgate_model::json::write_datum(value, &mut out);
    String::from_utf8(out).expect("JSON is text")
}

pub(crate) fn json_rows(rows: &Rows) -> String {
    let mut out = Vec::new();
    spillgate_model::json::write_rows(rows, &mut out);
    String::from_utf8(out).expect("JSON is text")
}

/// ITEM has the numbers 1 to 151; NAME is their text, KIND goes round from 0 to 9.
pub(crate) fn make_tables(file: &Path) {
    let file = rusqlite::Connection::open(file).expect("a new file");
    let sql = "PRAGMA journal_mode = WAL;
        CREATE TABLE ITEM (ID INTEGER PRIMARY KEY, NAME TEXT NOT NULL, KIND INTEGER NOT NULL, SEEN TEXT);
        WITH RECURSIVE N(X) AS (SELECT 1 UNION ALL SELECT X + 1 FROM N WHERE X < 151)
        INSERT INTO ITEM SELECT X, 'item ' || X, X % 10, NULL FROM N;
        CREATE TABLE STOCK (ID INTEGER PRIMARY KEY, AMOUNT INTEGER NOT NULL CHECK (AMOUNT >= 0));
        INSERT INTO STOCK VALUES (1, 0);";
    file.execute_batch(sql).expect("the tables are made");
}

pub(crate) fn write_files(folder: &Path, settings: &Settings, flows: &[&str]) {
    let hosts = settings.hosts.iter().map(|host| format!("{host:?}")).collect::<Vec<_>>().join(", ");
    let second = "[database.second]\ndriver = \"sqlite\"\nconnection = \"second.db\"\naccess = \"read-write\"";
    let server = SERVER
        .replace("CACHE", &settings.cache.map(|size| format!("cache = {size:?}")).unwrap_or_default())
        .replace("HOSTS", &if hosts.is_empty() { String::new() } else { format!("http_hosts = [{hosts}]") })
        .replace("POOL", &settings.pool.map(|pool| format!("pool = {pool}")).unwrap_or_default())
        .replace("OTHER", if settings.second { second } else { "" });
    std::fs::write(folder.join("server.toml"), server + &settings.more).expect("written");
    for old in std::fs::read_dir(folder.join("flows")).expect("there").flatten() {
        std::fs::remove_file(old.path()).expect("removed");
    }
    for (number, flow) in flows.iter().enumerate() {
        std::fs::write(folder.join(format!("flows/{number}.toml")), flow).expect("written");
    }
}

pub(crate) fn load(folder: &Path) -> Plan {
    spillgate_config::load(&folder.join("server.toml")).unwrap_or_else(|faults| panic!("{faults:#?}"))
}

fn connectors(faults: &Arc<Faults>) -> MakeDatabase {
    let faults = faults.clone();
    Arc::new(move |plan| {
        if plan.driver != Driver::Sqlite {
            return Err("no such connector in this test".into());
        }
        let options = SqliteOptions {
            path: plan.connection.expose().into(),
            on_connect: plan.on_connect.clone(),
            statement_timeout: plan.statement_timeout,
        };
        let inner = Sqlite::new(options).map_err(|error| error.to_string())?;
        Ok(Arc::new(Watched { inner, faults: faults.clone() }))
    })
}

struct Watched {
    inner: Sqlite,
    faults: Arc<Faults>,
}

struct WatchedSession {
    inner: Box<dyn Session>,
    faults: Arc<Faults>,
    usable: bool,
}

impl Database for Watched {
    fn read_only_guard(&self) -> &'static str {
        self.inner.read_only_guard()
    }
    fn connect(&self, access: Access) -> Work<'_, Result<Box<dyn Session>, DatabaseError>> {
        Box::pin(async move {
            self.faults.connects.fetch_add(1, Ordering::SeqCst);
            if self.faults.connects_hang.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            if self.faults.connects_fail.load(Ordering::SeqCst) {
                return Err(DatabaseError::new(Failure::Unreachable, "Nobody answers.", "the test made it fail"));
            }
            let inner = self.inner.connect(access).await?;
            Ok(Box::new(WatchedSession { inner, faults: self.faults.clone(), usable: true }) as Box<dyn Session>)
        })
    }
}

impl WatchedSession {
    fn fail(&mut self, failure: Option<Failure>) -> Result<(), DatabaseError> {
        let Some(failure) = failure else { return Ok(()) };
        self.usable = failure != Failure::LinkLost;
        Err(DatabaseError::new(failure, "The test made it fail.", "the test made it fail"))
    }
}

impl Session for WatchedSession {
    fn read<'a>(
        &'a mut self,
        statement: &'a Statement,
        parameters: &'a [Value],
        limits: ReadLimits,
    ) -> Work<'a, Result<Rows, DatabaseError>> {
        Box::pin(async move {
            self.faults.reads.fetch_add(1, Ordering::SeqCst);
            assert!(!self.faults.reads_panic.load(Ordering::SeqCst), "the test made it panic");
            let waits = self.faults.reads_wait.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            if waits.is_ok() {
                self.faults.reads_go.notified().await;
            }
            let all = self.faults.all_reads.lock().expect("not poisoned").clone();
            let next = self.faults.next_reads.lock().expect("not poisoned").pop_front();
            self.fail(all.or(next))?;
            self.inner.read(statement, parameters, limits).await
        })
    }
    fn write<'a>(
        &'a mut self,
        statement: &'a Statement,
        parameters: &'a [Value],
        limits: ReadLimits,
    ) -> Work<'a, Result<Written, DatabaseError>> {
        Box::pin(async move {
            assert!(!self.faults.writes_panic.load(Ordering::SeqCst), "the test made it panic");
            if self.faults.writes_wait.load(Ordering::SeqCst) {
                self.faults.writes_waiting.fetch_add(1, Ordering::SeqCst);
                self.faults.writes_go.notified().await;
            }
            let next = self.faults.next_writes.lock().expect("not poisoned").pop_front();
            self.fail(next)?;
            self.inner.write(statement, parameters, limits).await
        })
    }
    fn begin(&mut self) -> Work<'_, Result<(), DatabaseError>> {
        self.faults.begins.fetch_add(1, Ordering::SeqCst);
        self.inner.begin()
    }
    fn commit(&mut self) -> Work<'_, Result<(), DatabaseError>> {
        Box::pin(async move {
            if self.faults.commits_hang.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            let fault = self.faults.next_commits.lock().expect("not poisoned").pop_front();
            match fault {
                None => self.inner.commit().await,
                Some(CommitFault::HangsBefore) => std::future::pending().await,
                Some(CommitFault::HangsAfter) => {
                    self.inner.commit().await?;
                    self.faults.commits_done.fetch_add(1, Ordering::SeqCst);
                    std::future::pending().await
                }
                Some(CommitFault::LostBefore) => self.fail(Some(Failure::LinkLost)),
                Some(CommitFault::LostAfter) => {
                    self.inner.commit().await?;
                    self.fail(Some(Failure::LinkLost))
                }
            }
        })
    }
    fn rollback(&mut self) -> Work<'_, Result<(), DatabaseError>> {
        self.inner.rollback()
    }
    fn usable(&self) -> bool {
        self.usable && self.inner.usable()
    }
    fn end(self: Box<Self>) -> Work<'static, Ended> {
        Box::pin(async move {
            let faults = self.faults.clone();
            match self.inner.end().await {
                Ended::Clean(inner) => Ended::Clean(Box::new(WatchedSession { inner, faults, usable: true })),
                other => other,
            }
        })
    }
}
