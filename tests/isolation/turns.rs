//! Whose turn it is: a greedy newcomer gets its share and no more, a quiet one is served at once, callers that hang up give
//! everything back, and one tenant's backlog does not go before another's single item (case E5).

use std::time::{Duration, Instant};

use spillgate_test_support::client::get;
use spillgate_test_support::durable::{STORE, state_of};
use spillgate_test_support::load::{Agents, Crowd, Pause, Samples, address};
use spillgate_test_support::observer::Observer;
use spillgate_test_support::rig::{Rig, SLOW, flow};
use spillgate_test_support::server::Server;

use crate::crowds::interactive;
use crate::scene::{OPERATOR, key, play, serve, tenant, turn};

fn agents(server: &Server, tenants: &[String], count: usize) -> Crowd<Samples> {
    let requests = tenants.iter().map(|tenant| get(SLOW, &key(tenant))).collect();
    let pause = Pause::Fixed(Duration::from_millis(150));
    Agents { address: address(&server.flows), requests, count, patience: Duration::from_secs(30), pause }.start()
}

#[test]
fn promise_5_a_greedy_newcomer_gets_its_share_and_a_quiet_one_is_served_at_once() {
    const STATEMENT: Duration = Duration::from_millis(200);
    const TENANTS: usize = 20;
    let _turn = turn();
    let rig = Rig::postgres(STATEMENT);
    let residents: Vec<String> = (0..TENANTS).map(|number| format!("resident-{number}")).collect();
    let newcomers = ["greedy".to_owned(), "quiet".to_owned()];
    let mut sections = vec![rig.database("main", "pool = { max = 4 }")];
    sections.extend(residents.iter().chain(&newcomers).map(|name| tenant(name, "agent", "in_flight = 256")));
    let server = serve(&sections, &rig.flows("main"));

    let crowd = agents(&server, &residents, TENANTS * 2);
    play(Duration::from_secs(1));
    let greedy = agents(&server, &newcomers[..1], 60);
    play(Duration::from_millis(500));
    let from = Instant::now();
    let mut waits = Vec::new();
    for _ in 0..5 {
        let asked = Instant::now();
        let reply = server.get(&key("quiet"), SLOW);
        assert_eq!(reply.status, 200, "{reply:?}");
        waits.push(asked.elapsed());
        play(Duration::from_millis(500));
    }
    let to = Instant::now();
    let (greedy, crowd) = (greedy.end().ended_within(from, to), crowd.end().ended_within(from, to));
    println!("greedy {greedy}; residents {crowd}; quiet {waits:?}");
    waits.sort();
    // Its own statement, one that runs and one turn, and as much again for a busy machine.
    assert!(waits[2] < STATEMENT * 6, "a single call waits for a turn, not for the crowd: {waits:?}");
    let fair = crowd.well() / TENANTS;
    assert!(crowd.well() >= TENANTS, "everybody is served: {crowd}");
    assert!(greedy.well() <= fair * 3 + 3, "sixty callers of one tenant get what one tenant gets ({fair}): {greedy}");
}

#[test]
fn hang_ups_in_mass_give_everything_back() {
    let _turn = turn();
    let observer = Observer::new();
    let rig = Rig::postgres(Duration::from_secs(1)).slow("SELECT pg_sleep(30)::text AS slept, 'mark_hang_up' AS mark".to_owned());
    let sections =
        [rig.database("main", "pool = { max = 8 }"), tenant("agents", "agent", "in_flight = 256"), tenant("office", "interactive", "")];
    let server = serve(&sections, &rig.flows("main"));
    let office = interactive(&server, "office", 20.0);
    let crowd = Agents {
        address: address(&server.flows),
        requests: vec![get(SLOW, &key("agents"))],
        count: 100,
        patience: Duration::from_millis(300),
        pause: Pause::Fixed(Duration::from_millis(100)),
    };
    let crowd = crowd.start();
    play(Duration::from_secs(3));
    let (crowd, office) = (crowd.end(), office.end());
    println!("agents {crowd}; office {office}");
    assert_eq!(crowd.well(), 0);
    assert!(crowd.0.iter().filter(|sample| sample.end == spillgate_test_support::load::End::HungUp).count() > 50, "{crowd}");
    assert_eq!(office.well(), office.len(), "no refusal, no error: {office}");
    assert!(office.latency(950) < Duration::from_millis(300), "nobody waited for them: {office}");
    observer.wait_until_active("mark_hang_up", false, Duration::from_secs(5));
    server.wait_for("all seats and places back", |server| {
        let usage = server.admin_get(OPERATOR, "/admin/v1/tenants/agents/usage").json();
        let page = server.admin_get(OPERATOR, "/admin/v1/databases").json();
        let seats = &page["databases"][0]["seats"];
        (usage["in_flight"]["used"] == 0 && seats["in_use"] == 0 && seats["ending"] == 0 && seats["waiting"] == 0).then_some(())
    });
    let reply = server.get(&key("office"), "/api/quick");
    assert_eq!(reply.status, 200, "{reply:?}");
}

#[test]
fn e5_a_single_item_is_worked_off_within_a_few_turns_of_a_backlog_of_eight_hundred() {
    const BACKLOG: u64 = 800;
    let _turn = turn();
    let rig = Rig::postgres(Duration::from_secs(1));
    let later = flow("later", "POST /later", "write", "10s", "main", "SELECT pg_sleep(0.02)::text AS slept")
        .replace("deadline = \"10s\"\n", "")
        .replacen("[[step]]\n", "[[step]]\nqueue = \"work\"\n[[step]]\n", 1);
    let sections = [
        STORE.to_owned(),
        "[queue.work]\nitems = 2_000\nworkers = 1\n".to_owned(),
        rig.database("main", "pool = { max = 8 }"),
        tenant("many", "agent", ""),
        tenant("single", "agent", ""),
    ];
    let server = serve(&sections, &[("later.toml", later)]);
    server.wait_for_durable();
    let append = |tenant: &str| {
        let reply = server.post(&key(tenant), "/api/later", "{}");
        assert_eq!(reply.status, 202, "{reply:?}");
        spillgate_test_support::durable::job_of(&reply)
    };
    server.operate_lane("work", "many", "pause", "{}");
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| (0..BACKLOG / 4).for_each(|_| drop(append("many"))));
        }
    });
    let waiting = |server: &Server| server.lane("work", "many")["waiting"].as_u64().expect("a number");
    assert_eq!(waiting(&server), BACKLOG);
    server.operate_lane("work", "many", "resume", "{}");
    server.wait_for("the backlog to be worked off", |server| (waiting(server) < BACKLOG - 5).then_some(()));
    let before = waiting(&server);
    let job = append("single");
    let ended = server.ended_job(&key("single"), &job);
    let turns = before - waiting(&server);
    assert_eq!(state_of(&ended), "succeeded", "{ended:?}");
    // What the end is noticed by takes some turns too.
    assert!(turns <= 25, "{turns} items of the backlog went before it");
    server.wait_for("the wait of each tenant to be a metric", |server| {
        let wait = |tenant: &str| server.metric(&format!("spillgate_queue_wait_seconds_count{{queue=\"work\",tenant=\"{tenant}\"}}"));
        (wait("single") == Some(1.0) && wait("many").is_some_and(|count| count >= 5.0)).then_some(())
    });
}
