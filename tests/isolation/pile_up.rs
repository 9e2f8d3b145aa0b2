//! Promise 5: two hundred agents pile up on a slow statement, and another tenant's calls take as long as they do alone.

use std::time::{Duration, Instant};

use spillgate_test_support::load::{Agents, Pause, Samples, address};
use spillgate_test_support::rig::Rig;
use spillgate_test_support::server::folder;

use crate::beside::assert_seats_were_free;
use crate::crowds::interactive;
use crate::records::records;
use crate::scene::{key, play, serve, tenant, turn};

const SLOW: Duration = Duration::from_secs(1);
const SEATS: u32 = 8;
/// What the agents may hold when nothing is written: two less than there are.
const AGENT_SEATS: u32 = SEATS - 2;
const PER_SECOND: f64 = 20.0;
const ALONE: Duration = Duration::from_secs(2);
const BESIDE: Duration = Duration::from_secs(3);
const LOOKS: u32 = 12;
/// What a busy machine may add to a latency in one of two measurements that follow each other.
const NOISE: Duration = Duration::from_millis(25);

fn pile_up(rig: &Rig) {
    let _turn = turn();
    let sections = [
        rig.database("main", &format!("pool = {{ max = {SEATS} }}")),
        tenant("agents", "agent", "in_flight = 256"),
        tenant("office", "interactive", ""),
    ];
    let server = serve(&sections, &rig.flows("main"));
    // It is there before them, as it would be; its first calls open connections.
    let office = interactive(&server, "office", PER_SECOND);
    play(Duration::from_secs(1));
    let (opened, calm) = (records(&server).len(), Instant::now());
    play(ALONE);
    let calm = (calm, Instant::now());

    let agents = Agents {
        address: address(&server.flows),
        requests: vec![rig.slow_call(&key("agents"))],
        count: 200,
        patience: Duration::from_secs(60),
        pause: Pause::AsTold(Duration::from_millis(200)),
    };
    let agents = agents.start();
    play(Duration::from_secs(1));
    let from = Instant::now();
    let mut held = 0.0;
    for _ in 0..LOOKS {
        play(BESIDE / LOOKS);
        let series = "spillgate_database_tenant_seats{database=\"main\",tenant=\"agents\"}";
        held += server.metric(series).expect("the seats of a tenant are a metric") / f64::from(LOOKS);
    }
    let beside = (from, Instant::now());
    let office = office.end();
    let recorded = records(&server);
    // What its agents still wait for is of no interest.
    drop(server);
    let agents = agents.end().ended_within(beside.0, beside.1);
    let during = |(from, to): (Instant, Instant)| -> Samples { office.due_within(from, to) };
    let (alone, beside) = (during(calm), during(beside));

    println!("{}: alone {alone}; beside {beside}; agents hold {held} and did {agents}", rig.name);
    assert_eq!(office.well(), office.len(), "no refusal, no error: {office}");
    assert_seats_were_free(&recorded[opened..]);
    let most = alone.latency(950) * 2 + NOISE;
    assert!(beside.latency(950) < most, "nobody waited behind a slow statement: less than {most:?} is asked: {beside}; alone {alone}");
    assert!(held > 0.9 * f64::from(AGENT_SEATS), "the agents' seats stay in use: {held} of {AGENT_SEATS}");
}

#[test]
fn promise_5_a_pile_up_in_postgres_moves_nobody_else() {
    pile_up(&Rig::postgres(SLOW));
}

#[test]
fn promise_5_a_pile_up_in_sqlite_moves_nobody_else() {
    let folder = folder("pile-up");
    pile_up(&Rig::sqlite(&folder, SLOW, AGENT_SEATS));
    let _left_behind = std::fs::remove_dir_all(&folder);
}

#[test]
fn promise_5_a_pile_up_in_ibms_driver_moves_nobody_else() {
    pile_up(&Rig::db2(SLOW));
}
