//! The budget for retries, on a real SQLite file that is told to fail.

use std::sync::atomic::Ordering;

use spillgate_connector::Failure;
use spillgate_engine::Outcome;
use spillgate_model::Code;

use crate::support::{Settings, World, patiently, refusal, until};

const EAGER: &str = r#"
name = "eager"
http = "GET /eager"
effect = "read"
deadline = "25s"
[[step]]
name = "s"
database = "main"
sql = "SELECT count(*) AS N FROM ITEM"
retry = { attempts = 3, backoff = "50ms" }
"#;

/// Whatever fails, calls go on.
fn unbroken() -> Settings {
    Settings { pool: Some("{ max = 8, line = 500, shed = \"off\" }\nbreaker = \"off\""), ..Settings::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e3_of_400_calls_that_fail_together_at_most_100_are_tried_again() {
    let world = World::with(&unbroken(), &[EAGER]);
    world.fail_all(Some(Failure::Passing));
    // They begin together: the first ones wait in the database for the last one to come.
    world.faults.reads_wait.store(8, Ordering::SeqCst);
    let calls: Vec<_> = (0..400).map(|_| world.spawn("eager")).collect();
    until("all are there", || world.seats().in_use + world.seats().waiting == 400).await;
    world.faults.reads_wait.store(0, Ordering::SeqCst);
    world.faults.reads_go.notify_waiters();
    let mut spent = 0;
    for call in calls {
        let refused = refusal(patiently("a call", call).await.expect("no panic"));
        assert_eq!(refused.code, Code::DatabaseError);
        spent += usize::from(refused.detail.contains("the budget for retries is spent"));
    }
    let again = world.faults.reads() - 400;
    assert!((1..=100).contains(&again), "{again} retries reached the database");
    assert!(spent >= 300, "{spent} calls were told why they were not tried again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e3_a_tenant_whose_calls_all_fail_takes_no_other_tenants_retries_away() {
    let world = World::with(&unbroken(), &[EAGER]);
    world.fail_all(Some(Failure::Passing));
    let failing: Vec<_> = (0..100).map(|_| world.spawn_as("one", "eager")).collect();
    let mut spent = 0;
    for call in failing {
        let refused = refusal(patiently("a call", call).await.expect("no panic"));
        spent += usize::from(refused.detail.contains("the budget for retries is spent"));
    }
    assert!(spent >= 75, "{spent} calls of the first one found its budget spent");
    world.fail_all(None);
    for settings in [unbroken(), Settings { more: "[tenant.early]\nkeys = [\"key-of-early\"]\n".into(), ..unbroken() }] {
        // Also under another plan, in which it has another place.
        world.reload(&settings, &[EAGER]).expect("the plan is good");
        for _ in 0..5 {
            world.faults.fail_reads([Failure::Passing]);
            let outcome = patiently("a call", world.spawn_as("two", "eager")).await.expect("no panic");
            assert!(matches!(outcome, Outcome::Rows { .. }), "it fails once and is tried again: {outcome:?}");
        }
        world.faults.fail_reads([Failure::Passing]);
        let refused = refusal(patiently("a call", world.spawn_as("one", "eager")).await.expect("no panic"));
        assert!(refused.detail.contains("the budget for retries is spent"), "the first one's is: {refused}");
    }
}
