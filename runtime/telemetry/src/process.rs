//! What is counted once per process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::instrument::{Counter, Gauge};
use crate::throttle::Throttle;
use crate::unpoisoned;

/// Counts of all caches together.
#[derive(Debug, Default)]
#[allow(missing_docs)]
pub struct CacheMetrics {
    pub hits: Counter,
    pub misses: Counter,
    pub stale: Counter,
    pub evictions: Counter,
    pub bytes: Gauge,
}

/// Counts of the whole process.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct ProcessMetrics {
    pub cache: Arc<CacheMetrics>,
    /// Set by whoever renders, from the budget itself.
    pub memory_reserved: Gauge,
    pub memory_limit: Gauge,
    pub(crate) access_dropped: Arc<Counter>,
    pub(crate) log_dropped: Arc<Counter>,
    pub(crate) log_held_back: Arc<Counter>,
    pub(crate) spans_dropped: Arc<Counter>,
    pub(crate) reloads_applied: Counter,
    pub(crate) reloads_refused: Counter,
    /// Changes by operators: done and refused.
    admin_changes: Mutex<BTreeMap<&'static str, [u64; 2]>>,
    /// Known runs by class, as they were when somebody looked.
    runs: Mutex<BTreeMap<&'static str, u64>>,
    pub(crate) config_version: Mutex<Option<Box<str>>>,
    pub(crate) started: Instant,
    pub(crate) call_failed: Throttle,
    pub(crate) admin_denied: Throttle,
    pub(crate) not_accepted: Throttle,
}

impl Default for ProcessMetrics {
    fn default() -> Self {
        let log_held_back = Arc::default();
        ProcessMetrics {
            call_failed: Throttle::new(&log_held_back),
            admin_denied: Throttle::new(&log_held_back),
            not_accepted: Throttle::new(&log_held_back),
            log_held_back,
            cache: Arc::default(),
            memory_reserved: Gauge::default(),
            memory_limit: Gauge::default(),
            access_dropped: Arc::default(),
            log_dropped: Arc::default(),
            spans_dropped: Arc::default(),
            reloads_applied: Counter::default(),
            reloads_refused: Counter::default(),
            admin_changes: Mutex::default(),
            runs: Mutex::default(),
            config_version: Mutex::default(),
            started: Instant::now(),
        }
    }
}

impl ProcessMetrics {
    /// The configuration that runs.
    pub fn config_version(&self) -> Option<Box<str>> {
        unpoisoned(self.config_version.lock()).clone()
    }
    /// Runs that are known at this moment, each with the class of its tenant: whoever renders the page says so first.
    pub fn runs_now(&self, runs: impl Iterator<Item = (&'static str, u64)>) {
        let mut known = unpoisoned(self.runs.lock());
        known.values_mut().for_each(|count| *count = 0);
        runs.for_each(|(class, count)| *known.entry(class).or_default() += count);
    }
    /// The same, read.
    pub fn runs(&self) -> BTreeMap<&'static str, u64> {
        unpoisoned(self.runs.lock()).clone()
    }
    pub(crate) fn admin_change(&self, action: &'static str, done: bool) {
        unpoisoned(self.admin_changes.lock()).entry(action).or_default()[usize::from(!done)] += 1;
    }
    /// Changes by operators, by action: how many were done, and how many refused.
    pub fn admin_changes(&self) -> BTreeMap<&'static str, [u64; 2]> {
        unpoisoned(self.admin_changes.lock()).clone()
    }
    /// Reloads that were applied, and that were refused.
    pub fn reloads(&self) -> (u64, u64) {
        (self.reloads_applied.value(), self.reloads_refused.value())
    }
    /// Access records that were not written.
    pub fn access_dropped(&self) -> u64 {
        self.access_dropped.value()
    }
}

/// Memory of the process as the system counts it; 0 where it does not say.
pub(crate) fn resident_bytes() -> u64 {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return 0 };
    let kibibytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}
