//! Seats, breakers, weights, repeats and runs: what a file says is what the plan has, and every default is finite.

use std::path::Path;
use std::time::Duration;

use spillgate_config::plan::{BreakerPlan, DEFAULT_REPEAT_BUDGET, Origin, RunPlan, Shed, TenantPlan};
use spillgate_config::source::Memory;
use spillgate_config::{Fault, Plan, explain, load_from};

const DATABASES: &str = "[database.fleet]\ndriver = \"sqlite\"\nconnection = \"fleet.db\"\npool = { max = 16 }\n\
    [database.yard]\ndriver = \"sqlite\"\nconnection = \"yard.db\"\npool = { max = 3 }\n";
const FLOW: &str = "name = \"a\"\nabout = \"A.\"\nhttp = \"GET /a\"\n[[step]]\ndatabase = \"fleet\"\nsql = \"SELECT A FROM B\"\n";

fn load(server: &str, flow: &str) -> Result<Plan, Vec<Fault>> {
    let source = Memory::default().file("server.toml", format!("{DATABASES}{server}")).file("flows/a.toml", flow);
    load_from(&source, Path::new("server.toml"))
}

fn plan(server: &str, flow: &str) -> Plan {
    load(server, flow).unwrap_or_else(|faults| panic!("{faults:#?}"))
}

fn seats(tenant: &TenantPlan) -> Vec<(u32, u32)> {
    tenant.seats.iter().map(|share| (share.reserved.value, share.limit.value)).collect()
}

#[test]
fn every_default_is_finite_and_what_the_contract_says() {
    let plan = plan("[tenant.agent]\n", FLOW);
    let [fleet, yard] = &plan.databases[..] else { panic!("two databases") };
    assert_eq!((fleet.fast_only, fleet.shed, fleet.breaker), (2, Shed::Adaptive, Some(BreakerPlan::default())));
    assert_eq!((yard.fast_only, plan.flows[0].breaker), (0, Some(BreakerPlan::default())));
    let tenant = &plan.tenants[0];
    assert_eq!((seats(tenant), tenant.weight.value), (vec![(0, 14), (0, 1)], 1), "all but two, and at least one");
    assert_eq!((&tenant.run, tenant.repeat_budget.value), (&RunPlan::default(), DEFAULT_REPEAT_BUDGET));
    assert!(tenant.limits(&plan.databases, |_| true).iter().all(|limit| !limit.amount.is_unlimited() && *limit.origin == Origin::Default));
    assert!(!plan.notes.iter().any(|note| note.contains("unlimited") || note.contains("is off")), "{:?}", plan.notes);
}

#[test]
fn what_is_lifted_must_be_written_and_is_listed() {
    let server = "[tenant.agent]\nrate = \"unlimited\"\nin_flight = \"unlimited\"\nmemory = \"unlimited\"\nseats = { limit = \"unlimited\" }\n\
        repeat_budget = \"unlimited\"\nrun = { calls = \"unlimited\", in_flight = \"unlimited\", retries = \"unlimited\", depth = \"unlimited\" }\n\
        queued = { items = \"unlimited\", bytes = \"unlimited\", disk = \"unlimited\" }\n\
        [database.bare]\ndriver = \"sqlite\"\nconnection = \"bare.db\"\npool = { shed = \"off\" }\nbreaker = \"off\"\n";
    let plan = plan(server, &FLOW.replace("fleet", "bare"));
    let tenant = &plan.tenants[0];
    let limited: Vec<_> = tenant
        .limits(&plan.databases, |_| true)
        .into_iter()
        .filter(|limit| !limit.amount.is_unlimited())
        .map(|limit| limit.name.rsplit_once('.').map_or(limit.name.to_string(), |(_, key)| key.to_owned()))
        .collect();
    assert_eq!(limited, ["weight", "reserved", "reserved", "reserved", "live", "ttl"], "what holds memory is never unlimited");
    let bare = plan.databases.iter().find(|database| &*database.name == "bare").expect("it is there");
    assert_eq!((bare.shed, bare.breaker, plan.flows[0].breaker), (Shed::Off, None, None), "the flow's is off with its database's");
    let listed = |what: &str| plan.notes.iter().filter(|note| note.contains("server.toml:") && note.ends_with(what)).count();
    assert_eq!((listed("is unlimited"), listed("is off")), (12, 2), "{:#?}", plan.notes);
    let explained = explain(&plan, "agent", "a").expect("it may call it");
    let shown = |name: &str| explained.iter().find(|line| line.name == name).map(|line| line.value.as_str());
    assert_eq!((shown("database.bare.breaker"), shown("tenant.database.bare.seats.limit")), (Some("off"), Some("unlimited")));
}

#[test]
fn a_flows_breaker_is_its_databases_where_it_says_nothing_else() {
    let server =
        "[database.far]\ndriver = \"sqlite\"\nconnection = \"far.db\"\nbreaker = { window = \"5s\", probes = 3 }\n[tenant.agent]\n";
    let flow = |breaker: &str| FLOW.replace("fleet", "far").replace("[[step]]", &format!("{breaker}\n[[step]]"));
    let of = |breaker: &str| plan(server, &flow(breaker)).flows[0].breaker;
    let far = BreakerPlan { window: Duration::from_secs(5), probes: 3, ..BreakerPlan::default() };
    assert_eq!(of(""), Some(far));
    assert_eq!(
        of("breaker = { open_below = 1, cool_down = \"30s\" }"),
        Some(BreakerPlan { open_below: 1.0, cool_down: Duration::from_secs(30), ..far })
    );
    assert_eq!(of("breaker = \"off\""), None);
    let plan = plan(server, &flow("breaker = { min_calls = 7 }"));
    let explained = explain(&plan, "agent", "a").expect("it may call it");
    let shown = |name: &str| explained.iter().find(|line| line.name == name).map(|line| format!("{} ({})", line.value, line.origin));
    assert_eq!(shown("flow.breaker.min_calls").as_deref(), Some("7 (flows/a.toml:4)"));
    assert_eq!(shown("flow.breaker.window").as_deref(), Some("5s (server.toml:12)"), "where it comes from");
    assert_eq!(shown("database.far.breaker.open_below").as_deref(), Some("0.5 (default)"));
}

#[test]
fn each_limit_comes_from_the_nearest_that_says_it() {
    let server = "[class.agent]\nweight = 3\nseats = { reserved = 1, limit = 9 }\nrun = { calls = 50, ttl = \"1min\" }\nrepeat_budget = \"2/s\"\n\
        [tenant.one]\nseats = { limit = 5 }\nrun = { calls = 60 }\n\
        [tenant.one.database.yard]\nseats = { limit = 2 }\n[tenant.two]\nweight = 8\nclass = \"batch\"\n";
    let plan = plan(server, FLOW);
    let [one, two] = &plan.tenants[..] else { panic!("two tenants") };
    assert_eq!((seats(one), one.weight.value), (vec![(1, 5), (1, 2)], 3));
    assert_eq!((one.run.calls.value, one.run.ttl.value, one.run.live.value), (60, Duration::from_secs(60), 500));
    assert_eq!((one.repeat_budget.value.calls, one.repeat_budget.value.burst), (2, 12));
    assert_eq!((seats(two), two.weight.value), (vec![(0, 14), (0, 1)], 8));
    let limits = one.limits(&plan.databases, |database| database == 1);
    let from = |name: &str| limits.iter().find(|limit| limit.name == name).map(|limit| limit.origin.to_string());
    assert_eq!(from("database.yard.seats.limit").as_deref(), Some("server.toml:18"));
    assert_eq!(from("weight").as_deref(), Some("server.toml:10"));
    assert_eq!(from("database.fleet.seats.limit"), None, "only what was asked for");
}

#[test]
fn seats_that_are_promised_are_there() {
    let faults = |server: &str| {
        load(server, FLOW).map(|plan| plan.notes).map_err(|faults| faults.into_iter().map(|fault| fault.to_string()).collect::<Vec<_>>())
    };
    let two = |first: u32, second: u32| {
        format!(
            "[tenant.one.database.fleet]\nseats = {{ reserved = {first} }}\n[tenant.two.database.fleet]\nseats = {{ reserved = {second} }}\n"
        )
    };
    assert_eq!(
        faults(&two(9, 8)).expect_err("17 of 16"),
        ["server.toml:12:22: tenant two has 8 seats of fleet reserved, others before it 9: `pool.max` is 16"]
    );
    let notes = faults(&two(9, 7)).expect("all 16");
    assert!(notes.iter().any(|note| note.contains("16 seats are reserved, slow flows can hold 14")), "{notes:?}");
    assert!(!notes.iter().any(|note| note.contains("leave idle")), "nobody comes without: {notes:?}");
    let notes = faults(&format!("{}[tenant.three]\n", two(9, 7))).expect("all 16");
    assert!(notes.iter().any(|note| note.contains("fleet: all 16 seats are reserved: tenants that reserve none")), "{notes:?}");
    assert!(!faults(&two(7, 7)).expect("14").iter().any(|note| note.contains("are reserved")));
    assert!(faults("[tenant.one]\nseats = { reserved = 1 }\n[tenant.two]\nseats = { reserved = 1 }\n[tenant.three]\nseats = { reserved = 2, limit = 2 }\n").is_err(), "4 of 3 at the yard");
}
