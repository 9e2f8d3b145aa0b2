//! Durable flows on a real store: what is acknowledged, waited for, looked at, cancelled, refused.

use serde_json::{Value as Json, json};
use spillgate_model::limits::BODY_BYTES;
use spillgate_queue::disk::simulated::{CallKind, Failure};
use spillgate_queue::{LaneName, Store};

use crate::support::{Face, Reply, get, patiently, until, with, with_body};

const LANE: (&str, &str) = ("orders", "agent");

fn lane() -> LaneName {
    LaneName { queue: LANE.0.into(), tenant: LANE.1.into() }
}

fn body(truck: i64) -> String {
    format!(r#"{{"truck":{truck},"text":"late"}}"#)
}

fn order(truck: i64, headers: &str) -> String {
    with(&with_body("POST", "agent-key", "/api/orders", &body(truck)), headers)
}

fn delete(key: &str, path: &str) -> String {
    format!("DELETE {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n")
}

/// The job's path, from an acknowledgement.
fn followed(reply: &Reply) -> String {
    let job = reply.json()["job"].clone();
    let href = job["href"].as_str().expect("a path").to_owned();
    assert_eq!((reply.status, reply.header("location")), (202, Some(href.as_str())), "{}", reply.body);
    assert_eq!(href, format!("/api/jobs/{}", job["id"].as_str().expect("an id")));
    href
}

/// A store whose lane is paused: what is sent waits.
async fn paused() -> (Face, Store) {
    let (face, store, _) = Face::start_durable().await;
    store.pause(&lane(), true);
    (face, store)
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_2_work_is_acknowledged_and_followed_to_its_result() {
    let (face, ..) = Face::start_durable().await;
    let reply = face.send(&order(1, "")).await;
    let href = followed(&reply);
    assert_eq!(reply.json().as_object().map(serde_json::Map::len), Some(1), "{}", reply.body);
    let ended = face.send(&with(&get("agent-key", &href), "Prefer: wait=20\r\n")).await;
    assert_eq!((ended.status, ended.header("preference-applied")), (200, Some("wait=20")), "{}", ended.body);
    assert_eq!((&ended.json()["job"]["state"], &ended.json()["result"]["rows"][0]["ID"]), (&json!("succeeded"), &json!(1)));
    assert_eq!(face.notes(1), 1);
    let again = face.get("agent-key", &href).await;
    assert_eq!((again.json(), again.header("preference-applied")), (ended.json(), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_would_like_to_wait_gets_the_result() {
    let (face, ..) = Face::start_durable().await;
    let reply = face.send(&order(2, "Prefer: respond-async, wait=4\r\n")).await;
    assert_eq!((reply.status, reply.header("preference-applied"), reply.header("location")), (200, Some("wait=4"), None), "{}", reply.body);
    assert_eq!((&reply.json()["job"]["state"], &reply.json()["result"]["row_count"]), (&json!("succeeded"), &json!(1)));
    let longer_than_allowed = face.send(&order(2, "Prefer: wait=600\r\n")).await;
    assert_eq!(longer_than_allowed.header("preference-applied"), Some("wait=5"), "no longer than the deadline");
    face.send(&order(2, "Prefer: wait=soon\r\n")).await.problem(400, "malformed");
    let read = face.send(&with(&get("agent-key", "/api/echo/1"), "Prefer: wait=4\r\n")).await;
    assert_eq!((read.status, read.header("preference-applied")), (200, None), "nothing to wait for");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_is_not_long_enough_is_answered_with_the_job() {
    let (face, store) = paused().await;
    let reply = face.send(&order(3, "Prefer: wait=0\r\n")).await;
    let href = followed(&reply);
    assert_eq!((reply.header("preference-applied"), &reply.json()["job"]["state"]), (Some("wait=0"), &json!("queued")));
    let look = face.send(&with(&get("agent-key", &href), "Prefer: wait=0\r\n")).await;
    assert_eq!((look.status, look.json()), (200, reply.json()));
    store.pause(&lane(), false);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_failed_in_time_is_answered_with_its_problem() {
    let (face, ..) = Face::start_durable().await;
    let reply = face.send(&order(13, "Prefer: wait=4\r\n")).await;
    let problem = reply.problem(502, "database_error");
    assert_eq!(problem["job"]["state"], json!("failed"), "{}", reply.body);
    let href = problem["job"]["href"].as_str().expect("a path").to_owned();
    let look = face.get("agent-key", &href).await;
    assert_eq!((look.status, &look.json()["error"]["code"], &look.json()["job"]), (200, &json!("database_error"), &problem["job"]));
    assert_eq!(face.notes(13), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_visible_to_its_tenant_only() {
    let (face, _store) = paused().await;
    let href = followed(&face.send(&order(4, "")).await);
    face.get("narrow-key", &href).await.problem(404, "unknown_job");
    face.send(&delete("narrow-key", &href)).await.problem(404, "unknown_job");
    for path in ["/api/jobs/", "/api/jobs/1-ffff", "/api/jobs/nonsense", "/api/jobs/1-1/x", "/api/jobs/01-1", "/api/jobs/1-A"] {
        face.get("agent-key", path).await.problem(404, "unknown_job");
    }
    face.get("no-key", &href).await.problem(401, "unauthenticated");
    let posted = face.send(&with_body("POST", "agent-key", &href, "")).await;
    posted.problem(405, "method_not_allowed");
    assert_eq!(posted.header("allow"), Some("GET, HEAD, DELETE"));
    face.send(&with_body("DELETE", "agent-key", &href, "{}")).await.problem(400, "malformed");
    assert_eq!(face.get("agent-key", &href).await.json()["job"]["state"], json!("queued"), "nobody touched it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_waits_can_be_cancelled_and_is_not_executed() {
    let (face, store) = paused().await;
    let href = followed(&face.send(&order(5, "")).await);
    for _ in 0..2 {
        let reply = face.send(&delete("agent-key", &href)).await;
        assert_eq!((reply.status, &reply.json()["job"]["state"]), (200, &json!("cancelled")), "{}", reply.body);
    }
    assert_eq!(face.get("agent-key", &href).await.json()["job"]["state"], json!("cancelled"));
    store.pause(&lane(), false);
    let later = face.send(&order(6, "Prefer: wait=4\r\n")).await;
    assert_eq!(later.status, 200, "{}", later.body);
    assert_eq!((face.notes(5), face.notes(6)), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn e6_twenty_calls_with_one_key_are_one_execution_and_one_job() {
    let (face, ..) = Face::start_durable().await;
    // Those that come before the first is durable each ask for room and memory.
    face.reload_tenant("items = 4\nmax_item = \"2MiB\"", "items = 30\nmax_item = \"16KiB\"");
    let face = std::sync::Arc::new(face);
    let request = order(7, "Idempotency-Key: order-7\r\nPrefer: wait=4\r\n");
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let (face, request) = (face.clone(), request.clone());
            tokio::spawn(async move { face.send(&request).await })
        })
        .collect();
    let mut bodies = Vec::new();
    for call in calls {
        let reply = call.await.expect("no panic");
        assert_eq!(reply.status, 200, "{}", reply.body);
        bodies.push(reply.body);
    }
    bodies.dedup();
    assert_eq!((bodies.len(), face.notes(7)), (1, 1), "{bodies:?}");
    face.send(&order(8, "Idempotency-Key: order-7\r\n")).await.problem(422, "key_reused");
    let other_key = face.send(&order(7, "Idempotency-Key: order-8\r\nPrefer: wait=4\r\n")).await;
    assert_eq!((other_key.status, face.notes(7)), (200, 2), "another key is another piece of work");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_has_one_meaning_or_none() {
    let (face, ..) = Face::start_durable().await;
    for headers in [
        "Idempotency-Key: \r\n",
        "Idempotency-Key: two words\r\n",
        "Idempotency-Key: a\r\nIdempotency-Key: b\r\n",
        "Spillgate-Depth: 256\r\n",
    ] {
        face.send(&order(9, headers)).await.problem(400, "malformed");
    }
    let long = format!("Idempotency-Key: {}\r\n", "k".repeat(256));
    face.send(&order(9, &long)).await.problem(400, "malformed");
    face.reload_with("order", &crate::support::ORDER.replace("\"optional\"", "\"required\""));
    face.send(&order(9, "")).await.problem(400, "key_required");
    assert_eq!(face.notes(9), 0);
    let fits = format!("Idempotency-Key: {}\r\nPrefer: wait=4\r\nSpillgate-Depth: 255\r\n", "k".repeat(255));
    assert_eq!(face.send(&order(9, &fits)).await.status, 200);
}

/// The head of an order alone: whoever answers it did not wait for the body.
fn head_of_order(length: u64, headers: &str) -> String {
    format!("POST /api/orders HTTP/1.1\r\nHost: x\r\n{headers}Authorization: Bearer agent-key\r\nContent-Length: {length}\r\n\r\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_1_a_full_queue_refuses_before_the_body_and_gives_everything_back() {
    let (face, store) = paused().await;
    let keyed = followed(&face.send(&order(10, "Idempotency-Key: first\r\n")).await);
    for truck in [11, 12] {
        followed(&face.send(&order(truck, "")).await);
    }
    let left = |face: &Face| face.tenant("agent", |tenant| tenant.gate.rate_remaining(tenant.limits.rate, face.engine.started().elapsed()));
    let before = left(&face);
    let reply = face.send(&head_of_order(20, "")).await;
    let problem = reply.problem(429, "queue_full");
    assert_eq!(problem["policy"], json!({ "name": "queue.items.share", "limit": 3, "used": 3 }), "{}", reply.body);
    assert!(reply.header("retry-after").is_some());
    assert!(left(&face) >= before, "a refused call costs no rate");
    // The replies before it give their memory back when they are written, which is seen here a moment later.
    let taken = || face.tenant("agent", |tenant| (tenant.gate.in_flight(), tenant.gate.memory()));
    until("all is given back", || taken() == (0, 0)).await;
    let repeat = face.send(&order(10, "Idempotency-Key: first\r\n")).await;
    assert_eq!(followed(&repeat), keyed, "a known key needs no room");
    assert_eq!(store.lanes(Some("orders"))[0].waiting, 3);
    assert_eq!(face.send(&delete("agent-key", &keyed)).await.status, 200, "what is full can be looked at and emptied");
    followed(&face.send(&order(11, "")).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn d5_an_item_that_could_never_fit_is_refused_before_its_body() {
    let (face, _store) = paused().await;
    let problem = face.send(&head_of_order((2 << 20) + 1, "")).await.problem(413, "item_too_large");
    assert_eq!(problem["policy"], json!({ "name": "queue.max_item", "limit": 2 << 20, "used": (2 << 20) + 1 }));
    assert_eq!(problem["retryable"], json!(false));
    let text = "x".repeat(usize::try_from(BODY_BYTES).expect("small") + 1_000);
    let large = format!(r#"{{"truck":1,"text":"{text}"}}"#);
    followed(&face.post("agent-key", "/api/orders", &large).await);
    face.post("agent-key", "/api/echo", &large).await.problem(413, "too_large");
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_3_a_low_disk_refuses_new_work_and_nothing_else() {
    let (face, store, disk) = Face::start_durable().await;
    let href = followed(&face.send(&order(14, "")).await);
    let ready = "GET /readyz?for=durable HTTP/1.1\r\nHost: x\r\n\r\n";
    assert_eq!(face.send(ready).await.status, 200);
    disk.set_free(10);
    patiently("the store to see it", async {
        while face.send(ready).await.status == 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    face.send(&head_of_order(20, "")).await.problem(503, "disk_low");
    let reply = face.send(ready).await;
    assert!(
        reply.status == 503 && reply.json()["reasons"][0].as_str().is_some_and(|reason| reason.contains("low on space")),
        "{}",
        reply.body
    );
    let plain = face.send("GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!((plain.status, &plain.json()["status"]), (200, &json!("degraded")));
    let ended = face.send(&with(&get("agent-key", &href), "Prefer: wait=20\r\n")).await;
    assert_eq!(ended.json()["job"]["state"], json!("succeeded"), "what was there is worked on and looked at");
    assert_eq!(face.get("agent-key", "/api/echo/1").await.status, 200);
    disk.set_free(1 << 30);
    patiently("the store to take work again", async {
        while face.send(&order(14, "")).await.status != 202 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(face.send(ready).await.status, 200);
    drop(store);
}

#[tokio::test(flavor = "multi_thread")]
async fn until_the_store_serves_durable_flows_are_refused_and_direct_ones_run() {
    let face = Face::start().await;
    let ready = "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n";
    assert_eq!(face.send(ready).await.json()["status"], json!("ok"), "no flow needs a store");
    face.reload_with("order", crate::support::ORDER);
    face.send(&head_of_order(20, "")).await.problem(503, "recovering");
    face.get("agent-key", "/api/jobs/1-1").await.problem(503, "recovering");
    let ready = face.send(ready).await;
    let expected: Json = json!({ "status": "degraded", "reasons": ["the store of durable work is being opened"] });
    assert_eq!((ready.status, ready.json()), (200, expected));
    assert_eq!(face.get("agent-key", "/api/echo/1").await.status, 200);
    face.engine.store_failed("/var/secret/place: no such folder".into());
    face.send(&order(1, "")).await.problem(503, "store_failed");
    let durable = face.send("GET /readyz?for=durable HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(durable.status, 503);
    assert!(!durable.body.contains("secret"), "{}", durable.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_that_fails_ends_durable_work_and_nothing_else() {
    let (face, _store, disk) = Face::start_durable().await;
    let durable = "GET /readyz?for=durable HTTP/1.1\r\nHost: x\r\n\r\n";
    assert_eq!(face.send(durable).await.status, 200);
    disk.fail_all(CallKind::Sync, Failure::Broken);
    face.send(&order(18, "")).await.problem(503, "store_failed");
    face.send(&order(18, "")).await.problem(503, "store_failed");
    let plain = face.send("GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let reasons = json!(["the store of durable work has stopped: /admin/v1/queues on the admin listener says why"]);
    assert_eq!((plain.status, plain.json()), (200, json!({ "status": "degraded", "reasons": reasons })));
    let ready = face.send(durable).await;
    assert_eq!((ready.status, ready.json()), (503, json!({ "status": "unavailable", "reasons": reasons })));
    assert_eq!(face.get("agent-key", "/api/echo/1").await.status, 200);
    assert_eq!(face.notes(18), 0, "what was not acknowledged was not done");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_can_be_cancelled_however_many_wait_and_looked_at_while_flows_have_the_memory() {
    let (face, store) = paused().await;
    let href = followed(&face.send(&order(19, "")).await);
    let mut waits = Vec::new();
    let wait = with(&get("agent-key", &href), "Prefer: wait=60\r\n");
    for _ in 0..192 {
        let mut wire = face.connect().await;
        wire.write(wait.as_bytes()).await;
        waits.push(wire);
    }
    let waiting = "spillgate_calls_in_flight{tenant=\"agent\",flow=\"(jobs)\"} 192\n";
    until("all to wait", || face.telemetry.render_metrics().contains(waiting)).await;
    face.send(&wait).await.problem(429, "in_flight_exceeded");
    assert_eq!(face.get("agent-key", &href).await.json()["job"]["state"], json!("queued"));
    let reply = face.send(&delete("agent-key", &href)).await;
    assert_eq!((reply.status, &reply.json()["job"]["state"]), (200, &json!("cancelled")), "{}", reply.body);
    for mut wire in waits {
        assert_eq!(wire.reply().await.json()["job"]["state"], json!("cancelled"));
    }
    store.pause(&lane(), false);
    let done = face.send(&order(20, "Prefer: wait=4\r\n")).await;
    let href = done.json()["job"]["href"].as_str().expect("a path").to_owned();
    // All of the tenant's memory but a few KiB.
    let _held = face.tenant("agent", |tenant| {
        let most = tenant.limits.memory - (4 << 10) - tenant.gate.memory();
        tenant.gate.reserve_memory(&tenant.limits, most, face.engine.memory(), u64::MAX).expect("it is free")
    });
    let look = face.get("agent-key", &href).await;
    assert_eq!((look.status, &look.json()["result"]["row_count"]), (200, &json!(1)), "{}", look.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn head_is_answered_where_get_is() {
    let (face, _store) = paused().await;
    let href = followed(&face.send(&order(15, "")).await);
    for path in ["/api/echo/1", href.as_str()] {
        let get = get("agent-key", path);
        let whole = face.send(&get).await;
        let mut wire = face.connect().await;
        wire.write(get.replacen("GET", "HEAD", 1).as_bytes()).await;
        let head = wire.head().await;
        assert_eq!((head.status, head.header("content-length")), (200, whole.header("content-length")), "{path}");
        wire.write(get.as_bytes()).await;
        assert_eq!(wire.reply().await.body, whole.body, "nothing of a body stood before it");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn e8_looks_at_jobs_share_one_series() {
    let (face, _store) = paused().await;
    for number in 1..200 {
        face.get("agent-key", &format!("/api/jobs/1-{number:x}")).await.problem(404, "unknown_job");
    }
    let page = face.telemetry.render_metrics();
    assert!(page.contains(r#"spillgate_calls_total{tenant="agent",flow="(jobs)",code="unknown_job"} 199"#), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_does_not_wait_for_those_who_only_wait() {
    let (mut face, store) = paused().await;
    let href = followed(&face.send(&order(16, "")).await);
    let mut wire = face.connect().await;
    wire.write(with(&get("agent-key", &href), "Prefer: wait=60\r\n").as_bytes()).await;
    let waiting = "spillgate_calls_in_flight{tenant=\"agent\",flow=\"(jobs)\"} 1\n";
    until("the look to begin", || face.telemetry.render_metrics().contains(waiting)).await;
    // The flow's deadline is far off: nothing else would end this call.
    face.reload_with("order", &crate::support::ORDER.replace("deadline = \"5s\"", "deadline = \"1h\""));
    let mut called = face.connect().await;
    called.write(order(17, "Prefer: wait=60\r\n").as_bytes()).await;
    until("the call to be kept", || store.lanes(Some("orders"))[0].waiting == 2).await;
    face.stop.cancel();
    face.engine.stop_taking();
    let reply = wire.reply().await;
    assert_eq!((reply.status, &reply.json()["job"]["state"]), (200, &json!("queued")), "{}", reply.body);
    let called = called.reply().await;
    assert_eq!((called.status, &called.json()["job"]["state"]), (202, &json!("queued")), "{}", called.body);
    patiently("the server to end", &mut face.served).await.expect("no panic");
}
