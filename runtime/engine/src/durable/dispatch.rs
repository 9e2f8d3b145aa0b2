//! The workers of one queue: whose turn it is is decided in `turns`, what is done with an item in `attempt`.
//!
//! One task a queue waits for work (it never asks again and again), hands out turns to at most `workers` tasks, and hears what came of
//! them. The live plan is looked at for each turn: workers come and go with it, and a queue that left it is no longer served.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use spillgate_config::plan::QueuePlan;
use spillgate_queue::{LaneName, Store, Take, TakeFrom, Waits};
use spillgate_telemetry::happened;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::attempt::{Work, attempt};
use super::schedule::{self, SCHEDULE};
use super::state::Held;
use super::turns::{After, HeldBy, Turn, Turns};
use super::until;
use crate::Live;
use crate::reload::Inner;

/// How long a lane waits after the store did not answer.
const STORE_PAUSE: Duration = Duration::from_secs(1);
/// While there are turns to give, lanes are looked at so seldom: each end of an item tells that there may be work.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What a queue's task is told from outside.
#[derive(Clone)]
pub(super) struct Signals {
    /// Take no more.
    pub(super) stop: CancellationToken,
    /// End what runs.
    pub(super) cut_off: CancellationToken,
}

/// Somebody who is told again and again, also of what happens while he is not listening.
pub(super) struct Told {
    by: Arc<Notify>,
    next: Pin<Box<OwnedNotified>>,
}

impl Told {
    pub(super) fn by(notify: Arc<Notify>) -> Self {
        let mut next = Box::pin(notify.clone().notified_owned());
        next.as_mut().enable();
        Told { by: notify, next }
    }
    /// Answers when something happened since it answered last.
    pub(super) async fn again(&mut self) {
        (&mut self.next).await;
        self.next.set(self.by.clone().notified_owned());
        self.next.as_mut().enable();
    }
}

/// Serves a queue until it is told to stop, the engine is gone, or the queue has left the plan.
pub(super) async fn serve(engine: Weak<Inner>, store: Store, queue: Arc<str>, signals: Signals) {
    let Some(inner) = engine.upgrade() else { return };
    let mut told = Told::by(store.work(&queue));
    let mut reloaded = Told::by(inner.durability.reloaded.clone());
    let mut answered = Told::by(inner.durability.answered.clone());
    drop(inner);
    let (mut turns, mut running) = (Turns::default(), JoinSet::new());
    let (mut look, mut looked_at) = (true, Instant::now());
    let mut holds = false;
    loop {
        let Some(inner) = engine.upgrade() else { return };
        let live = inner.live.load_full();
        let Some(plan) = plan_of(&live, &queue) else { break };
        let now = Instant::now();
        if look && (now >= looked_at + LOOK_AGAIN || !turns.has_ready()) {
            turns.tell(lanes(&store, &live, &queue));
            (look, looked_at) = (false, now);
        }
        while running.len() < plan.workers
            && let Some(turn) = turns.next(plan.workers, now)
        {
            running.spawn(one(inner.clone(), store.clone(), plan.clone(), turn, signals.cut_off.clone()));
        }
        let held = held(&turns, now);
        if holds || !held.is_empty() {
            holds = !held.is_empty();
            inner.durability.holding.set(&queue, held);
        }
        let wakes = turns.wakes_at().into_iter().chain(look.then(|| looked_at + LOOK_AGAIN)).min();
        drop((inner, live));
        tokio::select! {
            () = told.again() => look = true,
            () = reloaded.again() => {
                look = true;
                turns.replanned();
            }
            () = answered.again() => turns.release(HeldBy::Database, Instant::now()),
            Some(ended) = running.join_next() => {
                if let Ok((turn, after)) = ended {
                    turns.ended(&turn, after, Instant::now());
                }
            }
            () = until(wakes) => {}
            () = signals.stop.cancelled() => break,
        }
    }
    if let Some(inner) = engine.upgrade() {
        inner.durability.holding.set(&queue, Vec::new());
    }
    while running.join_next().await.is_some() {}
}

/// The plan of a queue: of the live configuration, or of the engine's own lanes.
fn plan_of(live: &Live, queue: &Arc<str>) -> Option<QueuePlan> {
    if **queue == *SCHEDULE {
        return Some(schedule::left_over(queue.clone()));
    }
    live.plan.queues.iter().find(|plan| plan.name == *queue).cloned()
}

/// Lanes of tenants that the plan knows, with how many items wait in each, and the tenant's weight.
fn lanes(store: &Store, live: &Live, queue: &str) -> Vec<(Arc<str>, u64, u32)> {
    let known = |(tenant, waiting): (Arc<str>, u64)| {
        let index = live.plan.tenants.binary_search_by(|known| (*known.name).cmp(&tenant)).ok()?;
        Some((tenant, waiting, live.tenants.get(index)?.plan.weight.value))
    };
    store.waiting(queue).into_iter().filter_map(known).collect()
}

fn held(turns: &Turns, now: Instant) -> Vec<Held> {
    turns.held(now).map(|(tenant, by, since)| Held { tenant: tenant.clone(), by, since }).collect()
}

/// One turn: takes an item and works on it.
async fn one(inner: Arc<Inner>, store: Store, plan: QueuePlan, turn: Turn, cut_off: CancellationToken) -> (Turn, After) {
    let lane = LaneName { queue: plan.name.clone(), tenant: turn.tenant.clone() };
    let working = async {
        let take = store.take(TakeFrom { lane: lane.clone(), most: 1, lease: plan.lease }).await;
        let items = match take {
            Ok(Take::Items(items)) => items,
            Ok(Take::Nothing { waits, ready_in }) => {
                if waits == Waits::DeadLetters && inner.durability.holding.parked(&lane) {
                    happened::lane_parked(&inner.telemetry, &lane.queue, &lane.tenant);
                }
                return After::Nothing { ready_in };
            }
            Err(_) => return After::Held { by: HeldBy::Store, pause: STORE_PAUSE },
        };
        inner.durability.holding.served(&lane);
        let work = Work { inner: &inner, store: &store, queue: &plan, tenant: &turn.tenant, cut_off: &cut_off };
        let mut after = After::Served;
        for leased in items {
            after = attempt(&work, leased).await;
        }
        after
    };
    // A fault of ours costs this attempt: its lease was dropped, which hands the item back, counted.
    let after = AssertUnwindSafe(working).catch_unwind().await;
    (turn, after.unwrap_or(After::Held { by: HeldBy::Store, pause: STORE_PAUSE }))
}
