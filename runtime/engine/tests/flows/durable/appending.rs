//! The first half of a cut flow: an item under every limit, and its job.

use std::time::Duration;

use spillgate_model::Code;
use spillgate_queue::JobState;
use spillgate_queue::disk::simulated::SimulatedDisk;

use super::rig::{BOOK, Ground, LOOK, QUEUE, view, within};
use crate::support::refusal;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn promise_2_a_job_ends_with_what_a_direct_reply_would_say() {
    let ground = Ground::new(QUEUE, &[BOOK, LOOK]);
    let life = ground.start();
    let booked = life.append("book", r#"{"amount": 3}"#);
    assert_eq!(life.end(booked), (JobState::Succeeded, r#"{"booked":3,"changed":1}"#.into()));
    assert_eq!(ground.stock(), 3);
    let looked = life.append("look", r#"{"id": 7}"#);
    let rows = r#"{"rows":[{"ID":7,"NAME":"item 7"}],"row_count":1,"truncated":false}"#;
    assert_eq!(life.end(looked), (JobState::Succeeded, rows.into()));
}

#[test]
fn a_call_that_waits_gets_the_end_if_it_comes_in_time() {
    let ground = Ground::new(QUEUE, &[LOOK]);
    let life = ground.start();
    let mut call = life.call("one", "look", r#"{"id": 7}"#);
    call.wait = Some(SECOND * 15);
    let view = view(life.run_call(call));
    assert_eq!(view.state, JobState::Succeeded);
    assert!(view.outcome.is_some_and(|outcome| outcome.starts_with(b"{\"rows\":")));
}

#[test]
fn a1_a_wait_that_runs_out_makes_no_second_item() {
    let ground = Ground::new(QUEUE, &[BOOK]);
    let life = ground.start();
    let first = life.append("book", r#"{"amount": 1}"#);
    life.ended(first);
    // The consumer is stopped; the wait is longer than the deadline, which ends it.
    life.pause("work", "one", true);
    let mut call = within(life.call("one", "book", r#"{"amount": 10}"#), SECOND * 2);
    call.wait = Some(SECOND * 30);
    let waited = view(life.run_call(call));
    assert_eq!((waited.state, waited.outcome), (JobState::Queued, None));
    assert_eq!(life.lane("work", "one").waiting, 1);
    life.pause("work", "one", false);
    assert_eq!(life.ended(waited.id).state, JobState::Succeeded);
    // One item, one booking: what timed out was the wait alone.
    assert_eq!((ground.stock(), life.store().status().appended), (11, 2));
}

#[test]
fn a_hang_up_after_the_append_leaves_the_item() {
    let ground = Ground::new(QUEUE, &[BOOK]);
    let life = ground.start();
    let first = life.append("book", r#"{"amount": 1}"#);
    life.ended(first);
    life.pause("work", "one", true);
    let mut call = life.call("one", "book", r#"{"amount": 5}"#);
    call.wait = Some(SECOND * 15);
    let calling = life.send_call(call);
    life.until("the item is there", || life.lane("work", "one").waiting == 1);
    calling.abort();
    assert!(life.block_on("a hang-up", calling).is_err());
    life.pause("work", "one", false);
    life.until("it ran", || ground.stock() == 6);
}

#[test]
fn what_stands_before_the_cut_runs_while_the_caller_waits_and_is_carried_exactly() {
    let carrying = r#"
name = "carry"
http = "POST /carry"
effect = "write"
deadline = "20s"
[input.id]
type = "integer"
[input.price]
type = "decimal"
[[step]]
name = "item"
database = "main"
sql = "SELECT ID, 9007199254740993 AS BIG, NAME FROM ITEM WHERE ID = :id"
columns = { ID = "integer", BIG = "integer", NAME = "text" }
on_empty = { status = 404 }
[[step]]
name = "text"
map = "{'name': steps.item.rows[0].NAME, 'big': steps.item.rows[0].BIG}"
[[step]]
queue = "work"
[[step]]
name = "answer"
map = "{'name': steps.text.value.name, 'big': steps.item.rows[0].BIG, 'price': input.price}"
"#;
    let ground = Ground::new(QUEUE, &[carrying]);
    let life = ground.start();
    let reads = life.faults.reads();
    let refused = life.refusal("one", "carry", r#"{"id": 0, "price": "1"}"#);
    assert_eq!((refused.code, refused.status()), (Code::Empty, 404));
    let job = life.append("carry", r#"{"id": 5, "price": "0.10000000000000000000000000001"}"#);
    let said = r#"{"big":"9007199254740993","name":"item 5","price":"0.10000000000000000000000000001"}"#;
    assert_eq!(life.end(job), (JobState::Succeeded, said.into()));
    assert_eq!(life.faults.reads() - reads, 2, "the worker reads nothing again");
    // Nothing was appended for the refused one.
    assert_eq!(life.store().status().appended, 1);
}

#[test]
fn d5_an_item_that_could_never_fit_is_refused_for_good() {
    let noted = r#"
name = "noted"
http = "POST /noted"
effect = "read"
[input.text]
type = "text"
[[step]]
queue = "small"
[[step]]
map = "input.text"
"#;
    let ground = Ground::new("[queue.small]\nmax_item = \"1KiB\"\n", &[noted]);
    let life = ground.start();
    let refused = life.refusal("one", "noted", &format!(r#"{{"text": "{}"}}"#, "x".repeat(2_000)));
    assert_eq!((refused.code, refused.status(), refused.retryable), (Code::ItemTooLarge, 413, false));
    let policy = refused.policy.expect("a limit spoke");
    assert_eq!((policy.name, policy.limit), ("queue.max_item", 1_024));
    assert_eq!(life.end(life.append("noted", r#"{"text": "short"}"#)), (JobState::Succeeded, "\"short\"".into()));
}

#[test]
fn promise_1_a_full_queue_refuses_and_takes_again_when_there_is_room() {
    let ground = Ground::new("[queue.work]\nitems = 3\n", &[BOOK]);
    let life = ground.start();
    let first = life.append("book", r#"{"amount": 1}"#);
    life.ended(first);
    life.pause("work", "one", true);
    let waiting = [life.append("book", r#"{"amount": 1}"#), life.append("book", r#"{"amount": 1}"#)];
    let refused = life.refusal("one", "book", r#"{"amount": 1}"#);
    assert_eq!((refused.code, refused.status(), refused.retryable), (Code::QueueFull, 429, true));
    let policy = refused.policy.expect("a limit spoke");
    assert_eq!((policy.name, policy.limit, policy.used), ("queue.items.share", 2, 2), "a part is left");
    // To others.
    let other = view(life.run_call(life.call("two", "book", r#"{"amount": 1}"#)));
    assert_eq!(life.end(other.id).0, JobState::Succeeded);
    // The gate asks before the body is read, and answers the same.
    let live = life.engine.live();
    let reserved = life.engine.reserve(&live, life.tenant("one"), 0, 100);
    assert_eq!(reserved.expect_err("it is full").code, Code::QueueFull);
    life.pause("work", "one", false);
    for job in waiting {
        life.ended(job);
    }
    life.ended(life.append("book", r#"{"amount": 1}"#));
    assert_eq!(ground.stock(), 5);
}

#[test]
fn promise_1_room_taken_before_the_body_is_used_or_given_back() {
    let ground = Ground::new("[queue.work]\nitems = 1\n", &[BOOK]);
    let life = ground.start();
    let live = life.engine.live();
    let room = life.engine.reserve(&live, life.tenant("one"), 0, 100).expect("it is free").expect("the flow queues");
    assert_eq!(life.refusal("one", "book", r#"{"amount": 1}"#).code, Code::QueueFull);
    let mut call = life.call("one", "book", r#"{"amount": 1}"#);
    call.room = Some(room);
    life.ended(view(life.run_call(call)).id);
    let room = life.engine.reserve(&live, life.tenant("one"), 0, 100).expect("it is free");
    drop(room);
    life.ended(life.append("book", r#"{"amount": 1}"#));
    assert_eq!(ground.stock(), 2);
}

#[test]
fn shed_oldest_ends_the_lanes_own_oldest_items() {
    let ground = Ground::new("[queue.work]\nitems = 3\nwhen_full = \"shed_oldest\"\n", &[BOOK]);
    let life = ground.start();
    life.ended(life.append("book", r#"{"amount": 1}"#));
    life.pause("work", "one", true);
    let jobs = [2, 4, 8].map(|amount| life.append("book", &format!(r#"{{"amount": {amount}}}"#)));
    assert_eq!(life.end(jobs[0]).0, JobState::Shed);
    // Another tenant sheds nothing of it, and has room.
    let other = view(life.run_call(life.call("two", "book", r#"{"amount": 16}"#)));
    assert_eq!(life.end(other.id).0, JobState::Succeeded);
    life.pause("work", "one", false);
    assert_eq!(jobs[1..].iter().map(|job| life.end(*job).0).collect::<Vec<_>>(), [JobState::Succeeded; 2]);
    assert_eq!(ground.stock(), 1 + 4 + 8 + 16);
}

#[test]
fn without_a_store_durable_work_is_refused_and_the_rest_goes_on() {
    let ground = Ground::new(
        QUEUE,
        &[
            BOOK,
            r#"
name = "direct"
http = "GET /direct"
effect = "read"
[[step]]
database = "main"
sql = "SELECT count(*) AS N FROM ITEM"
"#,
        ],
    );
    let life = ground.start_without_store(SimulatedDisk::new(7));
    let refused = life.refusal("one", "book", r#"{"amount": 1}"#);
    assert_eq!((refused.code, refused.status(), refused.retryable), (Code::Recovering, 503, true));
    life.engine.store_failed("no such folder".into());
    let refused = life.refusal("one", "book", r#"{"amount": 1}"#);
    assert_eq!((refused.code, refused.retryable), (Code::StoreFailed, false));
    assert!(!refused.detail.contains("folder"), "only the log says why");
    assert_eq!(life.job_by_text("one", "1-1").expect_err("no store").code, Code::StoreFailed);
    assert!(matches!(life.run_call(life.call("one", "direct", "")), spillgate_engine::Outcome::Rows { .. }));
}

#[test]
fn a_job_is_visible_to_its_tenant_only() {
    let ground = Ground::new(QUEUE, &[LOOK]);
    let life = ground.start();
    let job = life.append("look", r#"{"id": 7}"#);
    life.ended(job);
    assert!(life.job("one", job).is_ok());
    assert_eq!(life.job("two", job).expect_err("foreign").code, Code::UnknownJob);
    assert_eq!(life.cancel("two", job).expect_err("foreign").code, Code::UnknownJob);
    for id in ["", "x", "0-1", "1", "ffffffff-1", "1-ffffffffffff", "1-1 "] {
        assert_eq!(life.job_by_text("one", id).expect_err("no such job").code, Code::UnknownJob, "{id:?}");
    }
}

#[test]
fn a_job_that_waits_can_be_cancelled_and_one_that_ended_stays_as_it_is() {
    let ground = Ground::new(QUEUE, &[BOOK]);
    let life = ground.start();
    let done = life.append("book", r#"{"amount": 1}"#);
    life.ended(done);
    life.pause("work", "one", true);
    let waiting = life.append("book", r#"{"amount": 50}"#);
    assert_eq!(life.cancel("one", waiting).expect("it is there").state, JobState::Cancelled);
    assert_eq!(life.cancel("one", waiting).expect("it is there").state, JobState::Cancelled);
    assert_eq!(life.cancel("one", done).expect("it is there").state, JobState::Succeeded);
    life.pause("work", "one", false);
    life.ended(life.append("book", r#"{"amount": 1}"#));
    assert_eq!(ground.stock(), 2);
}

#[test]
fn a_refused_input_appends_nothing() {
    let ground = Ground::new(QUEUE, &[BOOK]);
    let life = ground.start();
    let mut call = life.call("one", "book", r#"{"amount": 1}"#);
    call.key = Some("a-key".into());
    // The flow takes no key: taken and passed over it would promise something.
    assert_eq!(refusal(life.run_call(call)).code, Code::Malformed);
    assert_eq!(life.store().status().appended, 0);
}
