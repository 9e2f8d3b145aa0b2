//! `emit`: items that exist if and only if the end of their source does.

use std::sync::atomic::Ordering;

use spillgate_engine::HeldBy;
use spillgate_queue::JobState;

use super::rig::{Ground, view};

/// Takes ids and hands each item of that kind on.
const SOURCE: &str = r#"
name = "source"
http = "POST /source"
effect = "write"
deadline = "20s"
[input.kind]
type = "integer"
[[step]]
queue = "first"
[[step]]
name = "items"
database = "main"
sql = "SELECT ID FROM ITEM WHERE KIND = :kind ORDER BY ID"
columns = { ID = "integer" }
[[step]]
name = "mark"
database = "main"
sql = "UPDATE STOCK SET AMOUNT = AMOUNT + 1000 WHERE ID = 1"
max_affected = 1
[[step]]
emit = "target"
each = "steps.items.rows.map(row, {'id': row.ID})"
[[step]]
map = "{'handed_on': size(steps.items.rows)}"
"#;

const TARGET: &str = r#"
name = "target"
effect = "write"
deadline = "20s"
[input.id]
type = "integer"
required = true
[[step]]
queue = "second"
[[step]]
name = "stock"
database = "main"
sql = "UPDATE STOCK SET AMOUNT = AMOUNT + 1 WHERE ID = 1 AND :id > 0"
max_affected = 1
"#;

const QUEUES: &str = "[queue.first]\nworkers = 2\n[queue.second]\nworkers = 2\n";

#[test]
fn each_row_is_handed_on_with_the_end_of_its_source() {
    let ground = Ground::new(QUEUES, &[SOURCE, TARGET]);
    let life = ground.start();
    let job = life.append("source", r#"{"kind": 3}"#);
    assert_eq!(life.end(job), (JobState::Succeeded, r#"{"handed_on":15}"#.into()));
    life.until("all of them ran", || ground.stock() == 1_015);
    let status = life.store().status();
    assert_eq!(status.appended, 16);
}

#[test]
fn a_full_target_holds_its_source_back_and_nothing_of_it_is_done() {
    let queues = "[queue.first]\nworkers = 1\nattempts = 1\n[queue.second]\nitems = 15\n";
    let ground = Ground::new(queues, &[SOURCE, &TARGET.replace("effect", "http = \"POST /target\"\neffect")]);
    let life = ground.start();
    life.ended(life.append("target", r#"{"id": 1}"#));
    life.pause("second", "one", true);
    let blocking = life.append("target", r#"{"id": 1}"#);
    let job = life.append("source", r#"{"kind": 3}"#);
    life.until("the source is held back", || {
        life.engine.held_lanes().iter().any(|held| held.by == HeldBy::Target && &*held.lane.queue == "first")
    });
    assert_eq!((ground.stock(), life.lane("second", "one").waiting), (1, 1));
    life.cancel("one", blocking).expect("it waits");
    assert_eq!(life.end(job).0, JobState::Succeeded);
    assert_eq!(life.store().job(job).expect("it is kept").attempts, 1);
    life.pause("second", "one", false);
    life.until("all of them ran", || ground.stock() == 1_016);
}

#[test]
fn what_could_never_fit_its_target_fails_the_source() {
    let ground = Ground::new("[queue.first]\n[queue.second]\nitems = 14\n", &[SOURCE, TARGET]);
    let life = ground.start();
    let (state, said) = life.end(life.append("source", r#"{"kind": 3}"#));
    assert_eq!(state, JobState::Failed);
    assert!(said.contains("\"code\":\"item_too_large\"") && said.contains("\"limit\":14"), "{said}");
    assert_eq!(ground.stock(), 0);
}

#[test]
fn what_its_target_would_refuse_fails_the_source() {
    let picky = TARGET.replace("required = true", "required = true\nmax = 100");
    let ground = Ground::new(QUEUES, &[SOURCE, &picky]);
    let life = ground.start();
    let (state, said) = life.end(life.append("source", r#"{"kind": 3}"#));
    assert_eq!(state, JobState::Failed);
    assert!(said.contains("cannot hand on to target"), "{said}");
    assert_eq!((ground.stock(), life.store().status().appended), (0, 1));
}

#[test]
fn promise_2_a_crash_hands_on_all_or_nothing() {
    let ground = Ground::new(QUEUES, &[SOURCE, TARGET]);
    let life = ground.start();
    life.faults.writes_wait.store(true, Ordering::SeqCst);
    let job = life.append("source", r#"{"kind": 3}"#);
    life.until("the source is at work", || life.faults.writes_waiting.load(Ordering::SeqCst) == 1);
    let disk = life.crash();
    let life = ground.start_on(disk);
    // Nothing tells whether its write was done: it is not run again, and nothing was handed on.
    assert_eq!(life.end(job).0, JobState::Unknown);
    assert_eq!((ground.stock(), life.store().lanes(Some("second")).len()), (0, 0));
}

#[test]
fn one_value_is_handed_on_with_the_run_and_a_hop_more() {
    let single = r#"
name = "single"
http = "POST /single"
effect = "write"
deadline = "20s"
[input.id]
type = "integer"
[[step]]
queue = "first"
[[step]]
map = "{'id': input.id + 1}"
[[step]]
emit = "target"
"#;
    let ground = Ground::new(QUEUES, &[single, TARGET]);
    let life = ground.start();
    let mut call = life.call("one", "single", r#"{"id": 1}"#);
    (call.flowfile.run, call.depth) = (Some("a-run".into()), 2);
    let job = view(life.run_call(call)).id;
    assert_eq!(life.end(job), (JobState::Succeeded, r#"{"id":2}"#.into()));
    life.until("it ran", || ground.stock() == 1);
}

#[test]
fn promise_2_what_was_handed_on_before_a_crash_runs_once_after_it() {
    let ground = Ground::new(QUEUES, &[SOURCE, TARGET]);
    let life = ground.start();
    // One that ran, so that the lane is there to be paused.
    life.ended(life.append("source", r#"{"kind": 3}"#));
    life.until("all of them ran", || ground.stock() == 1_015);
    life.pause("second", "one", true);
    assert_eq!(life.end(life.append("source", r#"{"kind": 4}"#)).0, JobState::Succeeded);
    assert_eq!((ground.stock(), life.lane("second", "one").waiting), (2_015, 15));
    let disk = life.crash();
    let life = ground.start_on(disk);
    life.until("all of them ran", || ground.stock() == 2_030);
    assert_eq!(life.lane("second", "one").waiting, 0);
}
