//! A database that is gone, a link that fell silent (case B9), a queue that is full: others do not notice, and it heals by itself.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use spillgate_test_support::client::{get, post};
use spillgate_test_support::durable::STORE;
use spillgate_test_support::load::{Agents, Crowd, Pause, Samples, address};
use spillgate_test_support::rig::{Rig, flow};
use spillgate_test_support::server::Server;

use crate::crowds::interactive;
use crate::scene::{key, play, serve, tenant, turn};

/// Nobody waits for somebody else's trouble: far below the deadlines of what is stuck, far above what a quick call takes.
const UNMOVED: Duration = Duration::from_millis(300);

/// Agents of tenant `agents` that call something over and over.
fn agents(server: &Server, request: Vec<u8>, count: usize) -> Crowd<Samples> {
    let pause = Pause::AsTold(Duration::from_millis(200));
    Agents { address: address(&server.flows), requests: vec![request], count, patience: Duration::from_secs(30), pause }.start()
}

fn assert_unmoved(office: &Samples) {
    assert_eq!(office.well(), office.len(), "no refusal, no error: {office}");
    assert!(office.latency(950) < UNMOVED, "nobody waited for it: {office}");
}

fn beside_a_dead_database(connection: &str) {
    let _turn = turn();
    let rig = Rig::postgres(Duration::from_secs(1));
    let dead = flow("dead", "GET /dead", "read", "3s", "gone", "SELECT 1 AS one");
    let sections = [
        rig.database("main", "pool = { max = 8 }"),
        format!("[database.gone]\ndriver = \"postgres\"\nconnection = \"{connection}\"\npool = {{ max = 8 }}\n"),
        tenant("agents", "agent", "in_flight = 256"),
        tenant("office", "interactive", ""),
    ];
    let [quick, slow] = rig.flows("main");
    let server = serve(&sections, &[quick, slow, ("dead.toml", dead)]);
    let agents = agents(&server, get("/api/dead", &key("agents")), 100);
    play(Duration::from_millis(500));
    let office = interactive(&server, "office", 20.0);
    play(Duration::from_secs(4));
    let (office, agents) = (office.end(), agents.end());
    println!("office {office}; agents {agents}");
    assert_unmoved(&office);
    assert_eq!(agents.well(), 0, "there is no such database");
    assert!(agents.0.iter().all(|sample| sample.latency() < Duration::from_secs(5)), "everybody is answered in time: {agents}");
}

#[test]
fn a_database_that_refuses_connections_moves_nobody_at_another() {
    beside_a_dead_database("postgres://a:b@127.0.0.1:1/x");
}

#[test]
fn a_database_that_answers_nothing_moves_nobody_at_another() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = silent.local_addr().expect("a bound port").port();
    beside_a_dead_database(&format!("postgres://a:b@127.0.0.1:{port}/x?sslmode=disable"));
}

fn frozen_link(rig: Rig) {
    const DEADLINE: Duration = Duration::from_secs(2);
    let _turn = turn();
    let name = rig.name;
    let (rig, link) = rig.behind_a_link();
    let good = Rig::postgres(Duration::from_secs(1));
    let [(_, stuck), _] = rig.flows("main");
    let stuck = stuck.replace("\"quick\"", "\"stuck\"").replace("/quick", "/stuck").replace("\"10s\"", "\"2s\"");
    let [quick, _] = good.flows("good");
    let sections = [
        // A statement whose end nobody confirms keeps its seat until the database's own limit must have ended it.
        rig.database("main", "pool = { max = 2 }").replace("\"60s\"", "\"3s\""),
        good.database("good", "pool = { max = 4 }"),
        tenant("agents", "agent", ""),
        tenant("office", "interactive", ""),
    ];
    let server = serve(&sections, &[quick, ("stuck.toml", stuck)]);
    let call = || server.get(&key("agents"), "/api/stuck");
    server.wait_for("a sound link", |_| (call().status == 200).then_some(()));

    link.freeze();
    let frozen = Instant::now();
    let office = interactive(&server, "office", 20.0);
    let agents = agents(&server, get("/api/stuck", &key("agents")), 8);
    play(Duration::from_secs(6));
    let (office, agents) = (office.end(), agents.end());
    println!("{name}: office {office}; agents {agents}");
    assert_unmoved(&office);
    assert!(agents.0.iter().all(|sample| sample.latency() < DEADLINE * 2), "a deadline is a deadline: {agents}");
    assert_eq!(agents.ended_within(frozen, Instant::now()).well(), 0, "nothing was answered by a silent database");
    let page = server.admin_get(crate::scene::OPERATOR, "/admin/v1/databases").json();
    let main = page["databases"].as_array().and_then(|all| all.iter().find(|one| one["name"] == "main")).expect("it is shown").clone();
    let held: u64 = ["in_use", "idle", "ending"].iter().filter_map(|part| main["seats"][part].as_u64()).sum();
    assert!(held <= 2, "stuck connections are counted and never more than the pool may have: {main}");

    link.thaw();
    let healed = Instant::now();
    server.wait_for("a good answer", |_| (call().status == 200).then_some(()));
    assert!(healed.elapsed() < Duration::from_secs(10), "good answers within ten seconds: {:?}", healed.elapsed());
}

#[test]
fn b9_a_silent_link_to_postgres_is_a_timeout_here_and_nothing_elsewhere() {
    frozen_link(Rig::postgres(Duration::from_secs(1)));
}

#[test]
fn b9_a_silent_link_behind_ibms_driver_is_a_timeout_here_and_nothing_elsewhere() {
    frozen_link(Rig::db2(Duration::from_secs(1)));
}

/// A flow whose items are worked off by the slow statement of the rig.
fn queued(sql: &str) -> String {
    format!(
        "name = \"later\"\nabout = \"Works later.\"\nhttp = \"POST /later\"\neffect = \"write\"\n[[step]]\nqueue = \"work\"\n\
         [[step]]\nname = \"work\"\ndatabase = \"main\"\nsql = \"{sql}\"\n"
    )
}

#[test]
fn promise_5_a_full_queue_with_all_its_workers_busy_moves_no_direct_call() {
    let _turn = turn();
    let rig = Rig::postgres(Duration::from_secs(1));
    let sections = [
        STORE.to_owned(),
        "[queue.work]\nitems = 1_000\nworkers = 16\n".to_owned(),
        rig.database("main", "pool = { max = 8 }"),
        tenant("agents", "agent", "queued = { items = 64 }"),
        tenant("office", "interactive", ""),
    ];
    let [quick, _] = rig.flows("main");
    let server = serve(&sections, &[quick, ("later.toml", queued("SELECT pg_sleep(1)::text AS slept"))]);
    server.wait_for_durable();
    let agents = agents(&server, post("/api/later", &key("agents"), "{}"), 16);
    server.wait_for("a full queue", |server| (server.post(&key("agents"), "/api/later", "{}").status == 429).then_some(()));
    let office = interactive(&server, "office", 20.0);
    play(Duration::from_secs(4));
    let (office, agents) = (office.end(), agents.end());
    println!("office {office}; agents {agents}");
    assert!(agents.refused("queue_full") > 0, "{agents}");
    assert_unmoved(&office);
}
