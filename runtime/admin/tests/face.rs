//! The admin face over a real listener: who is answered, what, and what a reload does.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use spillgate_admin::{Admin, Operations, Standing};
use spillgate_config::source::Memory;
use spillgate_config::{Fault, load_from};
use spillgate_engine::Engine;
use spillgate_model::Work;
use spillgate_telemetry::{Telemetry, TelemetryOptions, happened};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

const SERVER: &str = "[admin.alice]\nkeys = [\"env:ALICE_KEY\"]\n[tenant.agent]\nkeys = [\"env:AGENT_KEY\"]\nin_flight = 8\n";
const FLOW: &str = "name = \"hello\"\nabout = \"Says hello.\"\nhttp = \"GET /hello\"\neffect = \"read\"\n[[step]]\nname = \"say\"\nmap = \"{'words': 'hello'}\"\n";
const KEY: &str = "Authorization: Bearer alice-key-1\r\n";

/// A server whose reload is refused once, then applied; `held` lets a test look while one runs.
#[derive(Default)]
struct Server {
    good: AtomicBool,
    standing: Mutex<Standing>,
    held: Mutex<Option<(oneshot::Sender<()>, Arc<Notify>)>>,
    reloads: tokio::sync::watch::Sender<usize>,
}

impl Server {
    async fn reload_once(&self) -> Result<String, Vec<Fault>> {
        let held = self.held.lock().expect("no test panics here").take();
        if let Some((running, go)) = held {
            running.send(()).expect("the test waits for it");
            go.notified().await;
        }
        self.reloads.send_modify(|count| *count += 1);
        let mut standing = self.standing.lock().expect("no test panics here");
        if self.good.load(Ordering::Relaxed) {
            *standing = Standing { applied: "v2".into(), faults: Vec::new(), kept: vec!["server.listen".into()] };
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
}

struct Face {
    address: String,
    server: Arc<Server>,
    telemetry: Telemetry,
    stopping: CancellationToken,
    serving: tokio::task::JoinHandle<()>,
}

struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
    /// The code of a problem object that is whole.
    fn code(&self) -> String {
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

async fn face() -> Face {
    let source = Memory::default()
        .file("/etc/spillgate/server.toml", SERVER)
        .file("/etc/spillgate/flows/hello.toml", FLOW)
        .variable("ALICE_KEY", "alice-key-1")
        .variable("AGENT_KEY", "agent-key-1");
    let plan = load_from(&source, Path::new("/etc/spillgate/server.toml")).unwrap_or_else(|faults| panic!("{faults:#?}"));
    let telemetry = Telemetry::start(TelemetryOptions::default()).expect("nothing to start");
    happened::config_started(&telemetry, &plan.version);
    let none = Arc::new(|_: &_| Err("the plan has no database".to_owned()));
    let engine = Engine::start(Arc::new(plan), none, telemetry.clone(), [7; 32]).expect("the plan can run");
    let server = Arc::new(Server::default());
    let admin = Admin::new(engine, telemetry.clone(), server.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port on loopback");
    let address = listener.local_addr().expect("bound").to_string();
    let stopping = CancellationToken::new();
    let serving = tokio::spawn(admin.serve(listener, stopping.clone()));
    Face { address, server, telemetry, stopping, serving }
}

impl Face {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).await.expect("the listener accepts")
    }
    /// Sends a request as it is, with a Host of our own unless `headers` has one, and reads the reply to its end.
    async fn send(&self, line: &str, headers: &str, body: &str) -> Reply {
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
    async fn get(&self, path: &str) -> Reply {
        self.send(&format!("GET {path}"), KEY, "").await
    }
}

#[tokio::test]
async fn an_admin_sees_what_runs() {
    let face = face().await;
    let metrics = face.get("/metrics").await;
    assert_eq!(metrics.status, 200);
    assert!(metrics.head.contains("content-type: text/plain; version=0.0.4"), "{}", metrics.head);
    assert!(metrics.body.contains("spillgate_memory_limit_bytes 268435456\n"), "{}", metrics.body);
    assert_eq!(face.get("/admin/v1/flows").await.json()["flows"][0]["http"], "GET /api/hello");
    assert_eq!(face.get("/admin/v1/databases").await.json()["databases"], serde_json::json!([]));
    assert_eq!(face.get("/admin/v1/tenants").await.json()["tenants"][0]["in_flight"]["from"], "/etc/spillgate/server.toml:5");
    assert_eq!(face.get("/admin/v1/tenants/agent").await.json()["id"], "agent");
    let usage = face.get("/admin/v1/tenants/agent/usage").await.json();
    assert_eq!((&usage["in_flight"]["used"], &usage["in_flight"]["limit"], &usage["rate"]["used"]), (&0.into(), &8.into(), &0.into()));
    let config = face.get("/admin/v1/config").await.json();
    assert!(config["version"].as_str().is_some_and(|version| metrics.body.contains(version)), "{config}");
    assert!(face.get("/problems/unknown_page").await.body.contains("# unknown_page"));
}

#[tokio::test]
async fn nobody_without_an_admins_key_is_answered() {
    let face = face().await;
    let wrong =
        ["", "Authorization: Bearer agent-key-1\r\n", "Authorization: Bearer alice-key-\r\n", "Authorization: Basic alice-key-1\r\n"];
    for headers in wrong {
        for line in ["GET /metrics", "GET /admin/v1/config", "POST /admin/v1/reload", "GET /nothing"] {
            let reply = face.send(line, headers, "").await;
            assert_eq!((reply.status, reply.code().as_str()), (401, "unauthenticated"), "{line} {headers}");
            assert!(reply.head.contains("www-authenticate: Bearer"), "{}", reply.head);
        }
    }
    assert_eq!(*face.server.reloads.borrow(), 0);
}

#[tokio::test]
async fn c8_a_web_page_cannot_drive_the_admin_face() {
    let face = face().await;
    for headers in ["Host: attacker.test\r\n", "Origin: http://attacker.test\r\n", "Origin: null\r\n"] {
        let reply = face.send("POST /admin/v1/reload", &format!("{KEY}{headers}"), "").await;
        assert_eq!((reply.status, reply.code().as_str()), (403, "forbidden"), "{headers}");
    }
    assert_eq!(*face.server.reloads.borrow(), 0);
    let own = format!("{KEY}Origin: http://{}\r\n", face.address);
    assert_eq!(face.send("GET /metrics", &own, "").await.status, 200);
    assert_eq!(face.send("GET /metrics", &format!("{KEY}Host: localhost\r\n"), "").await.status, 200);
}

#[tokio::test]
async fn c9_a_refused_reload_says_where_and_an_applied_one_what_waits() {
    let face = face().await;
    let refused = face.send("POST /admin/v1/reload", KEY, "").await;
    assert_eq!((refused.status, refused.code().as_str()), (422, "config_refused"));
    let fault = &refused.json()["errors"][0];
    assert_eq!((&fault["field"], &fault["problem"]), (&"flows/a.toml:3:7".into(), &"unknown key \"abuot\"".into()));
    assert_eq!(face.get("/admin/v1/config").await.json()["last_reload"]["faults"][0]["line"], 3);

    face.server.good.store(true, Ordering::Relaxed);
    let applied = face.send("POST /admin/v1/reload", KEY, "").await;
    assert_eq!((applied.status, &applied.json()["version"], &applied.json()["kept"][0]), (200, &"v2".into(), &"server.listen".into()));
    assert_eq!(face.get("/admin/v1/config").await.json()["last_reload"]["faults"], serde_json::json!([]));
}

#[tokio::test]
async fn a_reload_outlives_the_caller_who_asked_for_it() {
    let face = face().await;
    let (running, is_running) = oneshot::channel();
    let go = Arc::new(Notify::new());
    *face.server.held.lock().expect("no test panics here") = Some((running, go.clone()));
    let mut caller = face.connect().await;
    let request = format!("POST /admin/v1/reload HTTP/1.1\r\nHost: {}\r\n{KEY}\r\n", face.address);
    caller.write_all(request.as_bytes()).await.expect("the request goes out");
    is_running.await.expect("the reload runs");
    drop(caller);
    go.notify_one();
    let mut reloads = face.server.reloads.subscribe();
    reloads.wait_for(|count| *count == 1).await.expect("the reload ended by itself");
}

#[tokio::test]
async fn every_no_is_a_problem_object() {
    let face = face().await;
    for (line, status, code) in [
        ("GET /", 404, "unknown_page"),
        ("GET /admin/v1/tenants/nobody", 404, "unknown_page"),
        ("GET /admin/v1/tenants/nobody/usage", 404, "unknown_page"),
        ("GET /problems/none", 404, "unknown_page"),
        ("GET /admin/v1/reload", 405, "method_not_allowed"),
        ("POST /metrics", 405, "method_not_allowed"),
        ("DELETE /admin/v1/tenants/agent", 405, "method_not_allowed"),
    ] {
        let reply = face.send(line, KEY, "").await;
        assert_eq!((reply.status, reply.code().as_str()), (status, code), "{line}");
        assert_eq!(status == 405, reply.head.contains("\r\nallow: "), "{line}: {}", reply.head);
    }
    let later = "/admin/v1/queues/bookings/lanes/agent/purge";
    for (path, is_later) in [(later, true), ("/admin/v1/audit", true), ("/admin/v1/auditor", false), ("/favicon.ico", false)] {
        let reply = face.send(&format!("POST {path}"), KEY, "").await;
        assert_eq!((reply.status, reply.body.contains("not available yet")), (404, is_later), "{path}");
    }
    let large = face.send("POST /admin/v1/reload", KEY, &"x".repeat(20_000)).await;
    assert_eq!((large.status, large.code().as_str()), (413, "too_large"));
    assert_eq!(*face.server.reloads.borrow(), 0);
}

#[tokio::test]
async fn stopping_lets_a_running_request_end() {
    let face = face().await;
    let (running, is_running) = oneshot::channel();
    let go = Arc::new(Notify::new());
    *face.server.held.lock().expect("no test panics here") = Some((running, go.clone()));
    let idle = face.connect().await;
    let stopping = face.stopping.clone();
    let stop = async {
        is_running.await.expect("the reload runs");
        stopping.cancel();
        go.notify_one();
    };
    let (reply, ()) = tokio::join!(face.send("POST /admin/v1/reload", KEY, ""), stop);
    assert_eq!(reply.status, 422);
    face.serving.await.expect("the listener ended, idle connections with it");
    assert!(TcpStream::connect(&face.address).await.is_err(), "nobody listens any more");
    drop(idle);
    assert!(face.telemetry.render_metrics().contains("spillgate_config_info"));
}
