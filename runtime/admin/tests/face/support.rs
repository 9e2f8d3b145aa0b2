//! An admin face in this process, before a server that does what a test wants.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use spillgate_admin::{Admin, AuditEntry, Change, Operations, Standing};
use spillgate_config::source::Memory;
use spillgate_config::{Fault, Plan, load_from};
use spillgate_engine::Engine;
use spillgate_model::Work;
use spillgate_queue::LaneName;
use spillgate_telemetry::{Telemetry, TelemetryOptions, happened};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

const SERVER: &str =
    "[admin.alice]\nkeys = [\"env:ALICE_KEY\"]\n[tenant.agent]\nkeys = [\"env:AGENT_KEY\"]\nin_flight = 8\n[queue.bookings]\nitems = 5\n";
const FLOW: &str = "name = \"hello\"\nabout = \"Says hello.\"\nhttp = \"GET /hello\"\neffect = \"read\"\n[[step]]\nname = \"say\"\nmap = \"{'words': 'hello'}\"\n";
pub(crate) const KEY: &str = "Authorization: Bearer alice-key-1\r\n";

/// A server whose reload is refused once, then applied; `held` lets a test look while one runs.
#[derive(Default)]
pub(crate) struct Server {
    pub(crate) good: AtomicBool,
    pub(crate) standing: Mutex<Standing>,
    pub(crate) held: Mutex<Option<(oneshot::Sender<()>, Arc<Notify>)>>,
    pub(crate) reloads: tokio::sync::watch::Sender<usize>,
    audit: Mutex<Vec<AuditEntry>>,
    /// The control store cannot be written.
    pub(crate) keeps_nothing: AtomicBool,
    /// Limits that were set before the last stop have not been read yet.
    pub(crate) still_reads: AtomicBool,
    /// Tenants whose limits were kept.
    pub(crate) limited: Mutex<Vec<String>>,
    /// Lanes kept as paused.
    pub(crate) paused: Mutex<Vec<LaneName>>,
}

impl Server {
    /// What the audit holds, oldest first.
    pub(crate) fn changes(&self) -> Vec<Change> {
        self.audit.lock().expect("no test panics here").iter().map(|entry| entry.change.clone()).collect()
    }

    fn keeps(&self) -> Result<(), String> {
        if self.keeps_nothing.load(Ordering::Relaxed) { Err("the control store is full".to_owned()) } else { Ok(()) }
    }

    async fn reload_once(&self) -> Result<String, Vec<Fault>> {
        let held = self.held.lock().expect("no test panics here").take();
        if let Some((running, go)) = held {
            running.send(()).expect("the test waits for it");
            go.notified().await;
        }
        self.reloads.send_modify(|count| *count += 1);
        let mut standing = self.standing.lock().expect("no test panics here");
        if self.good.load(Ordering::Relaxed) {
            *standing = Standing { applied: "v2".into(), faults: Vec::new(), kept: vec!["server.listen".into()], ..Standing::default() };
            return Ok("v2".into());
        }
        standing.faults = vec![Fault { file: "flows/a.toml".into(), line: 3, column: 7, message: "unknown key \"abuot\"".into() }];
        Err(standing.faults.clone())
    }
}

impl Operations for Server {
    fn reload(&self) -> Work<'_, Result<String, Vec<Fault>>> {
        Box::pin(self.reload_once())
    }
    fn standing(&self) -> Standing {
        self.standing.lock().expect("no test panics here").clone()
    }
    fn record(&self, change: Change) -> Work<'_, Result<(), String>> {
        Box::pin(async move {
            self.keeps()?;
            let mut audit = self.audit.lock().expect("no test panics here");
            let number = audit.len() as u64 + 1;
            audit.push(AuditEntry { number, at_ms: 1_795_000_000_000 + number, change });
            Ok(())
        })
    }
    fn audit(&self, after: u64, most: usize) -> Work<'_, Result<Vec<AuditEntry>, String>> {
        let audit = self.audit.lock().expect("no test panics here");
        let page: Vec<AuditEntry> = audit.iter().filter(|entry| entry.number > after).take(most).cloned().collect();
        Box::pin(async move { Ok(page) })
    }
    fn overrides_read(&self) -> Work<'_, Result<(), String>> {
        let read = if self.still_reads.load(Ordering::Relaxed) { Err("still being read".to_owned()) } else { Ok(()) };
        Box::pin(async move { read })
    }
    fn keep_override(&self, tenant: &str) -> Work<'_, Result<(), String>> {
        let tenant = tenant.to_owned();
        Box::pin(async move {
            self.keeps()?;
            self.limited.lock().expect("no test panics here").push(tenant);
            Ok(())
        })
    }
    fn keep_pause(&self, lane: &LaneName, paused: bool) -> Work<'_, Result<(), String>> {
        let lane = lane.clone();
        Box::pin(async move {
            self.keeps()?;
            let mut lanes = self.paused.lock().expect("no test panics here");
            lanes.retain(|known| *known != lane);
            lanes.extend(paused.then_some(lane));
            Ok(())
        })
    }
}

pub(crate) struct Face {
    pub(crate) address: String,
    pub(crate) server: Arc<Server>,
    pub(crate) engine: Engine,
    pub(crate) telemetry: Telemetry,
    pub(crate) stopping: CancellationToken,
    pub(crate) serving: tokio::task::JoinHandle<()>,
}

pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
    /// The code of a problem object that is whole.
    pub(crate) fn code(&self) -> String {
        assert!(self.head.contains("content-type: application/problem+json"), "{}", self.head);
        let problem = self.json();
        assert_eq!(problem["status"], self.status);
        for key in ["type", "title", "detail", "scope", "advice"] {
            assert!(problem[key].as_str().is_some_and(|text| !text.is_empty()), "{key}: {problem}");
        }
        let id = problem["request_id"].as_str().expect("an id");
        assert!(self.head.contains(&format!("spillgate-request-id: {id}\r\n")), "{}", self.head);
        problem["code"].as_str().expect("a code").to_owned()
    }
}

fn load(server: &str) -> Arc<Plan> {
    let source = Memory::default()
        .file("/etc/spillgate/server.toml", server)
        .file("/etc/spillgate/flows/hello.toml", FLOW)
        .variable("ALICE_KEY", "alice-key-1")
        .variable("AGENT_KEY", "agent-key-1");
    Arc::new(load_from(&source, Path::new("/etc/spillgate/server.toml")).unwrap_or_else(|faults| panic!("{faults:#?}")))
}

pub(crate) async fn face() -> Face {
    let plan = load(SERVER);
    let telemetry = Telemetry::start(TelemetryOptions::default()).expect("nothing to start");
    happened::config_started(&telemetry, &plan.version);
    let none = Arc::new(|_: &_| Err("the plan has no database".to_owned()));
    let engine = Engine::start(plan, none, telemetry.clone(), [7; 32]).expect("the plan can run");
    let server = Arc::new(Server::default());
    let admin = Admin::new(engine.clone(), telemetry.clone(), server.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port on loopback");
    let address = listener.local_addr().expect("bound").to_string();
    let stopping = CancellationToken::new();
    let serving = tokio::spawn(admin.serve(listener, stopping.clone()));
    Face { address, server, engine, telemetry, stopping, serving }
}

impl Face {
    /// The tenant is taken out of the files.
    pub(crate) fn without_the_agent(&self) {
        let server = SERVER.replace("agent", "other");
        self.engine.apply(load(&server)).expect("the plan can run");
    }
    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).await.expect("the listener accepts")
    }
    /// Sends a request as it is, with a Host of our own unless `headers` has one, and reads the reply to its end.
    pub(crate) async fn send(&self, line: &str, headers: &str, body: &str) -> Reply {
        let mut stream = self.connect().await;
        let host = if headers.contains("Host:") { String::new() } else { format!("Host: {}\r\n", self.address) };
        let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let request = format!("{line} HTTP/1.1\r\n{host}{headers}{length}Connection: close\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).await.expect("the request goes out");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.expect("the reply comes");
        let (head, body) = reply.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        Reply { status, head: format!("{head}\r\n"), body: body.to_owned() }
    }
    /// A change by an admin.
    pub(crate) async fn post(&self, path: &str, body: &str) -> Reply {
        self.send(&format!("POST {path}"), KEY, body).await
    }
    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(&format!("GET {path}"), KEY, "").await
    }
}
