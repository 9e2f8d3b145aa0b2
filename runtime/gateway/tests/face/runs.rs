//! Runs, repeats, what a refusal gives back, what has passed, and the order in which the gate asks.

use serde_json::json;

use crate::support::{ECHO, Face, Reply, get, patiently, until, with, with_body};

/// Far more turns than any deadline allows.
const ENDLESS: &str = "/api/slow/100000000000";
/// A line of the tenant `agent` that tests put others behind.
const AGENT: &str = "keys = [\"agent-key\"]\n";

async fn face_with(limits: &str) -> Face {
    let face = Face::start().await;
    face.reload_tenant(AGENT, &format!("{AGENT}{limits}\n"));
    face
}

fn of_run(run: &str, path: &str) -> String {
    with(&get("agent-key", path), &format!("Spillgate-Run: {run}\r\n"))
}

/// A note about this truck; about truck 13 the database takes none.
fn note(truck: i64, headers: &str) -> String {
    with(&with_body("PUT", "agent-key", &format!("/api/echo/{truck}"), r#"{"text":"late"}"#), headers)
}

fn policy(problem: &serde_json::Value) -> (&str, Option<u64>, Option<u64>) {
    let policy = &problem["policy"];
    (policy["name"].as_str().unwrap_or_default(), policy["limit"].as_u64(), policy["used"].as_u64())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_ends_by_its_calls_with_an_answer_that_its_model_understands() {
    let face = face_with("run = { calls = 3 }").await;
    for _ in 0..3 {
        assert_eq!(face.send(&of_run("loop", "/api/echo/1")).await.status, 200);
    }
    let reply = face.send(&of_run("loop", "/api/echo/1")).await;
    let problem = reply.problem(429, "run_exhausted");
    assert_eq!(policy(&problem), ("run.calls", Some(3), Some(3)));
    assert_eq!((&problem["scope"], &problem["retryable"], reply.header("retry-after")), (&json!("run"), &json!(false), None));
    assert!(problem["advice"].as_str().is_some_and(|advice| advice.starts_with("Stop calling") && advice.contains("same budget")));
    assert_eq!(face.send(&of_run("other", "/api/echo/1")).await.status, 200, "another run");
    assert_eq!(face.get("agent-key", "/api/echo/1").await.status, 200, "a call that names no run has its tenant's limits only");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ring_of_agents_ends_by_its_depth() {
    let face = face_with("run = { depth = 2 }").await;
    let ask = |depth: u64| with(&of_run("ring", "/api/echo/1"), &format!("Spillgate-Depth: {depth}\r\n"));
    assert_eq!(face.send(&ask(2)).await.status, 200);
    assert_eq!(policy(&face.send(&ask(3)).await.problem(429, "run_exhausted")), ("run.depth", Some(2), Some(3)));
    face.tenant("agent", |tenant| assert_eq!(tenant.gate.runs().used("ring"), Some((1, 0, 0)), "a refusal takes nothing"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_has_so_many_calls_at_once() {
    let face = face_with("run = { in_flight = 1 }").await;
    let mut running = face.connect().await;
    running.write(of_run("wide", ENDLESS).as_bytes()).await;
    until("the call to run", || face.tenant("agent", |tenant| tenant.gate.in_flight()) == 1).await;
    let problem = face.send(&of_run("wide", "/api/echo/1")).await.problem(429, "in_flight_exceeded");
    assert_eq!((policy(&problem), &problem["scope"]), (("run.in_flight", Some(1), Some(1)), &json!("run")));
    assert!(problem["retry_after_ms"].is_u64(), "{problem}");
    assert_eq!(face.send(&of_run("other", "/api/echo/1")).await.status, 200);
    drop(running);
    until("the hang-up to be seen", || face.tenant("agent", |tenant| tenant.gate.in_flight()) == 0).await;
    face.tenant("agent", |tenant| assert_eq!(tenant.gate.runs().used("wide"), Some((1, 0, 0)), "a hang-up ends the call of its run"));
    assert_eq!(face.send(&of_run("wide", "/api/echo/1")).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_repeats_what_has_just_failed_is_told_to_stop() {
    let face = face_with("repeat_budget = { rate = \"1/h\", burst = 2 }").await;
    let failing = note(13, "Spillgate-Run: stubborn\r\n");
    // The first is no repeat; two more are within the budget.
    for _ in 0..3 {
        face.send(&failing).await.problem(502, "database_error");
    }
    let left = |face: &Face| face.tenant("agent", |tenant| tenant.gate.rate_remaining(tenant.limits.rate, face.engine.started().elapsed()));
    let before = left(&face);
    let reply = face.send(&failing).await;
    let problem = reply.problem(429, "repeats_exhausted");
    assert_eq!((policy(&problem).0, &problem["retryable"], &problem["retry_after_ms"]), ("repeat_budget", &json!(false), &json!(null)));
    assert!(left(&face) >= before, "e1: the refused repeat cost no rate");
    face.tenant("agent", |tenant| assert_eq!(tenant.gate.runs().used("stubborn"), Some((3, 0, 2)), "nor a call or a retry of its run"));
    // What is not alike is no repeat: another input, another run, no run.
    assert_eq!(face.send(&note(1, "Spillgate-Run: stubborn\r\n")).await.status, 200);
    face.send(&note(13, "Spillgate-Run: other\r\n")).await.problem(502, "database_error");
    face.send(&note(13, "")).await.problem(502, "database_error");
    face.send(&note(13, "")).await.problem(502, "database_error");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_has_a_budget_of_repeats_of_its_own() {
    let face = face_with("run = { retries = 1 }").await;
    let failing = note(13, "Spillgate-Run: stubborn\r\n");
    for _ in 0..2 {
        face.send(&failing).await.problem(502, "database_error");
    }
    assert_eq!(policy(&face.send(&failing).await.problem(429, "run_exhausted")), ("run.retries", Some(1), Some(1)));
    assert_eq!(face.send(&note(2, "Spillgate-Run: stubborn\r\n")).await.status, 200, "what it has not tried it may");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_success_since_means_that_nothing_is_repeated() {
    let face = face_with("repeat_budget = { rate = \"1/h\", burst = 1 }").await;
    let lookup = of_run("patient", "/api/echo/7");
    let database = face.folder.join("fleet.db");
    for _ in 0..5 {
        let missing = ECHO
            .replace(":note AS NOTE", ":note AS NOTE, (SELECT TEXT FROM LATER) AS MORE")
            .replace("NOTE = \"text\"", "NOTE = \"text\", MORE = \"text\"");
        face.reload_with("echo", &missing);
        face.send(&lookup).await.problem(502, "database_error");
        face.reload_with("echo", ECHO);
        // A repeat: the one that the budget has, given the second time round only if the success before had not counted.
        let again = face.send(&lookup).await;
        assert!(matches!(again.status, 200 | 429), "{}", again.body);
        if again.status == 429 {
            again.problem(429, "repeats_exhausted");
            return assert!(database.exists());
        }
        assert_eq!(face.send(&lookup).await.status, 200, "after a success the next is no repeat");
    }
    panic!("one repeat an hour, and five were let through");
}

/// Fills the place of `narrow`, has a call of it refused, and gives the place back.
async fn refused_once(face: &Face, headers: &str) -> Reply {
    let mut running = face.connect().await;
    running.write(get("narrow-key", ENDLESS).as_bytes()).await;
    until("the call to run", || face.tenant("narrow", |tenant| tenant.gate.in_flight()) == 1).await;
    let refused = face.send(&with(&get("narrow-key", "/api/echo/1"), headers)).await;
    drop(running);
    until("the hang-up to be seen", || face.tenant("narrow", |tenant| tenant.gate.in_flight()) == 0).await;
    refused
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_success_after_a_failure_says_that_it_has_passed() {
    let face = Face::start().await;
    face.reload_tenant("rate = { rate = \"2/min\", burst = 2 }", "rate = \"60000/s\"");
    let ask = async |headers: &str| face.send(&with(&get("narrow-key", "/api/echo/1"), headers)).await;
    assert_eq!(ask("").await.header("spillgate-recovered"), None);
    refused_once(&face, "").await.problem(429, "in_flight_exceeded");
    let run = "Spillgate-Run: run-1\r\n";
    let of_run = ask(run).await;
    assert_eq!((of_run.status, of_run.header("spillgate-recovered")), (200, None), "the run was not refused");
    let reply = ask("").await;
    let told = reply.header("spillgate-recovered").expect("it is told");
    assert!(told.starts_with("in_flight_exceeded; since=20") && told.ends_with('Z'), "{told}");
    assert_eq!(ask("").await.header("spillgate-recovered"), None, "once");
    refused_once(&face, run).await.problem(429, "in_flight_exceeded");
    assert_eq!(ask("").await.header("spillgate-recovered"), None, "it was the run's");
    assert!(ask(run).await.header("spillgate-recovered").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_back_before_it_was_told_to_draws_on_its_repeats() {
    let face = Face::start().await;
    let (rate, budget) = ("rate = { rate = \"2/min\", burst = 2 }", "rate = \"60000/s\"\nrepeat_budget = { rate = \"1/h\", burst = 1 }");
    face.reload_tenant(rate, budget);
    face.tenant("narrow", |tenant| (0..64).for_each(|_| tenant.gate.ended(std::time::Duration::from_secs(20))));
    let run = "Spillgate-Run: hasty\r\n";
    let told = refused_once(&face, run).await.problem(429, "in_flight_exceeded")["retry_after_ms"].as_u64();
    assert!(told.is_some_and(|milliseconds| milliseconds >= 5_000), "{told:?}");
    let ask = async |headers: &str| face.send(&with(&get("narrow-key", "/api/echo/1"), headers)).await;
    assert_eq!(ask(run).await.status, 200, "the one repeat");
    refused_once(&face, run).await.problem(429, "in_flight_exceeded");
    ask(run).await.problem(429, "repeats_exhausted");
    assert_eq!(ask("").await.status, 200, "whoever names no run may be anybody");
}

/// Each call has every fault of the ones after it; the first in the order is the one that is told.
#[tokio::test(flavor = "multi_thread")]
async fn the_gate_asks_in_the_order_of_the_contract() {
    let (face, store, _disk) = Face::start_durable().await;
    store.pause(&spillgate_queue::LaneName { queue: "orders".into(), tenant: "agent".into() }, true);
    face.reload_tenant(AGENT, &format!("{AGENT}rate = {{ rate = \"1/h\", burst = 8 }}\nin_flight = 1\nrun = {{ calls = 2, depth = 1 }}\n"));
    let order = |headers: &str| with(&with_body("POST", "agent-key", "/api/orders", r#"{"truck":1,"text":"x"}"#), headers);
    for _ in 0..3 {
        assert_eq!(face.send(&order("")).await.status, 202);
    }
    for _ in 0..2 {
        assert_eq!(face.send(&of_run("spent", "/api/echo/1")).await.status, 200);
    }
    let mut running = face.connect().await;
    running.write(get("agent-key", ENDLESS).as_bytes()).await;
    until("the call to run", || face.tenant("agent", |tenant| tenant.gate.in_flight()) == 1).await;
    let reserve = |bytes| {
        face.tenant("agent", |tenant| tenant.gate.reserve_memory(&tenant.limits, bytes, face.engine.memory(), u64::MAX)).expect("room")
    };
    let memory = reserve(8 << 20 >> 1);
    let more_memory = face.tenant("agent", |tenant| reserve((8 << 20) - tenant.gate.memory()));
    // Everything is used up but two calls of the rate: the queue, the memory, the places, the run.
    let spent = "Spillgate-Run: spent\r\nSpillgate-Depth: 2\r\n";
    let head = |path: &str, length: u64, headers: &str| {
        format!("POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer agent-key\r\n{headers}Content-Length: {length}\r\n\r\n")
    };
    face.send(&head("/api/orders", 20, spent).replace("agent-key", "no-key")).await.problem(401, "unauthenticated");
    face.send(&head("/api/nothing", 20, spent)).await.problem(404, "unknown_flow");
    face.send(&head("/api/orders", 3 << 20, spent)).await.problem(413, "item_too_large");
    assert_eq!(policy(&face.send(&head("/api/orders", 20, spent)).await.problem(429, "run_exhausted")).0, "run.depth");
    assert_eq!(policy(&face.send(&head("/api/orders", 20, "Spillgate-Run: spent\r\n")).await.problem(429, "run_exhausted")).0, "run.calls");
    face.send(&head("/api/orders", 20, "")).await.problem(429, "in_flight_exceeded");
    drop(running);
    until("the hang-up to be seen", || face.tenant("agent", |tenant| tenant.gate.in_flight()) == 0).await;
    face.send(&head("/api/orders", 20, "")).await.problem(503, "memory_full");
    drop((memory, more_memory));
    face.send(&head("/api/orders", 20, "")).await.problem(429, "queue_full");
    // A refusal took nothing: of eight calls the three orders, the two of the run and the slow one are gone.
    let left = face.tenant("agent", |tenant| tenant.gate.rate_remaining(tenant.limits.rate, face.engine.started().elapsed()));
    assert_eq!(left, 2);
    for _ in 0..2 {
        // A reply gives its place back a moment after it is seen here.
        until("the place to be free", || face.tenant("agent", |tenant| tenant.gate.in_flight()) == 0).await;
        assert_eq!(face.get("agent-key", "/api/echo/1").await.status, 200);
    }
    face.send(&head("/api/orders", 20, spent)).await.problem(429, "rate_exceeded");
    let taken = face.tenant("agent", |tenant| (tenant.gate.in_flight(), tenant.gate.memory(), tenant.gate.runs().used("spent")));
    assert_eq!(taken, (0, 0, Some((2, 0, 0))));
}

#[tokio::test(flavor = "multi_thread")]
async fn control_is_never_behind_work() {
    let (face, store, _disk) = Face::start_durable().await;
    store.pause(&spillgate_queue::LaneName { queue: "orders".into(), tenant: "agent".into() }, true);
    face.reload_tenant(AGENT, &format!("{AGENT}rate = {{ rate = \"1/h\", burst = 2 }}\nin_flight = 1\n"));
    let queued = face.send(&with_body("POST", "agent-key", "/api/orders", r#"{"truck":1,"text":"x"}"#)).await;
    let href = queued.json()["job"]["href"].as_str().expect("a job").to_owned();
    let mut running = face.connect().await;
    running.write(get("agent-key", ENDLESS).as_bytes()).await;
    until("the call to run", || face.tenant("agent", |tenant| tenant.gate.in_flight()) == 1).await;
    let memory = face.tenant("agent", |tenant| {
        let rest = tenant.limits.memory - tenant.gate.memory();
        tenant.gate.reserve_memory(&tenant.limits, rest, face.engine.memory(), u64::MAX)
    });
    // The tenant has no rate, no place and no memory left.
    face.get("agent-key", "/api/echo/1").await.problem(429, "rate_exceeded");
    let look = face.get("agent-key", &href).await;
    assert_eq!((look.status, &look.json()["job"]["state"]), (200, &json!("queued")), "{}", look.body);
    let cancel = get("agent-key", &href).replacen("GET", "DELETE", 1);
    assert_eq!(face.send(&cancel).await.json()["job"]["state"], json!("cancelled"));
    // It is capped, by the same rate counted apart.
    face.get("agent-key", &href).await.problem(429, "rate_exceeded");
    assert_eq!(face.send("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.status, 200);
    drop(memory);
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_11_a_small_item_reserves_little_whatever_its_queue_takes() {
    let (face, _store, _disk) = Face::start_durable().await;
    let mut wire = face.connect().await;
    wire.write(b"POST /api/orders HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer agent-key\r\nContent-Length: 22\r\n\r\n{\"truck\":").await;
    let memory = || face.tenant("agent", |tenant| tenant.gate.memory());
    until("the call to be let in", || memory() > 0).await;
    assert!(memory() < 16 << 10, "{} bytes for a body of 22, in a queue that takes items of 2 MiB", memory());
    wire.write(b"1,\"text\":\"x\"}").await;
    assert_eq!(wire.reply().await.status, 202);
    patiently("the memory to be given back", async {
        while memory() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// A replay and a taken business key are told though no seat is to be had: they need none.
#[tokio::test(flavor = "multi_thread")]
async fn a_replay_and_a_taken_business_key_come_before_the_wait_for_a_seat() {
    let (face, _store, _disk) = Face::start_durable().await;
    let direct = crate::support::ORDER
        .replace("name = \"order\"", "name = \"direct\"")
        .replace("POST /orders", "POST /direct")
        .replace("deadline = \"5s\"", "deadline = \"5s\"\nunique = { by = [\"truck\"], within = \"1h\" }")
        .replace("[[step]]\nqueue = \"orders\"\n", "");
    face.reload_with("direct", &direct);
    let ask = |truck: i64, headers: &str| {
        with(&with_body("POST", "agent-key", "/api/direct", &format!(r#"{{"truck":{truck},"text":"x"}}"#)), headers)
    };
    let first = face.send(&ask(1, "Idempotency-Key: one\r\n")).await;
    assert_eq!(first.status, 200, "{}", first.body);
    // Every seat is held for as long as the others may wait.
    face.reload_tenant("statement_timeout = \"30s\"", "statement_timeout = \"30s\"\npool = { max = 1, line = 1 }");
    let mut running = face.connect().await;
    running.write(get("narrow-key", ENDLESS).as_bytes()).await;
    until("the call to run", || face.tenant("narrow", |tenant| tenant.gate.in_flight()) == 1).await;
    let soon = "Spillgate-Deadline-Ms: 300\r\n";
    let replay = face.send(&ask(1, &format!("Idempotency-Key: one\r\n{soon}"))).await;
    assert_eq!((replay.status, replay.body.as_str()), (200, first.body.as_str()));
    face.send(&ask(1, soon)).await.problem(409, "conflict_unique");
    face.send(&ask(2, soon)).await.problem(503, "wait_too_long");
    let memory = face.tenant("agent", |tenant| (tenant.gate.in_flight(), tenant.gate.memory()));
    assert_eq!(memory, (0, 0));
}
