//! Work that nobody does because the plan lacks what it needs. It is kept, and done once the plan has that again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use spillgate_queue::{LaneName, Store};
use spillgate_telemetry::happened;

use super::state::HeldLane;
use super::turns::HeldBy;
use crate::Live;

/// What waits for another configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unserved {
    /// Items in lanes whose queue or tenant the plan does not have.
    pub items: u64,
    /// Lanes with items whose flow the plan does not have, or whose tenant may not call it.
    pub lanes: usize,
}

impl Unserved {
    /// A sentence for each, for anybody to read.
    pub fn reasons(self) -> impl Iterator<Item = String> {
        let Unserved { items, lanes } = self;
        let of_lanes = (items > 0).then(|| format!("{items} queued items wait for a queue or a tenant that is not configured"));
        let of_flows =
            (lanes > 0).then(|| format!("in {lanes} lanes items wait for a flow, or the right to call it, that is not configured"));
        of_lanes.into_iter().chain(of_flows)
    }
}

/// Names in parentheses are the engine's own: it looks after them itself.
fn is_served(live: &Live, lane: &LaneName) -> bool {
    let queue = || live.plan.queues.iter().any(|queue| queue.name == lane.queue);
    let tenant = || live.plan.tenants.binary_search_by(|tenant| tenant.name.cmp(&lane.tenant)).is_ok();
    lane.queue.starts_with('(') || (queue() && tenant())
}

/// Lanes that nobody serves though something waits in them.
pub(super) fn lanes(store: &Store, live: &Live) -> Vec<HeldLane> {
    let now = Instant::now();
    let lanes = store.lanes(None).into_iter().filter(|lane| lane.waiting > 0 && !is_served(live, &lane.name));
    let held =
        lanes.map(|lane| HeldLane { since: now.checked_sub(lane.waits_for).unwrap_or(now), lane: lane.name, by: HeldBy::Configuration });
    held.collect()
}

/// Items of a queue that nobody serves.
pub(super) fn items(store: &Store, live: &Live, queue: &Arc<str>) -> u64 {
    let waiting = store.waiting(queue).into_iter();
    let unserved = waiting.filter(|(tenant, _)| !is_served(live, &LaneName { queue: queue.clone(), tenant: tenant.clone() }));
    unserved.map(|(_, waiting)| waiting).sum()
}

/// The queues with lanes that this plan does not serve; what waits in them is said once for each plan.
pub(super) fn told(store: &Store, live: &Live) -> Vec<Arc<str>> {
    let mut unserved: BTreeMap<Arc<str>, u64> = BTreeMap::new();
    for lane in store.lanes(None).into_iter().filter(|lane| !is_served(live, &lane.name)) {
        *unserved.entry(lane.name.queue).or_default() += lane.waiting;
    }
    for (queue, waiting) in unserved.iter().filter(|(_, waiting)| **waiting > 0) {
        happened::items_unserved(queue, *waiting);
    }
    unserved.into_keys().collect()
}
