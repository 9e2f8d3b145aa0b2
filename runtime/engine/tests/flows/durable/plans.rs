//! Items meet the plan that is live when they run.

use std::time::Duration;

use spillgate_engine::{HeldBy, Unserved};
use spillgate_queue::JobState;

use super::rig::{BOOK, Ground, LOOK, Life, QUEUE, lane};

fn waits_for_configuration(life: &Life<'_>) -> bool {
    life.engine.held_lanes().iter().any(|held| held.by == HeldBy::Configuration && held.lane == lane("work", "one"))
}

#[test]
fn items_whose_flow_is_gone_wait_while_others_go_on_and_run_when_it_is_back() {
    let ground = Ground::new(QUEUE, &[BOOK, LOOK]);
    let life = ground.start();
    life.ended(life.append("look", r#"{"id": 7}"#));
    life.pause("work", "one", true);
    let waiting = [1, 2].map(|amount| life.append("book", &format!(r#"{{"amount": {amount}}}"#)));
    let behind = life.append("look", r#"{"id": 8}"#);
    life.reload(QUEUE, &[LOOK]);
    life.pause("work", "one", false);
    assert_eq!(life.end(behind).0, JobState::Succeeded, "what stands behind them does not wait");
    // Their rest is over, and the flow is still not there.
    life.until("nothing is at work", || life.lane("work", "one").running == 0);
    life.clock.forward(Duration::from_secs(30));
    assert_eq!(life.end(life.append("look", r#"{"id": 9}"#)).0, JobState::Succeeded);
    life.until("whoever asks is told", || waits_for_configuration(&life) && life.engine.unserved().lanes == 1);
    for job in waiting {
        let known = life.store().job(job).expect("it is kept");
        assert_eq!((known.state, known.attempts), (JobState::Queued, 0));
    }
    life.reload(QUEUE, &[BOOK, LOOK]);
    life.until("nothing is at work", || life.lane("work", "one").running == 0);
    life.clock.forward(Duration::from_secs(30));
    life.append("look", r#"{"id": 10}"#);
    assert_eq!(waiting.map(|job| life.end(job).0), [JobState::Succeeded; 2]);
    assert_eq!(ground.stock(), 3);
    life.until("nobody waits any more", || !waits_for_configuration(&life) && life.engine.unserved() == Unserved::default());
}

#[test]
fn an_item_that_no_longer_fits_is_a_dead_letter_that_says_why() {
    let typed = BOOK.replace("type = \"integer\"", "type = \"decimal\"");
    let bound = BOOK.replace("[input.amount]\ntype = \"integer\"", "[input.amount]\ntype = \"text\"\nfrom = \"tenant.company\"");
    let more = BOOK
        .replace("[[step]]\nqueue", "[input.why]\ntype = \"text\"\nrequired = true\n[[step]]\nqueue")
        .replace("{'booked'", "{'why': input.why, 'booked'");
    let direct = BOOK.replace("[[step]]\nqueue = \"work\"\n", "");
    let carries = BOOK.replace("[[step]]\nqueue", "[[step]]\nname = \"before\"\nmap = \"{'x': 1}\"\n[[step]]\nqueue");
    let carries = carries.replace("'changed': steps.stock", "'x': steps.before.value.x, 'changed': steps.stock");
    let cases: [(&[&str], &str); 5] = [
        (&[&typed, LOOK], "the input amount is decimal now, and the item has integer"),
        (&[&bound, LOOK], "the input amount comes from elsewhere now"),
        (&[&more, LOOK], "the flow now requires the input why"),
        (&[&direct, LOOK], "has no `queue` step any more"),
        (&[&carries, LOOK], "reads the step before, which the item does not hold"),
    ];
    let ground = Ground::new(QUEUE, &[BOOK, LOOK]);
    let life = ground.start();
    life.ended(life.append("look", r#"{"id": 7}"#));
    for (flows, why) in cases {
        life.reload(QUEUE, &[BOOK, LOOK]);
        life.pause("work", "one", true);
        let job = life.append("book", r#"{"amount": 3}"#);
        life.reload(QUEUE, flows);
        life.pause("work", "one", false);
        let (state, said) = life.end(job);
        assert_eq!(state, JobState::Dead, "{why}: {said}");
        assert!(said.contains(why) && said.contains("\"code\":\"flow_changed\""), "{why}: {said}");
    }
    assert_eq!(ground.stock(), 0);
}

#[test]
fn items_run_under_the_plan_that_is_live_when_they_run() {
    let tenfold = BOOK.replace("AMOUNT + :amount", "AMOUNT + 10 * :amount");
    let ground = Ground::new(QUEUE, &[BOOK]);
    let life = ground.start();
    life.ended(life.append("book", r#"{"amount": 1}"#));
    life.pause("work", "one", true);
    let job = life.append("book", r#"{"amount": 2}"#);
    life.reload(QUEUE, &[&tenfold]);
    life.pause("work", "one", false);
    life.ended(job);
    assert_eq!(ground.stock(), 21);
}

#[test]
fn items_of_a_queue_that_left_the_plan_stay_and_are_served_when_it_is_back() {
    let ground = Ground::new(QUEUE, &[BOOK]);
    let life = ground.start();
    life.ended(life.append("book", r#"{"amount": 1}"#));
    life.pause("work", "one", true);
    let job = life.append("book", r#"{"amount": 2}"#);
    let moved = BOOK.replace("queue = \"work\"", "queue = \"other\"");
    life.reload("[queue.other]\n", &[&moved]);
    assert_eq!(life.engine.unserved().items, 1, "a pause hides nothing");
    life.pause("work", "one", false);
    // A queue that came with the plan is served.
    life.ended(life.append("book", r#"{"amount": 4}"#));
    assert_eq!((life.lane("work", "one").waiting, ground.stock()), (1, 5));
    assert!(waits_for_configuration(&life), "whoever asks is told what it waits for");
    let said: Vec<String> = life.engine.unserved().reasons().collect();
    assert_eq!(said, ["1 queued items wait for a queue or a tenant that is not configured"]);
    life.reload(QUEUE, &[BOOK]);
    assert_eq!(life.engine.unserved(), Unserved::default());
    assert_eq!(life.end(job).0, JobState::Succeeded);
    assert_eq!(ground.stock(), 7);
}

#[test]
fn more_workers_come_with_a_reload_and_no_lease_is_lost() {
    use std::sync::atomic::Ordering;
    let ground = Ground::new("[queue.work]\nworkers = 1\n", &[BOOK]);
    let life = ground.start();
    life.faults.writes_wait.store(true, Ordering::SeqCst);
    let waiting = || life.faults.writes_waiting.load(Ordering::SeqCst);
    let jobs: Vec<_> = (0..3).map(|_| life.append("book", r#"{"amount": 1}"#)).collect();
    life.until("one worker works", || waiting() == 1);
    assert_eq!(life.lane("work", "one").running, 1);
    life.reload("[queue.work]\nworkers = 3\n", &[BOOK]);
    life.until("the others come", || life.lane("work", "one").running == 3);
    life.faults.writes_wait.store(false, Ordering::SeqCst);
    life.faults.writes_go.notify_waiters();
    for job in jobs {
        assert_eq!(life.end(job).0, JobState::Succeeded);
        assert_eq!(life.store().job(job).expect("it is kept").attempts, 1);
    }
    assert_eq!(ground.stock(), 3);
}

#[test]
fn an_item_waits_for_memory_and_does_not_fail() {
    let ground = Ground::new(QUEUE, &[LOOK]);
    let life = ground.start();
    life.ended(life.append("look", r#"{"id": 7}"#));
    let live = life.engine.live();
    let tenant = &live.tenants[life.tenant("one")];
    let mut all = None;
    life.until("what the first one held is free", || {
        all = tenant.gate.reserve_memory(&tenant.limits, tenant.limits.memory, life.engine.memory(), u64::MAX).ok();
        all.is_some()
    });
    let job = life.append("look", r#"{"id": 8}"#);
    life.until("it waits for memory", || life.engine.held_lanes().iter().any(|held| held.by == spillgate_engine::HeldBy::Memory));
    drop(all);
    assert_eq!(life.end(job).0, JobState::Succeeded);
    assert_eq!(life.store().job(job).expect("it is kept").attempts, 1);
}

#[test]
fn a_limit_lowered_below_what_an_item_needs_lets_it_wait() {
    let ground = Ground::new(QUEUE, &[BOOK]);
    let life = ground.start();
    life.pause("work", "one", true);
    let job = life.append("book", r#"{"amount": 2}"#);
    let lowered = format!("{QUEUE}\n[class.agent]\nmemory = \"1KiB\"\n");
    life.reload(&lowered, &[BOOK]);
    life.pause("work", "one", false);
    life.until("it was looked at, and waits", || waits_for_configuration(&life));
    assert_eq!(life.store().job(job).expect("it is kept").state, JobState::Queued);
    life.reload(QUEUE, &[BOOK]);
    assert_eq!(life.end(job).0, JobState::Succeeded);
    assert_eq!(ground.stock(), 2);
}
