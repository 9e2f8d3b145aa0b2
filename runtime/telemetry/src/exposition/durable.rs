//! The part of the page about durable work.

use std::sync::Arc;
use std::time::Duration;

use super::Page;
use crate::durable::{DurableMetrics, DurableReport, LaneReport, ResolvedBy, StoreReport, StoreState, Tick};
use crate::names::{self, Metric};

/// Lanes by queue and tenant.
pub(crate) fn lanes(page: &mut Page, report: &DurableReport) {
    type Read = fn(&LaneReport) -> u64;
    let numbers: [(&Metric, Read); 8] = [
        (names::QUEUE_WAITING, |lane| lane.waiting),
        (names::QUEUE_SET_ASIDE, |lane| lane.set_aside),
        (names::QUEUE_RUNNING, |lane| lane.running),
        (names::QUEUE_DEAD, |lane| lane.dead),
        (names::QUEUE_BYTES, |lane| lane.bytes),
        (names::QUEUE_DISK, |lane| lane.disk),
        (names::QUEUE_OLDEST, |lane| lane.oldest_age.unwrap_or_default().as_secs()),
        (names::QUEUE_PAUSED, |lane| u64::from(lane.paused)),
    ];
    let each = || report.lanes.iter().map(|((queue, tenant), lane): (&(Arc<str>, Arc<str>), _)| (&**queue, &**tenant, lane));
    for (metric, read) in numbers {
        page.family(metric);
        for (queue, tenant, lane) in each() {
            page.sample(metric, &[queue, tenant], read(lane));
        }
    }
    page.family(names::QUEUE_HEAD_WAIT);
    for (queue, tenant, lane) in each() {
        if let Some((waits, time)) = lane.head {
            page.sample(names::QUEUE_HEAD_WAIT, &[queue, tenant, waits], time.as_secs());
        }
    }
    page.family(names::QUEUE_APPENDED);
    for (queue, tenant, lane) in each() {
        page.sample(names::QUEUE_APPENDED, &[queue, tenant], lane.appended);
    }
    page.family(names::QUEUE_ENDED);
    for (queue, tenant, lane) in each() {
        for (state, count) in lane.ended.iter().filter(|(_, count)| *count > 0) {
            page.sample(names::QUEUE_ENDED, &[queue, tenant, state], count);
        }
    }
    page.family(names::QUEUE_UNSERVED);
    if report.state.is_some() {
        page.sample(names::QUEUE_UNSERVED, &[], report.unserved);
    }
}

/// What no store keeps.
pub(crate) fn counts(page: &mut Page, durable: &DurableMetrics) {
    page.family(names::QUEUE_WAIT_SECONDS);
    for ((queue, tenant), times) in durable.waits() {
        page.histogram(names::QUEUE_WAIT_SECONDS, &[&queue, &tenant], &times);
    }
    for (metric, counter) in [(names::LANES_PARKED, &durable.parked), (names::LEASES_LOST, &durable.leases_lost)] {
        page.family(metric);
        page.sample(metric, &[], counter.value());
    }
    page.family(names::INTERRUPTED);
    for by in ResolvedBy::ALL {
        page.sample(names::INTERRUPTED, &[by.name()], durable.interrupted(by));
    }
    page.family(names::TICKS);
    for (flow, counts) in durable.ticks() {
        for tick in Tick::ALL {
            page.sample(names::TICKS, &[&flow, tick.name()], counts[tick as usize]);
        }
    }
    page.family(names::DISK_LOW);
    page.sample(names::DISK_LOW, &[], durable.disk_low.value());
}

/// The store.
pub(crate) fn store(page: &mut Page, report: &DurableReport) {
    page.family(names::STORE_STATE);
    if let Some(now) = report.state {
        for state in StoreState::ALL {
            page.sample(names::STORE_STATE, &[state.name()], u8::from(state == now));
        }
    }
    let store = report.store.as_ref();
    type Read = fn(&StoreReport) -> u64;
    let numbers: [(&Metric, Read); 10] = [
        (names::STORE_LIMIT, |store| store.disk_limit),
        (names::STORE_USED, |store| store.disk_used),
        (names::VOLUME_FREE, |store| store.volume_free),
        (names::STORE_BATCHES, |store| store.batches),
        (names::STORE_SYNCS, |store| store.syncs),
        (names::STORE_MOVED, |store| store.moved),
        (names::STORE_KEYS, |store| store.keys),
        (names::RECOVERED_CUT, |store| store.cut_bytes),
        (names::RECOVERED_RECORDS, |store| store.cut_records),
        (names::RECOVERED_MISSING, |store| store.missing_files),
    ];
    for (metric, read) in numbers {
        page.family(metric);
        if let Some(store) = store {
            page.sample(metric, &[], read(store));
        }
    }
    page.family(names::STORE_EXTENTS);
    if let Some(store) = store {
        let states = [("used", store.extents_used), ("free", store.extents_free), ("quarantined", store.extents_quarantined)];
        for (state, count) in states {
            page.sample(names::STORE_EXTENTS, &[state], count);
        }
    }
    page.family(names::SYNC_SECONDS);
    if let Some(store) = store {
        let (counts, total): ([u64; _], Duration) = store.sync_times;
        let mut sum = 0;
        let cumulative = counts.map(|count| {
            sum += count;
            sum
        });
        page.buckets(names::SYNC_SECONDS, &[], cumulative, total);
    }
}
