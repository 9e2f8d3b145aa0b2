//! Schedules: runs by the clock, a mark that moves with their end.

use std::sync::atomic::Ordering;
use std::time::Duration;

use spillgate_model::Code;
use spillgate_queue::{JobId, JobState};

use super::rig::{Ground, within};

/// Adds the numbers of new items to the stock.
const POLL: &str = r#"
name = "poll"
effect = "write"
deadline = "20s"
[schedule]
every = "1s"
tenant = "one"
watermark = "size(steps.new.rows) > 0 ? steps.new.rows[-1].ID : null"
[[step]]
name = "new"
database = "main"
sql = "SELECT ID FROM ITEM WHERE ID > COALESCE(:watermark, 149) ORDER BY ID LIMIT 1"
columns = { ID = "integer" }
[[step]]
emit = "add"
each = "steps.new.rows.map(row, {'id': row.ID})"
"#;

const ADD: &str = r#"
name = "add"
effect = "write"
deadline = "20s"
[input.id]
type = "integer"
[[step]]
queue = "work"
[[step]]
database = "main"
sql = "UPDATE STOCK SET AMOUNT = AMOUNT + :id WHERE ID = 1"
max_affected = 1
"#;

const QUEUE: &str = "[queue.work]\n";

#[test]
fn a_mark_moves_with_the_end_of_its_run_and_outlives_a_crash() {
    let ground = Ground::new(QUEUE, &[POLL, ADD]);
    let life = ground.start();
    life.until("the first two runs", || ground.stock() == 150 + 151);
    let disk = life.crash();
    ground.execute("INSERT INTO ITEM VALUES (160, 'new', 0, NULL)");
    let life = ground.start_on(disk);
    // What was read before is not read again.
    life.until("the new one", || ground.stock() == 150 + 151 + 160);
}

#[test]
fn a_run_that_still_goes_on_is_not_overtaken() {
    let slow = r#"
name = "slow"
effect = "write"
deadline = "20s"
[schedule]
every = "1s"
tenant = "one"
[[step]]
database = "main"
sql = "UPDATE STOCK SET AMOUNT = AMOUNT + 1 WHERE ID = 1"
max_affected = 1
"#;
    let ground = Ground::new("", &[slow]);
    let life = ground.start();
    life.faults.writes_wait.store(true, Ordering::SeqCst);
    let waiting = || life.faults.writes_waiting.load(Ordering::SeqCst);
    life.until("the first run", || waiting() == 1);
    std::thread::sleep(std::time::Duration::from_millis(1_200));
    assert_eq!((waiting(), ground.stock()), (1, 0));
    life.faults.writes_wait.store(false, Ordering::SeqCst);
    life.faults.writes_go.notify_waiters();
    life.until("it goes on", || ground.stock() >= 2);
}

#[test]
fn a_scheduled_flow_may_queue() {
    let queued = r#"
name = "queued"
effect = "write"
deadline = "20s"
[schedule]
every = "1s"
tenant = "two"
[[step]]
queue = "work"
[[step]]
database = "main"
sql = "UPDATE STOCK SET AMOUNT = AMOUNT + 1 WHERE ID = 1"
max_affected = 1
"#;
    let ground = Ground::new(QUEUE, &[queued]);
    let life = ground.start();
    life.until("two runs", || ground.stock() >= 2);
    assert!(life.store().lanes(Some("work")).iter().all(|lane| &*lane.name.tenant == "two"));
}

#[test]
fn scheduled_runs_are_no_jobs_of_callers() {
    let ground = Ground::new(QUEUE, &[POLL, ADD]);
    let life = ground.start();
    life.until("two runs", || ground.stock() == 150 + 151);
    let ids = (1..8).flat_map(|lane| (1..3).map(move |sequence| JobId { lane, sequence }));
    let runs: Vec<JobId> = ids.filter(|id| life.store().was_job(*id).is_some_and(|lane| &*lane.queue == "(schedule)")).collect();
    assert!(!runs.is_empty(), "there were runs");
    for run in runs {
        assert_eq!(life.job("one", run).expect_err("it is nobody's").code, Code::UnknownJob);
        assert_eq!(life.cancel("one", run).expect_err("it is nobody's").code, Code::UnknownJob);
    }
}

#[test]
fn whoever_waits_for_a_job_is_answered_when_the_server_stops() {
    let ground = Ground::new(QUEUE, &[ADD]);
    let life = ground.start();
    life.pause("work", "one", true);
    let mut call = within(life.call("one", "add", r#"{"id": 1}"#), Duration::from_secs(3_600));
    call.wait = Some(Duration::from_secs(3_600));
    let waiting = life.send_call(call);
    life.until("the item to be kept", || life.store().lanes(Some("work")).first().is_some_and(|lane| lane.waiting == 1));
    life.engine.stop_taking();
    let view = super::rig::view(life.block_on("the answer", waiting).expect("no panic"));
    assert_eq!(view.state, JobState::Queued);
}
