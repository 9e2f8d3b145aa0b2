//! The metrics page: durable work is read from the store at the moment it is asked for.

use std::collections::HashSet;
use std::sync::Arc;

use axum::extract::State as Shared;
use axum::response::Response;
use spillgate_config::Plan;
use spillgate_engine::{Durable, Engine};
use spillgate_queue::{Health, StoreStatus, SyncTimes, Waits};
use spillgate_telemetry::{BUCKETS, DurableReport, LaneReport, StoreReport, StoreState, names};

use crate::pages::queues;
use crate::{State, reply};

const _: () = assert!(BUCKETS == SyncTimes::BOUNDS_US.len() + 1, "times of syncs are passed on by bucket");

/// `GET /metrics`.
pub(crate) async fn metrics(Shared(state): Shared<Arc<State>>) -> Response {
    let live = state.engine.live();
    let process = state.telemetry.process();
    state.engine.publish_seats();
    process.memory_reserved.set(state.engine.memory().used());
    process.memory_limit.set(live.plan.server.memory.value);
    process.runs_now(live.tenants.iter().map(|tenant| (tenant.class().name(), tenant.gate.runs().live())));
    let page = state.telemetry.render_metrics_with(&report(&state.engine, &live.plan));
    reply::text("text/plain; version=0.0.4; charset=utf-8", page)
}

/// Durable work at this moment.
fn report(engine: &Engine, plan: &Plan) -> DurableReport {
    let store = match engine.store() {
        Durable::Absent => return DurableReport::new(StoreState::Absent, None),
        Durable::Recovering => return DurableReport::new(StoreState::Recovering, None),
        Durable::Failed(_) => return DurableReport::new(StoreState::Failed, None),
        Durable::Serving(store) => store,
    };
    let status = store.status();
    let state = match status.health {
        Health::Serving => StoreState::Serving,
        Health::DiskLow { .. } => StoreState::DiskLow,
        Health::Failed { .. } => StoreState::Failed,
    };
    let mut report = DurableReport::new(state, Some(numbers(&status)));
    let queues: HashSet<&str> = plan.queues.iter().map(|queue| &*queue.name).collect();
    let tenants: HashSet<&str> = plan.tenants.iter().map(|tenant| &*tenant.name).collect();
    let other: Arc<str> = names::OTHER.into();
    for lane in queues::Lane::all(store.lanes(None), &engine.held_lanes()) {
        let name = &lane.status.name;
        // Names in parentheses are the engine's own: a few, whatever callers do.
        let known = queues.contains(&*name.queue) || name.queue.starts_with('(');
        let queue = if known { &name.queue } else { &other };
        let tenant = if tenants.contains(&*name.tenant) { &name.tenant } else { &other };
        report.lane(queue, tenant, of_lane(&lane));
    }
    report
}

fn numbers(status: &StoreStatus) -> StoreReport {
    StoreReport {
        disk_limit: status.disk_limit,
        disk_used: status.disk_used,
        extents_used: status.extents_total.saturating_sub(status.extents_free + status.extents_quarantined),
        extents_free: status.extents_free,
        extents_quarantined: status.extents_quarantined,
        volume_free: status.volume_free,
        batches: status.batches,
        syncs: status.syncs,
        sync_times: (status.sync_times.counts, status.sync_times.total),
        moved: status.moved,
        keys: status.keys,
        cut_bytes: status.recovered.cut_bytes,
        cut_records: status.recovered.cut_records,
        missing_files: status.recovered.missing_files.len() as u64,
    }
}

fn of_lane(lane: &queues::Lane) -> LaneReport {
    let queues::Lane { status: lane, head } = lane;
    LaneReport {
        waiting: lane.waiting,
        set_aside: lane.set_aside,
        running: lane.running,
        dead: lane.dead,
        bytes: lane.bytes,
        disk: lane.disk,
        oldest_age: lane.oldest_age,
        paused: lane.paused,
        head: (lane.waits != Waits::Empty).then_some(*head),
        appended: lane.appended,
        ended: queues::ends(lane).collect(),
    }
}
