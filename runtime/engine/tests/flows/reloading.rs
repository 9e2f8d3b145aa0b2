//! Reload: calls that run go on, what tenants have taken stays, a fault changes nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use spillgate_engine::Outcome;
use spillgate_model::Code;

use crate::support::{Settings, World, patiently, until};

const SLOW: &str = r#"
name = "slow"
http = "GET /slow"
effect = "read"
deadline = "20s"
[[step]]
name = "s"
database = "main"
sql = "WITH RECURSIVE N(X) AS (SELECT 1 UNION ALL SELECT X + 1 FROM N WHERE X < 600000) SELECT 'old' AS PLAN, count(*) AS C FROM N"
"#;

const QUICK: &str = r#"
name = "slow"
http = "GET /slow"
effect = "read"
deadline = "20s"
[[step]]
name = "s"
database = "main"
sql = "SELECT 'new' AS PLAN"
"#;

async fn plan_of(outcome: Outcome) -> String {
    let Outcome::Rows { rows, .. } = outcome else { panic!("{outcome:?}") };
    rows.text(rows.row(0)[0]).to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c9_a_call_ends_under_the_plan_it_began_with() {
    let world = World::new(&[SLOW]);
    let running = world.spawn("slow");
    until("it runs", || world.faults.reads() == 1).await;
    let pool = Settings { pool: Some("{ max = 3 }"), ..Settings::default() };
    world.reload(&pool, &[QUICK]).expect("applied");
    assert_eq!(plan_of(world.run("slow", "{}").await).await, "new");
    assert_eq!(plan_of(running.await.expect("no panic")).await, "old");
}

#[tokio::test]
async fn c9_pools_and_what_tenants_have_taken_outlive_a_reload() {
    let world = World::new(&[QUICK]);
    world.rows("slow", "{}").await;
    let before = world.engine.live();
    let gate = before.tenants[0].gate.clone();
    let entering = spillgate_admission::Entering { run: None, depth: 0, memory: 1_000, now: Duration::ZERO };
    let permit = gate.enter(&before.tenants[0].limits, &entering, world.engine.memory(), u64::MAX).expect("room");
    world.reload(&Settings::default(), &[SLOW]).expect("applied");
    let after = world.engine.live();
    assert_eq!((after.tenants[0].gate.in_flight(), after.tenants[0].gate.memory()), (1, 1_000));
    drop(permit);
    assert_eq!(after.tenants[0].gate.in_flight(), 0);
    world.reload(&Settings::default(), &[QUICK]).expect("applied");
    world.rows("slow", "{}").await;
    assert_eq!(world.faults.connects.load(Ordering::SeqCst), 1);
    // More sessions are another pool; the old one keeps nothing open.
    let other = Settings { pool: Some("{ max = 3 }"), ..Settings::default() };
    world.reload(&other, &[QUICK]).expect("applied");
    assert_eq!(after.databases[0].status().seats.idle, 0);
    world.rows("slow", "{}").await;
    assert_eq!(world.faults.connects.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn c9_what_concerns_no_session_changes_while_they_are_open_and_calls_wait() {
    let all = || "[tenant.one.database.main]\nseats = { limit = 2 }\n".to_owned();
    let pool = |pool| Settings { pool: Some(pool), more: all(), ..Settings::default() };
    let world = World::with(&pool("{ max = 2, line = 1, fast_only = 1 }"), &[QUICK]);
    world.faults.reads_wait.store(2, Ordering::SeqCst);
    let holder = world.spawn("slow");
    until("the seat is taken", || world.faults.reads() == 1).await;
    let mut calls = vec![holder, world.spawn("slow")];
    until("the other seat is kept, and the line full", || world.seats().waiting == 1).await;
    assert_eq!(world.refusal("slow", "{}").await.code, Code::Overloaded);
    let other = pool("{ max = 2, line = 2, fast_only = 0, shed = \"off\", idle = \"1h\" }\nbreaker = \"off\"");
    world.reload(&other, &[QUICK]).expect("applied");
    until("who waited has the other seat", || world.faults.reads() == 2).await;
    calls.extend([world.spawn("slow"), world.spawn("slow")]);
    until("two may wait", || world.seats().waiting == 2).await;
    world.faults.reads_go.notify_one();
    world.faults.reads_go.notify_one();
    for call in calls {
        assert_eq!(plan_of(patiently("a call", call).await.expect("no panic")).await, "new");
    }
    assert_eq!((world.faults.connects.load(Ordering::SeqCst), world.seats().idle), (2, 2));
}

#[tokio::test]
async fn c9_a_fault_changes_nothing_that_runs() {
    let world = World::new(&[QUICK]);
    let before = world.engine.live();
    let odbc = "[database.main]\ndriver = \"odbc\"\nconnection = \"Driver=none\"\n";
    let server = std::fs::read_to_string(world.folder.join("server.toml")).expect("there");
    let start = server.find("[database.main]").expect("a section");
    let end = server.find("[tenant.one]").expect("a section");
    std::fs::write(world.folder.join("server.toml"), format!("{}{odbc}{}", &server[..start], &server[end..])).expect("written");
    let plan = spillgate_config::load(&world.folder.join("server.toml")).unwrap_or_else(|faults| panic!("{faults:#?}"));
    let faults = world.engine.apply(Arc::new(plan)).expect_err("there is no such connector");
    assert_eq!(faults, ["database main: no such connector in this test"]);
    assert!(Arc::ptr_eq(&before, &world.engine.live()));
    assert_eq!(plan_of(world.run("slow", "{}").await).await, "new");
}
