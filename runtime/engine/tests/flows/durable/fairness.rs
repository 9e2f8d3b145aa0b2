//! Workers among tenants.

use std::convert::Infallible;
use std::sync::Arc;

use serde_json::json;
use spillgate_config::{Override, Overrides};
use spillgate_queue::JobState;

use super::rig::{Ground, view};

/// KIND tells how many rows there were when a row was added.
const ADD: &str = r#"
name = "add"
http = "POST /add"
effect = "write"
deadline = "20s"
[input.id]
type = "integer"
[[step]]
queue = "work"
[[step]]
name = "row"
database = "main"
sql = "INSERT INTO ITEM (ID, NAME, KIND) VALUES (:id, 'added', (SELECT count(*) FROM ITEM WHERE NAME = 'added'))"
max_affected = 1
"#;

#[test]
fn e5_a_burst_of_800_items_does_not_hold_up_another_tenants_only_one() {
    let ground = Ground::new("[queue.work]\nworkers = 1\n", &[ADD]);
    let life = ground.start();
    life.pause("work", "one", true);
    life.pause("work", "two", true);
    let burst: Vec<_> = (1..=800).map(|id| life.send_call(life.call("one", "add", &format!(r#"{{"id": {}}}"#, 1_000 + id)))).collect();
    for call in burst {
        view(life.block_on("an append", call).expect("no panic"));
    }
    let only = life.append_as("two", "add", r#"{"id": 1000}"#);
    assert_eq!(life.lane("work", "one").waiting, 800);
    life.pause("work", "one", false);
    life.until("the burst is at work", || life.lane("work", "one").waiting < 799);
    let before = ground.count("SELECT count(*) FROM ITEM WHERE NAME = 'added'");
    life.pause("work", "two", false);
    assert_eq!(life.end(only).0, JobState::Succeeded);
    let turn = ground.count("SELECT KIND FROM ITEM WHERE ID = 1000") - before;
    assert!(turn < 20, "{turn} items of the burst went first");
    let counted = |tenant: &str| format!("spillgate_queue_wait_seconds_count{{queue=\"work\",tenant=\"{tenant}\"}} ");
    life.until("waits of both are counted", || {
        let metrics = life.faults.metrics();
        metrics.contains(&format!("{}1\n", counted("two"))) && metrics.contains(&counted("one"))
    });
}

/// Nothing is appended meanwhile: whoever raises a weight because of a backlog need not wait for its end.
#[test]
fn promise_5_a_weight_that_is_set_while_the_server_runs_acts_on_a_backlog_nobody_adds_to() {
    const EACH: u64 = 100;
    let ground = Ground::new("[queue.work]\nworkers = 1\n", &[ADD]);
    let life = ground.start();
    let tenants = ["one", "two"];
    tenants.iter().for_each(|tenant| life.pause("work", tenant, true));
    for tenant in tenants {
        let id = |number: u64| number + if tenant == "one" { 1_000 } else { 2_000 };
        let burst = (0..EACH).map(|number| life.send_call(life.call(tenant, "add", &format!(r#"{{"id": {}}}"#, id(number)))));
        for call in burst.collect::<Vec<_>>() {
            view(life.block_on("an append", call).expect("no panic"));
        }
    }
    tenants.iter().for_each(|tenant| life.pause("work", tenant, false));
    let waiting = |tenant: &str| life.lane("work", tenant).waiting;
    life.until("both are at work, in turn", || tenants.iter().all(|tenant| waiting(tenant) < EACH - 10));
    let heavier = Override::read(&json!({ "weight": 9 })).expect("a limit of a tenant");
    let overrides = Overrides::from([(Arc::from("two"), Arc::new(heavier))]);
    let Ok(()) = life.engine.change_overrides(|_| Ok::<_, Infallible>(overrides));
    life.until("the heavier one is through", || waiting("two") == 0);
    let left = waiting("one");
    assert!(left > EACH / 2, "nine turns to one: only {left} of {EACH} are left");
}
