//! How long the calls of each flow hold a seat of this database: measured for as long as the database stays as it is, over reloads.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use spillgate_admission::seats::{Estimate, HoldTimes};
use spillgate_config::Plan;
use spillgate_config::plan::Flow;
use tokio::time::Instant;

/// One flow at one database.
#[derive(Debug)]
pub(crate) struct FlowSeats {
    pub(super) flow: Arc<str>,
    pub(super) times: Arc<HoldTimes>,
    began: Instant,
}

impl FlowSeats {
    pub(super) fn new(flow: &Arc<str>) -> Arc<FlowSeats> {
        Arc::new(FlowSeats { flow: flow.clone(), times: Arc::default(), began: Instant::now() })
    }
    /// How long the next call is expected to hold its seat; `None`: not yet measured.
    pub(super) fn estimate(&self) -> Option<Estimate> {
        self.times.estimate()
    }
    /// A call held its seat for so long.
    pub(super) fn held(&self, took: Duration, now: Instant) {
        self.times.record(took, now.saturating_duration_since(self.began));
    }
    /// A call was cut short after so long.
    pub(super) fn cut_short(&self, took: Duration, now: Instant) {
        self.times.cut_short(took, now.saturating_duration_since(self.began));
    }
}

/// With the version of the flow's file.
type Versioned = (u64, Arc<FlowSeats>);

/// Flows that use a database, by name. One whose file changed is another flow: it is measured anew.
#[derive(Debug, Default)]
pub(super) struct Flows {
    known: Mutex<HashMap<Arc<str>, Versioned>>,
}

impl Flows {
    pub(super) fn of(&self, flow: &Flow) -> Arc<FlowSeats> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get(&flow.name) {
            Some((version, seats)) if *version == flow.version => seats.clone(),
            _ => {
                let seats = FlowSeats::new(&flow.name);
                known.insert(flow.name.clone(), (flow.version, seats.clone()));
                seats
            }
        }
    }
    /// Forgets flows that are in no plan any more.
    pub(super) fn keep(&self, plan: &Plan) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|name, _| plan.flows.binary_search_by(|flow| flow.name.cmp(name)).is_ok());
    }
}
