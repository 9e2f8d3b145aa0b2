//! Queues, lanes, dead letters, jobs and the audit, before a real store.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use spillgate_queue::clock::MachineClock;
use spillgate_queue::disk::simulated::SimulatedDisk;
use spillgate_queue::{Appended, Appending, End, JobId, JobState, LaneName, Need, NewItem, QueueLimits, Store, StoreOptions};

use crate::support::{Face, KEY, face};

const LANE: &str = "/admin/v1/queues/bookings/lanes/agent";
const PROBLEM: &str = r#"{"type":"/problems/database_error","code":"database_error","status":502}"#;

fn lane(queue: &str, tenant: &str) -> LaneName {
    LaneName { queue: queue.into(), tenant: tenant.into() }
}

/// A face with a store; no worker takes anything of the lane.
async fn durable() -> (Face, Store) {
    let face = face().await;
    let disk = Arc::new(SimulatedDisk::new(7));
    let options = StoreOptions { disk, clock: Arc::new(MachineClock::default()), disk_limit: 16 << 20, disk_reserve: 0 };
    let store = Store::open(options).expect("the store opens");
    store.pause(&lane("bookings", "agent"), true);
    face.engine.attach_store(store.clone());
    (face, store)
}

async fn append(store: &Store, lane: &LaneName, claimed: bool) -> Appended {
    let no = u64::MAX;
    let limits = QueueLimits {
        queue_items: no,
        queue_bytes: no,
        tenant_items: no,
        tenant_bytes: no,
        tenant_disk: no,
        shared: false,
        item_bytes: 1_024,
        outcome_bytes: 1_024,
    };
    let room = store.reserve(lane, Need { items: 1, bytes: 100, shed_oldest: false }, &limits).expect("there is room");
    let item = NewItem { content: vec![7; 100].into(), claimed, ..NewItem::default() };
    store.append(Appending { room, items: vec![item] }).await.expect("it is kept").pop().expect("one")
}

/// Items that wait.
async fn fill(store: &Store, lane: &LaneName, count: usize) {
    for _ in 0..count {
        append(store, lane, false).await;
    }
}

/// A job of the lane that ended so.
async fn ended(store: &Store, state: JobState) -> JobId {
    let Appended::New { job, lease: Some(lease) } = append(store, &lane("bookings", "agent"), true).await else {
        panic!("it was claimed");
    };
    let keep = Duration::from_secs(3_600);
    let end = End { state, outcome: Some(PROBLEM.into()), keep, frees_keys: false, emits: Vec::new(), note: None };
    store.finish(lease, end).await.expect("it ends");
    job
}

#[tokio::test]
async fn d2_an_operator_sees_what_waits_and_why() {
    let (face, store) = durable().await;
    fill(&store, &lane("bookings", "agent"), 3).await;
    let page = face.get("/admin/v1/queues").await.json();
    assert_eq!((&page["store"]["state"], &page["store"]["disk_limit_bytes"]), (&json!("serving"), &json!(2_u64 << 30)), "{page}");
    let queue = page["queues"].as_array().expect("queues").iter().find(|queue| queue["name"] == "bookings").expect("it is there").clone();
    assert_eq!((&queue["totals"]["waiting"], &queue["totals"]["bytes"]), (&json!(3), &json!(300)), "{queue}");
    assert_eq!(queue["settings"]["items"]["limit"], 5);
    let shown = face.get(LANE).await.json();
    assert_eq!((&shown["waiting"], &shown["paused"], &shown["head"]["waits_for"]), (&json!(3), &json!(true), &json!("paused")), "{shown}");
    assert!(shown["oldest_item_age_ms"].is_u64() && shown["disk_bytes"].as_u64() >= Some(65_536), "{shown}");
    let usage = face.get("/admin/v1/tenants/agent/usage").await.json();
    assert_eq!((&usage["queued.items"]["used"], &usage["queued.bytes"]["used"]), (&json!(3), &json!(300)));
    assert_eq!(usage["queued.disk"]["used"], shown["disk_bytes"]);
    let metrics = face.get("/metrics").await.body;
    let labels = r#"queue="bookings",tenant="agent""#;
    for line in [
        format!("spillgate_queue_waiting{{{labels}}} 3\n"),
        format!("spillgate_queue_paused{{{labels}}} 1\n"),
        format!("spillgate_queue_appended_total{{{labels}}} 3\n"),
        format!("spillgate_queue_head_wait_seconds{{{labels},waits=\"paused\"}}"),
        "spillgate_store_state{state=\"serving\"} 1\n".to_owned(),
    ] {
        assert!(metrics.contains(&line), "{line} in {metrics}");
    }
    assert_eq!(face.get("/admin/v1/queues/bookings/lanes/nobody").await.code(), "unknown_page");
}

#[tokio::test]
async fn a_lane_is_purged_by_one_request_and_the_audit_knows_by_whom() {
    let (face, store) = durable().await;
    fill(&store, &lane("bookings", "agent"), 4).await;
    ended(&store, JobState::Dead).await;
    let reply = face.post(&format!("{LANE}/purge"), "").await;
    assert_eq!((reply.status, reply.json()), (200, json!({ "purged": 4, "audited": true })), "{}", reply.body);
    let shown = face.get(LANE).await.json();
    assert_eq!((&shown["waiting"], &shown["dead"], &shown["ended"]["purged"]), (&json!(0), &json!(1), &json!(4)), "{shown}");
    assert_eq!(face.post(&format!("{LANE}/purge"), r#"{"dead":true}"#).await.status, 200);
    assert_eq!(face.get(LANE).await.json()["dead"], 0);
    let entry = face.get("/admin/v1/audit?limit=1").await.json();
    let first = &entry["entries"][0];
    assert_eq!(
        (&first["who"], &first["action"], &first["subject"]),
        (&json!("alice"), &json!("purge"), &json!("queues/bookings/lanes/agent"))
    );
    assert_eq!((&first["from"], &first["to"], &first["outcome"]), (&json!("4 waiting, 1 dead"), &json!("4 purged"), &json!("done")));
    assert_eq!((&first["remote"], &entry["next"]), (&json!("127.0.0.1"), &json!(1)));
    assert_eq!(face.get("/admin/v1/audit?after=1").await.json()["entries"].as_array().map(Vec::len), Some(1));
    for (body, code) in [(r#"{"daed":true}"#, "malformed"), ("[", "malformed")] {
        assert_eq!(face.post(&format!("{LANE}/purge"), body).await.code(), code);
    }
}

#[tokio::test]
async fn c8_a_page_of_another_origin_purges_nothing() {
    let (face, store) = durable().await;
    fill(&store, &lane("bookings", "agent"), 2).await;
    for headers in ["Origin: http://attacker.test\r\n", "Host: attacker.test\r\n"] {
        let reply = face.send(&format!("POST {LANE}/purge"), &format!("{KEY}{headers}"), "").await;
        assert_eq!((reply.status, reply.code().as_str()), (403, "forbidden"));
    }
    assert_eq!(store.lanes(None)[0].waiting, 2);
    assert!(face.server.changes().is_empty());
}

#[tokio::test]
async fn a_pause_is_kept_and_where_it_cannot_be_it_still_pauses() {
    let (face, store) = durable().await;
    fill(&store, &lane("bookings", "agent"), 1).await;
    let resumed = face.post(&format!("{LANE}/resume"), "").await.json();
    assert_eq!(resumed, json!({ "paused": false, "forgotten_at_restart": null, "audited": true }));
    let paused = face.post(&format!("{LANE}/pause"), "").await.json();
    assert_eq!(paused["paused"], true);
    assert_eq!(*face.server.paused.lock().expect("unharmed"), [lane("bookings", "agent")]);
    let change = face.server.changes().pop().expect("it is in the audit");
    assert_eq!((change.action.as_str(), change.from.as_deref(), change.to.as_deref()), ("pause", Some("running"), Some("paused")));
    face.post(&format!("{LANE}/resume"), "").await;
    face.server.keeps_nothing.store(true, Ordering::Relaxed);
    let reply = face.post(&format!("{LANE}/pause"), "").await.json();
    assert_eq!(reply, json!({ "paused": true, "forgotten_at_restart": "the control store is full", "audited": false }));
    assert!(store.lanes(None)[0].paused);
    assert_eq!(face.post("/admin/v1/queues/nothing/lanes/agent/pause", "").await.code(), "unknown_page");
    // Nothing would stop there.
    assert_eq!(face.post("/admin/v1/queues/(schedule)/lanes/agent/pause", "").await.code(), "wrong_state");
}

#[tokio::test]
async fn dead_letters_are_listed_in_pages_and_replayed_while_there_is_room() {
    let (face, store) = durable().await;
    let mut letters = Vec::new();
    for _ in 0..7 {
        letters.push(ended(&store, JobState::Dead).await.to_string());
    }
    let first = face.get(&format!("{LANE}/dead?limit=3")).await.json();
    let jobs = |page: &serde_json::Value| -> Vec<String> {
        page["dead"].as_array().expect("letters").iter().map(|letter| letter["job"].as_str().expect("an id").to_owned()).collect()
    };
    assert_eq!((jobs(&first), &first["next"]), (letters[..3].to_vec(), &json!(letters[2])), "{first}");
    assert_eq!((&first["dead"][0]["problem"]["code"], &first["dead"][0]["bytes"]), (&json!("database_error"), &json!(100)));
    let rest = face.get(&format!("{LANE}/dead?after={}", letters[2])).await.json();
    assert_eq!((jobs(&rest), &rest["next"]), (letters[3..].to_vec(), &json!(null)));
    let wanted = json!({ "jobs": [letters[6], "ffff-1"] }).to_string();
    let some = face.post(&format!("{LANE}/dead/replay"), &wanted).await.json();
    assert_eq!((&some["replayed"][0]["letter"], &some["refused"][0]["code"]), (&json!(letters[6]), &json!("unknown_job")), "{some}");
    let new_job: JobId = some["replayed"][0]["job"].as_str().and_then(|job| job.parse().ok()).expect("a job");
    assert_eq!(store.job(new_job).map(|job| job.state), Some(JobState::Queued));
    // The queue takes five items: one is there, four more have room.
    let all = face.post(&format!("{LANE}/dead/replay"), r#"{"all":true}"#).await.json();
    let count = |name: &str| all[name].as_array().map(Vec::len);
    assert_eq!((count("replayed"), count("refused"), &all["more"]), (Some(4), Some(1), &json!(true)), "{all}");
    assert_eq!(all["refused"][0]["code"], "queue_full");
    let shown = face.get(LANE).await.json();
    assert_eq!((&shown["waiting"], &shown["dead"]), (&json!(5), &json!(2)));
    for body in ["", "{}", r#"{"all":true,"jobs":["1-1"]}"#, r#"{"jobs":[]}"#] {
        assert_eq!(face.post(&format!("{LANE}/dead/replay"), body).await.code(), "malformed", "{body}");
    }
    for query in ["limit=x", "after=nonsense", "page=2"] {
        assert!(face.get(&format!("{LANE}/dead?{query}")).await.status >= 400, "{query}");
    }
}

#[tokio::test]
async fn promise_7_only_an_unknown_job_is_resolved_and_by_a_person() {
    let (face, store) = durable().await;
    let (unknown, other, dead) =
        (ended(&store, JobState::Unknown).await, ended(&store, JobState::Unknown).await, ended(&store, JobState::Dead).await);
    let path = |job: JobId| format!("/admin/v1/jobs/{job}/resolve");
    for body in ["", "{}", r#"{"state":"queued"}"#, r#"{"state":"succeeded","x":1}"#] {
        assert_eq!(face.post(&path(unknown), body).await.code(), "malformed", "{body}");
    }
    let reply = face.post(&path(unknown), r#"{"state":"succeeded","note":"Row 7 is there."}"#).await;
    assert_eq!((reply.status, reply.json()["state"].clone()), (200, json!("succeeded")), "{}", reply.body);
    assert_eq!(store.job(unknown).map(|job| job.state), Some(JobState::Succeeded));
    assert_eq!(face.post(&path(unknown), r#"{"state":"failed"}"#).await.code(), "wrong_state", "it has ended");
    assert_eq!(face.post(&path(dead), r#"{"state":"failed"}"#).await.code(), "wrong_state", "nobody has to find anything out");
    assert_eq!(face.post(&path(other), r#"{"state":"failed","note":"No row."}"#).await.status, 200);
    let outcome = store.outcome(other).await.expect("it can be read").expect("it is kept");
    let problem: serde_json::Value = serde_json::from_slice(&outcome).expect("JSON");
    assert_eq!((&problem["code"], &problem["retryable"]), (&json!("database_error"), &json!(true)), "{problem}");
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.ends_with("No row.")), "{problem}");
    assert_eq!(face.post("/admin/v1/jobs/ffff-1/resolve", r#"{"state":"failed"}"#).await.code(), "unknown_job");
    assert!(face.get("/metrics").await.body.contains("spillgate_interrupted_writes_total{by=\"operator\"} 2\n"));
    let outcomes: Vec<String> = face.server.changes().into_iter().map(|change| change.outcome).collect();
    assert_eq!(outcomes.iter().filter(|outcome| *outcome == "done").count(), 2, "what was refused is there too: {outcomes:?}");
    assert_eq!(outcomes.len(), 5);
}

#[tokio::test]
async fn until_the_store_serves_it_is_said_and_nothing_is_changed() {
    let face = face().await;
    assert_eq!(face.get("/admin/v1/queues").await.json()["store"]["state"], "recovering");
    assert_eq!(face.post(&format!("{LANE}/purge"), "").await.code(), "recovering");
    assert_eq!(face.get(LANE).await.code(), "recovering");
    assert_eq!(face.get("/admin/v1/tenants/agent/usage").await.json()["queued.items"]["used"], json!(null));
    assert!(face.get("/metrics").await.body.contains("spillgate_store_state{state=\"recovering\"} 1\n"));
    face.engine.store_failed("no such folder".into());
    let page = face.get("/admin/v1/queues").await.json();
    assert_eq!((&page["store"]["state"], &page["store"]["detail"]), (&json!("failed"), &json!("no such folder")));
    assert_eq!(face.post(&format!("{LANE}/pause"), "").await.code(), "store_failed");
    assert!(face.get("/metrics").await.body.contains("spillgate_store_state{state=\"failed\"} 1\n"));
}

#[tokio::test]
async fn e8_lanes_that_the_plan_does_not_have_share_a_label() {
    let (face, store) = durable().await;
    for number in 0..40 {
        fill(&store, &lane("gone", &format!("tenant-{number}")), 1).await;
    }
    let metrics = face.get("/metrics").await.body;
    assert!(metrics.contains("spillgate_queue_waiting{queue=\"other\",tenant=\"other\"} 40\n"), "{metrics}");
    assert!(!metrics.contains("tenant-7"));
    let page = face.get("/admin/v1/queues").await.json();
    let gone = page["queues"].as_array().expect("queues").iter().find(|queue| queue["name"] == "gone").expect("it can be seen").clone();
    assert_eq!((&gone["settings"], &gone["totals"]["waiting"]), (&json!(null), &json!(40)));
    let purged = face.post("/admin/v1/queues/gone/lanes/tenant-7/purge", "").await.json();
    assert_eq!(purged["purged"], 1, "what the plan does not have can still be emptied");
}
