//! Keys of flows that queue their work.

use std::sync::atomic::Ordering;

use spillgate_model::Code;
use spillgate_queue::JobState;

use super::life::{Asked, Ground, Life, queued, state};
use crate::support::CommitFault;

const REQUIRED: &str = r#"idempotency = { key = "required" }"#;
const RECORD: &str = r#"idempotency = { key = "required", record = "DONE" }"#;
const VERIFY: &str = r#"idempotency = { key = "required", verify = "SELECT ID FROM BOOKED WHERE TRIP = :trip" }"#;
const UNIQUE: &str = r#"unique = { by = ["trip"], within = "24h" }"#;
const SEVEN: &str = r#"{"trip": 7, "amount": 70}"#;

#[test]
fn e6_twenty_parallel_calls_are_one_job_and_one_execution() {
    let ground = Ground::new(&[&queued("book", REQUIRED, "")]);
    let life = ground.start();
    let asked = Asked::new("book", SEVEN).key("k-1");
    let sent: Vec<_> = (0..20).map(|_| life.send(asked)).collect();
    let jobs: std::collections::BTreeSet<_> = sent.into_iter().map(|sent| life.job_of(life.wait(sent))).collect();
    let [job] = jobs.into_iter().collect::<Vec<_>>()[..] else { panic!("more than one job") };
    assert_eq!(state(&life.ended(job)), "succeeded");
    assert_eq!(life.job(asked), job);
    assert_eq!(life.code(Asked { input: r#"{"trip": 8, "amount": 70}"#, ..asked }), Code::KeyReused);
    assert_ne!(life.job(asked.tenant("two")), job);
    let next = ground.start_on(life.crash());
    assert_eq!(next.job(asked), job, "promise 2: it survives a crash");
    assert!(next.outcome(job).contains(r#""TRIP":7"#));
}

#[test]
fn a1_a_call_that_ran_into_its_deadline_comes_back_as_the_same_item() {
    let ground = Ground::new(&[&queued("book", REQUIRED, "")]);
    let life = ground.start();
    life.pause("one", true);
    let asked = Asked::new("book", SEVEN).key("k-1");
    let mut call = life.call(asked.within(200));
    call.wait = Some(std::time::Duration::from_secs(5));
    let engine = life.engine().clone();
    let waited = life.block_on("a call that waits", async move { engine.run(call).await });
    let job = life.job_of(waited);
    // The caller that got no result in time sends it again.
    assert_eq!(life.job(asked), job);
    life.pause("one", false);
    assert_eq!(state(&life.ended(job)), "succeeded");
    assert_eq!(life.job(asked), job);
    assert_eq!(ground.booked(), 1);
}

#[test]
fn e6_after_a_crash_in_mid_write_a_queued_item_ends_in_the_true_outcome() {
    for once in [RECORD, VERIFY] {
        for fault in [CommitFault::HangsAfter, CommitFault::HangsBefore] {
            let ground = Ground::new(&[&queued("book", once, "")]);
            let life = ground.start();
            life.faults.at_commit(fault);
            let job = life.job(Asked::new("book", SEVEN).key("k-1"));
            match fault {
                CommitFault::HangsAfter => life.until("the commit is done", || life.faults.commits_done.load(Ordering::SeqCst) == 1),
                _ => life.until("the commit is asked for", || life.faults.commits_reached()),
            }
            let next = ground.start_on(life.crash());
            assert_eq!(state(&next.ended(job)), "succeeded", "{once} {fault:?}");
            assert_eq!(ground.booked(), 1, "promise 7: never twice: {once} {fault:?}");
            assert_eq!(next.outcome(job).contains("done_before"), fault == CommitFault::HangsAfter);
        }
    }
}

#[test]
fn e6_a_queued_item_without_evidence_is_unknown_and_not_run_again() {
    let ground = Ground::new(&[&queued("book", REQUIRED, "")]);
    let life = ground.start();
    life.faults.at_commit(CommitFault::HangsBefore);
    let asked = Asked::new("book", SEVEN).key("k-1");
    let job = life.job(asked);
    life.until("the commit is asked for", || life.faults.commits_reached());
    let next = ground.start_on(life.crash());
    assert_eq!(state(&next.ended(job)), "unknown");
    assert_eq!((next.job(asked), ground.booked()), (job, 0));
}

#[test]
fn a_business_key_is_freed_by_cancel() {
    let ground = Ground::new(&[&queued("book", UNIQUE, "")]);
    let life = ground.start();
    life.pause("one", true);
    let job = life.job(Asked::new("book", SEVEN));
    let others = life.refusal(Asked::new("book", SEVEN).tenant("two"));
    assert!(others.code == Code::ConflictUnique && !others.detail.contains(&job.to_string()), "{others}");
    let own = life.refusal(Asked::new("book", SEVEN));
    assert_eq!((own.code, Life::job_in(&own)), (Code::ConflictUnique, job));
    let store = life.store();
    life.block_on("a cancel", store.cancel(job)).expect("it waits");
    let next = life.job(Asked::new("book", SEVEN).tenant("two"));
    assert_eq!(state(&life.ended(next)), "succeeded");
    assert_eq!((life.ended(job).state, ground.booked()), (JobState::Cancelled, 1));
}

#[test]
fn a_business_key_is_freed_by_expiry() {
    let ground = Ground::new(&[&queued("book", UNIQUE, "expires = \"1s\"")]);
    let life = ground.start();
    life.pause("one", true);
    let job = life.job(Asked::new("book", SEVEN));
    assert_eq!(life.code(Asked::new("book", SEVEN).tenant("two")), Code::ConflictUnique);
    std::thread::sleep(std::time::Duration::from_millis(1_050));
    life.pause("one", false);
    assert_eq!(life.ended(job).state, JobState::Expired);
    let next = life.job(Asked::new("book", SEVEN).tenant("two"));
    assert_eq!(state(&life.ended(next)), "succeeded");
    assert_eq!(ground.booked(), 1);
}

#[test]
fn a_business_key_is_freed_by_proven_failure() {
    let ground = Ground::new(&[&queued("book", UNIQUE, "")]);
    let life = ground.start();
    let job = life.job(Asked::new("book", r#"{"trip": 7, "amount": -1}"#));
    assert_eq!(state(&life.ended(job)), "failed");
    let next = life.job(Asked::new("book", SEVEN).tenant("two"));
    assert_eq!(state(&life.ended(next)), "succeeded");
}

/// Job numbers are given out again by a store that is made anew, and callers can spell them: they stand for no work in a record.
#[test]
fn promise_7_work_without_a_key_is_never_taken_for_other_work() {
    let ground = Ground::new(&[&queued("book", r#"idempotency = { key = "optional", record = "DONE" }"#, "")]);
    let life = ground.start();
    let without_key = |trip: &'static str| Asked::new("book", trip);
    let first = life.job(without_key(r#"{"trip": 1, "amount": 1}"#));
    assert_eq!(state(&life.ended(first)), "succeeded");
    let spelled = first.to_string();
    let other = life.job(without_key(r#"{"trip": 2, "amount": 2}"#).key(&spelled));
    assert_eq!(state(&life.ended(other)), "succeeded");
    assert_eq!(ground.booked(), 2, "a key that reads like a job is a key of its own");
    drop(life.crash());
    let life = ground.start();
    let again = life.job(without_key(r#"{"trip": 3, "amount": 3}"#));
    assert_eq!(again, first, "the number is given out again");
    assert_eq!(state(&life.ended(again)), "succeeded");
    assert_eq!((ground.booked(), ground.count("SELECT count(*) FROM DONE")), (3, 3));
}
