//! Crashes and lost answers in mid-write: the true outcome, or `unknown`.

use std::sync::atomic::Ordering;

use spillgate_engine::Outcome;
use spillgate_model::Code;
use spillgate_queue::{JobState, Resolution};

use super::life::{Asked, Ground, Life, booking, state};
use crate::support::CommitFault;

const RECORD: &str = r#"idempotency = { key = "required", record = "DONE" }"#;
const VERIFY: &str = r#"idempotency = { key = "required", verify = "SELECT ID FROM BOOKED WHERE TRIP = :trip" }"#;
const NOTHING: &str = r#"idempotency = { key = "required" }"#;
const SEVEN: &str = r#"{"trip": 7, "amount": 70}"#;
const ASKED: Asked<'static> = Asked { tenant: "one", flow: "book", input: SEVEN, key: Some("k-1"), run: None, deadline: None };

/// A life that ends while the write's commit hangs.
fn cut_off(ground: &Ground, fault: CommitFault) -> Life {
    let life = ground.start();
    life.faults.at_commit(fault);
    let _never_answered = life.send(ASKED);
    match fault {
        CommitFault::HangsAfter => life.until("the commit is done", || life.faults.commits_done.load(Ordering::SeqCst) == 1),
        _ => life.until("the commit is asked for", || life.faults.commits_reached()),
    }
    ground.start_on(life.crash())
}

#[test]
fn e6_after_a_crash_the_record_tells_that_it_was_done() {
    let ground = Ground::new(&[&booking("book", RECORD)]);
    let life = cut_off(&ground, CommitFault::HangsAfter);
    let repeat = life.body(ASKED);
    let job = ground.job();
    assert_eq!(repeat, format!(r#"{{"done_before":true,"job":"{job}"}}"#));
    assert_eq!(life.body(ASKED), repeat);
    assert_eq!(ground.booked(), 1, "promise 7: a crash in mid-write ends in the true outcome, never twice");
    let ended = life.ended(job.parse().expect("a job id"));
    assert_eq!(state(&ended), "succeeded");
}

#[test]
fn e6_after_a_crash_the_record_tells_that_it_was_not_done() {
    let ground = Ground::new(&[&booking("book", RECORD)]);
    let life = cut_off(&ground, CommitFault::HangsBefore);
    assert_eq!(ground.booked(), 0);
    assert!(life.body(ASKED).contains(r#""TRIP":7"#), "the key was freed, and the repeat does the work");
    assert_eq!((ground.booked(), ground.count("SELECT count(*) FROM DONE")), (1, 1));
}

#[test]
fn e6_after_a_crash_verify_tells_whether_it_was_done() {
    let ground = Ground::new(&[&booking("book", VERIFY)]);
    let life = cut_off(&ground, CommitFault::HangsAfter);
    assert!(life.body(ASKED).contains(r#""done_before":true"#));
    assert_eq!(ground.booked(), 1);
    let ground = Ground::new(&[&booking("book", VERIFY)]);
    let life = cut_off(&ground, CommitFault::HangsBefore);
    assert!(life.body(ASKED).contains(r#""TRIP":7"#));
    assert_eq!(ground.booked(), 1);
}

#[test]
fn e6_after_a_crash_without_evidence_it_is_unknown_and_never_run_again() {
    for fault in [CommitFault::HangsAfter, CommitFault::HangsBefore] {
        let ground = Ground::new(&[&booking("book", NOTHING)]);
        let life = cut_off(&ground, fault);
        let told = life.refusal(ASKED);
        assert_eq!((told.code, told.status(), told.retryable), (Code::OutcomeUnknown, 504, false));
        let job = life.ended(Life::job_in(&told));
        assert_eq!(state(&job), "unknown");
        assert!(life.outcome(job.id).contains(r#""code":"outcome_unknown""#));
        let next = ground.start_on(life.crash());
        assert_eq!(next.code(ASKED), Code::OutcomeUnknown, "never endless 409, never run again by itself");
        assert_eq!(ground.booked(), i64::from(fault == CommitFault::HangsAfter));
    }
}

#[test]
fn e6_evidence_that_the_database_refuses_is_none() {
    let ground = Ground::new(&[&booking("book", RECORD)]);
    let life = ground.start();
    life.faults.at_commit(CommitFault::HangsAfter);
    let _never_answered = life.send(ASKED);
    life.until("the commit is done", || life.faults.commits_done.load(Ordering::SeqCst) == 1);
    let disk = life.crash();
    ground.execute("DROP TABLE DONE");
    let next = ground.start_on(disk);
    assert_eq!(next.code(ASKED), Code::OutcomeUnknown, "rather than endless 409");
    assert_eq!(ground.booked(), 1);
}

#[test]
fn an_operator_resolves_what_is_unknown() {
    let ground = Ground::new(&[&booking("book", NOTHING)]);
    let life = cut_off(&ground, CommitFault::HangsAfter);
    let job = Life::job_in(&life.refusal(ASKED));
    let store = life.store();
    let said = r#"{"seen":"by a person"}"#;
    let resolution = Resolution { state: JobState::Succeeded, outcome: Some(said.into()) };
    life.block_on("a resolution", async move { store.resolve(job, resolution).await }).expect("it was unknown");
    assert_eq!(life.body(ASKED), said);
    let next = ground.start_on(life.crash());
    assert_eq!(next.body(ASKED), said, "promise 2: what was acknowledged survives");
    assert_eq!(ground.booked(), 1);
}

#[test]
fn what_an_operator_says_has_failed_may_be_done_again() {
    let ground = Ground::new(&[&booking("book", NOTHING)]);
    let life = cut_off(&ground, CommitFault::HangsBefore);
    let job = Life::job_in(&life.refusal(ASKED));
    let store = life.store();
    let resolution = Resolution { state: JobState::Failed, outcome: None };
    life.block_on("a resolution", async move { store.resolve(job, resolution).await }).expect("it was unknown");
    assert!(life.body(ASKED).contains(r#""TRIP":7"#));
    assert_eq!(ground.booked(), 1);
}

#[test]
fn e6_a_lost_answer_is_settled_before_the_caller_is_told() {
    for once in [RECORD, VERIFY] {
        let ground = Ground::new(&[&booking("book", once)]);
        let life = ground.start();
        life.faults.at_commit(CommitFault::LostAfter);
        // The reply that the answer would have allowed, and nothing else.
        let first = life.body(ASKED);
        assert!(first.contains(r#""TRIP":7"#), "{first}");
        assert_eq!((life.body(ASKED), ground.booked()), (first, 1));
    }
}

#[test]
fn e6_a_commit_that_was_never_sent_is_proven_and_frees_the_key() {
    for once in [RECORD, VERIFY] {
        let ground = Ground::new(&[&booking("book", once)]);
        let life = ground.start();
        life.faults.at_commit(CommitFault::LostBefore);
        let refused = life.refusal(ASKED);
        assert_eq!((refused.code, refused.retryable), (Code::DatabaseError, true), "{refused}");
        assert!(life.body(ASKED).contains(r#""TRIP":7"#));
        assert_eq!(ground.booked(), 1);
    }
}

#[test]
fn a_lost_answer_without_evidence_is_unknown_for_all() {
    let ground = Ground::new(&[&booking("book", NOTHING)]);
    let life = ground.start();
    life.faults.at_commit(CommitFault::LostAfter);
    let told = life.refusal(ASKED);
    assert_eq!(told.code, Code::OutcomeUnknown);
    let repeated = life.refusal(ASKED);
    assert_eq!((repeated.code, Life::job_in(&repeated)), (Code::OutcomeUnknown, Life::job_in(&told)));
    assert_eq!(ground.booked(), 1);
}

#[test]
fn a_row_of_the_record_outlives_the_key() {
    let ground = Ground::new(&[&booking("book", RECORD)]);
    ground.execute("INSERT INTO DONE VALUES ('one', 'book', 'k-1', '1-1', 'long ago')");
    let life = ground.start();
    assert_eq!(life.body(ASKED), r#"{"done_before":true,"job":"1-1"}"#);
    assert_eq!(life.body(ASKED), r#"{"done_before":true,"job":"1-1"}"#);
    assert!(matches!(life.run(ASKED.tenant("two")), Outcome::Rows { .. }));
    assert_eq!(ground.booked(), 1);
}

#[test]
fn a_record_that_the_database_refuses_is_no_success() {
    let ground = Ground::new(&[&booking("book", RECORD)]);
    ground.execute("DROP TABLE DONE");
    let life = ground.start();
    assert_eq!(life.code(ASKED), Code::DatabaseError);
    assert_eq!(ground.booked(), 0);
}

#[test]
fn what_cannot_be_asked_yet_is_asked_again() {
    let ground = Ground::new(&[&booking("book", RECORD)]);
    let life = ground.start();
    life.faults.at_commit(CommitFault::LostAfter);
    *life.faults.all_reads.lock().expect("not poisoned") = Some(spillgate_connector::Failure::LinkLost);
    let told = life.refusal(ASKED);
    assert_eq!(told.code, Code::OutcomeUnknown);
    let job = Life::job_in(&told);
    assert_eq!(life.code(ASKED.within(50)), Code::ConflictRunning, "it is still being found out");
    *life.faults.all_reads.lock().expect("not poisoned") = None;
    assert_eq!(state(&life.ended(job)), "succeeded");
    assert!(life.body(ASKED).contains(r#""TRIP":7"#), "the reply it would have had");
    assert_eq!(ground.booked(), 1);
}
