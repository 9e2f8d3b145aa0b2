//! What is counted per database and tenant: who holds seats, who waits, how long, and who was refused one.
//!
//! Invariants
//! 1. A database has at most [`SEAT_SERIES`] tenants with series of their own; what is beyond shares the label [`names::OTHER`] (case E8).
//! 2. A call that gets its seat at once touches nothing here.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::instrument::{Counter, Gauge, Histogram};
use crate::{names, unpoisoned};

/// Most tenants of a database that have series of their own.
pub const SEAT_SERIES: usize = 1_000;

/// Why a call got no seat.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeatRefused {
    /// As many calls of the tenant wait as may.
    LineFull,
    /// Its deadline would pass before its statement had ended.
    WaitTooLong,
    /// It waited, and the line has stood for too long.
    Shed,
    /// The database could not be reached, or is known not to be.
    Unreachable,
}

impl SeatRefused {
    /// Every one.
    pub const ALL: [SeatRefused; 4] = [SeatRefused::LineFull, SeatRefused::WaitTooLong, SeatRefused::Shed, SeatRefused::Unreachable];
    /// The label.
    pub fn name(self) -> &'static str {
        match self {
            SeatRefused::LineFull => "line_full",
            SeatRefused::WaitTooLong => "wait_too_long",
            SeatRefused::Shed => "shed",
            SeatRefused::Unreachable => "unreachable",
        }
    }
}

/// Counts for one tenant at one database.
#[derive(Debug, Default)]
pub(crate) struct TenantSeats {
    pub(crate) held: Gauge,
    pub(crate) waiting: Gauge,
    pub(crate) wait_seconds: Histogram,
    pub(crate) refused: [Counter; SeatRefused::ALL.len()],
}

/// Tenants of one database that ever waited, were refused, or held a seat when somebody looked.
#[derive(Debug, Default)]
pub(crate) struct SeatSeries {
    tenants: Mutex<BTreeMap<Box<str>, Arc<TenantSeats>>>,
}

impl SeatSeries {
    fn of(&self, tenant: &str) -> Arc<TenantSeats> {
        let mut tenants = unpoisoned(self.tenants.lock());
        if let Some(known) = tenants.get(tenant) {
            return known.clone();
        }
        let label = if tenants.len() < SEAT_SERIES { tenant } else { names::OTHER };
        tenants.entry(label.into()).or_default().clone()
    }
    pub(crate) fn waited(&self, tenant: &str, time: Duration) {
        self.of(tenant).wait_seconds.record(time);
    }
    pub(crate) fn refused(&self, tenant: &str, why: SeatRefused) {
        self.of(tenant).refused[why as usize].increment();
    }
    /// Calls of all tenants that were refused for this.
    pub(crate) fn all_refused(&self, why: SeatRefused) -> u64 {
        unpoisoned(self.tenants.lock()).values().map(|seats| seats.refused[why as usize].value()).sum()
    }
    /// How many seats each tenant holds and how many of its calls wait now; one that is not named has none of either.
    pub(crate) fn now<'a>(&self, tenants: impl Iterator<Item = (&'a str, u64, u64)>) {
        for known in unpoisoned(self.tenants.lock()).values() {
            known.held.set(0);
            known.waiting.set(0);
        }
        for (tenant, held, waiting) in tenants {
            let known = self.of(tenant);
            known.held.add(held);
            known.waiting.add(waiting);
        }
    }
    /// Every tenant, in label order.
    pub(crate) fn all(&self) -> Vec<(Box<str>, Arc<TenantSeats>)> {
        unpoisoned(self.tenants.lock()).iter().map(|(name, seats)| (name.clone(), seats.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e8_tenants_beyond_the_bound_share_one_label() {
        let series = SeatSeries::default();
        for index in 0..SEAT_SERIES + 100 {
            series.refused(&format!("tenant-{index}"), SeatRefused::Shed);
        }
        let all = series.all();
        let other =
            all.iter().find(|(name, _)| **name == *names::OTHER).map(|(_, seats)| seats.refused[SeatRefused::Shed as usize].value());
        assert_eq!((all.len(), other), (SEAT_SERIES + 1, Some(100)));
    }

    #[test]
    fn what_is_not_named_any_more_holds_nothing() {
        let series = SeatSeries::default();
        series.now([("a", 3, 1)].into_iter());
        series.now([("b", 2, 0)].into_iter());
        let held: Vec<_> = series.all().iter().map(|(name, seats)| (name.to_string(), seats.held.value(), seats.waiting.value())).collect();
        assert_eq!(held, [("a".to_owned(), 0, 0), ("b".to_owned(), 2, 0)]);
    }
}
