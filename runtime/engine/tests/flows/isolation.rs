//! One call, one tenant, one database does not hold up another.

use std::sync::atomic::Ordering;
use std::time::Duration;

use spillgate_model::Code;
use tokio::time::Instant;

use crate::support::{QUICK, Settings, World, patiently, refusal, until};

fn pool(pool: &'static str) -> Settings {
    Settings { pool: Some(pool), ..Settings::default() }
}

#[tokio::test]
async fn b12_one_waiting_statement_holds_up_no_other() {
    let world = World::with(&pool("{ max = 4 }"), &[QUICK]);
    world.faults.reads_wait.store(1, Ordering::SeqCst);
    let waits = world.spawn("quick");
    until("it waits in the database", || world.faults.reads() == 1).await;
    for tenant in ["one", "two"].into_iter().cycle().take(20) {
        let ended = world.engine.run(world.call_as(tenant, "quick", "{}"));
        assert_eq!(crate::support::rows(patiently("a call beside", ended).await).len(), 1);
    }
    assert!(!waits.is_finished());
    world.faults.reads_go.notify_one();
    assert_eq!(crate::support::rows(waits.await.expect("no panic")).len(), 1);
    assert_eq!(world.seats().in_use, 0);
}

#[tokio::test]
async fn promise_5_a_tenant_never_holds_more_than_its_share_and_leaves_the_rest() {
    let world = World::with(&pool("{ max = 4, line = 100 }"), &[QUICK]);
    world.faults.reads_wait.store(2, Ordering::SeqCst);
    let flood: Vec<_> = (0..30).map(|_| world.spawn("quick")).collect();
    until("the flood holds what it may", || world.faults.reads() == 2 && world.seats().waiting == 28).await;
    // Two seats are not its own, whatever it asks.
    for _ in 0..10 {
        patiently("the other tenant", world.engine.run(world.call_as("two", "quick", "{}"))).await;
    }
    assert_eq!((world.seats().in_use, world.seats().waiting), (2, 28));
    let fair = world.engine.live().databases[0].status().fair;
    let of_one: Vec<_> = fair.tenants.iter().filter(|of| &*of.tenant == "one").map(|of| (of.held, of.waiting)).collect();
    assert_eq!((fair.in_use, of_one), (2, vec![(2, 28)]));
    world.engine.publish_seats();
    let metrics = world.faults.metrics();
    for (name, value) in [("spillgate_database_tenant_seats", 2), ("spillgate_database_tenant_waiting", 28)] {
        let line = format!("{name}{{database=\"main\",tenant=\"one\"}} {value}\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
    world.faults.reads_go.notify_one();
    world.faults.reads_go.notify_one();
    let calls = patiently("the flood", async {
        let mut ended = 0;
        for call in flood {
            ended += usize::from(call.await.is_ok());
        }
        ended
    });
    assert_eq!(calls.await, 30);
    let waits = "spillgate_database_tenant_wait_seconds_count{database=\"main\",tenant=\"one\"} 28\n";
    assert!(world.faults.metrics().contains(waits), "{waits}");
    assert_eq!((world.seats().in_use, world.seats().waiting), (0, 0));
}

#[tokio::test]
async fn a_full_line_refuses_the_youngest_and_says_when_to_come_back() {
    let world = World::with(&pool("{ max = 1, line = 1 }"), &[QUICK]);
    world.faults.reads_wait.store(1, Ordering::SeqCst);
    let holder = world.spawn("quick");
    until("the seat is taken", || world.faults.reads() == 1).await;
    let in_line = world.spawn("quick");
    until("the line is full", || world.seats().waiting == 1).await;
    let live = world.engine.live();
    let deadline = (Instant::now() + Duration::from_secs(10)).into_std();
    let foreseen = world.engine.expects(&live, 0, 0, deadline).expect("the gate knows");
    let refused = refusal(world.engine.run(world.call("quick", "{}")).await);
    for refused in [foreseen, refused] {
        assert_eq!((refused.code, refused.retryable), (Code::Overloaded, true), "{}", refused.detail);
        assert!(refused.retry_after.is_some_and(|wait| wait >= Duration::from_millis(50)));
        assert_eq!(refused.policy.as_ref().map(|policy| (policy.limit, policy.used)), Some((1, 1)));
    }
    let counted = "spillgate_database_seats_refused_total{database=\"main\",tenant=\"one\",why=\"line_full\"} 2\n";
    assert!(world.faults.metrics().contains(counted), "{counted}");
    assert!(world.engine.expects(&live, 1, 0, deadline).is_none(), "another tenant has a line of its own");
    world.faults.reads_go.notify_one();
    for call in [holder, in_line] {
        assert_eq!(crate::support::rows(call.await.expect("no panic")).len(), 1);
    }
    assert!(world.engine.expects(&live, 0, 0, deadline).is_none());
}
