//! The shapes of the pages are part of the contract: a golden file holds them, and no secret is in it.

use std::path::Path;

use serde_json::{Value, json};
use spillgate_config::plan::{BreakerPlan, TenantPlan};
use spillgate_config::source::Memory;
use spillgate_config::{Override, explain_for, load_from};
use spillgate_engine::{
    BreakerMove, BreakerState, BreakerStatus, BreakerView, DatabaseStatus, HeldBy, HeldLane, LimitReason, Outage, SeatClass, SeatCounts,
    SeatStatus, TenantSeats, Transition,
};
use spillgate_queue::{DeadLetter, Health, JobId, JobState, LaneName, LaneStatus, Recovered, StoreStatus, SyncTimes, Waits};
use spillgate_telemetry::{SeatRefused, Telemetry, TelemetryOptions};

use super::databases::{DatabaseState, Databases};
use super::tenants::{Taken, Tenants};
use super::*;
use crate::operations::{AuditEntry, Change};

/// Every secret of the plan has this in it.
const SECRET: &str = "sup3rs3cret";

const SERVER: &str = r#"
[server]
http_hosts = ["geo.example:443"]
memory = "64MiB"
[telemetry]
otlp = "http://127.0.0.1:4318/sup3rs3cret-path"
[admin.alice]
keys = ["env:ALICE_KEY"]
[database.fleet]
driver = "postgres"
connection = "env:CONNECTION"
access = "read-write"
on_connect = ["SET ROLE sup3rs3cret_role"]
[queue.bookings]
items = 50_000
dead_letters = { items = 1_000, keep = "7d" }
[tenant.agent]
keys = ["env:AGENT_KEY"]
queued = { items = 10_000 }
class = "agent"
attributes = { company = "sup3rs3cret company" }
rate = "600/min"
in_flight = 8
"#;
const POSITION: &str = r#"
name = "truck_position"
about = "Last known position of one truck."
http = "GET /trucks/{id}/position"
effect = "read"
deadline = "2s"
cache = { fresh = "5s" }
[input.id]
type = "integer"
about = "Truck number"
[[step]]
name = "position"
database = "fleet"
sql = "SELECT id, 'sup3rs3cret literal' AS note FROM truck WHERE id = :id"
[[step]]
name = "place"
http = { method = "POST", url = "https://geo.example/x?key=sup3rs3cret", headers = { authorization = "env:GEO" }, timeout = "1s" }
[[step]]
name = "answer"
map = "{'truck': input.id}"
"#;

fn plan() -> Plan {
    let source = Memory::default()
        .file("/etc/spillgate/server.toml", SERVER)
        .file("/etc/spillgate/flows/truck_position.toml", POSITION)
        .variable("CONNECTION", "postgres://reader:sup3rs3cret@127.0.0.1:1/fleet")
        .variable("ALICE_KEY", "sup3rs3cret-alice")
        .variable("AGENT_KEY", "sup3rs3cret-agent")
        .variable("GEO", "sup3rs3cret-geo");
    load_from(&source, Path::new("/etc/spillgate/server.toml")).unwrap_or_else(|faults| panic!("{faults:#?}"))
}

/// Versions are hashes: there, but not part of the shape.
fn steady(mut page: Value) -> Value {
    fn walk(value: &mut Value) {
        match value {
            Value::Object(entries) => {
                for (key, value) in entries {
                    if key == "version" {
                        assert!(value.as_str().is_some_and(|version| version.len() >= 16), "{value}");
                        *value = json!("…");
                    }
                    walk(value);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(walk),
            _ => {}
        }
    }
    walk(&mut page);
    page
}

fn shown(page: &impl Serialize) -> Value {
    steady(serde_json::to_value(page).expect("a page is JSON"))
}

const JOB: JobId = JobId { lane: 0x2f, sequence: 0x1a };

fn lane(queue: &str, tenant: &str, waiting: u64) -> LaneStatus {
    let mut ended = [0; JobState::ALL.len()];
    (ended[JobState::Succeeded as usize], ended[JobState::Dead as usize]) = (40, 1);
    LaneStatus {
        name: LaneName { queue: queue.into(), tenant: tenant.into() },
        number: 0x2f,
        waiting,
        set_aside: 1,
        running: 2,
        dead: 1,
        bytes: waiting * 1_024,
        disk: 131_072,
        oldest_age: (waiting > 0).then(|| Duration::from_secs(95)),
        paused: false,
        waits: if waiting > 0 { Waits::Backoff } else { Waits::Empty },
        waits_for: Duration::from_millis(1_500),
        appended: 49,
        ended,
    }
}

fn store_status() -> StoreStatus {
    StoreStatus {
        health: Health::DiskLow { free: 10, reserve: 20 },
        disk_limit: 2 << 30,
        disk_used: 3 << 16,
        extents_total: 32_000,
        extents_free: 31_996,
        extents_quarantined: 1,
        batches: 50,
        syncs: 51,
        appended: 147,
        ended: 123,
        moved: 4,
        keys: 9,
        volume_free: 10,
        sync_times: SyncTimes::default(),
        recovered: Recovered {
            lanes: 3,
            waiting: 5,
            cut_bytes: 77,
            cut_records: 1,
            quarantined_extents: 1,
            missing_files: vec!["extents-0003".into()],
            losses: vec!["3 items of lane bookings/acme are lost: their jobs ended as dead".into()],
            remarks: vec!["The head was rebuilt.".into()],
        },
    }
}

fn letter() -> DeadLetter {
    let problem = r#"{"type":"/problems/database_error","code":"database_error","status":502}"#;
    DeadLetter { job: JOB, outcome: Some(problem.into()), age: Duration::from_secs(60), bytes: 1_024, attempts: 5 }
}

fn replayed() -> queues::Replayed {
    let replayed = vec![queues::ReplayedLetter { letter: JOB.to_string(), job: "2f-2b".into() }];
    let refused = vec![queues::RefusedLetter { letter: "2f-1b".into(), code: "queue_full", detail: "The queue is full.".into() }];
    queues::Replayed { replayed, refused, more: true }
}

fn entry() -> AuditEntry {
    let change = Change {
        who: "alice".into(),
        remote: std::net::Ipv4Addr::LOCALHOST.into(),
        action: "pause".into(),
        subject: "queues/bookings/lanes/agent".into(),
        from: Some("running".into()),
        to: Some("paused".into()),
        outcome: "done".into(),
    };
    AuditEntry { number: 12, at_ms: 1_795_000_000_000, change }
}

fn changed<T>(value: T) -> audit::Changed<T> {
    audit::Changed { value, audited: true }
}

fn fair() -> SeatStatus {
    let slowed = LimitReason::Slowed { times: 3.218_7 };
    let change = |at, limit, reason| Transition { at: Duration::from_secs(at), limit, reason };
    SeatStatus {
        limit: 9,
        reason: LimitReason::Recovering,
        in_use: 2,
        slow: 1,
        held_back: 0,
        waiting: 3,
        tenants: vec![TenantSeats {
            tenant: "agent".into(),
            class: SeatClass::Agent,
            limit: 7,
            held: 2,
            waiting: 3,
            oldest_wait: Duration::from_millis(120),
            standing: true,
        }],
        transitions: 2,
        last_transitions: vec![change(58, 8, slowed), change(59, 9, LimitReason::Recovering)],
    }
}

fn breakers() -> databases::Breakers {
    let outage = Outage { lasted: Duration::from_secs(7), failing: Duration::from_secs(7), cool_down: Duration::from_millis(400) };
    let open = BreakerView {
        database: "fleet".into(),
        flow: None,
        tenant: None,
        plan: Some(BreakerPlan::default()),
        reachable: Some(false),
        status: BreakerStatus { state: BreakerState::Open, outage: Some(outage), probes: 1, calls: 40, failures: 31 },
        moves: vec![BreakerMove { at_ms: 1_795_000_000_000, to: BreakerState::Open }],
    };
    let status = BreakerStatus { state: BreakerState::Closed, outage: None, probes: 0, calls: 3, failures: 0 };
    let (flow, plan, moves) = (Some("truck_position".into()), None, Vec::new());
    let others = BreakerView { flow, plan, reachable: None, status, moves, ..open.clone() };
    let of_tenant = BreakerView { flow: others.flow.clone(), tenant: Some("agents".into()), reachable: None, ..open.clone() };
    databases::Breakers { breakers: [open, others, of_tenant].into_iter().map(databases::BreakerPage::of).collect() }
}

/// Without the lines of the flow and the database: those are the configuration's.
fn explained(plan: &Plan, tenant: &TenantPlan) -> tenants::ExplainedPage {
    let lines = explain_for(plan, tenant, "truck_position").expect("it may call it");
    let limits = lines.into_iter().filter(|line| line.name.starts_with("tenant.in")).map(Into::into).collect();
    tenants::ExplainedPage { version: plan.version.clone(), limits }
}

/// Every page of one plan.
fn all_pages() -> Value {
    let plan = plan();
    let telemetry = Telemetry::start(TelemetryOptions::default()).expect("nothing to start");
    let metrics = telemetry.database_metrics("fleet");
    metrics.connects.add(2);
    metrics.seat_refused("agent", SeatRefused::LineFull);
    metrics.seat_refused("dispatcher", SeatRefused::Shed);
    metrics.seat_refused("agent", SeatRefused::WaitTooLong);
    metrics.seat_refused("agent", SeatRefused::Unreachable);
    telemetry.breaker_metrics(&plan.databases[0].name, None).refused.add(3);
    telemetry.breaker_metrics(&plan.databases[0].name, Some("truck_position")).refused.increment();
    telemetry.breaker_metrics("another", None).refused.increment();
    let by_breakers = telemetry.refused_by_breakers(&plan.databases[0].name);
    let database = &plan.databases[0];
    let status = DatabaseStatus {
        name: database.name.clone(),
        driver: database.driver,
        writable: database.writable,
        guard: "the session",
        seats: SeatCounts { max: 16, in_use: 1, idle: 1, ending: 1, waiting: 3, lost: 0 },
        fair: fair(),
        reachable: Some(true),
        last_error: None,
    };
    let tenant = &plan.tenants[0];
    let taken =
        Taken { rate_left: 57, repeats_left: 19, in_flight: 2, memory: 65_536, runs: 3, queued: Some([7, 5_120, 131_072]), seats: vec![1] };
    let set = Override::read(&json!({ "in_flight": 4, "run": { "ttl": "5min" } })).expect("an override");
    let limited = set.over(tenant, &plan.databases);
    let (store, lanes) = (store_status(), [lane("(direct)", "agent", 0), lane("bookings", "agent", 6), lane("gone", "agent", 1)]);
    let held = HeldLane { lane: lanes[1].name.clone(), by: HeldBy::Database, since: std::time::Instant::now() + Duration::from_secs(60) };
    let lanes = queues::Lane::all(lanes.into(), &[held]);
    let fault = Fault { file: "/etc/spillgate/flows/truck_position.toml".into(), line: 3, column: 1, message: "unknown key".into() };
    let standing = Standing { applied: plan.version.clone(), faults: vec![fault], kept: vec!["server.listen".into()], remarks: Vec::new() };
    json!({
        "/admin/v1/flows": shown(&Flows::of(&plan)),
        "/admin/v1/databases": shown(&Databases { databases: vec![DatabaseState::of(database, status, &metrics, by_breakers, Duration::from_secs(60))] }),
        "/admin/v1/tenants": shown(&Tenants { tenants: vec![Tenant::of(&limited, &plan.databases, Some(&set))], overrides_without_tenant: vec!["gone"] }),
        "/admin/v1/tenants/agent/usage": shown(&tenants::usage(&limited, &plan.databases, &taken)),
        "/admin/v1/tenants/agent/explain?flow=truck_position": shown(&explained(&plan, &limited)),
        "/admin/v1/breakers": shown(&breakers()),
        "/admin/v1/config": shown(&Config::of(&plan, &standing)),
        "/admin/v1/queues": shown(&queues::Queues::of(&plan, &queues::Known::Open(&store, &lanes))),
        "/admin/v1/queues (could not be opened)": shown(&queues::Queues::of(&plan, &queues::Known::Unusable("no such folder"))),
        "/admin/v1/queues/bookings/lanes/agent": shown(&queues::LanePage::of(&lanes[1])),
        "/admin/v1/queues/bookings/lanes/agent/dead?limit=1": shown(&queues::Dead::of(vec![letter()], 1)),
        "/admin/v1/queues/bookings/lanes/agent/purge": shown(&changed(queues::Purged { purged: 6 })),
        "/admin/v1/queues/bookings/lanes/agent/pause": shown(&changed(queues::Paused { paused: true, forgotten_at_restart: None })),
        "/admin/v1/queues/bookings/lanes/agent/dead/replay": shown(&changed(replayed())),
        "/admin/v1/jobs/2f-1a/resolve": shown(&changed(queues::Resolved::of(JOB, JobState::Succeeded))),
        "/admin/v1/audit?limit=1": shown(&audit::Audit::of(vec![entry()], 1)),
        "/admin/v1/reload": shown(&Reloaded { version: plan.version.clone(), kept: standing.kept.clone() }),
    })
}

#[test]
fn the_pages_have_the_golden_shapes() {
    let pages = serde_json::to_string_pretty(&all_pages()).expect("JSON") + "\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/pages/pages.golden.json");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &pages).expect("the golden file is written");
    }
    let golden = std::fs::read_to_string(path).expect("the golden file is there");
    assert_eq!(pages, golden, "run with UPDATE_GOLDEN=1 if the change is meant, and say so in the changelog");
}

#[test]
fn c10_no_page_shows_a_secret() {
    let pages = all_pages().to_string();
    assert!(pages.contains("truck_position") && pages.contains("\"fleet\""), "the pages say something");
    assert!(!pages.contains(SECRET), "{pages}");
    assert!(!pages.contains("SELECT") && !pages.contains("127.0.0.1:1/"), "{pages}");
}
