//! The cache: one fill for many, fresh, stale and bounded.

use std::time::Duration;

use spillgate_connector::Failure;
use spillgate_engine::Outcome;
use spillgate_model::Code;

use crate::support::{ENDLESS, Settings, World, refusal, until};

fn cached(cache: &str, sql: &str) -> String {
    format!(
        r#"
name = "cached"
http = "GET /cached/{{id}}"
effect = "read"
deadline = "20s"
cache = {cache}
[input.id]
type = "integer"
[[step]]
name = "s"
database = "main"
sql = "{sql}"
"#
    )
}

const BY_ID: &str = "SELECT ID, NAME FROM ITEM WHERE ID = :id";

fn stale_of(outcome: &Outcome) -> Option<Duration> {
    match outcome {
        Outcome::Rows { stale, .. } | Outcome::Value { stale, .. } => *stale,
        other => panic!("no fresh reply: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_call_fills_for_all_that_wait() {
    let slow = "WITH RECURSIVE N(X) AS (SELECT 1 UNION ALL SELECT X + 1 FROM N WHERE X < 300000) SELECT count(*) + :id AS C FROM N";
    let world = World::new(&[&cached("{ fresh = \"60s\" }", slow)]);
    let calls: Vec<_> = (0..50)
        .map(|_| {
            let (engine, call) = (world.engine.clone(), world.call("cached", r#"{"id": 1}"#));
            tokio::spawn(async move { engine.run(call).await })
        })
        .collect();
    for call in calls {
        assert_eq!(stale_of(&call.await.expect("no panic")), None);
    }
    assert_eq!(world.faults.reads(), 1);
}

#[tokio::test]
async fn another_input_tenant_or_version_is_another_entry() {
    let (long, settings) = (cached("{ fresh = \"60s\" }", BY_ID), Settings::default());
    let world = World::new(&[&long]);
    for (tenant, input, reads) in [("one", 1, 1), ("one", 1, 1), ("one", 2, 2), ("two", 1, 3), ("two", 1, 3)] {
        let call = world.call_as(tenant, "cached", &format!(r#"{{"id": {input}}}"#));
        assert_eq!(stale_of(&world.engine.run(call).await), None);
        assert_eq!(world.faults.reads(), reads, "{tenant} {input}");
    }
    world.reload(&settings, &[&long.replace("SELECT ID, NAME", "SELECT NAME, ID")]).expect("applied");
    world.rows("cached", r#"{"id": 1}"#).await;
    assert_eq!(world.faults.reads(), 4);
}

#[tokio::test]
async fn a_failure_is_covered_by_an_older_reply_that_says_its_age() {
    let world = World::new(&[&cached("{ fresh = \"1ms\", stale_if_error = \"10min\" }", BY_ID)]);
    world.rows("cached", r#"{"id": 1}"#).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    *world.faults.all_reads.lock().expect("not poisoned") = Some(Failure::Refused);
    let age = stale_of(&world.run("cached", r#"{"id": 1}"#).await).expect("marked as stale");
    assert!(age >= Duration::from_millis(20), "{age:?}");
    // Without an older reply the failure is the answer.
    assert_eq!(world.refusal("cached", r#"{"id": 2}"#).await.code, Code::DatabaseError);
    *world.faults.all_reads.lock().expect("not poisoned") = None;
    assert_eq!(stale_of(&world.run("cached", r#"{"id": 1}"#).await), None);
}

#[tokio::test]
async fn an_older_reply_covers_no_longer_than_allowed() {
    let world = World::new(&[&cached("{ fresh = \"1ms\", stale_if_error = \"10ms\" }", BY_ID)]);
    world.rows("cached", r#"{"id": 1}"#).await;
    tokio::time::sleep(Duration::from_millis(30)).await;
    *world.faults.all_reads.lock().expect("not poisoned") = Some(Failure::Refused);
    assert_eq!(world.refusal("cached", r#"{"id": 1}"#).await.code, Code::DatabaseError);
}

#[tokio::test]
async fn a_filler_that_leaves_hands_over() {
    let slow = ENDLESS.replace("count(*) AS C", "count(*) + :id AS C");
    let world = World::new(&[&cached("{ fresh = \"60s\" }", &slow).replace("20s", "400ms")]);
    let mut filler = world.call("cached", r#"{"id": 1}"#);
    filler.flowfile.deadline += Duration::from_secs(60);
    let engine = world.engine.clone();
    let filler = tokio::spawn(async move { engine.run(filler).await });
    until("it fills", || world.faults.reads() == 1).await;
    let mut waiter = world.call("cached", r#"{"id": 1}"#);
    waiter.flowfile.deadline += Duration::from_secs(60);
    let engine = world.engine.clone();
    let waiter = tokio::spawn(async move { engine.run(waiter).await });
    // One that cannot wait that long leaves by its own deadline, without a statement.
    assert_eq!(refusal(world.engine.run(world.call("cached", r#"{"id": 1}"#)).await).code, Code::DeadlineExceeded);
    assert_eq!(world.faults.reads(), 1);
    filler.abort();
    until("the other one fills", || world.faults.reads() == 2).await;
    waiter.abort();
    until("all is given back", || world.seats().in_use + world.seats().ending == 0).await;
}

#[tokio::test]
async fn failures_are_shared_by_those_that_waited_and_kept_for_nobody() {
    let world = World::new(&[&cached("{ fresh = \"60s\" }", BY_ID)]);
    world.faults.fail_reads([Failure::Refused]);
    assert_eq!(world.refusal("cached", r#"{"id": 1}"#).await.code, Code::DatabaseError);
    assert_eq!(world.rows("cached", r#"{"id": 1}"#).await.len(), 1);
}

#[tokio::test]
async fn the_cache_never_holds_more_than_it_may() {
    let settings = Settings { cache: Some("64KiB"), ..Settings::default() };
    let world = World::with(&settings, &[&cached("{ fresh = \"60s\" }", BY_ID)]);
    for id in 1..=151 {
        world.rows("cached", &format!(r#"{{"id": {id}}}"#)).await;
        assert!(world.engine.cached_bytes() <= 16 * 1024, "of one tenant a quarter");
        // Asked for all the time: it stays.
        world.rows("cached", r#"{"id": 1}"#).await;
    }
    assert!(world.engine.cached_bytes() > 8 * 1024);
    assert_eq!(world.faults.reads(), 151);
}

#[tokio::test]
async fn what_one_tenant_has_cached_is_safe_from_all_that_another_asks_for() {
    let settings = Settings { cache: Some("64KiB"), ..Settings::default() };
    for shared in ["", ", shared = true"] {
        let long = format!("{{ fresh = \"60s\", stale_if_error = \"1h\"{shared} }}");
        let world = World::with(&settings, &[&cached(&long, BY_ID)]);
        let ask = async |tenant, id| world.engine.run(world.call_as(tenant, "cached", &format!(r#"{{"id": {id}}}"#))).await;
        for id in 1..=10 {
            assert_eq!(stale_of(&ask("two", id).await), None);
        }
        for id in 11..=300 {
            assert_eq!(stale_of(&ask("one", id).await), None);
        }
        *world.faults.all_reads.lock().expect("not poisoned") = Some(Failure::Refused);
        for id in 1..=10 {
            assert_eq!(stale_of(&ask("two", id).await), None, "{id} is as fresh as it was");
        }
        assert_eq!(world.faults.reads(), 300);
    }
}
