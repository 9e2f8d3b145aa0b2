//! Crashes and stops: what was acknowledged ends in exactly one state.

use std::sync::atomic::Ordering;

use spillgate_queue::JobState;

use super::rig::{BOOK, Ground, LOOK, QUEUE};

#[test]
fn promise_2_items_outlive_a_crash_and_run_once() {
    let ground = Ground::new(QUEUE, &[BOOK]);
    let life = ground.start();
    life.ended(life.append("book", r#"{"amount": 1}"#));
    life.pause("work", "one", true);
    let jobs = [2, 4, 8].map(|amount| life.append("book", &format!(r#"{{"amount": {amount}}}"#)));
    let disk = life.crash();
    let life = ground.start_on(disk);
    for job in jobs {
        assert_eq!(life.end(job).0, JobState::Succeeded);
    }
    assert_eq!(ground.stock(), 15);
}

#[test]
fn e4_an_item_whose_worker_was_killed_before_it_wrote_comes_back() {
    let ground = Ground::new(QUEUE, &[LOOK]);
    let life = ground.start();
    life.faults.connects_hang.store(true, Ordering::SeqCst);
    let job = life.append("look", r#"{"id": 7}"#);
    life.until("a worker has it", || life.lane("work", "one").running == 1);
    let disk = life.crash();
    let life = ground.start_on(disk);
    assert_eq!(life.end(job).0, JobState::Succeeded);
    assert_eq!(life.lane("work", "one").running, 0);
}

#[test]
fn promise_7_a_crash_in_mid_write_ends_as_unknown_where_nothing_can_tell() {
    let ground = Ground::new(QUEUE, &[BOOK]);
    let life = ground.start();
    life.faults.writes_wait.store(true, Ordering::SeqCst);
    let job = life.append("book", r#"{"amount": 3}"#);
    life.until("the write is on its way", || life.faults.writes_waiting.load(Ordering::SeqCst) == 1);
    let disk = life.crash();
    let life = ground.start_on(disk);
    let (state, said) = life.end(job);
    assert_eq!(state, JobState::Unknown);
    assert!(said.contains("outcome_unknown"), "{said}");
    assert_eq!(ground.stock(), 0);
}

const RECORDED: &str = r#"
name = "recorded"
http = "POST /recorded"
effect = "write"
deadline = "20s"
idempotency = { key = "optional", record = "DONE" }
[input.amount]
type = "integer"
[[step]]
queue = "work"
[[step]]
name = "stock"
database = "main"
sql = "UPDATE STOCK SET AMOUNT = AMOUNT + :amount WHERE ID = 1"
max_affected = 1
"#;

const DONE: &str = "CREATE TABLE DONE (TENANT TEXT NOT NULL, FLOW TEXT NOT NULL, IDEMPOTENCY_KEY TEXT NOT NULL, JOB TEXT NOT NULL,
    DONE_AT TEXT NOT NULL, PRIMARY KEY (TENANT, FLOW, IDEMPOTENCY_KEY));";

#[test]
fn promise_7_with_a_record_a_crash_in_mid_write_is_run_exactly_once() {
    let ground = Ground::new(QUEUE, &[RECORDED]);
    ground.execute(DONE);
    let life = ground.start();
    life.faults.writes_wait.store(true, Ordering::SeqCst);
    let job = life.append("recorded", r#"{"amount": 3}"#);
    life.until("the write is on its way", || life.faults.writes_waiting.load(Ordering::SeqCst) == 1);
    let disk = life.crash();
    let life = ground.start_on(disk);
    assert_eq!(life.end(job).0, JobState::Succeeded);
    assert_eq!((ground.stock(), ground.count("SELECT count(*) FROM DONE")), (3, 1));
}

#[test]
fn promise_7_with_a_record_a_commit_without_an_answer_is_found_done() {
    let ground = Ground::new(QUEUE, &[RECORDED]);
    ground.execute(DONE);
    let life = ground.start();
    life.faults.at_commit(crate::support::CommitFault::LostAfter);
    let job = life.append("recorded", r#"{"amount": 3}"#);
    let (state, said) = life.end(job);
    assert_eq!(state, JobState::Succeeded, "{said}");
    assert!(said.contains("\"affected\":1"), "the result that the commit stood for: {said}");
    assert_eq!(ground.stock(), 3);
}

#[test]
fn a_stop_takes_nothing_more_and_lets_what_runs_end() {
    let ground = Ground::new("[queue.work]\nworkers = 1\n", &[BOOK]);
    let life = ground.start();
    life.faults.writes_wait.store(true, Ordering::SeqCst);
    let running = life.append("book", r#"{"amount": 1}"#);
    life.until("one is at work", || life.faults.writes_waiting.load(Ordering::SeqCst) == 1);
    let waiting = life.append("book", r#"{"amount": 10}"#);
    life.engine.stop_taking();
    life.faults.writes_wait.store(false, Ordering::SeqCst);
    life.faults.writes_go.notify_waiters();
    life.block_on("the end of what runs", life.engine.drained());
    assert_eq!((life.end(running).0, life.lane("work", "one").waiting, ground.stock()), (JobState::Succeeded, 1, 1));
    life.store().close();
    let disk = life.crash();
    let life = ground.start_on(disk);
    assert_eq!(life.end(waiting).0, JobState::Succeeded);
    assert_eq!(ground.stock(), 11);
}

#[test]
fn a_write_that_is_cut_off_at_the_end_of_the_grace_is_rolled_back_and_comes_back() {
    let ground = Ground::new("[queue.work]\nworkers = 1\n", &[BOOK]);
    let life = ground.start();
    life.faults.writes_wait.store(true, Ordering::SeqCst);
    let job = life.append("book", r#"{"amount": 3}"#);
    life.until("the write is on its way", || life.faults.writes_waiting.load(Ordering::SeqCst) == 1);
    life.block_on("the end of the grace", life.engine.cut_off());
    let known = life.store().job(job).expect("it is kept");
    assert_eq!((known.state, known.attempts, ground.stock()), (JobState::Queued, 0, 0));
    life.store().close();
    let disk = life.crash();
    let life = ground.start_on(disk);
    assert_eq!(life.end(job).0, JobState::Succeeded);
    assert_eq!(ground.stock(), 3);
}

#[test]
fn e4_an_attempt_whose_lease_ran_out_is_fenced_off() {
    let source = r#"
name = "source"
http = "POST /source"
effect = "write"
deadline = "20s"
[input.id]
type = "integer"
[[step]]
queue = "work"
[[step]]
name = "item"
database = "main"
sql = "SELECT ID FROM ITEM WHERE ID = :id"
columns = { ID = "integer" }
[[step]]
emit = "book"
each = "steps.item.rows.map(row, {'amount': row.ID})"
"#;
    let ground = Ground::new("[queue.work]\nworkers = 1\nlease = \"2s\"\n[queue.next]\n", &[source, &BOOK.replace("work", "next")]);
    let life = ground.start();
    life.faults.connects_hang.store(true, Ordering::SeqCst);
    let job = life.append("source", r#"{"id": 7}"#);
    life.until("the first attempt hangs", || life.faults.connects.load(Ordering::SeqCst) == 1);
    life.faults.connects_hang.store(false, Ordering::SeqCst);
    life.clock.forward(std::time::Duration::from_secs(5));
    // The worker finds out when it renews, lets go, and the item is run anew.
    assert_eq!(life.end(job).0, JobState::Succeeded);
    life.until("the next step ran", || ground.stock() == 7);
    let status = life.store().status();
    assert_eq!((status.appended, life.store().job(job).expect("it is kept").attempts), (2, 2));
    life.until("nothing is at work", || life.lane("next", "one").running == 0);
    assert_eq!((ground.stock(), life.lane("work", "one").running), (7, 0));
}

#[test]
fn an_attempt_that_is_cut_off_before_it_wrote_costs_nothing() {
    let ground = Ground::new("[queue.work]\nworkers = 1\n", &[LOOK]);
    let life = ground.start();
    life.faults.connects_hang.store(true, Ordering::SeqCst);
    let job = life.append("look", r#"{"id": 7}"#);
    life.until("a worker has it", || life.lane("work", "one").running == 1);
    life.block_on("the end of the grace", life.engine.cut_off());
    let known = life.store().job(job).expect("it is kept");
    assert_eq!((known.state, known.attempts), (JobState::Queued, 0));
    life.store().close();
    let disk = life.crash();
    let life = ground.start_on(disk);
    assert_eq!(life.end(job).0, JobState::Succeeded);
}
