//! Seats against a database whose every move the test decides.

use std::sync::atomic::{AtomicUsize, Ordering};

use spillgate_admission::seats::{Class, Share};
use spillgate_connector::{DatabaseError, Ended, Failure, ReadLimits, Statement, Written};
use spillgate_model::{Code, Rows, Value, Work};
use spillgate_telemetry::{Telemetry, TelemetryOptions};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::*;

mod sharing;

/// Counts what is opened and closed, and does what the test says.
struct Script {
    connects: AtomicUsize,
    open: AtomicUsize,
    most_open: AtomicUsize,
    down: std::sync::atomic::AtomicBool,
    /// Statements wait for a permit here.
    statements: Semaphore,
    /// The end of an abandoned statement waits for a permit here.
    ends: Semaphore,
    unconfirmed: Mutex<Option<Duration>>,
    /// Sessions opened before the latest restart are dead, and know it.
    restarts: AtomicUsize,
}

struct Scripted(Arc<Script>);

struct ScriptedSession {
    script: Arc<Script>,
    usable: bool,
    born: usize,
}

impl Drop for ScriptedSession {
    fn drop(&mut self) {
        self.script.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Database for Scripted {
    fn read_only_guard(&self) -> &'static str {
        "a script"
    }
    fn connect(&self, _access: Access) -> Work<'_, Result<Box<dyn Session>, DatabaseError>> {
        Box::pin(async {
            self.0.connects.fetch_add(1, Ordering::SeqCst);
            if self.0.down.load(Ordering::SeqCst) {
                return Err(DatabaseError::new(Failure::Unreachable, "The database is down.", "refused"));
            }
            let open = self.0.open.fetch_add(1, Ordering::SeqCst) + 1;
            self.0.most_open.fetch_max(open, Ordering::SeqCst);
            let born = self.0.restarts.load(Ordering::SeqCst);
            Ok(Box::new(ScriptedSession { script: self.0.clone(), usable: true, born }) as Box<dyn Session>)
        })
    }
}

impl Session for ScriptedSession {
    fn read<'a>(&'a mut self, statement: &'a Statement, _: &'a [Value], _: ReadLimits) -> Work<'a, Result<Rows, DatabaseError>> {
        Box::pin(async move {
            match &*statement.text {
                "panic" => panic!("a connector panicked"),
                "lose" => {
                    self.usable = false;
                    return Err(DatabaseError::new(Failure::LinkLost, "The link was lost.", "reset"));
                }
                "at once" => return Ok(Rows::default()),
                _ => {}
            }
            self.script.statements.acquire().await.expect("never closed").forget();
            Ok(Rows::default())
        })
    }
    fn write<'a>(&'a mut self, _: &'a Statement, _: &'a [Value], _: ReadLimits) -> Work<'a, Result<Written, DatabaseError>> {
        Box::pin(async { Ok(Written { affected: 0, rows: Rows::default() }) })
    }
    fn begin(&mut self) -> Work<'_, Result<(), DatabaseError>> {
        Box::pin(async { Ok(()) })
    }
    fn commit(&mut self) -> Work<'_, Result<(), DatabaseError>> {
        Box::pin(async { Ok(()) })
    }
    fn rollback(&mut self) -> Work<'_, Result<(), DatabaseError>> {
        Box::pin(async { Ok(()) })
    }
    fn usable(&self) -> bool {
        self.usable && self.born == self.script.restarts.load(Ordering::SeqCst)
    }
    fn end(self: Box<Self>) -> Work<'static, Ended> {
        Box::pin(async move {
            self.script.ends.acquire().await.expect("never closed").forget();
            let unconfirmed = *self.script.unconfirmed.lock().expect("not poisoned");
            unconfirmed.map_or_else(|| Ended::Clean(self), Ended::Unconfirmed)
        })
    }
}

struct Rig {
    script: Arc<Script>,
    seats: Arc<Seats>,
    tenant: Arc<str>,
    flow: Arc<FlowSeats>,
    share: Share,
}

impl Rig {
    fn new(max: usize, line: usize) -> Self {
        let script = Arc::new(Script {
            connects: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            most_open: AtomicUsize::new(0),
            down: false.into(),
            statements: Semaphore::new(1_000),
            ends: Semaphore::new(0),
            unconfirmed: Mutex::new(None),
            restarts: AtomicUsize::new(0),
        });
        let telemetry = Telemetry::start(TelemetryOptions::default()).expect("nothing to open");
        let count = |number: usize| u32::try_from(number).expect("a small number");
        let pool = Pool { max: count(max), fast_only: 0, floor: 4, adaptive: true };
        let limits = SeatLimits { pool, idle: Duration::from_secs(60) };
        let seats = Seats::new(Arc::new(Scripted(script.clone())), limits, telemetry.database_metrics("d"), Arc::default(), Instant::now());
        let share = Share { weight: 1, reserved: 0, limit: count(max), line: count(line) };
        Rig { script, seats, tenant: "t".into(), flow: FlowSeats::new(&"f".into()), share }
    }
    fn purpose(&self) -> Purpose<'_> {
        let deadline = Instant::now() + Duration::from_secs(60);
        Purpose { tenant: &self.tenant, share: self.share, class: Class::Agent, flow: &self.flow, deadline }
    }
    async fn take(&self, access: Access) -> Fallible<Seat> {
        self.seats.acquire(access, self.purpose(), &Notes::default()).await
    }
    async fn read(&self) -> Seat {
        self.take(Access::ReadOnly).await.expect("a seat")
    }
    /// A call that stands in line as `tenant`.
    async fn in_line(&self, tenant: &str) -> tokio::task::JoinHandle<Fallible<Seat>> {
        self.in_line_as(tenant, Class::Agent).await
    }
    async fn in_line_as(&self, tenant: &str, class: Class) -> tokio::task::JoinHandle<Fallible<Seat>> {
        let (seats, tenant, flow, share) = (self.seats.clone(), Arc::from(tenant), self.flow.clone(), self.share);
        let before = self.counts().waiting;
        let call = tokio::spawn(async move {
            let deadline = Instant::now() + Duration::from_secs(60);
            let purpose = Purpose { tenant: &tenant, share, class, flow: &flow, deadline };
            seats.acquire(Access::ReadOnly, purpose, &Notes::default()).await
        });
        while self.counts().waiting == before {
            tokio::task::yield_now().await;
        }
        call
    }
    fn counts(&self) -> SeatCounts {
        self.seats.health().counts
    }
    fn connects(&self) -> usize {
        self.script.connects.load(Ordering::SeqCst)
    }
}

fn statement(text: &str) -> Statement {
    Statement { id: 1, text: text.into(), columns: Arc::from([]) }
}

const LIMITS: ReadLimits = ReadLimits { max_rows: 1, max_bytes: 1_000 };

#[tokio::test]
async fn an_idle_session_is_used_again() {
    let rig = Rig::new(4, 4);
    for _ in 0..10 {
        let mut seat = rig.read().await;
        seat.read(&statement(""), &[], LIMITS).await.expect("it runs");
    }
    assert_eq!(rig.connects(), 1);
    assert_eq!(rig.counts(), SeatCounts { max: 4, idle: 1, ..SeatCounts::default() });
}

/// B8: sessions that died while nobody used them cost no call.
#[tokio::test]
async fn b8_sessions_lost_while_idle_are_replaced_and_no_call_fails() {
    let rig = Rig::new(2, 4);
    let (one, two) = (rig.read().await, rig.read().await);
    drop((one, two));
    rig.script.restarts.fetch_add(1, Ordering::SeqCst);
    let mut seat = rig.read().await;
    seat.read(&statement(""), &[], LIMITS).await.expect("it runs");
    assert_eq!((rig.connects(), rig.script.open.load(Ordering::SeqCst)), (3, 1), "both dead ones are closed");
    assert_eq!(rig.counts(), SeatCounts { max: 2, in_use: 1, ..SeatCounts::default() });
    drop(seat);
    rig.script.restarts.fetch_add(1, Ordering::SeqCst);
    let mut write = rig.take(Access::ReadWrite).await.expect("a seat");
    write.begin().await.expect("it begins");
    write.commit().await.expect("it ends");
}

#[tokio::test]
async fn reads_and_writes_have_sessions_of_their_own_and_share_the_room() {
    let rig = Rig::new(1, 4);
    drop(rig.read().await);
    drop(rig.take(Access::ReadWrite).await.expect("the idle read session is closed for it"));
    drop(rig.read().await);
    assert_eq!((rig.connects(), rig.script.most_open.load(Ordering::SeqCst)), (3, 1));
}

#[tokio::test]
async fn the_line_serves_tenants_in_turn_and_is_bounded_per_tenant() {
    let rig = Rig::new(1, 2);
    let held = rig.read().await;
    let (first, second) = (rig.in_line("a").await, rig.in_line("a").await);
    let third = rig.in_line("b").await;
    let tenant = Arc::from("a");
    let purpose = Purpose { tenant: &tenant, ..rig.purpose() };
    let refused = rig.seats.acquire(Access::ReadOnly, purpose, &Notes::default()).await.err().expect("two of a wait already");
    assert_eq!(refused.refusal.code, Code::Overloaded);
    assert!(refused.refusal.retry_after.is_some_and(|wait| wait >= refused::RETRY_AFTER.0));
    drop(held);
    let held = first.await.expect("no panic").expect("first in line");
    assert!(!second.is_finished() && !third.is_finished());
    drop(held);
    let held = third.await.expect("no panic").expect("the other tenant's turn");
    assert!(!second.is_finished());
    drop(held);
    drop(second.await.expect("no panic").expect("its turn"));
    assert_eq!(rig.connects(), 1);
}

#[tokio::test]
async fn a_call_that_leaves_the_line_blocks_nobody() {
    let rig = Rig::new(1, 4);
    let held = rig.read().await;
    let (leaves, stays) = (rig.in_line("a").await, rig.in_line("a").await);
    leaves.abort();
    assert!(leaves.await.is_err());
    assert_eq!(rig.counts().waiting, 1);
    drop(held);
    drop(stays.await.expect("no panic").expect("its turn"));
    assert_eq!(rig.counts(), SeatCounts { max: 1, idle: 1, ..SeatCounts::default() });
}

#[tokio::test]
async fn a_seat_handed_to_a_call_that_has_just_left_goes_on() {
    let rig = Rig::new(1, 4);
    let held = rig.read().await;
    let (leaves, stays) = (rig.in_line("a").await, rig.in_line("b").await);
    // The grant is in the channel before the call can look.
    drop(held);
    leaves.abort();
    drop(timeout(Duration::from_secs(5), stays).await.expect("in time").expect("no panic").expect("a seat"));
    assert_eq!(rig.counts().in_use, 0);
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_statement_keeps_its_seat_until_its_end_is_known() {
    let rig = Rig::new(1, 4);
    rig.script.statements.forget_permits(1_000);
    let mut seat = rig.read().await;
    timeout(Duration::from_millis(10), seat.read(&statement(""), &[], LIMITS)).await.expect_err("it hangs");
    drop(seat);
    assert_eq!((rig.counts().in_use, rig.counts().ending), (0, 1));
    timeout(Duration::from_secs(1), rig.read()).await.err().expect("no seat is free");
    rig.script.ends.add_permits(1);
    drop(rig.read().await);
    assert_eq!((rig.counts().ending, rig.connects()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn an_end_that_cannot_be_confirmed_keeps_the_seat_for_its_time_and_is_counted() {
    let rig = Rig::new(1, 4);
    rig.script.statements.forget_permits(1_000);
    rig.script.ends.add_permits(1);
    *rig.script.unconfirmed.lock().expect("not poisoned") = Some(Duration::from_secs(30));
    let mut seat = rig.read().await;
    timeout(Duration::from_millis(10), seat.read(&statement(""), &[], LIMITS)).await.expect_err("it hangs");
    let began = Instant::now();
    drop(seat);
    drop(rig.read().await);
    assert!(began.elapsed() >= Duration::from_secs(30));
    assert_eq!((rig.counts().lost, rig.connects()), (1, 2));
}

#[tokio::test]
async fn an_open_transaction_is_ended_when_its_seat_is_dropped() {
    let rig = Rig::new(1, 4);
    let mut seat = rig.take(Access::ReadWrite).await.expect("a seat");
    seat.begin().await.expect("begun");
    seat.write(&statement(""), &[], LIMITS).await.expect("written");
    drop(seat);
    assert_eq!(rig.counts().ending, 1);
    rig.script.ends.add_permits(1);
    drop(rig.take(Access::ReadWrite).await.expect("freed"));
    assert_eq!(rig.counts().ending, 0);
    let mut settled = rig.take(Access::ReadWrite).await.expect("a seat");
    settled.begin().await.expect("begun");
    settled.commit().await.expect("committed");
    drop(settled);
    assert_eq!(rig.counts().ending, 0);
}

#[tokio::test]
async fn a_connector_that_panics_costs_no_seat() {
    let rig = Rig::new(1, 4);
    rig.script.ends.add_permits(1);
    let seats = rig.seats.clone();
    let mut seat = rig.read().await;
    let panicked = tokio::spawn(async move { seat.read(&statement("panic"), &[], LIMITS).await }).await;
    assert!(panicked.expect_err("it panicked").is_panic());
    drop(rig.read().await);
    assert_eq!(seats.health().counts.in_use, 0);
}

#[tokio::test(start_paused = true)]
async fn b8_a_lost_link_is_gone_from_the_pool() {
    let rig = Rig::new(2, 4);
    let mut seat = rig.read().await;
    assert!(seat.read(&statement("lose"), &[], LIMITS).await.is_err());
    drop(seat);
    assert_eq!(rig.counts(), SeatCounts { max: 2, ..SeatCounts::default() });
    let fresh = rig.read().await;
    assert!(!fresh.was_lost_in_keeping(&DatabaseError::new(Failure::LinkLost, "The link was lost.", "reset")));
}

#[tokio::test(start_paused = true)]
async fn a_database_that_is_down_costs_one_try_per_wait() {
    let rig = Rig::new(4, 4);
    rig.script.down.store(true, Ordering::SeqCst);
    let first = rig.take(Access::ReadOnly).await.err().expect("down");
    assert_eq!(first.refusal.code, Code::DatabaseUnreachable);
    for _ in 0..100 {
        let refused = rig.take(Access::ReadOnly).await.err().expect("at once");
        assert!(refused.refusal.retryable && refused.refusal.retry_after.is_some());
    }
    assert_eq!(rig.connects(), 1);
    // The waits double to five seconds and no further.
    for wait in [250u64, 500, 1_000, 2_000, 4_000, 5_000, 5_000] {
        tokio::time::advance(Duration::from_millis(wait - 1)).await;
        let before = rig.connects();
        assert!(rig.take(Access::ReadOnly).await.is_err());
        assert_eq!(rig.connects(), before, "not before {wait} ms");
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(rig.take(Access::ReadOnly).await.is_err());
        assert_eq!(rig.connects(), before + 1, "after {wait} ms");
    }
    rig.script.down.store(false, Ordering::SeqCst);
    tokio::time::advance(Duration::from_secs(5)).await;
    drop(rig.read().await);
    assert_eq!(rig.seats.health().reachable, Some(true));
    assert_eq!(rig.counts().in_use, 0);
}

#[tokio::test(start_paused = true)]
async fn sessions_nobody_needs_are_closed() {
    let rig = Rig::new(4, 4);
    let (one, two) = (rig.read().await, rig.read().await);
    drop(one);
    tokio::time::advance(Duration::from_secs(40)).await;
    drop(two);
    rig.seats.close_idle(Instant::now() + Duration::from_secs(30));
    assert_eq!((rig.counts().idle, rig.script.open.load(Ordering::SeqCst)), (1, 1));
    rig.seats.retire();
    assert_eq!(rig.script.open.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_sessions_than_allowed_whatever_the_interleaving() {
    let rig = Arc::new(Rig::new(3, 1_000));
    rig.script.ends.add_permits(10_000);
    let calls: Vec<_> = (0..64)
        .map(|number: u64| {
            let rig = rig.clone();
            tokio::spawn(async move {
                for round in 0..40 {
                    let access = if (number + round).is_multiple_of(3) { Access::ReadWrite } else { Access::ReadOnly };
                    let Ok(Ok(mut seat)) = timeout(Duration::from_secs(20), rig.take(access)).await else { panic!("a seat in time") };
                    match (number + round) % 5 {
                        0 => drop(seat.read(&statement("lose"), &[], LIMITS).await),
                        1 => drop(timeout(Duration::ZERO, seat.begin()).await),
                        _ => drop(seat.read(&statement(""), &[], LIMITS).await),
                    }
                    drop(seat);
                    rig.script.statements.add_permits(1);
                }
            })
        })
        .collect();
    for call in calls {
        call.await.expect("no panic");
    }
    assert!(rig.script.most_open.load(Ordering::SeqCst) <= 3);
    while rig.counts().ending > 0 {
        tokio::task::yield_now().await;
    }
    let counts = rig.counts();
    assert_eq!((counts.in_use, counts.waiting, rig.script.open.load(Ordering::SeqCst)), (0, 0, counts.idle));
}
