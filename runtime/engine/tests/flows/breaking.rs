//! Breakers, on a real SQLite file that is told to fail.

use std::sync::atomic::Ordering;
use std::time::Duration;

use spillgate_admission::BreakerState;
use spillgate_connector::Failure;
use spillgate_engine::{BreakerView, KeptBreaker, Outcome};
use spillgate_model::{Code, Refusal, Scope};
use tokio::task::JoinHandle;

use crate::support::{QUICK, Settings, World, patiently, refusal, rows, until};

const OTHER: &str = r#"
name = "other"
http = "GET /other"
effect = "read"
deadline = "20s"
[[step]]
name = "s"
database = "main"
sql = "SELECT ID FROM ITEM WHERE ID = 1"
"#;

const WRITE: &str = r#"
name = "put"
http = "POST /put"
effect = "write"
deadline = "20s"
[[step]]
name = "s"
database = "main"
sql = "UPDATE STOCK SET AMOUNT = AMOUNT + 1 WHERE ID = 1"
"#;

/// Opens after five failures, is asked again after a tenth of a second, and a probe has a second.
fn breaker() -> Settings {
    let pool = "{ max = 8, line = 100 }\nbreaker = { min_calls = 5, cool_down = \"100ms\", probe_limit = \"1s\" }";
    Settings { pool: Some(pool), ..Settings::default() }
}

impl World {
    pub(crate) fn fail_all(&self, failure: Option<Failure>) {
        *self.faults.all_reads.lock().expect("not poisoned") = failure;
    }
    /// The database's own, or the one of a flow for tenant `one`.
    fn breaker(&self, flow: Option<&str>) -> BreakerView {
        self.breaker_for("one", flow)
    }
    /// Who has none of a flow is as all who have none.
    fn breaker_for(&self, tenant: &str, flow: Option<&str>) -> BreakerView {
        let all = self.engine.breakers();
        let shown = all.into_iter().filter(|view| view.flow.as_deref() == flow && *view.database == *"main");
        shown.filter(|view| view.tenant.as_deref().is_none_or(|name| name == tenant)).last().expect("it is there")
    }
    fn gate_says(&self, tenant: &str, flow: &str) -> Option<Refusal> {
        let live = self.engine.live();
        let flow = live.plan.flows.iter().position(|known| &*known.name == flow).expect("there");
        let tenant = live.tenants.iter().position(|known| &*known.plan.name == tenant).expect("there");
        self.engine.breaker_refuses(&live, tenant, flow)
    }
    fn state(&self, flow: Option<&str>) -> BreakerState {
        self.breaker(flow).status.state
    }
    /// Makes calls of a flow fail until its breaker, or the database's, is open.
    async fn open(&self, flow: &str, failure: Failure, whose: Option<&str>) {
        self.fail_all(Some(failure));
        for _ in 0..5 {
            let refused = self.refusal(flow, "{}").await;
            assert!(refused.code != Code::BreakerOpen, "not before it has seen five: {refused}");
        }
        assert_eq!(self.state(whose), BreakerState::Open);
        self.fail_all(None);
    }
    async fn half_open(&self, whose: Option<&str>) {
        until("the cool-down is over", || self.state(whose) == BreakerState::HalfOpen).await;
    }
    /// 100 calls, of which one may pass: it waits in the database; all others are refused.
    async fn crowd(&self, whose: Option<&str>) -> JoinHandle<Outcome> {
        let before = self.faults.reads();
        self.faults.reads_wait.store(1, Ordering::SeqCst);
        let mut calls: Vec<_> = (0..100).map(|_| self.spawn("quick")).collect();
        until("all but one are answered", || calls.iter().filter(|call| call.is_finished()).count() == 99).await;
        until("the probe is in the database", || self.faults.reads() == before + 1).await;
        assert_eq!(self.breaker(whose).status.probes, 1);
        let probe = calls.iter().position(|call| !call.is_finished()).expect("one");
        let probe = calls.swap_remove(probe);
        for call in calls {
            expect_open(&refusal(call.await.expect("no panic")), if whose.is_some() { Scope::Flow } else { Scope::Database });
        }
        assert_eq!(self.faults.reads(), before + 1, "exactly one call of a hundred was a probe");
        probe
    }
    async fn closes_with_the_next_good_answer(&self, whose: Option<&str>) {
        assert_eq!(self.rows("quick", "{}").await.len(), 1);
        assert_eq!(self.state(whose), BreakerState::Closed);
        let calls: Vec<_> = (0..100).map(|_| self.spawn("quick")).collect();
        for call in calls {
            assert_eq!(rows(patiently("a call", call).await.expect("no panic")).len(), 1);
        }
    }
}

fn expect_open(refused: &Refusal, scope: Scope) {
    assert_eq!((refused.code, refused.scope, refused.retryable), (Code::BreakerOpen, scope, true), "{refused}");
    assert!(refused.retry_after.is_some_and(|wait| !wait.is_zero() && wait < Duration::from_secs(2)));
    assert!(refused.valid_until_ms.is_some());
    let (whose, not_whose) = if scope == Scope::Flow { ("this flow", "same database") } else { ("same database", "flow") };
    assert!(refused.advice().contains(whose) && !refused.advice().contains(not_whose), "{}", refused.advice());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e2_a_probe_that_ends_in_a_callers_error_frees_its_place() {
    let world = World::with(&breaker(), &[QUICK]);
    world.open("quick", Failure::Unreachable, None).await;
    world.half_open(None).await;
    let probe = world.crowd(None).await;
    world.faults.fail_reads([Failure::Refused]);
    world.faults.reads_go.notify_one();
    assert_eq!(refusal(patiently("the probe", probe).await.expect("no panic")).code, Code::DatabaseError);
    assert_eq!((world.state(None), world.breaker(None).status.probes), (BreakerState::HalfOpen, 0));
    world.closes_with_the_next_good_answer(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e2_a_probe_that_hangs_frees_its_place_after_its_limit() {
    let world = World::with(&breaker(), &[QUICK]);
    world.open("quick", Failure::Unreachable, None).await;
    world.half_open(None).await;
    let lost = world.crowd(None).await;
    until("its limit is over", || world.breaker(None).status.probes == 0).await;
    assert!(!lost.is_finished());
    let probe = world.crowd(None).await;
    lost.abort();
    assert!(lost.await.is_err_and(|error| error.is_cancelled()));
    assert_eq!(world.breaker(None).status.probes, 1, "a lost one takes nobody else's place with it");
    world.faults.reads_go.notify_one();
    assert_eq!(rows(patiently("the probe", probe).await.expect("no panic")).len(), 1);
    world.closes_with_the_next_good_answer(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e2_a_probe_whose_caller_hangs_up_frees_its_place_at_once() {
    let world = World::with(&breaker(), &[QUICK]);
    world.open("quick", Failure::Ended, Some("quick")).await;
    world.half_open(Some("quick")).await;
    let probe = world.crowd(Some("quick")).await;
    probe.abort();
    assert!(probe.await.is_err_and(|error| error.is_cancelled()));
    assert_eq!(world.breaker(Some("quick")).status.probes, 0);
    world.closes_with_the_next_good_answer(Some("quick")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flow_that_gets_no_answers_shuts_the_database_for_nobody_else() {
    let world = World::with(&breaker(), &[QUICK, OTHER]);
    world.open("quick", Failure::Ended, Some("quick")).await;
    expect_open(&world.refusal("quick", "{}").await, Scope::Flow);
    assert_eq!(world.rows("other", "{}").await.len(), 1);
    assert_eq!((world.state(None), world.state(Some("other"))), (BreakerState::Closed, BreakerState::Closed));
    expect_open(&world.gate_says("one", "quick").expect("the gate knows"), Scope::Flow);
    assert_eq!(world.gate_says("one", "other"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flow_that_gets_no_answers_for_one_tenant_is_shut_for_no_other() {
    let pool = "{ max = 8, line = 100 }\nbreaker = { min_calls = 5, cool_down = \"1s\" }";
    let world = World::with(&Settings { pool: Some(pool), ..Settings::default() }, &[QUICK, WRITE]);
    let as_two = |flow: &str| world.engine.run(world.call_as("two", flow, "{}"));
    world.open("quick", Failure::Ended, Some("quick")).await;
    assert_eq!(rows(as_two("quick").await).len(), 1);
    expect_open(&world.refusal("quick", "{}").await, Scope::Flow);
    assert_eq!(world.gate_says("two", "quick"), None);
    assert!(world.faults.metrics().contains("spillgate_breaker_shut_out_tenants{database=\"main\",flow=\"quick\"} 1"));

    // Whatever becomes of the other's calls, they take no probe's place and prove nothing for the first.
    world.half_open(Some("quick")).await;
    let probe = world.crowd(Some("quick")).await;
    assert_eq!(rows(as_two("quick").await).len(), 1);
    assert_eq!((world.state(Some("quick")), world.breaker(Some("quick")).status.probes), (BreakerState::HalfOpen, 1));
    world.faults.reads_go.notify_one();
    assert_eq!(rows(patiently("the probe", probe).await.expect("no panic")).len(), 1);
    assert_eq!(world.state(Some("quick")), BreakerState::Closed);

    // A write's own task knows whose it is, too.
    world.faults.next_writes.lock().expect("not poisoned").extend(std::iter::repeat_n(Failure::Ended, 5));
    for _ in 0..5 {
        refusal(patiently("a write", as_two("put")).await);
    }
    expect_open(&refusal(as_two("put").await), Scope::Flow);
    assert_eq!(world.breaker_for("two", Some("put")).tenant.as_deref(), Some("two"));
    assert!(matches!(world.run("put", "{}").await, Outcome::Rows { affected: Some(1), .. }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_nothing_fails_and_where_it_was_long_ago_no_tenant_has_a_breaker() {
    let pool = "{ max = 8, line = 100 }\nbreaker = { window = \"1s\", min_calls = 5 }";
    let world = World::with(&Settings { pool: Some(pool), ..Settings::default() }, &[QUICK]);
    let tenants = || world.engine.breakers().into_iter().filter_map(|view| view.tenant).collect::<Vec<_>>();
    assert_eq!(world.rows("quick", "{}").await.len(), 1);
    assert!(tenants().is_empty());
    world.faults.fail_reads([Failure::Ended]);
    world.refusal("quick", "{}").await;
    assert_eq!(tenants(), ["one".into()]);
    until("it is forgotten", || tenants().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_are_refused_between_tries_to_connect_open_nothing() {
    let pool = "{ max = 8, line = 100 }\nbreaker = { min_calls = 3 }";
    let world = World::with(&Settings { pool: Some(pool), ..Settings::default() }, &[QUICK]);
    world.faults.connects_fail.store(true, Ordering::SeqCst);
    let mut refused = 0;
    patiently("three tries", async {
        while world.state(None) == BreakerState::Closed {
            assert_eq!(world.refusal("quick", "{}").await.code, Code::DatabaseUnreachable);
            refused += 1;
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(world.faults.connects.load(Ordering::SeqCst), 3, "it opens by what was tried");
    assert!(refused > 3, "{refused} calls were refused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e2_links_that_a_tenants_statements_take_with_them_shut_out_that_tenant_from_that_flow_alone() {
    let world = World::with(&breaker(), &[QUICK, OTHER]);
    let as_two = |flow: &str| world.engine.run(world.call_as("two", flow, "{}"));
    world.fail_all(Some(Failure::LinkLost));
    for _ in 0..5 {
        assert_eq!(world.refusal("quick", "{}").await.code, Code::DatabaseUnreachable);
    }
    expect_open(&world.refusal("quick", "{}").await, Scope::Flow);
    world.fail_all(None);
    for flow in ["quick", "other"] {
        assert_eq!((rows(as_two(flow).await).len(), world.gate_says("two", flow)), (1, None));
    }
    assert_eq!(world.rows("other", "{}").await.len(), 1, "nor is it shut out of others");
    assert_eq!((world.state(None), world.breaker(None).status.failures), (BreakerState::Closed, 0));
    world.half_open(Some("quick")).await;
    world.closes_with_the_next_good_answer(Some("quick")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_goes_down_is_left_alone_by_the_sessions_that_cannot_be_opened_and_recovers() {
    let pool = "{ max = 8, line = 100 }\nbreaker = { min_calls = 3, cool_down = \"100ms\" }";
    let world = World::with(&Settings { pool: Some(pool), ..Settings::default() }, &[QUICK, OTHER]);
    assert_eq!(world.rows("quick", "{}").await.len(), 1);
    // Kept sessions are lost over what is sent next, and no other can be opened.
    world.fail_all(Some(Failure::LinkLost));
    world.faults.connects_fail.store(true, Ordering::SeqCst);
    patiently("it opens", async {
        while world.state(None) == BreakerState::Closed {
            assert_eq!(world.refusal("quick", "{}").await.code, Code::DatabaseUnreachable);
            tokio::task::yield_now().await;
        }
    })
    .await;
    expect_open(&refusal(world.engine.run(world.call_as("two", "other", "{}")).await), Scope::Database);
    assert_eq!(world.state(Some("quick")), BreakerState::Closed, "it is not for the flow to answer for that");
    world.fail_all(None);
    world.faults.connects_fail.store(false, Ordering::SeqCst);
    patiently("it closes", async {
        while !matches!(world.run("other", "{}").await, Outcome::Rows { .. }) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(world.state(None), BreakerState::Closed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_asks_for_a_window_comes_to_rest_and_is_kept_no_longer() {
    let pool = "{ max = 8, line = 100 }\nbreaker = { window = \"1s\", min_calls = 5, cool_down = \"100ms\" }";
    let world = World::with(&Settings { pool: Some(pool), ..Settings::default() }, &[QUICK, OTHER]);
    world.open("quick", Failure::Ended, Some("quick")).await;
    world.open("other", Failure::Unreachable, None).await;
    let (kept, moved) = (world.engine.kept_breakers(), world.engine.breaker_moved());
    assert_eq!(kept.len(), 2);
    until("nothing is kept", || world.engine.kept_breakers().is_empty()).await;
    let metrics = || {
        world.engine.publish_seats();
        world.faults.metrics()
    };
    for not_closed in ["state=\"open\"} 1", "state=\"half_open\"} 1", "tenants{database=\"main\",flow=\"quick\"} 1"] {
        assert!(!metrics().contains(not_closed), "{}", metrics());
    }
    patiently("whoever keeps them is told", async {
        while world.breaker(None).moves.last().is_none_or(|moved| moved.to != BreakerState::Closed) {
            moved.notified().await;
        }
    })
    .await;
    until("it is forgotten", || world.engine.breakers().iter().all(|view| view.tenant.is_none())).await;
    let calls: Vec<_> = (0..100).map(|_| world.spawn("quick")).collect();
    for call in calls {
        assert_eq!(rows(patiently("a call", call).await.expect("no panic")).len(), 1, "no call waits for another's probe");
    }
    // Nor is it opened again by what was kept of it.
    let started = crate::support::start(&world.folder, &world.faults, [7; 32]);
    started.restore_breakers(&kept);
    assert!(started.breakers().iter().all(|view| view.status.state == BreakerState::Closed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_callers_do_opens_nothing() {
    let hasty = r#"
name = "hasty"
http = "GET /hasty"
effect = "read"
deadline = "10s"
[[step]]
name = "s"
database = "main"
sql = "SELECT count(*) AS N FROM ITEM"
"#;
    let world = World::with(&breaker(), &[QUICK, hasty]);
    for failure in [Failure::Refused, Failure::Passing, Failure::ValueInexact { column: "N".into() }] {
        world.fail_all(Some(failure));
        for _ in 0..20 {
            world.refusal("quick", "{}").await;
        }
    }
    world.fail_all(None);
    // They hang up while the database works.
    for _ in 0..20 {
        let before = world.faults.reads();
        world.faults.reads_wait.store(1, Ordering::SeqCst);
        let call = world.spawn("quick");
        until("it works", || world.faults.reads() > before).await;
        call.abort();
        let _cancelled = call.await;
    }
    // They give it far less time than the flow does.
    for _ in 0..20 {
        world.faults.reads_wait.store(1, Ordering::SeqCst);
        let mut call = world.call("hasty", "{}");
        call.flowfile.deadline = std::time::Instant::now() + Duration::from_millis(5);
        refusal(patiently("a hasty call", world.engine.run(call)).await);
    }
    world.faults.reads_wait.store(0, Ordering::SeqCst);
    for view in world.engine.breakers() {
        assert_eq!((view.status.state, view.status.failures), (BreakerState::Closed, 0), "{view:?}");
    }
    until("what was left is over", || world.seats().ending == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_without_an_answer_open_their_flow() {
    let mute = r#"
name = "mute"
http = "GET /mute"
effect = "read"
deadline = "40ms"
[[step]]
name = "s"
database = "main"
sql = "SELECT count(*) AS N FROM ITEM"
"#;
    let world = World::with(&breaker(), &[QUICK, mute]);
    assert_eq!(world.rows("quick", "{}").await.len(), 1);
    world.faults.reads_wait.store(1_000, Ordering::SeqCst);
    patiently("it opens", async {
        while world.state(Some("mute")) == BreakerState::Closed {
            let refused = world.refusal("mute", "{}").await;
            assert!(matches!(refused.code, Code::DeadlineExceeded | Code::WaitTooLong), "{refused}");
        }
    })
    .await;
    assert_eq!(world.state(None), BreakerState::Closed, "the database may well answer others");
    world.faults.reads_wait.store(0, Ordering::SeqCst);
    world.faults.reads_go.notify_waiters();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_is_not_even_begun_behind_an_open_breaker_and_closes_it_by_its_commit() {
    let world = World::with(&breaker(), &[QUICK, WRITE]);
    world.open("quick", Failure::Unreachable, None).await;
    let begun = world.faults.begins.load(Ordering::SeqCst);
    let refused = world.refusal("put", "{}").await;
    expect_open(&refused, Scope::Database);
    assert_eq!(world.faults.begins.load(Ordering::SeqCst), begun);
    world.half_open(None).await;
    assert!(matches!(world.run("put", "{}").await, Outcome::Rows { affected: Some(1), .. }));
    assert_eq!(world.state(None), BreakerState::Closed);
    let moves: Vec<_> = world.breaker(None).moves.iter().map(|moved| moved.to).collect();
    assert_eq!(moves, [BreakerState::Open, BreakerState::HalfOpen, BreakerState::Closed]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_error_answers_while_it_is_open() {
    let answering = r#"
name = "answering"
http = "GET /answering"
effect = "read"
[[step]]
name = "s"
database = "main"
sql = "SELECT count(*) AS N FROM ITEM"
on_error = { value = "unknown" }
"#;
    let world = World::with(&breaker(), &[QUICK, answering]);
    world.open("quick", Failure::Unreachable, None).await;
    assert_eq!(world.value("answering", "{}").await, "\"unknown\"");
    assert_eq!(world.gate_says("one", "answering"), None, "the gate lets it pass");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_is_kept_across_a_restart_and_a_mended_flow_is_not() {
    let world = World::with(&breaker(), &[QUICK, OTHER]);
    world.open("quick", Failure::Ended, Some("quick")).await;
    world.open("other", Failure::Unreachable, None).await;
    let mut kept = world.engine.kept_breakers();
    assert_eq!(kept.iter().map(KeptBreaker::name).collect::<Vec<_>>(), ["main", "main/quick/one"]);
    kept.iter_mut().for_each(|kept| kept.until_ms += 3_600_000);
    // As it was kept when a flow had one for all tenants, and as of a tenant that is no more.
    let everybody = KeptBreaker { flow: Some("other".into()), tenant: None, ..kept[1].clone() };
    let nobody = KeptBreaker { tenant: Some("gone".into()), ..kept[1].clone() };
    kept.extend([everybody, nobody]);

    let started = crate::support::start(&world.folder, &world.faults, [7; 32]);
    started.restore_breakers(&kept);
    let call = crate::support::call(&started, "one", "other", "{}");
    let refused = refusal(started.run(call).await);
    expect_open(&refused, Scope::Database);
    let open = started.breakers().into_iter().filter(|view| view.status.outage.is_some());
    let open: Vec<_> = open.map(|view| (view.flow.as_deref().map(str::to_owned), view.tenant.as_deref().map(str::to_owned))).collect();
    assert_eq!(open, [(None, None), (Some("quick".into()), Some("one".into()))]);

    let mended = QUICK.replace("count(*)", "count(ID)");
    world.reload(&breaker(), &[&mended, OTHER]).expect("it is applied");
    assert_eq!((world.state(Some("quick")), world.state(None) != BreakerState::Closed), (BreakerState::Closed, true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_very_many_open_breakers_the_oldest_are_kept() {
    let pool = Some("{ max = 8, line = 100 }\nbreaker = { min_calls = 1, cool_down = \"30s\" }");
    let more = (0..300).map(|number| format!("[tenant.many-{number:03}]\nkeys = [\"key-of-{number:03}\"]\n")).collect();
    let world = World::with(&Settings { pool, more, ..Settings::default() }, &[QUICK]);
    world.fail_all(Some(Failure::Ended));
    for number in 0..300 {
        let call = world.call_as(&format!("many-{number:03}"), "quick", "{}");
        assert!(refusal(world.engine.run(call).await).code != Code::BreakerOpen, "nobody is shut out by another's failure");
    }
    world.fail_all(None);
    assert_eq!(world.rows("quick", "{}").await.len(), 1, "nor who never failed");
    let kept = world.engine.kept_breakers();
    assert_eq!((kept.len(), kept[0].tenant.as_deref()), (256, Some("many-000")));
    assert!(kept.iter().zip(&world.engine.kept_breakers()).all(|(kept, again)| kept.is_as(again)), "time alone changes nothing of it");
    let later = KeptBreaker { until_ms: kept[0].until_ms + 1_000, ..kept[0].clone() };
    assert!(!kept[0].is_as(&later));
    let metrics = {
        world.engine.publish_seats();
        world.faults.metrics()
    };
    assert!(metrics.contains("spillgate_breaker_shut_out_tenants{database=\"main\",flow=\"quick\"} 300"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_breaker_that_is_off_lets_everything_pass() {
    let off = Settings { pool: Some("{ max = 8 }\nbreaker = \"off\""), ..Settings::default() };
    let world = World::with(&off, &[QUICK]);
    world.fail_all(Some(Failure::LinkLost));
    for _ in 0..50 {
        assert_eq!(world.refusal("quick", "{}").await.code, Code::DatabaseUnreachable);
    }
    assert!(world.engine.kept_breakers().is_empty());
}
