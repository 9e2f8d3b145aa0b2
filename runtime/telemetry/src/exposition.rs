//! The metrics page: Prometheus' text format 0.0.4. One writer, and one function a group that says what goes in.

pub(crate) mod breakers;
pub(crate) mod durable;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use crate::calls::CallMetrics;
use crate::databases::{DatabaseMetrics, StatementOutcome};
use crate::instrument::{BOUNDS_US, Histogram};
use crate::names::{self, Kind, Metric};
use crate::process::{ProcessMetrics, resident_bytes};
use crate::seats::{SeatRefused, TenantSeats};

/// Writes a page. Families come one after another; within one, samples in label order.
#[derive(Default)]
pub(crate) struct Page {
    text: String,
    labels: String,
}

impl Page {
    /// The page as it stands.
    pub(crate) fn into_text(self) -> String {
        self.text
    }

    fn family(&mut self, metric: &Metric) {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        self.push(format_args!("# HELP {0} {1}\n# TYPE {0} {kind}\n", metric.name, metric.help));
    }

    fn sample(&mut self, metric: &Metric, values: &[&str], value: impl std::fmt::Display) {
        self.set_labels(metric, values);
        let Page { text, labels } = self;
        let _ = match labels.as_str() {
            "" => writeln!(text, "{} {value}", metric.name),
            labels => writeln!(text, "{}{{{labels}}} {value}", metric.name),
        };
    }

    fn histogram(&mut self, metric: &Metric, values: &[&str], histogram: &Histogram) {
        let (counts, sum) = histogram.cumulative();
        self.buckets(metric, values, counts, sum);
    }

    /// A histogram whose counts, up to and with each bound, somebody else kept.
    fn buckets(&mut self, metric: &Metric, values: &[&str], counts: [u64; BOUNDS_US.len() + 1], sum: Duration) {
        self.set_labels(metric, values);
        let Page { text, labels } = self;
        let (name, comma) = (metric.name, if labels.is_empty() { "" } else { "," });
        let mut bucket = |bound: &dyn std::fmt::Display, count: u64| {
            let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {count}");
        };
        for (bound, count) in BOUNDS_US.iter().zip(counts) {
            bucket(&Seconds(*bound), count);
        }
        let count = counts[BOUNDS_US.len()];
        bucket(&"+Inf", count);
        let braced = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let _ = writeln!(text, "{name}_sum{braced} {}\n{name}_count{braced} {count}", sum.as_secs_f64());
    }

    fn set_labels(&mut self, metric: &Metric, values: &[&str]) {
        debug_assert_eq!(metric.labels.len(), values.len(), "{}", metric.name);
        self.labels.clear();
        for (name, value) in metric.labels.iter().zip(values) {
            let comma = if self.labels.is_empty() { "" } else { "," };
            let _ = write!(self.labels, "{comma}{name}=\"");
            for character in value.chars() {
                match character {
                    '\\' => self.labels.push_str("\\\\"),
                    '"' => self.labels.push_str("\\\""),
                    '\n' => self.labels.push_str("\\n"),
                    other => self.labels.push(other),
                }
            }
            self.labels.push('"');
        }
    }

    /// Writing to a text cannot fail.
    fn push(&mut self, arguments: std::fmt::Arguments<'_>) {
        let _ = self.text.write_fmt(arguments);
    }
}

/// Microseconds, shown as seconds without a rounding error: `0.0005`, `0.25`, `30`.
struct Seconds(u64);

impl std::fmt::Display for Seconds {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, part) = (self.0 / 1_000_000, self.0 % 1_000_000);
        write!(out, "{whole}")?;
        match format!("{part:06}").trim_end_matches('0') {
            "" => Ok(()),
            digits => write!(out, ".{digits}"),
        }
    }
}

/// Calls by tenant and flow.
pub(crate) fn calls(page: &mut Page, all: &[Arc<CallMetrics>]) {
    page.family(names::CALLS);
    for call in all {
        let [tenant, flow] = call.labels();
        for (code, count) in call.outcomes() {
            page.sample(names::CALLS, &[tenant, flow, code], count);
        }
    }
    page.family(names::CALL_SECONDS);
    for call in all {
        page.histogram(names::CALL_SECONDS, &call.labels(), &call.seconds);
    }
    page.family(names::CALLS_IN_FLIGHT);
    for call in all {
        page.sample(names::CALLS_IN_FLIGHT, &call.labels(), call.in_flight.value());
    }
    page.family(names::REPLY_BYTES);
    for call in all {
        page.sample(names::REPLY_BYTES, &call.labels(), call.reply_bytes.value());
    }
}

/// Databases.
pub(crate) fn databases(page: &mut Page, all: &[Arc<DatabaseMetrics>]) {
    type Read<V> = fn(&DatabaseMetrics) -> V;
    let gauges: [(&Metric, Read<i64>); 6] = [
        (names::SEATS, |database| database.seats.value()),
        (names::SEAT_LIMIT, |database| database.seat_limit.value()),
        (names::SEATS_IN_USE, |database| database.seats_in_use.value()),
        (names::SEATS_ENDING, |database| database.ending.value()),
        (names::CONNECTIONS_IDLE, |database| database.idle.value()),
        (names::WAITING, |database| database.waiting.value()),
    ];
    for (metric, read) in gauges {
        page.family(metric);
        for database in all {
            page.sample(metric, &[&database.name], read(database));
        }
    }
    page.family(names::WAIT_SECONDS);
    for database in all {
        page.histogram(names::WAIT_SECONDS, &[&database.name], &database.wait_seconds);
    }
    tenants(page, all);
    page.family(names::STATEMENTS);
    for database in all {
        for outcome in StatementOutcome::ALL {
            page.sample(names::STATEMENTS, &[&database.name, outcome.name()], database.ended(outcome));
        }
    }
    page.family(names::STATEMENT_SECONDS);
    for database in all {
        page.histogram(names::STATEMENT_SECONDS, &[&database.name], &database.statement_seconds);
    }
    let counters: [(&Metric, Read<u64>); 4] = [
        (names::CONNECTS, |database| database.connects.value()),
        (names::CONNECT_FAILURES, |database| database.connect_failures.value()),
        (names::CANCELS, |database| database.cancels.value()),
        (names::SEATS_LOST, |database| database.lost.value()),
    ];
    for (metric, read) in counters {
        page.family(metric);
        for database in all {
            page.sample(metric, &[&database.name], read(database));
        }
    }
}

/// Tenants at databases.
fn tenants(page: &mut Page, all: &[Arc<DatabaseMetrics>]) {
    let tenants: Vec<_> = all.iter().map(|database| (database, database.tenants.all())).collect();
    let each = || tenants.iter().flat_map(|(database, tenants)| tenants.iter().map(|(name, seats)| (&*database.name, &**name, seats)));
    type Read = fn(&TenantSeats) -> i64;
    let gauges: [(&Metric, Read); 2] =
        [(names::TENANT_SEATS, |seats| seats.held.value()), (names::TENANT_WAITING, |seats| seats.waiting.value())];
    for (metric, read) in gauges {
        page.family(metric);
        for (database, tenant, seats) in each() {
            page.sample(metric, &[database, tenant], read(seats));
        }
    }
    page.family(names::TENANT_WAIT_SECONDS);
    for (database, tenant, seats) in each() {
        page.histogram(names::TENANT_WAIT_SECONDS, &[database, tenant], &seats.wait_seconds);
    }
    page.family(names::SEATS_REFUSED);
    for (database, tenant, seats) in each() {
        for why in SeatRefused::ALL {
            match seats.refused[why as usize].value() {
                0 => {}
                count => page.sample(names::SEATS_REFUSED, &[database, tenant, why.name()], count),
            }
        }
    }
}

/// The process.
pub(crate) fn process(page: &mut Page, process: &ProcessMetrics, version: &str) {
    let numbers: [(&Metric, i128); 11] = [
        (names::CACHE_HITS, process.cache.hits.value().into()),
        (names::CACHE_MISSES, process.cache.misses.value().into()),
        (names::CACHE_STALE, process.cache.stale.value().into()),
        (names::CACHE_EVICTIONS, process.cache.evictions.value().into()),
        (names::CACHE_BYTES, process.cache.bytes.value().into()),
        (names::MEMORY_RESERVED, process.memory_reserved.value().into()),
        (names::MEMORY_LIMIT, process.memory_limit.value().into()),
        (names::ACCESS_DROPPED, process.access_dropped.value().into()),
        (names::LOG_DROPPED, process.log_dropped.value().into()),
        (names::LOG_HELD_BACK, process.log_held_back.value().into()),
        (names::SPANS_DROPPED, process.spans_dropped.value().into()),
    ];
    for (metric, value) in numbers {
        page.family(metric);
        page.sample(metric, &[], value);
    }
    page.family(names::RUNS);
    for (class, count) in process.runs() {
        page.sample(names::RUNS, &[class], count);
    }
    page.family(names::CONFIG);
    if let Some(version) = process.config_version() {
        page.sample(names::CONFIG, &[&version], 1);
    }
    page.family(names::RELOADS);
    let (applied, refused) = process.reloads();
    page.sample(names::RELOADS, &["applied"], applied);
    page.sample(names::RELOADS, &["refused"], refused);
    page.family(names::ADMIN_CHANGES);
    for (action, [done, refused]) in process.admin_changes() {
        page.sample(names::ADMIN_CHANGES, &[action, "done"], done);
        page.sample(names::ADMIN_CHANGES, &[action, "refused"], refused);
    }
    page.family(names::BUILD);
    page.sample(names::BUILD, &[version], 1);
    page.family(names::UPTIME);
    page.sample(names::UPTIME, &[], process.started.elapsed().as_secs());
    page.family(names::RESIDENT);
    page.sample(names::RESIDENT, &[], resident_bytes());
}
