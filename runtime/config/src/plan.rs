//! The configuration as proven. Only the checker makes it; whoever holds one checks nothing again.
//!
//! Invariants
//! 1. Every name that is referred to exists; every limit is finite or written `unlimited` (then `u64::MAX`).
//! 2. Inputs and parameters match both ways; every expression was evaluated on typed samples.
//! 3. No type here can be made outside this crate other than through [`crate::load`] (fields are read-only by custom:
//!    `Plan` is handed out in an `Arc`).

mod cron;
mod durable;
mod isolation;
mod tenant;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use spillgate_expression::Expression;
use spillgate_model::{Secret, Type, Value};

use crate::explain::LimitLine;
pub use cron::Cron;
pub use durable::{
    EmitStep, IdempotencyPlan, KeyNeed, QueueCut, QueuePlan, QueuedPlan, RecordPlan, SchedulePlan, System, UniquePlan, When, WhenFull,
};
pub use isolation::{BreakerPlan, DEFAULT_REPEAT_BUDGET, RunPlan, SeatShare, Shed};
pub use tenant::{Amount, Class, TenantLimit, TenantPlan};
pub(crate) use tenant::{crowded, matches};

/// Where something stands: shown by `explain`, faults and the admin face.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Not written anywhere.
    Default,
    /// `FILE:LINE`.
    File {
        /// As given, relative paths resolved.
        path: Arc<PathBuf>,
        /// From 1.
        line: usize,
    },
    /// Set by an operator while running.
    Override,
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => out.write_str("default"),
            Origin::File { path, line } => write!(out, "{}:{line}", path.display()),
            Origin::Override => out.write_str("override"),
        }
    }
}

/// A limit with the place it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit<T> {
    /// In force.
    pub value: T,
    /// Where it stands.
    pub origin: Origin,
}

/// Everything that runs.
#[derive(Debug)]
pub struct Plan {
    /// Hash over all files read: changes when anything in them changes.
    pub version: String,
    /// `[server]`.
    pub server: ServerPlan,
    /// `[admin.NAME]`.
    pub admins: Vec<Admin>,
    /// `[database.NAME]`, in name order.
    pub databases: Vec<DatabasePlan>,
    /// `[queue.NAME]`, in name order.
    pub queues: Vec<QueuePlan>,
    /// `[tenant.NAME]`, in name order.
    pub tenants: Vec<TenantPlan>,
    /// Flows in name order.
    pub flows: Vec<Arc<Flow>>,
    /// What `check` says without failing (unlimited limits, flows with all allowed, …).
    pub notes: Vec<String>,
    /// Configuration files read (server file, includes, flows, statements): what the folder watch looks at.
    pub files: Vec<PathBuf>,
    /// What each of `files` said when it was proven. Holds keys that are written out in them: never shown.
    pub texts: Vec<Secret>,
    /// Files that secrets were read from: the folder watch looks at them too.
    pub secret_files: Vec<PathBuf>,
    /// What the secrets were.
    pub(crate) secrets: SecretsDigest,
    /// Every limit with its origin: see [`crate::explain()`].
    pub limits: Vec<LimitLine>,
}

impl Plan {
    /// Whether nothing changed between two plans: no file, no secret. (The version shows too little of the secrets to say.)
    pub fn same_as(&self, other: &Plan) -> bool {
        self.version == other.version && self.secrets == other.secrets
    }
}

/// SHA-256 over all secrets. Only compared, never shown: it could be searched for short secrets.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SecretsDigest(pub(crate) [u8; 32]);

impl fmt::Debug for SecretsDigest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("***")
    }
}

/// `[server]`, `[store]` and `[telemetry]`.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct ServerPlan {
    pub listen: SocketAddr,
    pub admin_listen: SocketAddr,
    pub data_dir: PathBuf,
    pub flows: PathBuf,
    /// Bytes of payloads in flight.
    pub memory: Limit<u64>,
    /// `host:port` that `http` steps may call.
    pub http_hosts: Vec<String>,
    pub shutdown_grace: Duration,
    /// `[store] disk_limit`, checked, used by the durable queue.
    pub disk_limit: u64,
    pub disk_reserve: u64,
    /// `[telemetry] otlp`: base URL of an OTLP/HTTP collector.
    pub otlp: Option<String>,
    /// Bytes all caches together may hold (`[server] cache`, default 32 MiB).
    pub cache: u64,
}

/// `[admin.NAME]`.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Admin {
    pub name: Arc<str>,
    /// SHA-256 of each key.
    pub keys: Vec<[u8; 32]>,
}

/// The kind of connector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Driver {
    Odbc,
    Postgres,
    Sqlite,
}

/// `[database.NAME]`.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct DatabasePlan {
    pub name: Arc<str>,
    pub driver: Driver,
    /// Connection string or URL; for SQLite a path (resolved against the file it stands in).
    pub connection: Secret,
    /// `access = "read-write"`: write steps are allowed.
    pub writable: bool,
    pub on_connect: Vec<String>,
    /// Most connections, read and write sessions together.
    pub pool_max: usize,
    /// Seats that flows never hold whose estimate is over 250 ms, or that are not yet measured: fewer than `pool_max`.
    pub fast_only: usize,
    pub shed: Shed,
    /// `None`: written `breaker = "off"`.
    pub breaker: Option<BreakerPlan>,
    /// Most waiting calls per tenant.
    pub line: usize,
    pub idle: Duration,
    pub statement_timeout: Duration,
    /// Where `connection` stands, for faults a connector finds in it.
    pub origin: Origin,
}

/// What a flow does to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Effect {
    Read,
    Write,
}

/// One flow file.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Flow {
    pub name: Arc<str>,
    pub about: String,
    /// None: it runs by its schedule, or by what other flows emit.
    pub http: Option<Endpoint>,
    pub effect: Effect,
    pub deadline: Limit<Duration>,
    /// Written in the flow; else that of the database of its first `sql` step. `None`: that is off, or there is no `sql` step.
    pub breaker: Option<BreakerPlan>,
    pub cache: Option<CachePlan>,
    pub page: Option<PagePlan>,
    pub inputs: Arc<[Input]>,
    pub steps: Vec<Step>,
    pub queue: Option<QueueCut>,
    pub idempotency: Option<IdempotencyPlan>,
    pub unique: Option<UniquePlan>,
    pub schedule: Option<SchedulePlan>,
    pub tests: Vec<FlowTest>,
    /// Hash of the file's content and of every file it names.
    pub version: u64,
    /// Bytes reserved for a call: the sum of its steps' `max_bytes`, twice where an expression reads rows, and its queue's `max_item`.
    pub memory: u64,
    pub file: Arc<PathBuf>,
}

/// `http = "…"`.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// `GET`, `POST`, …
    pub method: &'static str,
    /// Below `/api`, as written, such as `/trucks/{id}/position`.
    pub path: String,
}

impl Flow {
    /// Whether a caller's input comes as a JSON body (also of what other flows emit).
    pub fn takes_body(&self) -> bool {
        self.http.as_ref().is_none_or(|endpoint| endpoint.method != "GET")
    }
}

/// `cache = {…}`.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct CachePlan {
    pub fresh: Duration,
    pub stale_if_error: Duration,
    /// One entry for all tenants.
    pub shared: bool,
}

/// `page = {…}`: the flow's last `sql` step is read in pages by a keyset.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct PagePlan {
    pub key: Vec<PageKey>,
    pub size: usize,
    pub max: usize,
    /// Index of the step that is paged.
    pub step: usize,
}

/// One column of the keyset.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct PageKey {
    pub column: Box<str>,
    pub descending: bool,
}

/// `[input.NAME]`.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Input {
    pub name: Arc<str>,
    pub kind: Type,
    /// `type = ["integer"]`.
    pub list: bool,
    pub required: bool,
    /// Typed; what an omitted input is. `Value::Null` without one.
    pub default: Value,
    pub about: String,
    /// Bounds of numbers; for decimals compared digit by digit.
    pub min: Option<Value>,
    pub max: Option<Value>,
    /// Bounds of the length of text (characters), binary (bytes) or a list (items).
    pub min_length: Option<usize>,
    pub max_length: Option<usize>,
    /// The only values allowed.
    pub one_of: Vec<Value>,
    /// `from = "tenant.ATTRIBUTE"`: filled from the caller's identity, can never be set by the caller.
    pub from_tenant: Option<Arc<str>>,
    /// Stands in the path.
    pub in_path: bool,
}

impl Input {
    /// An input that may be left out, without bounds.
    pub fn new(name: &str, kind: Type) -> Self {
        Input {
            name: name.into(),
            kind,
            list: false,
            required: false,
            default: Value::Null,
            about: String::new(),
            min: None,
            max: None,
            min_length: None,
            max_length: None,
            one_of: Vec::new(),
            from_tenant: None,
            in_path: false,
        }
    }
}

/// `[[step]]`.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Step {
    pub name: Arc<str>,
    pub when: Option<Expression>,
    pub action: Action,
    /// Evaluated after the step, in order; the first true one jumps forward to a later step (its index).
    pub route: Vec<(Expression, usize)>,
    pub retry: Option<RetryPlan>,
    pub on_empty: Option<OnEmpty>,
    pub on_error: Option<OnError>,
    pub line: usize,
}

/// What a step does.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Action {
    Sql(SqlStep),
    Map(Expression),
    Http(HttpStep),
    /// `queue`: see [`Flow::queue`].
    Queue,
    Emit(EmitStep),
    /// A step with `route` only.
    Route,
}

/// A piece of a statement's text between markers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Text as written.
    Text(Box<str>),
    /// The marker for this input (index into the flow's inputs).
    Input(usize),
    /// The marker for this part of the cursor (index into the page key).
    Cursor(usize),
    /// The marker for a value that is no input.
    System(System),
}

/// A statement whose named parameters were found by a real tokenizer. A list input becomes as many markers as items;
/// the engine renders the text for a list's length (Postgres `$n`, others `?`) and keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlText {
    /// In order.
    pub pieces: Arc<[Piece]>,
}

/// `sql = …`.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct SqlStep {
    /// Index into [`Plan::databases`].
    pub database: usize,
    /// For a paged step: the first page, key order and a constant row limit added.
    pub text: SqlText,
    /// For a paged step: any later page.
    pub text_after_cursor: Option<SqlText>,
    /// Changes rows: runs in a transaction on a write session.
    pub write: bool,
    pub max_affected: Option<u64>,
    pub columns: Vec<(Box<str>, Type)>,
    pub max_rows: usize,
    pub max_bytes: usize,
}

/// `http = {…}`.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct HttpStep {
    pub method: String,
    /// Fixed scheme, host and port (in `http_hosts`), and path; no part comes from a caller.
    pub url: String,
    pub headers: Vec<(String, Secret)>,
    pub body: Option<Expression>,
    pub timeout: Duration,
    pub max_bytes: usize,
}

/// `retry = {…}`: only `Passing`, `Unreachable` and, for reads, `LinkLost` failures are tried again.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct RetryPlan {
    /// All tries together.
    pub attempts: u32,
    pub backoff: Duration,
}

/// `on_empty = { status = 404 }`.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct OnEmpty {
    pub status: u16,
}

/// `on_error = …`.
#[derive(Clone, Debug)]
pub enum OnError {
    /// The step's value instead; `steps.NAME.error` holds the code.
    Value(spillgate_model::Datum),
    /// The cached reply, however old within `stale_if_error`.
    Stale,
}

/// A row that stands in for the database: columns in the order of the step, NULL where one was left out.
pub type StubRow = Vec<(Box<str>, Value)>;

/// `[[test]]`.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct FlowTest {
    pub name: String,
    pub tenant: Arc<str>,
    /// `given`, as JSON text: what a caller would send.
    pub given: String,
    /// `rows.STEP`: stubbed rows per step name (column, value) in file order.
    pub rows: BTreeMap<Arc<str>, Vec<StubRow>>,
    pub expect_status: u16,
    /// JSON that the reply must contain (objects: at least these keys; the rest exactly).
    pub expect_body: Option<String>,
    pub line: usize,
}
