//! The metrics page is part of the contract: names, kinds and meanings are held by a golden file, series are bounded.

use std::collections::BTreeMap;
use std::time::Duration;

use spillgate_model::Code;
use spillgate_telemetry::{
    BUCKETS, BreakerLabel, CALL_SERIES, DurableReport, LaneReport, ResolvedBy, SeatRefused, StatementOutcome, StoreReport, StoreState,
    Telemetry, TelemetryOptions, Tick, happened, names,
};

fn telemetry() -> Telemetry {
    Telemetry::start(TelemetryOptions { version: "1.2.3", ..TelemetryOptions::default() }).expect("nothing to start")
}

/// A telemetry with one of everything counted.
fn busy() -> Telemetry {
    let telemetry = telemetry();
    let call = telemetry.call_metrics("dispatch-agent", "truck_position");
    call.begin().end(None, Duration::from_millis(3), 96);
    call.count(Some(Code::RateExceeded), Duration::from_micros(40), 300);
    std::mem::forget(call.begin());
    let database = telemetry.database_metrics("as400");
    database.seats.set(16);
    database.seats_in_use.increment();
    database.connects.increment();
    database.seat_limit.set(12);
    database.waited("dispatch-agent", Duration::from_micros(700));
    database.seat_refused("dispatch-agent", SeatRefused::LineFull);
    database.tenants_now([("dispatch-agent", 3, 2)].into_iter());
    database.statement(StatementOutcome::Completed, Duration::from_millis(2));
    let breaker = telemetry.breaker_metrics("as400", None);
    breaker.stands(BreakerLabel::Open);
    happened::breaker_moved(&breaker, "", BreakerLabel::Open, 40, 31, Duration::ZERO);
    breaker.refused.increment();
    let of_flow = telemetry.breaker_metrics("as400", Some("truck_position"));
    of_flow.stands(BreakerLabel::Open);
    of_flow.shut_out.set(1);
    happened::breaker_moved(&of_flow, "dispatch", BreakerLabel::Open, 20, 20, Duration::ZERO);
    database.retries.increment();
    happened::config_started(&telemetry, "v1");
    telemetry.process().cache.bytes.set(4_096);
    telemetry.process().runs_now([("agent", 9), ("interactive", 1)].into_iter());
    telemetry.process().runs_now([("agent", 3), ("agent", 2)].into_iter());
    let (remote, subject) = (std::net::Ipv4Addr::LOCALHOST.into(), "queues/bookings/lanes/dispatch-agent");
    let change = happened::AdminChange { admin: "alice", remote, action: "purge", subject, done: true, outcome: "done" };
    happened::admin_change(&telemetry, &change);
    telemetry.durable().waited(&"bookings".into(), &"dispatch-agent".into(), Duration::from_millis(40));
    happened::lease_lost(&telemetry, "bookings", "dispatch-agent", "book_trip", "2f-1a");
    happened::interrupted_resolved(&telemetry, "book_trip", "2f-1a", ResolvedBy::Verify, "succeeded");
    happened::schedule_tick(&telemetry, "nightly", Tick::Run);
    telemetry
}

/// Durable work with one of everything.
fn durable() -> DurableReport {
    let mut sync_times = ([0; BUCKETS], Duration::from_millis(41));
    (sync_times.0[1], sync_times.0[6]) = (11, 1);
    let store = StoreReport {
        disk_limit: 2 << 30,
        disk_used: 3 << 16,
        extents_used: 3,
        extents_free: 32_000,
        extents_quarantined: 1,
        volume_free: 9 << 30,
        batches: 12,
        syncs: 12,
        sync_times,
        moved: 2,
        keys: 5,
        cut_bytes: 77,
        cut_records: 1,
        missing_files: 0,
    };
    let mut report = DurableReport::new(StoreState::Serving, Some(store));
    let lane = LaneReport {
        waiting: 4,
        set_aside: 1,
        running: 2,
        dead: 1,
        bytes: 6_000,
        disk: 2 << 16,
        oldest_age: Some(Duration::from_secs(95)),
        paused: true,
        head: Some(("paused", Duration::from_secs(60))),
        appended: 40,
        ended: vec![("succeeded", 32), ("failed", 0), ("dead", 1)],
    };
    report.lane(&"bookings".into(), &"dispatch-agent".into(), lane);
    report.lane(&"(direct)".into(), &"back-office".into(), LaneReport { disk: 1 << 16, ..LaneReport::default() });
    report
}

/// Numbers that differ from run to run are not part of the contract.
fn steady(page: &str) -> String {
    let line = |line: &str| match line.split_once(' ') {
        Some((name @ ("spillgate_uptime_seconds" | "spillgate_resident_memory_bytes"), _)) => format!("{name} …\n"),
        _ => format!("{line}\n"),
    };
    page.lines().map(line).collect()
}

#[test]
fn the_page_is_the_golden_one() {
    let page = steady(&busy().render_metrics_with(&durable()));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/metrics.golden");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &page).expect("the golden file is written");
    }
    let golden = std::fs::read_to_string(path).expect("the golden file is there");
    assert_eq!(page, golden, "run with UPDATE_GOLDEN=1 if the change is meant, and say so in the changelog");
}

/// Reads the text format as a scraper does: every sample under its family, no sample twice, histograms whole.
fn read(page: &str) -> BTreeMap<String, f64> {
    let (mut samples, mut family) = (BTreeMap::new(), String::new());
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            family = rest.split_once(' ').expect("a kind").0.to_owned();
        } else if !line.starts_with('#') {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            let rest = series.strip_prefix(family.as_str()).expect("below its family");
            assert!(["", "_bucket", "_sum", "_count"].contains(&rest.split('{').next().unwrap_or_default()), "{line}");
            assert!(samples.insert(series.to_owned(), value.parse().expect("a number")).is_none(), "{line} stands twice");
        }
    }
    samples
}

#[test]
fn every_metric_has_its_family_and_says_what_was_counted() {
    let page = busy().render_metrics_with(&durable());
    for metric in names::ALL {
        assert_eq!(page.matches(&format!("# HELP {} ", metric.name)).count(), 1, "{}", metric.name);
    }
    let samples = read(&page);
    let pair = r#"tenant="dispatch-agent",flow="truck_position""#;
    assert_eq!(samples[&format!("spillgate_calls_total{{{pair},code=\"ok\"}}")], 1.0);
    assert_eq!(samples[&format!("spillgate_calls_in_flight{{{pair}}}")], 1.0);
    assert_eq!(samples[&format!("spillgate_call_seconds_bucket{{{pair},le=\"0.0025\"}}")], 1.0);
    assert_eq!(samples[&format!("spillgate_call_seconds_bucket{{{pair},le=\"+Inf\"}}")], 2.0);
    assert_eq!(samples[&format!("spillgate_call_seconds_count{{{pair}}}")], 2.0);
    let lane = r#"queue="bookings",tenant="dispatch-agent""#;
    assert_eq!(samples[&format!("spillgate_queue_oldest_item_age_seconds{{{lane}}}")], 95.0);
    assert_eq!(samples[&format!("spillgate_queue_head_wait_seconds{{{lane},waits=\"paused\"}}")], 60.0);
    assert_eq!(samples[&format!("spillgate_queue_ended_total{{{lane},state=\"succeeded\"}}")], 32.0);
    assert!(!samples.contains_key(&format!("spillgate_queue_ended_total{{{lane},state=\"failed\"}}")), "nothing ended so");
    assert_eq!(samples["spillgate_store_state{state=\"serving\"}"] + samples["spillgate_store_state{state=\"failed\"}"], 1.0);
    assert_eq!(samples["spillgate_store_sync_seconds_bucket{le=\"0.1\"}"], 12.0, "buckets are passed on as they were counted");
    assert_eq!((samples["spillgate_store_sync_seconds_count"], samples["spillgate_store_sync_seconds_sum"]), (12.0, 0.041));
    assert!(samples["spillgate_resident_memory_bytes"] > 1e6);
}

#[test]
fn e8_made_up_tenants_and_paths_do_not_add_series() {
    let telemetry = telemetry();
    let pairs: Vec<_> = (0..5_000).map(|index| telemetry.call_metrics(&format!("made-up-{index}"), "f")).collect();
    let before = telemetry.render_metrics().lines().count();
    let more: Vec<_> = (0..50_000).map(|index| telemetry.call_metrics("agent", &format!("/paths/{index}"))).collect();
    more.iter().for_each(|metrics| metrics.count(Some(Code::UnknownFlow), Duration::ZERO, 0));
    let after = telemetry.render_metrics().lines().count();
    assert_eq!(pairs.len(), CALL_SERIES);
    assert!(after - before < 40, "{before} lines became {after}");
    assert!(telemetry.render_metrics().contains(r#"spillgate_calls_total{tenant="other",flow="other",code="unknown_flow"} 50000"#));
}

#[test]
fn a_label_cannot_break_the_page() {
    let telemetry = telemetry();
    let call = telemetry.call_metrics("a\"b\\c\nd", "f");
    call.count(None, Duration::ZERO, 0);
    assert!(telemetry.render_metrics().contains(r#"tenant="a\"b\\c\nd",flow="f",code="ok"} 1"#));
    read(&telemetry.render_metrics());
}
