//! What becomes of an item whose attempt failed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use spillgate_admission::BreakerState;
use spillgate_connector::Failure;
use spillgate_engine::HeldBy;
use spillgate_model::Code;
use spillgate_queue::{JobState, Waits};

use super::rig::{BOOK, Ground, LOOK, QUEUE};
use crate::support::{CommitFault, ENDLESS, Settings};

#[test]
fn what_passes_is_tried_again_and_counted() {
    let ground = Ground::new(QUEUE, &[BOOK]);
    let life = ground.start();
    life.faults.next_writes.lock().expect("not poisoned").extend([Failure::Passing, Failure::Passing]);
    let job = life.append("book", r#"{"amount": 3}"#);
    assert_eq!(life.end(job).0, JobState::Succeeded);
    assert_eq!(life.store().job(job).expect("it is kept").attempts, 3);
    assert_eq!(ground.stock(), 3);
}

#[test]
fn an_item_whose_attempts_are_used_up_is_a_dead_letter_and_can_be_replayed() {
    let ground = Ground::new(QUEUE, &[BOOK]);
    let life = ground.start();
    life.faults.next_writes.lock().expect("not poisoned").extend([Failure::Passing, Failure::Passing, Failure::Passing]);
    let job = life.append("book", r#"{"amount": 3}"#);
    let (state, said) = life.end(job);
    assert_eq!(state, JobState::Dead);
    assert!(said.contains("\"code\":\"database_error\""), "{said}");
    // No repeat of the call does anything any more: only a new key or an operator does.
    assert!(said.contains("\"retryable\":false,\"retry_after_ms\":null"), "{said}");
    assert!(said.contains("replay") && said.contains("new key") && !said.contains("call again"), "{said}");
    assert_eq!((ground.stock(), life.lane("work", "one").dead), (0, 1));
    let live = life.engine.live();
    let room = life.engine.lane_room(&live, &super::rig::lane("work", "one"), 10_000).expect("there is room");
    let store = life.store();
    let again = life.block_on("a replay", store.replay(job, room)).expect("it is a letter");
    assert_eq!(life.end(again).0, JobState::Succeeded);
    assert_eq!(ground.stock(), 3);
}

#[test]
fn a_lane_whose_dead_letters_are_full_waits_until_there_is_room_for_another() {
    let ground = Ground::new("[queue.work]\nworkers = 1\nattempts = 1\ndead_letters = { items = 1 }\n", &[BOOK]);
    let life = ground.start();
    life.faults.next_writes.lock().expect("not poisoned").extend([Failure::Passing]);
    let letter = life.append("book", r#"{"amount": 3}"#);
    assert_eq!(life.end(letter).0, JobState::Dead);
    let waiting = life.append("book", r#"{"amount": 5}"#);
    life.until("the lane is parked", || life.lane("work", "one").waits == Waits::DeadLetters);
    assert_eq!((life.lane("work", "one").waiting, ground.stock()), (1, 0));
    let live = life.engine.live();
    let room = life.engine.lane_room(&live, &super::rig::lane("work", "one"), 10_000).expect("there is room");
    let store = life.store();
    let again = life.block_on("a replay", store.replay(letter, room)).expect("it is a letter");
    assert_eq!([life.end(waiting).0, life.end(again).0], [JobState::Succeeded; 2]);
    assert_eq!(ground.stock(), 8);
}

#[test]
fn what_the_database_refuses_fails_at_once() {
    let ground = Ground::new(QUEUE, &[BOOK]);
    let life = ground.start();
    let job = life.append("book", r#"{"amount": -3}"#);
    let (state, said) = life.end(job);
    assert_eq!(state, JobState::Failed);
    assert!(said.contains("\"code\":\"database_error\"") && said.contains("\"retryable\":false"), "{said}");
    assert_eq!(life.store().job(job).expect("it is kept").attempts, 1);
}

#[test]
fn a_database_that_is_down_uses_up_no_attempt_and_its_lane_waits() {
    let ground = Ground::new(QUEUE, &[LOOK]);
    let life = ground.start();
    life.ended(life.append("look", r#"{"id": 7}"#));
    *life.faults.all_reads.lock().expect("not poisoned") = Some(Failure::Unreachable);
    let jobs = [8, 9, 10].map(|id| life.append("look", &format!(r#"{{"id": {id}}}"#)));
    let held = || life.engine.held_lanes().into_iter().any(|held| held.by == HeldBy::Database && &*held.lane.tenant == "one");
    life.until("the lane is held back", held);
    let reads = life.faults.reads();
    life.until("it is tried again", || life.faults.reads() > reads + 3);
    *life.faults.all_reads.lock().expect("not poisoned") = None;
    for job in jobs {
        assert_eq!(life.end(job).0, JobState::Succeeded);
        assert_eq!(life.store().job(job).expect("it is kept").attempts, 1);
    }
    life.until("nothing is held back", || !held());
}

#[test]
fn a_lane_behind_an_open_breaker_waits_uncounted_and_its_item_may_be_the_probe() {
    let now = LOOK.replace("[[step]]\nqueue = \"work\"\n", "").replace("look", "now");
    let pool = "{ max = 8 }\nbreaker = { min_calls = 3, cool_down = \"1s\" }";
    let ground = Ground::with(Settings { pool: Some(pool), more: QUEUE.to_owned(), ..Settings::default() }, &[LOOK, &now]);
    let life = ground.start();
    *life.faults.all_reads.lock().expect("not poisoned") = Some(Failure::Unreachable);
    (0..3).for_each(|_| drop(life.refusal("one", "now", r#"{"id": 7}"#)));
    *life.faults.all_reads.lock().expect("not poisoned") = None;
    assert_eq!(life.refusal("one", "now", r#"{"id": 7}"#).code, Code::BreakerOpen);
    let reads = life.faults.reads();
    let job = life.append("look", r#"{"id": 7}"#);
    life.until("the lane is held back", || life.engine.held_lanes().iter().any(|held| held.by == HeldBy::Database));
    assert_eq!(life.faults.reads(), reads, "nothing is sent");
    assert_eq!(life.end(job).0, JobState::Succeeded);
    assert_eq!((life.store().job(job).expect("it is kept").attempts, life.faults.reads()), (1, reads + 1));
    let moves: Vec<_> = life.engine.breakers()[0].moves.iter().map(|moved| moved.to).collect();
    assert_eq!(moves, [BreakerState::Open, BreakerState::HalfOpen, BreakerState::Closed]);
}

#[test]
fn items_wait_for_the_breaker_of_their_own_tenant_and_not_for_anothers() {
    let pool = "{ max = 8 }\nbreaker = { min_calls = 1, cool_down = \"30s\" }";
    let ground = Ground::with(Settings { pool: Some(pool), more: QUEUE.to_owned(), ..Settings::default() }, &[LOOK]);
    let life = ground.start();
    life.faults.fail_reads([Failure::Ended]);
    let waiting = life.append_as("one", "look", r#"{"id": 7}"#);
    let shut_out = || life.engine.breakers().into_iter().any(|view| view.tenant.as_deref() == Some("one") && view.status.outage.is_some());
    life.until("it is open", shut_out);
    for id in [8, 9, 10] {
        let job = life.append_as("two", "look", &format!(r#"{{"id": {id}}}"#));
        life.until("another tenant's item is done", || life.store().job(job).is_some_and(|job| job.state == JobState::Succeeded));
    }
    let waits = |state| matches!(state, JobState::Queued | JobState::Running);
    assert!(life.store().job(waiting).is_some_and(|job| waits(job.state)), "its own waits");
    assert_eq!(life.faults.reads(), 4, "and is not sent");
}

#[test]
fn what_the_queue_tries_again_is_not_tried_again_within_an_attempt() {
    let eager = BOOK.replace("max_affected = 1\n", "max_affected = 1\nretry = { attempts = 5, backoff = \"1ms\" }\n");
    let ground = Ground::new(QUEUE, &[&eager]);
    let life = ground.start();
    life.faults.next_writes.lock().expect("not poisoned").extend([Failure::Passing, Failure::Passing, Failure::Passing]);
    let job = life.append("book", r#"{"amount": 3}"#);
    assert_eq!(life.end(job).0, JobState::Dead);
    assert_eq!((life.store().job(job).expect("it is kept").attempts, ground.stock()), (3, 0));
}

/// The same file as `main`, whose statements may take a quarter of a second.
const BRIEF: &str =
    "[database.brief]\ndriver = \"sqlite\"\nconnection = \"main.db\"\naccess = \"read-write\"\nstatement_timeout = \"250ms\"\n";

fn on_brief(flow: &str) -> String {
    flow.replace("database = \"main\"", "database = \"brief\"")
}

/// Holds every write of the file back until it is dropped.
fn frozen(ground: &Ground) -> rusqlite::Connection {
    let file = rusqlite::Connection::open(ground.folder.join("main.db")).expect("the file is there");
    file.execute_batch("BEGIN EXCLUSIVE").expect("nobody else writes");
    file
}

#[test]
fn a_database_that_others_hold_uses_up_no_attempt_and_its_lane_waits() {
    let ground = Ground::new(&format!("[queue.work]\nworkers = 2\nattempts = 2\n{BRIEF}"), &[&on_brief(BOOK)]);
    let life = ground.start();
    life.ended(life.append("book", r#"{"amount": 1}"#));
    let holder = frozen(&ground);
    let begins = || life.faults.begins.load(Ordering::SeqCst);
    let before = begins();
    let job = life.append("book", r#"{"amount": 2}"#);
    life.until("the lane is held back", || life.engine.held_lanes().iter().any(|held| held.by == HeldBy::Database));
    life.until("more tries were made than there are attempts", || begins() > before + 3);
    let known = life.store().job(job).expect("it is kept");
    assert!(!known.state.is_end() && known.attempts <= 1, "{known:?}");
    drop(holder);
    assert_eq!(life.end(job).0, JobState::Succeeded);
    assert_eq!((ground.stock(), life.store().job(job).expect("it is kept").attempts), (3, 1));
}

#[test]
fn a_deadline_that_passes_before_the_transaction_begins_uses_up_no_attempt() {
    let hasty = BOOK.replace("deadline = \"20s\"", "deadline = \"2s\"");
    let ground = Ground::new("[queue.work]\nworkers = 1\nattempts = 1\n", &[&hasty]);
    let life = ground.start();
    life.ended(life.append("book", r#"{"amount": 1}"#));
    let holder = frozen(&ground);
    let job = life.append("book", r#"{"amount": 2}"#);
    life.until("the lane is held back", || life.engine.held_lanes().iter().any(|held| held.by == HeldBy::Database));
    drop(holder);
    assert_eq!(life.end(job).0, JobState::Succeeded);
    assert_eq!(ground.stock(), 3);
}

#[test]
fn what_a_held_database_keeps_waiting_ends_by_its_expiry() {
    let expiring = on_brief(BOOK).replace("queue = \"work\"", "queue = \"work\"\nexpires = \"60s\"");
    let ground = Ground::new(&format!("[queue.work]\nworkers = 1\nattempts = 1\n{BRIEF}"), &[&expiring]);
    let life = ground.start();
    life.ended(life.append("book", r#"{"amount": 1}"#));
    let _holder = frozen(&ground);
    let job = life.append("book", r#"{"amount": 2}"#);
    life.until("the lane is held back", || life.engine.held_lanes().iter().any(|held| held.by == HeldBy::Database));
    life.clock.forward(Duration::from_secs(61));
    assert_eq!(life.end(job).0, JobState::Expired);
    life.until("nothing is held back", || life.engine.held_lanes().is_empty());
}

#[test]
fn a_statement_that_is_slow_by_itself_uses_up_its_attempts() {
    let slow = BOOK
        .replace("UPDATE STOCK SET AMOUNT = AMOUNT + :amount WHERE ID = 1", &format!("UPDATE STOCK SET AMOUNT = :amount + ({ENDLESS})"));
    let ground = Ground::new(&format!("[queue.work]\nworkers = 1\nattempts = 2\n{BRIEF}"), &[&on_brief(&slow)]);
    let life = ground.start();
    let job = life.append("book", r#"{"amount": 3}"#);
    let (state, said) = life.end(job);
    assert_eq!((state, life.store().job(job).expect("it is kept").attempts), (JobState::Dead, 2), "{said}");
    assert_eq!(ground.stock(), 0);
}

#[test]
fn what_an_operator_can_mend_ends_as_a_letter_that_can_be_replayed() {
    let ground = Ground::new("[queue.work]\nworkers = 1\nattempts = 1\n", &[BOOK]);
    let life = ground.start();
    ground.execute("ALTER TABLE STOCK RENAME TO AWAY");
    let job = life.append("book", r#"{"amount": 3}"#);
    let (state, said) = life.end(job);
    assert_eq!(state, JobState::Dead, "{said}");
    ground.execute("ALTER TABLE AWAY RENAME TO STOCK");
    let live = life.engine.live();
    let room = life.engine.lane_room(&live, &super::rig::lane("work", "one"), 10_000).expect("there is room");
    let store = life.store();
    let again = life.block_on("a replay", store.replay(job, room)).expect("it is a letter");
    assert_eq!(life.end(again).0, JobState::Succeeded);
    assert_eq!(ground.stock(), 3);
}

#[test]
fn a_panic_hands_the_item_back_and_counts() {
    let ground = Ground::new(QUEUE, &[BOOK]);
    let life = ground.start();
    life.faults.writes_panic.store(true, Ordering::SeqCst);
    let job = life.append("book", r#"{"amount": 3}"#);
    let store = life.store();
    life.until("it was counted", || store.job(job).is_some_and(|job| job.attempts >= 1 && job.state == JobState::Queued));
    life.faults.writes_panic.store(false, Ordering::SeqCst);
    assert_eq!(life.end(job).0, JobState::Succeeded);
    assert_eq!(ground.stock(), 3);
}

#[test]
fn e4_an_attempt_that_timed_out_is_over_before_the_next_begins() {
    let slow = BOOK.replace("deadline = \"20s\"", "deadline = \"2s\"");
    let ground = Ground::new(QUEUE, &[&slow]);
    let life = ground.start();
    life.faults.writes_wait.store(true, Ordering::SeqCst);
    let job = life.append("book", r#"{"amount": 3}"#);
    life.until("the first attempt hangs", || life.faults.writes_waiting.load(Ordering::SeqCst) == 1);
    life.faults.writes_wait.store(false, Ordering::SeqCst);
    assert_eq!(life.end(job), (JobState::Succeeded, r#"{"booked":3,"changed":1}"#.into()));
    // The late first one changes nothing.
    life.faults.writes_go.notify_waiters();
    assert_eq!((ground.stock(), life.store().job(job).expect("it is kept").attempts), (3, 2));
    assert_eq!(life.lane("work", "one").running, 0);
}

#[test]
fn promise_7_a_commit_whose_end_is_not_known_is_unknown_and_never_run_again() {
    let ground = Ground::new(QUEUE, &[BOOK]);
    let life = ground.start();
    life.faults.at_commit(CommitFault::LostAfter);
    let job = life.append("book", r#"{"amount": 3}"#);
    let (state, said) = life.end(job);
    assert_eq!(state, JobState::Unknown);
    assert!(said.contains("\"code\":\"outcome_unknown\""), "{said}");
    assert_eq!((ground.stock(), life.store().job(job).expect("it is kept").attempts), (3, 1));
}

#[test]
fn promise_5_a_lane_whose_work_hangs_leaves_workers_to_the_others() {
    let ground = Ground::new(QUEUE, &[BOOK, LOOK]);
    let life = ground.start();
    life.ended(life.append_as("two", "look", r#"{"id": 7}"#));
    life.faults.writes_wait.store(true, Ordering::SeqCst);
    let stuck: Vec<_> = (0..6).map(|_| life.append("book", r#"{"amount": 1}"#)).collect();
    life.until("the first hangs", || life.faults.writes_waiting.load(Ordering::SeqCst) >= 1);
    for id in 1..20 {
        assert_eq!(life.end(life.append_as("two", "look", &format!(r#"{{"id": {id}}}"#))).0, JobState::Succeeded);
    }
    assert_eq!(life.faults.writes_waiting.load(Ordering::SeqCst), 1);
    life.faults.writes_wait.store(false, Ordering::SeqCst);
    life.faults.writes_go.notify_waiters();
    assert!(stuck.iter().all(|job| life.end(*job).0 == JobState::Succeeded));
    assert_eq!(ground.stock(), 6);
}

#[test]
fn items_of_one_order_complete_in_order() {
    let ordered = r#"
name = "ordered"
http = "POST /ordered"
effect = "write"
deadline = "20s"
[input.trip]
type = "text"
[input.id]
type = "integer"
[[step]]
queue = "work"
order_by = "input.trip"
[[step]]
name = "add"
database = "main"
sql = "INSERT INTO ITEM (ID, NAME, KIND) VALUES (:id, :trip, (SELECT count(*) FROM ITEM))"
max_affected = 1
"#;
    let ground = Ground::new("[queue.work]\nworkers = 4\nattempts = 9\n", &[ordered]);
    let life = ground.start();
    life.faults.next_writes.lock().expect("not poisoned").push_back(Failure::Passing);
    let append = |trip: &str, id: i64| life.append("ordered", &format!(r#"{{"trip": "{trip}", "id": {id}}}"#));
    let jobs: Vec<_> = (1_000..1_010).map(|id| append("a", id)).collect();
    assert!(jobs.iter().all(|job| life.end(*job).0 == JobState::Succeeded));
    // KIND tells how many there were when each was added.
    let disordered = "SELECT count(*) FROM ITEM X JOIN ITEM Y ON X.NAME = 'a' AND Y.NAME = 'a' AND X.ID < Y.ID AND X.KIND > Y.KIND";
    assert_eq!((ground.count(disordered), ground.count("SELECT count(*) FROM ITEM WHERE NAME = 'a'")), (0, 10));
}

#[test]
fn items_of_another_order_pass_one_that_takes_long() {
    let ordered = LOOK.replace("queue = \"work\"", "queue = \"work\"\norder_by = \"input.id\"");
    let ground = Ground::new("[queue.work]\nworkers = 4\n", &[&ordered]);
    let life = ground.start();
    life.faults.reads_wait.store(1, Ordering::SeqCst);
    let long = life.append("look", r#"{"id": 7}"#);
    life.until("it is at work", || life.faults.reads() == 1);
    let behind = life.append("look", r#"{"id": 7}"#);
    assert_eq!(life.end(life.append("look", r#"{"id": 8}"#)).0, JobState::Succeeded);
    assert_eq!((life.faults.reads(), life.store().job(behind).expect("it is kept").state), (2, JobState::Queued));
    life.faults.reads_go.notify_one();
    assert_eq!([life.end(long).0, life.end(behind).0], [JobState::Succeeded; 2]);
}

#[test]
fn an_item_that_expired_is_never_run() {
    let expiring = BOOK.replace("queue = \"work\"", "queue = \"work\"\nexpires = \"1s\"");
    let ground = Ground::new(QUEUE, &[&expiring, LOOK]);
    let life = ground.start();
    life.ended(life.append("look", r#"{"id": 7}"#));
    life.pause("work", "one", true);
    let job = life.append("book", r#"{"amount": 10}"#);
    std::thread::sleep(Duration::from_millis(1_100));
    life.pause("work", "one", false);
    assert_eq!(life.end(job).0, JobState::Expired);
    assert_eq!(ground.stock(), 0);
}
