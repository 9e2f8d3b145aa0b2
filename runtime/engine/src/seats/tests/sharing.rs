//! Seats among tenants: what is whose, what comes back, and what a call is told that gets none.

use super::*;

type Call = tokio::task::JoinHandle<Fallible<Seat>>;

/// Everything is back, in the fair order too.
fn all_is_back(rig: &Rig) -> bool {
    let health = rig.seats.health();
    let SeatCounts { in_use, ending, waiting, .. } = health.counts;
    (in_use + ending + waiting, health.fair.in_use, health.fair.waiting) == (0, 0, 0)
}

async fn until(mut done: impl FnMut() -> bool) {
    while !done() {
        tokio::task::yield_now().await;
    }
}

/// How many of `others`, the first in line first, get their turn before `one`. Each gives its seat back as soon as it has it.
async fn turns_before(one: &mut Call, others: &mut Vec<Call>) -> usize {
    for turn in 0.. {
        tokio::select! {
            biased;
            seat = &mut *one => {
                drop(seat.expect("no panic").expect("a seat"));
                return turn;
            }
            (seat, ..) = futures_util::future::select_all(others.iter_mut()) => drop(seat.expect("no panic").expect("a seat")),
        }
        others.retain(|call| !call.is_finished());
    }
    unreachable!("a turn comes")
}

/// E1, promise 5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e1_hang_ups_in_mass_give_back_all() {
    let rig = Rig::new(4, 100);
    rig.script.ends.add_permits(10_000);
    rig.script.statements.forget_permits(1_000);
    let calls: Vec<_> = (0..400)
        .map(|number: usize| {
            let (seats, flow, share) = (rig.seats.clone(), rig.flow.clone(), rig.share);
            let access = if number.is_multiple_of(5) { Access::ReadWrite } else { Access::ReadOnly };
            tokio::spawn(async move {
                let tenant = Arc::from(format!("tenant {}", number % 20));
                let deadline = Instant::now() + Duration::from_secs(60);
                let purpose = Purpose { tenant: &tenant, share, class: Class::Agent, flow: &flow, deadline };
                let mut seat = seats.acquire(access, purpose, &Notes::default()).await?;
                // Never answered: each holds its seat until it hangs up.
                drop(seat.read(&statement(""), &[], LIMITS).await);
                Ok::<(), Box<Failed>>(())
            })
        })
        .collect();
    until(|| rig.counts().waiting + rig.counts().in_use == 400).await;
    for (number, call) in calls.iter().enumerate() {
        call.abort();
        if number.is_multiple_of(7) {
            tokio::task::yield_now().await;
        }
    }
    for call in calls {
        assert!(call.await.is_err_and(|error| error.is_cancelled()));
    }
    until(|| all_is_back(&rig)).await;
    assert!(rig.script.most_open.load(Ordering::SeqCst) <= 4);
    rig.script.statements.add_permits(10);
    rig.read().await.read(&statement(""), &[], LIMITS).await.expect("it runs");
}

#[tokio::test]
async fn e5_a_tenants_only_call_does_not_wait_for_anothers_line() {
    let rig = Rig::new(1, 100);
    let held = rig.read().await;
    let mut burst = Vec::new();
    for _ in 0..50 {
        burst.push(rig.in_line("a").await);
    }
    let mut only = rig.in_line("b").await;
    drop(held);
    let before = turns_before(&mut only, &mut burst).await;
    assert!(before <= 3, "{before} calls of the other tenant went first");
    for call in burst {
        drop(call.await.expect("no panic").expect("a seat"));
    }
    assert!(all_is_back(&rig));
}

#[tokio::test]
async fn a_call_that_nobody_waits_for_goes_behind_one_of_a_person() {
    let rig = Rig::new(1, 100);
    let held = rig.read().await;
    let mut workers = Vec::new();
    for _ in 0..10 {
        workers.push(rig.in_line_as("a", Class::Batch.lower()).await);
    }
    let mut person = rig.in_line_as("b", Class::Interactive).await;
    drop(held);
    // One may have been owed its turn: no class starves.
    assert!(turns_before(&mut person, &mut workers).await <= 1);
    for worker in workers {
        drop(worker.await.expect("no panic").expect("a seat"));
    }
    assert!(all_is_back(&rig));
}

/// B9, promise 4: what hangs on of a tenant is that tenant's seat, so that it cannot use up the pool by hanging up.
#[tokio::test]
async fn b9_a_seat_whose_end_is_not_known_stays_its_tenants() {
    let mut rig = Rig::new(2, 4);
    rig.share.limit = 1;
    rig.script.statements.forget_permits(1_000);
    let mut seat = rig.read().await;
    timeout(Duration::ZERO, seat.read(&statement(""), &[], LIMITS)).await.expect_err("it hangs");
    drop(seat);
    assert_eq!((rig.counts().ending, rig.seats.health().fair.in_use), (1, 1));
    let again = rig.in_line("t").await;
    let tenant: Arc<str> = "other".into();
    let purpose = Purpose { tenant: &tenant, ..rig.purpose() };
    drop(rig.seats.acquire(Access::ReadOnly, purpose, &Notes::default()).await.expect("its own share is free"));
    assert!(!again.is_finished());
    rig.script.ends.add_permits(1);
    drop(again.await.expect("no panic").expect("its seat is back"));
    assert!(all_is_back(&rig));
}

/// B12.
#[tokio::test]
async fn b12_a_waiting_statement_holds_up_nobody_else() {
    let rig = Rig::new(4, 4);
    rig.script.statements.forget_permits(1_000);
    let mut waits = rig.read().await;
    let waiting = tokio::spawn(async move { waits.read(&statement(""), &[], LIMITS).await.map(drop) });
    for _ in 0..20 {
        let mut seat = rig.read().await;
        seat.read(&statement("at once"), &[], LIMITS).await.expect("it runs beside");
    }
    assert!(!waiting.is_finished());
    rig.script.statements.add_permits(1);
    waiting.await.expect("no panic").expect("its turn came");
    assert!(all_is_back(&rig));
}

/// B8: a restart of the database throws nobody out who has a seat.
#[tokio::test]
async fn b8_a_call_whose_idle_session_was_lost_keeps_its_seat() {
    let rig = Rig::new(1, 1);
    drop(rig.read().await);
    let mut seat = rig.read().await;
    let waits = rig.in_line("t").await;
    let lost = seat.read(&statement("lose"), &[], LIMITS).await.expect_err("it is lost");
    assert!(seat.was_lost_in_keeping(&lost));
    let mut seat = seat.reopened(&Notes::default()).await.expect("another session");
    seat.read(&statement(""), &[], LIMITS).await.expect("it runs");
    assert!(!waits.is_finished());
    drop(seat);
    drop(waits.await.expect("no panic").expect("a seat"));
    assert_eq!((rig.connects(), rig.script.most_open.load(Ordering::SeqCst), all_is_back(&rig)), (2, 1, true));
    // While it does not answer, nothing is opened for anybody.
    let mut seat = rig.read().await;
    rig.script.down.store(true, Ordering::SeqCst);
    assert!(seat.read(&statement("lose"), &[], LIMITS).await.is_err());
    let refused = seat.reopened(&Notes::default()).await.err().expect("it is down");
    assert_eq!((refused.refusal.code, rig.connects()), (Code::DatabaseUnreachable, 3));
    assert!(all_is_back(&rig));
}

#[tokio::test(start_paused = true)]
async fn those_in_line_are_told_at_once_when_the_last_session_is_gone() {
    let rig = Rig::new(1, 4);
    let mut seat = rig.read().await;
    let (one, two) = (rig.in_line("a").await, rig.in_line("b").await);
    rig.script.down.store(true, Ordering::SeqCst);
    assert!(seat.read(&statement("lose"), &[], LIMITS).await.is_err());
    drop(seat);
    for call in [one, two] {
        let failed = call.await.expect("no panic").err().expect("it is down");
        assert_eq!((failed.refusal.code, failed.refusal.retryable), (Code::DatabaseUnreachable, true));
    }
    assert!(all_is_back(&rig));
    assert_eq!(rig.connects(), 2, "one of them tried");
    assert_eq!(rig.seats.metrics.seats_refused(spillgate_telemetry::SeatRefused::Unreachable), 2, "and both are counted");
}

#[tokio::test(start_paused = true)]
async fn sessions_that_are_left_are_shared_while_no_new_one_can_be_opened() {
    let rig = Rig::new(3, 4);
    let (left, mut lost) = (rig.read().await, rig.read().await);
    rig.script.down.store(true, Ordering::SeqCst);
    assert!(lost.read(&statement("lose"), &[], LIMITS).await.is_err());
    drop(lost);
    assert_eq!(rig.take(Access::ReadOnly).await.err().map(|failed| failed.refusal.code), Some(Code::DatabaseUnreachable));
    // The one that works serves one call after another.
    let (one, two) = (rig.in_line("a").await, rig.in_line("b").await);
    drop(left);
    drop(one.await.expect("no panic").expect("the session that is left"));
    drop(two.await.expect("no panic").expect("the session that is left"));
    assert_eq!((rig.connects(), all_is_back(&rig)), (3, true));
}

/// That nothing came back for an hour says nothing where nothing was taken.
#[tokio::test(start_paused = true)]
async fn after_a_quiet_hour_calls_wait_as_before() {
    let rig = Rig::new(1, 4);
    drop(rig.read().await);
    tokio::time::advance(Duration::from_secs(3_600)).await;
    let held = rig.read().await;
    let waits = rig.in_line("a").await;
    drop(held);
    drop(waits.await.expect("no panic").expect("a seat"));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_cannot_be_done_in_time_is_refused_at_once() {
    let rig = Rig::new(1, 4);
    rig.flow.held(Duration::from_secs(2), Instant::now());
    let _held = rig.read().await;
    let _in_line = rig.in_line("a").await;
    let purpose = Purpose { deadline: Instant::now() + Duration::from_millis(20), ..rig.purpose() };
    let began = Instant::now();
    for _ in 0..3 {
        let refused = rig.seats.acquire(Access::ReadOnly, purpose, &Notes::default()).await.err().expect("too late").refusal;
        assert_eq!((refused.code, refused.retryable, began.elapsed()), (Code::WaitTooLong, true, Duration::ZERO));
        let wait = refused.retry_after.expect("it says when");
        assert!((refused::RETRY_AFTER.0..=refused::RETRY_AFTER.1).contains(&wait), "{wait:?}");
        assert_eq!(rig.seats.foresee(&purpose).map(|refused| refused.code), Some(Code::WaitTooLong), "the gate knows");
    }
    assert!(rig.seats.foresee(&rig.purpose()).is_none());
}

#[test]
fn a_flow_is_measured_over_reloads_and_anew_when_its_file_changes() {
    let known = FlowSeats::new(&"f".into());
    assert_eq!(known.estimate(), None);
    known.cut_short(Duration::from_secs(2), Instant::now());
    assert_eq!(known.estimate(), None, "a call that was cut short measures nothing that is not known");
    known.held(Duration::from_millis(8), Instant::now());
    known.cut_short(Duration::from_millis(1), Instant::now());
    assert_eq!(known.estimate().map(|known| known.hold), Some(Duration::from_millis(8)));
    known.cut_short(Duration::from_secs(2), Instant::now());
    assert!(known.estimate().is_some_and(|known| known.hold > Duration::from_millis(100)));
}
