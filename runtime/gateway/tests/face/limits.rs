//! Limits: of heads and bodies, of tenants, of time, of connections, of series.

use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use spillgate_gateway::GatewayOptions;
use spillgate_model::limits::{BODY_BYTES, HEAD_BYTES};

use crate::support::{Face, get, until, with, with_body};

/// Far more turns than any deadline allows.
const ENDLESS: &str = "/api/slow/100000000000";

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_could_never_fit_is_refused_before_it_is_read() {
    let face = Face::start().await;
    let head =
        format!("POST /api/echo HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer agent-key\r\nContent-Length: {}\r\n\r\n", BODY_BYTES + 1);
    let problem = face.send(&head).await.problem(413, "too_large");
    assert_eq!(problem["policy"], json!({ "name": "body_bytes", "limit": BODY_BYTES, "used": BODY_BYTES + 1 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_refused_in_the_middle_of_its_body_still_gets_its_refusal() {
    let face = Face::start().await;
    let body = "x".repeat(3 << 20);
    for _ in 0..50 {
        face.post("agent-key", "/api/echo", &body).await.problem(413, "too_large");
        face.post("no-key", "/api/echo", &body).await.problem(401, "unauthenticated");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g3_a_chunked_body_is_cut_off_at_the_cap() {
    let face = Face::start().await;
    let mut wire = face.connect().await;
    wire.write(b"POST /api/echo HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer agent-key\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    let chunk = [b"10000\r\n".as_slice(), &[b' '; 0x10000], b"\r\n"].concat();
    for _ in 0..=BODY_BYTES / 0x10000 {
        wire.write(&chunk).await;
    }
    wire.reply().await.problem(413, "too_large");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_just_the_cap_is_read() {
    let face = Face::start().await;
    let body = format!("{{\"id\":1}}{}", " ".repeat(usize::try_from(BODY_BYTES).expect("small") - 8));
    assert_eq!(face.post("agent-key", "/api/echo", &body).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_too_large_is_a_problem_object() {
    let face = Face::start().await;
    let request = get("agent-key", "/api/echo/1").replace("Host", &format!("Padding: {}\r\nHost", "x".repeat(HEAD_BYTES)));
    let problem = face.send(&request).await.problem(431, "malformed");
    assert_eq!(problem["policy"]["limit"], json!(HEAD_BYTES));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_refusal_says_when_to_come_back() {
    let face = Face::start().await;
    for _ in 0..2 {
        assert_eq!(face.get("narrow-key", "/api/echo/1").await.status, 200);
    }
    let reply = face.get("narrow-key", "/api/echo/1").await;
    let problem = reply.problem(429, "rate_exceeded");
    let milliseconds = problem["retry_after_ms"].as_u64().expect("a time");
    let seconds: u64 = reply.header("retry-after").expect("a time").parse().expect("seconds");
    assert!((25_000..=36_001).contains(&milliseconds), "30 s and up to a fifth more: {milliseconds}");
    assert_eq!(seconds, milliseconds.div_ceil(1_000));
    assert_eq!(reply.header("ratelimit-policy"), Some("\"rate\";q=2;w=60"));
    assert_eq!(reply.header("ratelimit"), Some(&*format!("\"rate\";r=0;t={seconds}")));
    assert_eq!((&problem["policy"]["name"], &problem["policy"]["limit"]), (&json!("rate"), &json!(2)));
    assert_eq!(face.get("agent-key", "/api/echo/1").await.status, 200, "another tenant is not touched");
}

#[tokio::test(flavor = "multi_thread")]
async fn e1_a_call_too_many_is_refused_and_costs_no_rate() {
    let face = Face::start().await;
    let mut running = face.connect().await;
    running.write(get("narrow-key", ENDLESS).as_bytes()).await;
    until("the call to run", || face.tenant("narrow", |tenant| tenant.gate.in_flight()) == 1).await;
    let reply = face.get("narrow-key", "/api/echo/1").await;
    reply.problem(429, "in_flight_exceeded");
    assert_eq!(reply.header("ratelimit-policy"), Some("\"in_flight\";q=1;qu=\"concurrent-requests\""));
    drop(running);
    until("the hang-up to be seen", || face.tenant("narrow", |tenant| tenant.gate.in_flight()) == 0).await;
    assert_eq!(face.get("narrow-key", "/api/echo/1").await.status, 200, "the refused call cost no rate");
    let hung_up = face.telemetry.call_metrics("narrow", "slow");
    until("the hang-up to be counted", || hung_up.hung_up() == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_may_shorten_the_deadline_and_not_lengthen_it() {
    let face = Face::start().await;
    let ask =
        |milliseconds: u64, path: &str| get("agent-key", path).replace("Host", &format!("Spillgate-Deadline-Ms: {milliseconds}\r\nHost"));
    let began = Instant::now();
    face.send(&ask(100, ENDLESS)).await.problem(504, "deadline_exceeded");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(face.send(&ask(u64::MAX, "/api/echo/1")).await.status, 200, "no overflow");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_of_nothing_is_refused_for_good_and_nothing_is_done() {
    let (face, store, _) = Face::start_durable().await;
    let order = with_body("POST", "agent-key", "/api/orders", r#"{"truck":77,"text":"late"}"#);
    for request in [get("agent-key", "/api/echo/1"), with_body("POST", "agent-key", "/api/echo", r#"{"id":77}"#), order] {
        let problem = face.send(&with(&request, "Spillgate-Deadline-Ms: 0\r\n")).await.problem(504, "deadline_exceeded");
        assert_eq!((&problem["scope"], &problem["retryable"], &problem["retry_after_ms"]), (&json!("caller"), &json!(false), &Json::Null));
    }
    assert_eq!((face.notes(77), store.lanes(None).iter().map(|lane| lane.appended).sum::<u64>()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_body_runs_against_the_deadline() {
    let face = Face::start().await;
    let mut wire = face.connect().await;
    wire.write(
        b"POST /api/echo HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer agent-key\r\nSpillgate-Deadline-Ms: 50\r\nContent-Length: 9\r\n\r\n{",
    )
    .await;
    let problem = wire.reply().await.problem(504, "deadline_exceeded");
    assert_eq!(problem["scope"], json!("caller"));
    assert_eq!(face.tenant("agent", |tenant| tenant.gate.in_flight()), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_could_never_fit_the_memory_is_refused_for_good() {
    let face = Face::start().await;
    face.reload_with("bulk", &crate::support::BULK.replace("6MiB", "12MiB"));
    let problem = face.get("agent-key", "/api/bulk").await.problem(503, "memory_full");
    assert_eq!((&problem["retryable"], &problem["scope"]), (&json!(false), &json!("tenant")));
    assert_eq!(problem["policy"]["name"], json!("tenant.memory"));
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_covers_the_reply_until_it_is_sent() {
    let face = Face::start().await;
    let mut slow_reader = face.connect().await;
    slow_reader.write(get("agent-key", "/api/bulk").as_bytes()).await;
    let ok = face.telemetry.call_metrics("agent", "bulk");
    until("the reply to be made", || ok.ended(None) == 1).await;
    let taken = || face.tenant("agent", |tenant| (tenant.gate.in_flight(), tenant.gate.memory()));
    assert_eq!(taken(), (0, 6 << 20), "the call is over, its bytes still wait for their reader");
    let reply = slow_reader.reply().await;
    assert_eq!(reply.json()["row_count"], json!(2_000));
    until("the memory to be given back", || taken() == (0, 0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn e1_a_caller_that_waits_for_its_replies_never_has_two_calls_in_flight() {
    let face = Face::start().await;
    face.reload_tenant("rate = { rate = \"2/min\", burst = 2 }", "rate = \"60000/s\"");
    for _ in 0..200 {
        assert_eq!(face.get("narrow-key", "/api/echo/1").await.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_connection_too_many_gets_a_typed_no() {
    let face = Face::start_with("10s", GatewayOptions { connections: 2, ..GatewayOptions::default() }).await;
    let (mut first, second) = (face.connect().await, face.connect().await);
    first.write(get("agent-key", "/api/echo/1").as_bytes()).await;
    assert_eq!(first.reply().await.status, 200);
    let mut third = face.connect().await;
    let reply = third.reply().await;
    reply.problem(503, "overloaded");
    assert_eq!(reply.header("connection"), Some("close"));
    third.closed().await;
    drop((first, second));
    // The two are given back when the server sees them end.
    loop {
        let mut next = face.connect().await;
        next.write(get("agent-key", "/api/echo/1").as_bytes()).await;
        if next.reply().await.status == 200 {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn e8_strangers_make_no_series() {
    let face = Face::start().await;
    let mut wire = face.connect().await;
    let mut ask = async |key: &str, path: &str| {
        wire.write(get(key, path).as_bytes()).await;
        wire.reply().await.status
    };
    assert_eq!(ask("agent-key", "/api/unknown").await, 404);
    assert_eq!(ask("unknown-key", "/api/unknown").await, 401);
    let series = || face.telemetry.render_metrics().lines().filter(|line| line.contains("spillgate_call")).count();
    let before = series();
    for number in 0..2_000 {
        assert_eq!(ask("agent-key", &format!("/api/unknown/{number}")).await, 404);
        assert_eq!(ask(&format!("key-{number}"), "/api/echo/1").await, 401);
    }
    assert_eq!(series(), before);
    let page = face.telemetry.render_metrics();
    assert!(page.contains("tenant=\"unknown\"") && !page.contains("unknown/1") && !page.contains("key-1"), "{page}");
}
