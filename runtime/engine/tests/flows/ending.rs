//! Deadlines and hang-ups: what they end, what they do not, and what comes back.

use std::sync::atomic::Ordering;
use std::time::Duration;

use spillgate_engine::Outcome;
use spillgate_model::Code;
use tokio::time::timeout;

use crate::support::{ENDLESS, PATIENCE, QUICK, Settings, World, patiently, refusal, rows, until};

fn slow(deadline: &str) -> String {
    format!(
        "name = \"slow\"\nhttp = \"GET /slow\"\neffect = \"read\"\ndeadline = \"{deadline}\"\n[[step]]\nname = \"s\"\ndatabase = \"main\"\nsql = \"{ENDLESS}\"\n"
    )
}

/// Works for some seconds, then adds a row.
fn slow_write(deadline: &str, steps: u32) -> String {
    format!(
        "name = \"write\"\nhttp = \"POST /write\"\neffect = \"write\"\ndeadline = \"{deadline}\"\n[[step]]\nname = \"w\"\ndatabase = \"main\"\nmax_affected = 1\n\
         sql = \"WITH RECURSIVE N(X) AS (SELECT 1 UNION ALL SELECT X + 1 FROM N WHERE X < {steps}) INSERT INTO ITEM SELECT 1000, 'late', count(*), NULL FROM N\"\n"
    )
}

fn one_seat() -> Settings {
    Settings { pool: Some("{ max = 1, line = 100 }"), ..Settings::default() }
}

#[tokio::test]
async fn c11_a_deadline_ends_the_statement_and_gives_the_seat_back() {
    let world = World::with(&one_seat(), &[&slow("300ms"), QUICK]);
    let late = world.refusal("slow", "{}").await;
    assert_eq!((late.code, late.retryable), (Code::DeadlineExceeded, true));
    // With one seat, the next call can only run when the statement is gone.
    assert_eq!(world.rows("quick", "{}").await.len(), 1);
    assert_eq!(world.seats().in_use + world.seats().ending, 0);
}

#[tokio::test]
async fn c11_a_hang_up_ends_the_statement_and_gives_the_seat_back() {
    let world = World::with(&one_seat(), &[&slow("60s"), QUICK]);
    let call = world.spawn("slow");
    until("the statement runs", || world.faults.reads() == 1).await;
    call.abort();
    assert_eq!(world.rows("quick", "{}").await.len(), 1);
    assert_eq!(world.seats().in_use + world.seats().ending, 0);
}

#[tokio::test]
async fn e1_fifty_calls_dropped_in_mid_stream_leave_nothing_taken() {
    let all = "[tenant.one.database.main]\nseats = { limit = 4 }\n".into();
    let settings = Settings { pool: Some("{ max = 4, line = 100 }"), more: all, ..Settings::default() };
    let world = World::with(&settings, &[&slow("60s"), QUICK]);
    let calls: Vec<_> = (0..50).map(|_| world.spawn("slow")).collect();
    until("four run and the others wait", || world.faults.reads() == 4 && world.seats().waiting == 46).await;
    calls.iter().for_each(tokio::task::JoinHandle::abort);
    for call in calls {
        assert!(call.await.is_err_and(|error| error.is_cancelled()));
    }
    until("all is given back", || {
        let seats = world.seats();
        seats.in_use + seats.ending + seats.waiting == 0
    })
    .await;
    assert_eq!(world.rows("quick", "{}").await.len(), 1);
}

#[tokio::test]
async fn a_wait_that_outlasts_the_deadline_says_so() {
    let world = World::with(&one_seat(), &[&slow("60s"), &QUICK.replace("20s", "600ms")]);
    let holder = world.spawn("slow");
    until("the seat is taken", || world.faults.reads() == 1).await;
    let (outcome, waited) = world.engine.run_measured(world.call("quick", "{}")).await;
    let waited_out = refusal(outcome);
    assert_eq!((waited_out.code, waited_out.retryable), (Code::WaitTooLong, true));
    assert!(waited >= Duration::from_millis(500), "{waited:?}");
    assert_eq!(world.seats().waiting, 0);
    holder.abort();
}

#[tokio::test]
async fn a_write_goes_on_when_its_caller_hangs_up() {
    let world = World::new(&[&slow_write("60s", 500_000)]);
    // Polled once, then dropped.
    let hung_up = timeout(Duration::from_millis(20), world.engine.run(world.call("write", "{}"))).await;
    assert!(hung_up.is_err(), "the write takes longer than that");
    patiently("the write ends", world.engine.drained()).await;
    assert_eq!(world.count("SELECT count(*) FROM ITEM WHERE NAME = 'late'"), 1);
    assert_eq!(world.seats().in_use + world.seats().ending, 0);
}

#[tokio::test]
async fn a_write_past_its_deadline_is_rolled_back_and_says_so() {
    let world = World::with(&one_seat(), &[&slow_write("300ms", 2_000_000_000), QUICK]);
    let late = world.refusal("write", "{}").await;
    assert_eq!((late.code, late.retryable), (Code::DeadlineExceeded, true), "{}", late.detail);
    assert_eq!(world.count("SELECT count(*) FROM ITEM WHERE NAME = 'late'"), 0);
    assert_eq!(world.rows("quick", "{}").await.len(), 1);
}

/// By default both are as long: chance says which of them is first.
#[tokio::test]
async fn a_statement_without_time_gets_the_same_answer_whichever_clock_ends_it() {
    let brief = "[database.brief]\ndriver = \"sqlite\"\nconnection = \"main.db\"\naccess = \"read-write\"\nstatement_timeout = \"200ms\"\n";
    let settings = || Settings { more: brief.to_owned(), ..one_seat() };
    let on_brief = |flow: String| flow.replace("database = \"main\"", "database = \"brief\"");
    for (name, flow) in [("slow", slow as fn(&str) -> String), ("write", |deadline| slow_write(deadline, 2_000_000_000))] {
        let by_deadline = World::with(&settings(), &[&flow("200ms")]).refusal(name, "{}").await;
        let world = World::with(&settings(), &[&on_brief(flow("60s"))]);
        let by_database = world.refusal(name, "{}").await;
        let told =
            |refusal: &spillgate_model::Refusal| (refusal.code, refusal.scope, refusal.retryable, refusal.retry_after, refusal.advice());
        assert_eq!(told(&by_database), told(&by_deadline), "{name}");
        assert_eq!((by_database.code, by_database.retryable), (Code::DeadlineExceeded, true));
        assert!(by_database.detail.contains("its time was over"), "who ended it is told: {}", by_database.detail);
        assert_eq!(world.count("SELECT count(*) FROM ITEM WHERE NAME = 'late'"), 0);
    }
}

#[tokio::test]
async fn a_commit_that_is_not_answered_leaves_the_outcome_unknown() {
    let world = World::new(&[&slow_write("300ms", 10)]);
    world.faults.commits_hang.store(true, Ordering::SeqCst);
    let unknown = world.refusal("write", "{}").await;
    assert_eq!((unknown.code, unknown.retryable), (Code::OutcomeUnknown, false));
    until("the seat comes back", || world.seats().in_use + world.seats().ending == 0).await;
}

#[tokio::test]
async fn b9_a_database_that_does_not_answer_costs_no_more_than_the_deadline() {
    let world = World::with(&one_seat(), &[&QUICK.replace("20s", "1500ms")]);
    world.faults.connects_hang.store(true, Ordering::SeqCst);
    let late = world.refusal("quick", "{}").await;
    assert_eq!((late.code, late.retryable), (Code::DatabaseUnreachable, true));
    // Whoever comes now is told at once, and when to come back.
    let refused = timeout(Duration::from_millis(200), world.engine.run(world.call("quick", "{}"))).await.expect("at once");
    let refused = refusal(refused);
    assert_eq!(refused.code, Code::DatabaseUnreachable);
    world.faults.connects_hang.store(false, Ordering::SeqCst);
    tokio::time::sleep(refused.retry_after.expect("it says when")).await;
    assert_eq!(world.rows("quick", "{}").await.len(), 1);
}

#[tokio::test]
async fn a_deadline_that_is_too_short_to_open_a_session_says_nothing_of_a_database_that_answers() {
    let hurried = QUICK.replace("quick", "hurried").replace("20s", "100ms");
    let patient = QUICK.replace("quick", "patient").replace("20s", "1500ms");
    let settings = Settings { pool: Some("{ max = 8 }\nbreaker = \"off\""), ..Settings::default() };
    let world = World::with(&settings, &[QUICK, &hurried, &patient]);
    // The one session there is works; for another call another one is opened.
    world.faults.reads_wait.store(1, Ordering::SeqCst);
    let working = world.spawn("quick");
    until("it works", || world.faults.reads_wait.load(Ordering::SeqCst) == 0).await;
    world.faults.connects_hang.store(true, Ordering::SeqCst);
    let late = world.refusal("hurried", "{}").await;
    assert_eq!((late.code, late.retryable), (Code::DeadlineExceeded, true), "{late}");
    assert!(late.detail.contains("session") && late.detail.contains("nothing was sent"), "{late}");
    // What is not answered for a second is out of reach.
    let late = world.refusal("patient", "{}").await;
    assert_eq!((late.code, late.retryable), (Code::DatabaseUnreachable, true), "{late}");
    world.faults.reads_go.notify_waiters();
    assert_eq!(rows(working.await.expect("no panic")).len(), 1);
}

#[tokio::test]
async fn a_panic_in_a_read_is_internal_and_releases_everything() {
    let world = World::with(&one_seat(), &[QUICK]);
    world.faults.reads_panic.store(true, Ordering::SeqCst);
    assert_eq!(world.refusal("quick", "{}").await.code, Code::Internal);
    world.faults.reads_panic.store(false, Ordering::SeqCst);
    assert_eq!(world.rows("quick", "{}").await.len(), 1);
}

#[tokio::test]
async fn a_panic_in_a_write_is_internal_and_releases_everything() {
    let world = World::with(&one_seat(), &[&slow_write("20s", 10)]);
    world.faults.writes_panic.store(true, Ordering::SeqCst);
    assert_eq!(world.refusal("write", "{}").await.code, Code::Internal);
    world.faults.writes_panic.store(false, Ordering::SeqCst);
    let outcome = timeout(PATIENCE, world.engine.run(world.call("write", "{}"))).await.expect("a seat is free");
    assert!(matches!(outcome, Outcome::Rows { affected: Some(1), .. }), "{outcome:?}");
}
