//! What is counted of durable work, and what the metrics page is told of it.
//!
//! Invariants
//! 1. What the store knows is not kept here a second time: whoever renders the page passes a [`DurableReport`], read at that
//!    moment. Only what no store knows is counted here.
//! 2. There are at most [`LANE_SERIES`] pairs of queue and tenant, and as many flows; what is beyond shares the label
//!    [`names::OTHER`] (case E8).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::instrument::{BOUNDS_US, Counter, Histogram};
use crate::throttle::Throttle;
use crate::{names, unpoisoned};

/// Most pairs of queue and tenant that have series of their own, and most scheduled flows.
pub const LANE_SERIES: usize = 2_000;
/// Queue and tenant.
pub(crate) type LaneLabels = (Arc<str>, Arc<str>);
/// What the head of a lane waits for that nobody serves.
const UNSERVED: &str = "configuration";
/// Buckets of a histogram: bounds in microseconds, and one for what is longer.
pub const BUCKETS: usize = BOUNDS_US.len() + 1;

/// What decided the end of work whose write was cut off.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolvedBy {
    Record,
    Verify,
    /// Nothing: it ended as `unknown`.
    Nothing,
    Operator,
}

impl ResolvedBy {
    /// Every one.
    pub const ALL: [ResolvedBy; 4] = [ResolvedBy::Record, ResolvedBy::Verify, ResolvedBy::Nothing, ResolvedBy::Operator];
    /// The label.
    pub fn name(self) -> &'static str {
        match self {
            ResolvedBy::Record => "record",
            ResolvedBy::Verify => "verify",
            ResolvedBy::Nothing => "nothing",
            ResolvedBy::Operator => "operator",
        }
    }
}

/// What became of a tick of a schedule.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tick {
    Run,
    /// The run before had not ended.
    Overlapping,
    /// The server did not run, or not in time.
    Missed,
    /// There was no room, or the store did not serve.
    Refused,
}

impl Tick {
    /// Every one.
    pub const ALL: [Tick; 4] = [Tick::Run, Tick::Overlapping, Tick::Missed, Tick::Refused];
    /// The label.
    pub fn name(self) -> &'static str {
        match self {
            Tick::Run => "run",
            Tick::Overlapping => "overlapping",
            Tick::Missed => "missed",
            Tick::Refused => "refused",
        }
    }
}

/// Counts of durable work that no store keeps. Counted by the functions of [`crate::happened`].
#[derive(Debug)]
pub struct DurableMetrics {
    pub(crate) leases_lost: Counter,
    pub(crate) interrupted: [Counter; ResolvedBy::ALL.len()],
    pub(crate) disk_low: Counter,
    pub(crate) parked: Counter,
    ticks: Mutex<BTreeMap<Box<str>, [u64; Tick::ALL.len()]>>,
    waits: Mutex<BTreeMap<LaneLabels, Arc<Histogram>>>,
    pub(crate) told: Told,
}

/// Lines that are held back in a storm.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) lease_lost: Throttle,
    pub(crate) item_dead: Throttle,
    pub(crate) outcome_unknown: Throttle,
    pub(crate) lane_parked: Throttle,
    pub(crate) disk: Throttle,
    pub(crate) tick: Throttle,
    pub(crate) interrupted: Throttle,
}

impl DurableMetrics {
    pub(crate) fn new(held_back: &Arc<Counter>) -> Self {
        let throttle = || Throttle::new(held_back);
        DurableMetrics {
            leases_lost: Counter::default(),
            interrupted: Default::default(),
            disk_low: Counter::default(),
            parked: Counter::default(),
            ticks: Mutex::default(),
            waits: Mutex::default(),
            told: Told {
                lease_lost: throttle(),
                item_dead: throttle(),
                outcome_unknown: throttle(),
                lane_parked: throttle(),
                disk: throttle(),
                tick: throttle(),
                interrupted: throttle(),
            },
        }
    }

    pub(crate) fn tick(&self, flow: &str, tick: Tick) {
        let mut ticks = unpoisoned(self.ticks.lock());
        let known = ticks.len() < LANE_SERIES || ticks.contains_key(flow);
        ticks.entry(if known { flow } else { names::OTHER }.into()).or_default()[tick as usize] += 1;
    }

    /// Ticks by flow and what became of them.
    pub(crate) fn ticks(&self) -> BTreeMap<Box<str>, [u64; Tick::ALL.len()]> {
        unpoisoned(self.ticks.lock()).clone()
    }
    /// An item of this lane waited so long for its first attempt.
    pub fn waited(&self, queue: &Arc<str>, tenant: &Arc<str>, time: Duration) {
        let mut waits = unpoisoned(self.waits.lock());
        let mut lane = (queue.clone(), tenant.clone());
        if waits.len() >= LANE_SERIES && !waits.contains_key(&lane) {
            lane = (names::OTHER.into(), names::OTHER.into());
        }
        waits.entry(lane).or_default().record(time);
    }
    /// Times of [`DurableMetrics::waited`] by queue and tenant.
    pub(crate) fn waits(&self) -> Vec<(LaneLabels, Arc<Histogram>)> {
        unpoisoned(self.waits.lock()).iter().map(|(lane, times)| (lane.clone(), times.clone())).collect()
    }
    /// Leases that ran out before their work ended.
    pub fn leases_lost(&self) -> u64 {
        self.leases_lost.value()
    }
    /// Cut-off writes whose end was found out this way.
    pub fn interrupted(&self, by: ResolvedBy) -> u64 {
        self.interrupted[by as usize].value()
    }
}

/// How the store is.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreState {
    Absent,
    Recovering,
    Serving,
    DiskLow,
    Failed,
}

impl StoreState {
    /// Every one.
    pub const ALL: [StoreState; 5] =
        [StoreState::Absent, StoreState::Recovering, StoreState::Serving, StoreState::DiskLow, StoreState::Failed];
    /// The label.
    pub fn name(self) -> &'static str {
        match self {
            StoreState::Absent => "absent",
            StoreState::Recovering => "recovering",
            StoreState::Serving => "serving",
            StoreState::DiskLow => "disk_low",
            StoreState::Failed => "failed",
        }
    }
}

/// Durable work at one moment, as the metrics page shows it.
#[derive(Debug, Default)]
pub struct DurableReport {
    /// How the store is; `None`: there is none.
    pub(crate) state: Option<StoreState>,
    /// Its numbers, once it was opened.
    pub(crate) store: Option<StoreReport>,
    pub(crate) lanes: BTreeMap<(Arc<str>, Arc<str>), LaneReport>,
    /// Items in lanes that wait for another configuration.
    pub(crate) unserved: u64,
}

/// The store's numbers.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct StoreReport {
    pub disk_limit: u64,
    pub disk_used: u64,
    pub extents_used: u64,
    pub extents_free: u64,
    pub extents_quarantined: u64,
    pub volume_free: u64,
    pub batches: u64,
    pub syncs: u64,
    /// Syncs by bucket of [`BUCKETS`], and the time of all of them.
    pub sync_times: ([u64; BUCKETS], Duration),
    pub moved: u64,
    pub keys: u64,
    pub cut_bytes: u64,
    pub cut_records: u64,
    pub missing_files: u64,
}

/// A lane's numbers.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct LaneReport {
    pub waiting: u64,
    pub set_aside: u64,
    pub running: u64,
    pub dead: u64,
    pub bytes: u64,
    pub disk: u64,
    pub oldest_age: Option<Duration>,
    pub paused: bool,
    /// What its head waits for, and since when. Of several lanes under one label: of the one that waits longest.
    pub head: Option<(&'static str, Duration)>,
    pub appended: u64,
    /// By final state.
    pub ended: Vec<(&'static str, u64)>,
}

impl DurableReport {
    /// A store and no lanes yet.
    pub fn new(state: StoreState, store: Option<StoreReport>) -> Self {
        DurableReport { state: Some(state), store, lanes: BTreeMap::new(), unserved: 0 }
    }
    /// Adds a lane. Names that the configuration does not have come as [`names::OTHER`]; lanes of one name are added up.
    pub fn lane(&mut self, queue: &Arc<str>, tenant: &Arc<str>, lane: LaneReport) {
        if lane.head.is_some_and(|(waits, _)| waits == UNSERVED) {
            self.unserved += lane.waiting;
        }
        let mut name = (queue.clone(), tenant.clone());
        if self.lanes.len() >= LANE_SERIES && !self.lanes.contains_key(&name) {
            name = (names::OTHER.into(), names::OTHER.into());
        }
        match self.lanes.get_mut(&name) {
            Some(known) => known.add(lane),
            None => drop(self.lanes.insert(name, lane)),
        }
    }
}

impl LaneReport {
    fn add(&mut self, other: LaneReport) {
        for (sum, more) in [
            (&mut self.waiting, other.waiting),
            (&mut self.set_aside, other.set_aside),
            (&mut self.running, other.running),
            (&mut self.dead, other.dead),
            (&mut self.bytes, other.bytes),
            (&mut self.disk, other.disk),
            (&mut self.appended, other.appended),
        ] {
            *sum += more;
        }
        self.oldest_age = self.oldest_age.max(other.oldest_age);
        self.paused |= other.paused;
        let waited = |head: &Option<(&'static str, Duration)>| head.map(|(_, time)| time);
        if waited(&other.head) > waited(&self.head) {
            self.head = other.head;
        }
        for (state, count) in other.ended {
            match self.ended.iter_mut().find(|(known, _)| *known == state) {
                Some((_, sum)) => *sum += count,
                None => self.ended.push((state, count)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_of_one_name_are_added_up_and_the_longest_wait_is_shown() {
        let mut report = DurableReport::default();
        let lane = |head, seconds, dead| LaneReport {
            waiting: 2,
            oldest_age: Some(Duration::from_secs(seconds)),
            head: Some((head, Duration::from_secs(seconds))),
            ended: vec![("succeeded", 3), ("dead", dead)],
            ..LaneReport::default()
        };
        let (queue, tenant) = ("bookings".into(), "agent".into());
        report.lane(&queue, &tenant, lane("worker", 1, 0));
        report.lane(&queue, &tenant, lane("backoff", 9, 4));
        let sum = report.lanes.values().next().expect("one lane");
        assert_eq!((sum.waiting, sum.oldest_age, sum.head), (4, Some(Duration::from_secs(9)), Some(("backoff", Duration::from_secs(9)))));
        assert_eq!(sum.ended, [("succeeded", 6), ("dead", 4)]);
    }

    #[test]
    fn e8_lanes_and_schedules_beyond_the_bound_share_one_label() {
        let mut report = DurableReport::default();
        let metrics = DurableMetrics::new(&Arc::default());
        for number in 0..LANE_SERIES + 500 {
            report.lane(&"bookings".into(), &format!("tenant-{number}").into(), LaneReport { waiting: 1, ..LaneReport::default() });
            metrics.tick(&format!("flow-{number}"), Tick::Run);
        }
        assert_eq!(report.lanes.len(), LANE_SERIES + 1);
        assert_eq!(report.lanes[&(names::OTHER.into(), names::OTHER.into())].waiting, 500);
        let ticks = metrics.ticks();
        assert_eq!((ticks.len(), ticks[names::OTHER]), (LANE_SERIES + 1, [500, 0, 0, 0]));
    }
}
