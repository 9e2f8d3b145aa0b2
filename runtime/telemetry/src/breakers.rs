//! What is counted per breaker: of a database, or of one flow on it, whose tenants are counted together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::instrument::{Counter, Gauge};
use crate::throttle::Throttle;

/// How a breaker stands, as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerLabel {
    /// Everything passes.
    Closed,
    /// Nothing passes.
    Open,
    /// Probes pass.
    HalfOpen,
}

impl BreakerLabel {
    /// Every one.
    pub const ALL: [BreakerLabel; 3] = [BreakerLabel::Closed, BreakerLabel::Open, BreakerLabel::HalfOpen];
    /// The label.
    pub fn name(self) -> &'static str {
        match self {
            BreakerLabel::Closed => "closed",
            BreakerLabel::Open => "open",
            BreakerLabel::HalfOpen => "half_open",
        }
    }
}

/// Counts for one breaker. Made once per name; outlives reloads.
#[derive(Debug)]
pub struct BreakerMetrics {
    pub(crate) database: Box<str>,
    /// Empty: the database's own.
    pub(crate) flow: Box<str>,
    state: AtomicUsize,
    pub(crate) moves: [Counter; BreakerLabel::ALL.len()],
    /// Calls, and steps of calls, that it did not let pass.
    pub refused: Counter,
    /// Of a flow: tenants for which it is not closed.
    pub shut_out: Gauge,
    pub(crate) told: Throttle,
}

impl BreakerMetrics {
    pub(crate) fn new(database: &str, flow: &str, held_back: &Arc<Counter>) -> Self {
        BreakerMetrics {
            database: database.into(),
            flow: flow.into(),
            state: AtomicUsize::new(BreakerLabel::Closed as usize),
            moves: Default::default(),
            refused: Counter::default(),
            shut_out: Gauge::default(),
            told: Throttle::new(held_back),
        }
    }
    /// How it stands: of a flow, for the tenant that fares worst.
    pub fn stands(&self, label: BreakerLabel) {
        self.state.store(label as usize, Ordering::Relaxed);
    }
    pub(crate) fn moved(&self, to: BreakerLabel) {
        self.moves[to as usize].increment();
    }
    pub(crate) fn is(&self, label: BreakerLabel) -> bool {
        self.state.load(Ordering::Relaxed) == label as usize
    }
    /// A flow's breaker has no series before it was ever anything but closed.
    pub(crate) fn is_shown(&self) -> bool {
        self.flow.is_empty() || !self.is(BreakerLabel::Closed) || self.moves.iter().any(|counter| counter.value() > 0)
    }
}
