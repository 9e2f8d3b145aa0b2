//! A database that is gone, a link that fell silent (case B9): others do not notice, and it heals by itself.

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use spillgate_test_support::client::get;
use spillgate_test_support::rig::Rig;
use spillgate_test_support::server::{Server, folder};

use crate::beside::{agents, assert_unmoved};
use crate::crowds::interactive;
use crate::scene::{OPERATOR, key, play, serve, tenant, turn};

/// The quick flow under another name, with a shorter deadline.
fn renamed(quick: &str, name: &str, deadline: &str) -> String {
    quick.replace("\"quick\"", &format!("\"{name}\"")).replace("/quick", &format!("/{name}")).replace("\"10s\"", &format!("\"{deadline}\""))
}

/// A database of the same kind, where nobody is whom one could ask, is called by a hundred agents.
fn beside_a_dead_database(rig: &Rig, nobody: SocketAddr) {
    let _turn = turn();
    let [(_, dead), _] = rig.flows("gone");
    let [quick, slow] = rig.flows("main");
    let sections = [
        rig.database("main", "pool = { max = 8 }"),
        rig.database_at("gone", nobody, "pool = { max = 8 }"),
        tenant("agents", "agent", "in_flight = 256"),
        tenant("office", "interactive", ""),
    ];
    let server = serve(&sections, &[quick, slow, ("dead.toml", renamed(&dead, "dead", "3s"))]);
    let agents = agents(&server, get("/api/dead", &key("agents")), 100);
    play(Duration::from_millis(500));
    let office = interactive(&server, "office", 20.0);
    play(Duration::from_millis(2500));
    let (office, agents) = (office.end(), agents.end());
    println!("{}: office {office}; agents {agents}", rig.name);
    assert_unmoved(&server, &office);
    assert_eq!(agents.well(), 0, "there is no such database");
    assert!(agents.0.iter().all(|sample| sample.latency() < Duration::from_secs(5)), "everybody is answered in time: {agents}");
}

/// Where connections are refused.
const CLOSED: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);

/// Where connections are taken and nothing is ever said.
fn silent() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound port");
    (listener, address)
}

#[test]
fn a_database_that_refuses_connections_moves_nobody_at_another_in_postgres() {
    beside_a_dead_database(&Rig::postgres(Duration::from_secs(1)), CLOSED);
}

#[test]
fn a_database_that_refuses_connections_moves_nobody_at_another_behind_ibms_driver() {
    beside_a_dead_database(&Rig::db2(Duration::from_secs(1)), CLOSED);
}

#[test]
fn a_database_that_answers_nothing_moves_nobody_at_another_in_postgres() {
    let (_listener, address) = silent();
    beside_a_dead_database(&Rig::postgres(Duration::from_secs(1)), address);
}

#[test]
fn a_database_that_answers_nothing_moves_nobody_at_another_behind_ibms_driver() {
    let (_listener, address) = silent();
    beside_a_dead_database(&Rig::db2(Duration::from_secs(1)), address);
}

#[test]
fn a_database_file_that_is_missing_moves_nobody_at_another_file() {
    let folder = folder("dead-file");
    beside_a_dead_database(&Rig::sqlite(&folder, Duration::from_secs(1), 6), CLOSED);
    let _left_behind = std::fs::remove_dir_all(&folder);
}

/// Seats of this database: in use, and set aside because nobody knows whether their statements ended.
fn taken(server: &Server, database: &str) -> [u64; 2] {
    let page = server.admin_get(OPERATOR, "/admin/v1/databases").json();
    let shown = page["databases"].as_array().and_then(|all| all.iter().find(|one| one["name"] == database)).expect("it is shown").clone();
    ["in_use", "ending"].map(|part| shown["seats"][part].as_u64().unwrap_or_else(|| panic!("{part}: {shown}")))
}

/// For longer than a stuck seat is set aside, twice.
const FROZEN: Duration = Duration::from_secs(8);
/// Of the calls that meet it.
const DEADLINE: Duration = Duration::from_secs(2);

fn frozen_link(rig: Rig) {
    let _turn = turn();
    let name = rig.name;
    let (rig, link) = rig.behind_a_link();
    let good = Rig::postgres(Duration::from_secs(1));
    let [(_, stuck), _] = rig.flows("main");
    let [quick, _] = good.flows("good");
    let sections = [
        // A statement whose end nobody confirms keeps its seat until the database's own limit must have ended it.
        rig.database("main", "pool = { max = 2 }").replace("\"60s\"", "\"3s\""),
        good.database("good", "pool = { max = 4 }"),
        // All there is: a tenant's own limit would be one of two.
        tenant("agents", "agent", "seats = { limit = 2 }"),
        tenant("office", "interactive", ""),
    ];
    let server = serve(&sections, &[quick, ("stuck.toml", renamed(&stuck, "stuck", "2s"))]);
    let call = || server.get(&key("agents"), "/api/stuck");
    server.wait_for("a sound link", |_| (call().status == 200).then_some(()));

    link.freeze();
    let frozen = Instant::now();
    let office = interactive(&server, "office", 20.0);
    let agents = agents(&server, get("/api/stuck", &key("agents")), 8);
    let mut looks = Vec::new();
    while frozen.elapsed() < FROZEN {
        play(Duration::from_millis(250));
        looks.push(taken(&server, "main"));
    }
    let (office, agents) = (office.end(), agents.end());
    println!("{name}: seats in use and ending {looks:?}; office {office}; agents {agents}");
    assert_unmoved(&server, &office);
    assert!(agents.0.iter().all(|sample| sample.latency() < DEADLINE * 2), "a deadline is a deadline: {agents}");
    assert_eq!(agents.ended_within(frozen, Instant::now()).well(), 0, "nothing was answered by a silent database");
    let most = looks.iter().map(|look| look.iter().sum::<u64>()).max();
    assert_eq!(most, Some(2), "what is stuck is counted, and never more than the pool may have: {looks:?}");
    assert!(looks.iter().any(|[_, ending]| *ending > 0), "seats whose statements may still run are set aside: {looks:?}");

    link.thaw();
    let healed = Instant::now();
    server.wait_for("a good answer", |_| (call().status == 200).then_some(()));
    assert!(healed.elapsed() < Duration::from_secs(10), "good answers within ten seconds: {:?}", healed.elapsed());
    server.wait_for("every seat back", |server| (taken(server, "main") == [0, 0]).then_some(()));
}

#[test]
fn b9_a_silent_link_to_postgres_is_a_timeout_here_and_nothing_elsewhere() {
    frozen_link(Rig::postgres(Duration::from_secs(1)));
}

#[test]
fn b9_a_silent_link_behind_ibms_driver_is_a_timeout_here_and_nothing_elsewhere() {
    frozen_link(Rig::db2(Duration::from_secs(1)));
}
