//! The admin face over a real listener: who is answered, what, and what a reload does.

mod durable;
mod limits;
mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};

use crate::support::{KEY, face};

#[tokio::test]
async fn an_admin_sees_what_runs() {
    let face = face().await;
    let metrics = face.get("/metrics").await;
    assert_eq!(metrics.status, 200);
    assert!(metrics.head.contains("content-type: text/plain; version=0.0.4"), "{}", metrics.head);
    assert!(metrics.body.contains("spillgate_memory_limit_bytes 268435456\n"), "{}", metrics.body);
    assert_eq!(face.get("/admin/v1/flows").await.json()["flows"][0]["http"], "GET /api/hello");
    assert_eq!(face.get("/admin/v1/databases").await.json()["databases"], serde_json::json!([]));
    assert_eq!(face.get("/admin/v1/tenants").await.json()["tenants"][0]["limits"]["in_flight"]["from"], "/etc/spillgate/server.toml:5");
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
    let change = face.server.changes().pop().expect("it is in the audit");
    assert_eq!((change.who.as_str(), change.action.as_str(), change.to.as_deref()), ("alice", "reload", Some("v2")));
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
        ("GET /admin/v1/queues/bookings/lanes/agent/purge", 405, "method_not_allowed"),
        ("POST /admin/v1/audit", 405, "method_not_allowed"),
        ("POST /admin/v1/tenants/agent", 405, "method_not_allowed"),
        ("PUT /admin/v1/tenants", 405, "method_not_allowed"),
        ("GET /admin/v1/tenants/nobody/explain?flow=hello", 404, "unknown_page"),
        ("GET /admin/v1/tenants/agent/explain?flow=nothing", 404, "unknown_page"),
        ("GET /admin/v1/tenants/agent/explain", 400, "malformed"),
        ("GET /admin/v1/tenants/agent/explain?flow=hello&flow=hello", 400, "malformed"),
        ("GET /admin/v1/tenants/agent/explain?flow=hello%", 400, "malformed"),
        ("GET /admin/v1/tenants/agent/explain?flow=hello&flaw=1", 400, "malformed"),
        ("GET /admin/v1/tenants/%ff", 400, "malformed"),
        ("GET /admin/v1/tenants/agen%t", 400, "malformed"),
    ] {
        let reply = face.send(line, KEY, "").await;
        assert_eq!((reply.status, reply.code().as_str()), (status, code), "{line}");
        assert_eq!(status == 405, reply.head.contains("\r\nallow: "), "{line}: {}", reply.head);
    }
    for path in ["/admin/v1/breakers/x", "/admin/v1/auditor", "/favicon.ico"] {
        assert_eq!(face.send(&format!("POST {path}"), KEY, "").await.status, 404, "{path}");
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
