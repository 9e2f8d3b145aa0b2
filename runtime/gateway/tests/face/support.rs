//! A gateway in this process, and a client that sends exactly what a test wants.

use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value as Json;
use spillgate_config::Plan;
use spillgate_engine::{Engine, LiveTenant, MakeDatabase};
use spillgate_gateway::{Gateway, GatewayOptions};
use spillgate_queue::clock::MachineClock;
use spillgate_queue::disk::simulated::SimulatedDisk;
use spillgate_queue::{Store, StoreOptions};
use spillgate_sqlite::{Sqlite, SqliteOptions};
use spillgate_telemetry::{Telemetry, TelemetryOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// How long a test waits for anything before it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Fails a test that waits for too long.
pub(crate) async fn patiently<T>(what: &str, work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.unwrap_or_else(|_| panic!("waited too long: {what}"))
}

/// Waits until `done`, asking again whenever other work had its turn.
pub(crate) async fn until(what: &str, mut done: impl FnMut() -> bool) {
    patiently(what, async {
        while !done() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// `[server]` without its head, and the tenants every test has: `agent` may call all, `narrow` only flows named `echo*`.
const SERVER: &str = r#"
memory = "16MiB"
shutdown_grace = "GRACE"
[database.fleet]
driver = "sqlite"
connection = "fleet.db"
access = "read-write"
statement_timeout = "30s"
[tenant.agent]
keys = ["agent-key"]
attributes = { company = "ACME" }
memory = "8MiB"
[tenant.narrow]
keys = ["narrow-key"]
attributes = { company = "BOREAL" }
memory = "8MiB"
rate = { rate = "2/min", burst = 2 }
in_flight = 1
flows = ["echo*", "slow", "order"]
[queue.orders]
items = 4
max_item = "2MiB"
attempts = 1
workers = 2
"#;

/// Gives back what it was given, typed.
pub(crate) const ECHO: &str = r#"
name = "echo"
http = "GET /echo/{id}"
effect = "read"
deadline = "5s"
[input.id]
type = "integer"
[input.count]
type = "integer"
default = 0
[input.note]
type = "text"
required = false
[input.company]
from = "tenant.company"
[[step]]
name = "row"
database = "fleet"
sql = "SELECT :id AS ID, :count AS COUNT, :note AS NOTE, :company AS COMPANY"
columns = { ID = "integer", COUNT = "integer", NOTE = "text", COMPANY = "text" }
max_rows = 1
max_bytes = "4KiB"
"#;

/// The same with a body: by a write, since reads have none.
pub(crate) const ECHO_BODY: &str = r#"
name = "echo_body"
http = "POST /echo"
effect = "write"
deadline = "5s"
[input.id]
type = "integer"
[input.count]
type = "integer"
default = 0
[input.note]
type = "text"
required = false
[[step]]
name = "row"
database = "fleet"
sql = "INSERT INTO NOTE (TRUCK, TEXT) VALUES (:id, :note) RETURNING TRUCK AS ID, :count AS COUNT, TEXT AS NOTE"
columns = { ID = "integer", COUNT = "integer", NOTE = "text" }
max_rows = 1
max_bytes = "4KiB"
"#;

/// Works for as long as it is asked to.
pub(crate) const SLOW: &str = r#"
name = "slow"
http = "GET /slow/{turns}"
effect = "read"
deadline = "20s"
[input.turns]
type = "integer"
[[step]]
name = "row"
database = "fleet"
sql = "WITH RECURSIVE N(X) AS (SELECT 1 UNION ALL SELECT X + 1 FROM N WHERE X < :turns) SELECT COUNT(*) AS TURNS FROM N"
columns = { TURNS = "integer" }
max_rows = 1
max_bytes = "4KiB"
"#;

/// Changes something.
pub(crate) const NOTE: &str = r#"
name = "note"
http = "PUT /echo/{truck}"
effect = "write"
deadline = "5s"
[input.truck]
type = "integer"
[input.text]
type = "text"
[[step]]
name = "note"
database = "fleet"
sql = "INSERT INTO NOTE (TRUCK, TEXT) VALUES (:truck, :text)"
"#;

/// Done by workers, once a key.
pub(crate) const ORDER: &str = r#"
name = "order"
http = "POST /orders"
effect = "write"
deadline = "5s"
idempotency = { key = "optional", keep = "1h" }
[input.truck]
type = "integer"
[input.text]
type = "text"
[[step]]
queue = "orders"
[[step]]
name = "note"
database = "fleet"
sql = "INSERT INTO NOTE (TRUCK, TEXT) VALUES (:truck, :text) RETURNING TRUCK AS ID"
columns = { ID = "integer" }
max_rows = 1
max_bytes = "4KiB"
"#;

/// More rows than a socket holds.
pub(crate) const BULK: &str = r#"
name = "bulk"
http = "GET /bulk"
effect = "read"
deadline = "20s"
[[step]]
name = "rows"
database = "fleet"
sql = "WITH RECURSIVE N(X) AS (SELECT 1 UNION ALL SELECT X + 1 FROM N WHERE X < 2000) SELECT X, printf('%.2000c', 'x') AS PAD FROM N"
columns = { X = "integer", PAD = "text" }
max_rows = 3000
max_bytes = "6MiB"
"#;

/// A gateway with its engine, its files and its listener.
pub(crate) struct Face {
    pub(crate) address: SocketAddr,
    pub(crate) engine: Engine,
    pub(crate) telemetry: Telemetry,
    pub(crate) stop: CancellationToken,
    pub(crate) served: JoinHandle<()>,
    pub(crate) folder: PathBuf,
}

impl Face {
    pub(crate) async fn start() -> Face {
        Face::start_with("10s", GatewayOptions::default()).await
    }

    pub(crate) async fn start_with(grace: &str, options: GatewayOptions) -> Face {
        let folder = new_folder();
        let server = format!("[server]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\n{}", SERVER.replace("GRACE", grace));
        std::fs::write(folder.join("server.toml"), server).expect("the server file");
        for (name, flow) in [("echo", ECHO), ("echo_body", ECHO_BODY), ("slow", SLOW), ("note", NOTE), ("bulk", BULK)] {
            std::fs::write(folder.join("flows").join(name).with_extension("toml"), flow).expect("a flow file");
        }
        let database = rusqlite::Connection::open(folder.join("fleet.db")).expect("a database");
        database.execute_batch("CREATE TABLE NOTE (TRUCK INTEGER CHECK (TRUCK <> 13), TEXT TEXT)").expect("a table");
        let telemetry = Telemetry::start(TelemetryOptions::default()).expect("telemetry");
        let engine = Engine::start(load(&folder), make_database(), telemetry.clone(), [7; 32]).expect("the engine starts");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let stop = CancellationToken::new();
        let gateway = Gateway::new(engine.clone(), telemetry.clone(), options);
        let served = tokio::spawn(gateway.serve(listener, stop.clone()));
        Face { address, engine, telemetry, stop, served, folder }
    }

    /// The same with a durable flow and a store that serves, on a disk in memory.
    pub(crate) async fn start_durable() -> (Face, Store, Arc<SimulatedDisk>) {
        let face = Face::start().await;
        face.reload_with("order", ORDER);
        let disk = Arc::new(SimulatedDisk::new(7));
        let store = open(&disk);
        face.engine.attach_store(store.clone());
        (face, store, disk)
    }

    /// How often that truck was noted.
    pub(crate) fn notes(&self, truck: i64) -> i64 {
        let database = rusqlite::Connection::open(self.folder.join("fleet.db")).expect("a database");
        database.query_row("SELECT COUNT(*) FROM NOTE WHERE TRUCK = ?1", [truck], |row| row.get(0)).expect("a count")
    }

    /// Writes a flow file and puts the plan in place that comes of it.
    pub(crate) fn reload_with(&self, name: &str, flow: &str) {
        std::fs::write(self.folder.join("flows").join(name).with_extension("toml"), flow).expect("a flow file");
        self.engine.apply(load(&self.folder)).expect("the plan is taken");
    }

    /// Takes the database away.
    pub(crate) fn remove_database(&self) {
        std::fs::remove_file(self.folder.join("fleet.db")).expect("it was there");
    }

    /// Replaces a line of the server file and puts the plan in place that comes of it.
    pub(crate) fn reload_tenant(&self, line: &str, other: &str) {
        let path = self.folder.join("server.toml");
        let server = std::fs::read_to_string(&path).expect("the server file");
        assert!(server.contains(line));
        std::fs::write(path, server.replace(line, other)).expect("written");
        self.engine.apply(load(&self.folder)).expect("the plan is taken");
    }

    pub(crate) async fn connect(&self) -> Wire {
        Wire { stream: TcpStream::connect(self.address).await.expect("it listens"), read: Vec::new() }
    }

    /// One request on a connection of its own.
    pub(crate) async fn send(&self, request: &str) -> Reply {
        let mut wire = self.connect().await;
        wire.write(request.as_bytes()).await;
        wire.reply().await
    }

    pub(crate) async fn get(&self, key: &str, path: &str) -> Reply {
        self.send(&get(key, path)).await
    }

    pub(crate) async fn post(&self, key: &str, path: &str, body: &str) -> Reply {
        self.send(&with_body("POST", key, path, body)).await
    }

    /// The live tenant of that name.
    pub(crate) fn tenant<T>(&self, name: &str, look: impl FnOnce(&LiveTenant) -> T) -> T {
        let live = self.engine.live();
        look(live.tenants.iter().find(|tenant| &*tenant.plan.name == name).expect("it is configured"))
    }
}

impl Drop for Face {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A store that may hold 16 MiB.
pub(crate) fn open(disk: &Arc<SimulatedDisk>) -> Store {
    let options =
        StoreOptions { disk: disk.clone(), clock: Arc::new(MachineClock::default()), disk_limit: 16 << 20, disk_reserve: 1 << 20 };
    Store::open(options).expect("the store opens")
}

fn new_folder() -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = format!("spillgate-face-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(folder.join("flows")).expect("a folder");
    folder
}

fn load(folder: &Path) -> Arc<Plan> {
    Arc::new(spillgate_config::load(&folder.join("server.toml")).expect("the files are well-formed"))
}

fn make_database() -> MakeDatabase {
    Arc::new(|plan| {
        let options = SqliteOptions {
            path: plan.connection.expose().into(),
            on_connect: plan.on_connect.clone(),
            statement_timeout: plan.statement_timeout,
        };
        Ok(Arc::new(Sqlite::new(options).map_err(|error| error.to_string())?))
    })
}

pub(crate) fn get(key: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n")
}

pub(crate) fn with_body(method: &str, key: &str, path: &str, body: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// The same request with further header lines.
pub(crate) fn with(request: &str, headers: &str) -> String {
    request.replacen("Host: x\r\n", &format!("Host: x\r\n{headers}"), 1)
}

/// One connection.
pub(crate) struct Wire {
    pub(crate) stream: TcpStream,
    read: Vec<u8>,
}

impl Wire {
    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("it is taken");
    }

    /// The next reply; its length must be stated.
    pub(crate) async fn reply(&mut self) -> Reply {
        patiently("a reply", async {
            loop {
                if let Some((reply, length)) = Reply::parse(&self.read) {
                    self.read.drain(..length);
                    return reply;
                }
                let count = self.stream.read_buf(&mut self.read).await.expect("it can be read");
                assert!(count > 0, "the connection ended within a reply: {}", String::from_utf8_lossy(&self.read));
            }
        })
        .await
    }

    /// The next reply to a HEAD: nothing follows its head.
    pub(crate) async fn head(&mut self) -> Reply {
        patiently("a head", async {
            loop {
                if let Some(end) = self.read.windows(4).position(|four| four == b"\r\n\r\n") {
                    let head = String::from_utf8_lossy(&self.read.drain(..end + 4).collect::<Vec<_>>()).into_owned();
                    let status = head[9..12].parse().expect("a status");
                    return Reply { status, head, body: String::new() };
                }
                let count = self.stream.read_buf(&mut self.read).await.expect("it can be read");
                assert!(count > 0, "the connection ended within a reply");
            }
        })
        .await
    }

    /// Waits for the other side to close; nothing more may come.
    pub(crate) async fn closed(&mut self) {
        let rest = patiently("the connection to be closed", self.stream.read_buf(&mut self.read)).await;
        assert!(matches!(rest, Ok(0) | Err(_)), "more came: {}", String::from_utf8_lossy(&self.read));
    }
}

/// A reply.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Reply {
    fn parse(bytes: &[u8]) -> Option<(Reply, usize)> {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut reply = Reply { status: head.get(9..12)?.parse().ok()?, head, body: String::new() };
        let length: usize = reply.header("content-length").map_or(0, |length| length.parse().expect("digits"));
        let body = bytes.get(end..end + length)?;
        reply.body = String::from_utf8_lossy(body).into_owned();
        Some((reply, end + length))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
    }

    pub(crate) fn json(&self) -> Json {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// Checks that it is a whole problem object with this code, and gives it.
    pub(crate) fn problem(&self, status: u16, code: &str) -> Json {
        let problem = self.json();
        assert_eq!((self.status, problem["code"].as_str()), (status, Some(code)), "{}", self.body);
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        assert_eq!(problem["type"], format!("/problems/{code}"));
        assert_eq!(problem["status"], status);
        assert_eq!(problem["request_id"].as_str(), self.header("spillgate-request-id"));
        for key in ["title", "detail", "scope", "advice"] {
            assert!(problem[key].as_str().is_some_and(|text| !text.is_empty()), "{key}: {}", self.body);
        }
        assert_eq!(problem["retry_after_ms"].is_null(), self.header("retry-after").is_none(), "{}", self.body);
        assert_eq!(problem["retryable"], !problem["retry_after_ms"].is_null(), "what may be sent again says when: {}", self.body);
        problem
    }
}
