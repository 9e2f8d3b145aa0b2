//! Calls with one key that meet.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use spillgate_engine::Outcome;
use spillgate_model::Code;

use super::life::{Asked, Ground, body, booking};
use crate::support::{CommitFault, refusal};

const REQUIRED: &str = r#"idempotency = { key = "required" }"#;
const SEVEN: &str = r#"{"trip": 7, "amount": 70}"#;

#[test]
fn e6_twenty_parallel_calls_are_one_execution_and_twenty_equal_answers() {
    let ground = Ground::new(&[&booking("book", REQUIRED)]);
    let life = ground.start();
    for round in 1..=5 {
        let key = format!("k-{round}");
        let sent: Vec<_> = (0..20).map(|_| life.send(Asked::new("book", SEVEN).key(&key))).collect();
        let answers: BTreeSet<String> = sent.into_iter().map(|sent| body(&life.wait(sent))).collect();
        assert_eq!(answers.len(), 1, "{answers:?}");
        assert_eq!(ground.booked(), round, "promise 7: a key executes once");
    }
}

#[test]
fn e6_a_repeat_waits_for_the_first_to_its_own_deadline() {
    let ground = Ground::new(&[&booking("book", REQUIRED)]);
    let life = ground.start();
    life.faults.at_commit(CommitFault::HangsBefore);
    let asked = Asked::new("book", SEVEN).key("k-1");
    let first = life.send(asked.within(1_500));
    life.until("the first call commits", || life.faults.commits_reached());
    let early = life.refusal(asked.within(100));
    assert_eq!((early.code, early.status(), early.retryable), (Code::ConflictRunning, 409, true));
    assert!(early.retry_after.is_some());
    let job = super::life::Life::job_in(&early);
    let patient = life.send(asked);
    // Nobody knows what became of the first: it says so, and its repeats are told the same.
    assert_eq!(refusal(life.wait(first)).code, Code::OutcomeUnknown);
    let told = refusal(life.wait(patient));
    assert_eq!((told.code, super::life::Life::job_in(&told)), (Code::OutcomeUnknown, job));
    assert_eq!(life.code(asked), Code::OutcomeUnknown, "it is never run again by itself");
}

#[test]
fn a_hang_up_ends_nothing_and_its_repeat_gets_the_reply() {
    let ground = Ground::new(&[&booking("book", REQUIRED)]);
    let life = ground.start();
    life.faults.writes_wait.store(true, Ordering::SeqCst);
    let asked = Asked::new("book", SEVEN).key("k-1");
    let first = life.send(asked);
    life.until("the write is at the database", || life.faults.writes_waiting.load(Ordering::SeqCst) == 1);
    first.abort();
    life.faults.writes_wait.store(false, Ordering::SeqCst);
    life.faults.writes_go.notify_one();
    assert!(life.body(asked).contains(r#""TRIP":7"#));
    assert_eq!(ground.booked(), 1);
}

#[test]
fn e6_those_that_wait_for_a_call_that_did_nothing_take_its_place() {
    let ground = Ground::new(&[&booking("book", REQUIRED)]);
    let life = ground.start();
    life.faults.writes_wait.store(true, Ordering::SeqCst);
    let asked = Asked::new("book", SEVEN).key("k-1");
    let first = life.send(asked.within(300));
    life.until("the write is at the database", || life.faults.writes_waiting.load(Ordering::SeqCst) == 1);
    life.faults.writes_wait.store(false, Ordering::SeqCst);
    let others: Vec<_> = (0..5).map(|_| life.send(asked)).collect();
    // Rolled back at its deadline, and that is proven.
    assert_eq!(refusal(life.wait(first)).code, Code::DeadlineExceeded);
    let answers: BTreeSet<String> = others.into_iter().map(|sent| body(&life.wait(sent))).collect();
    assert_eq!((answers.len(), ground.booked()), (1, 1));
}

#[test]
fn a_panic_before_the_commit_frees_the_key() {
    let ground = Ground::new(&[&booking("book", REQUIRED)]);
    let life = ground.start();
    life.faults.writes_panic.store(true, Ordering::SeqCst);
    let asked = Asked::new("book", SEVEN).key("k-1");
    assert_eq!(life.code(asked), Code::Internal);
    life.faults.writes_panic.store(false, Ordering::SeqCst);
    // It is proven that nothing was done: the repeat does it.
    assert!(matches!(life.run(asked), Outcome::Rows { .. }));
    assert_eq!(ground.booked(), 1);
}

#[test]
fn a_key_that_finds_no_room_is_refused_and_its_call_does_not_run() {
    let ground = Ground::new(&[&booking("book", REQUIRED)]);
    let life = ground.start();
    life.faults.writes_wait.store(true, Ordering::SeqCst);
    let asked = Asked::new("book", SEVEN).tenant("small");
    let first = life.send(asked.key("k-1"));
    life.until("the write is at the database", || life.faults.writes_waiting.load(Ordering::SeqCst) == 1);
    let full = life.refusal(asked.key("k-2"));
    assert_eq!((full.code, full.status()), (Code::QueueFull, 429));
    assert_eq!(full.policy.map(|policy| (policy.name, policy.limit)), Some(("tenant.queued.items", 1)));
    // What repeats needs no room.
    let repeat = life.send(asked.key("k-1"));
    life.faults.writes_wait.store(false, Ordering::SeqCst);
    life.faults.writes_go.notify_one();
    assert_eq!(body(&life.wait(first)), body(&life.wait(repeat)));
    assert_eq!(ground.booked(), 1);
    assert!(matches!(life.run(asked.key("k-2")), Outcome::Rows { .. }), "its room came back");
}
