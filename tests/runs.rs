//! Runs of agents over the real binary: their budgets, their repeats, what a refusal gives back, and what is told when it has passed.

use std::collections::BTreeMap;
use std::net::TcpStream;

use rusqlite::Connection;
use serde_json::Value as Json;
use spillgate_test_support::durable::{OPERATOR, PEOPLE};
use spillgate_test_support::ledger::Ledger;
use spillgate_test_support::server::{Options, Reply, Request, Server, folder};

const KEY: &str = "key-one-1";
/// Far more turns than any deadline allows.
const ENDLESS: &str = "/api/count/100000000000";

const SAY: &str = "name = \"say\"\nabout = \"Says a word.\"\nhttp = \"GET /say/{word}\"\neffect = \"read\"\n[input.word]\ntype = \"text\"\nabout = \"A word.\"\n[[step]]\nname = \"say\"\ndatabase = \"main\"\nsql = \"SELECT :word AS WORD\"\n";
const COUNT: &str = "name = \"count\"\nabout = \"Counts.\"\nhttp = \"GET /count/{turns}\"\neffect = \"read\"\ndeadline = \"20s\"\n[input.turns]\ntype = \"integer\"\nabout = \"How far.\"\n[[step]]\nname = \"count\"\ndatabase = \"main\"\nsql = \"WITH RECURSIVE N(X) AS (SELECT 1 UNION ALL SELECT X + 1 FROM N WHERE X < :turns) SELECT COUNT(*) AS TURNS FROM N\"\n";
/// A booking whose tenant must not be NULL, so that one without fails in the database.
const BOOK: &str = "name = \"book\"\nabout = \"Books.\"\nhttp = \"POST /book\"\neffect = \"write\"\n[input.reference]\ntype = \"text\"\nabout = \"Which.\"\n[input.who]\ntype = \"text\"\nrequired = false\nabout = \"For whom.\"\n[[step]]\nname = \"book\"\ndatabase = \"main\"\nsql = \"INSERT INTO BOOKING (REFERENCE, TENANT) VALUES (:reference, :who)\"\n";
const LATE: &str = "name = \"late\"\nabout = \"Reads what comes later.\"\nhttp = \"GET /late\"\neffect = \"read\"\n[[step]]\nname = \"late\"\ndatabase = \"late\"\nsql = \"SELECT WORD FROM LATER\"\n";

/// A server over a ledger. `limits` go into the tenant `one`.
fn serve(ledger: &Ledger, limits: &str, more: &str, flows: &[(&str, &str)]) -> Server {
    let people = PEOPLE.replace("keys = [\"key-one-1\"]\n", &format!("keys = [\"key-one-1\"]\n{limits}\n"));
    let server = format!("{people}{}{more}", ledger.section());
    Server::start(&Options { binary: env!("CARGO_BIN_EXE_spillgate"), server: &server, flows, environment: &[] })
}

fn call(method: &str, target: &str, run: &str) -> Request {
    Request::new(method, target).key(KEY).header("Spillgate-Run", run)
}

fn say(server: &Server, run: &str) -> Reply {
    call("GET", "/api/say/x", run).send(&server.flows)
}

fn refused_by(reply: &Reply) -> (u16, String, Json) {
    let problem = reply.json();
    (reply.status, reply.code(), problem["policy"]["name"].clone())
}

fn in_flight(server: &Server) -> Option<u64> {
    server.admin_get(OPERATOR, "/admin/v1/tenants/one/usage").json()["in_flight"]["used"].as_u64()
}

/// A call that runs until it is dropped.
fn running(server: &Server, before: u64) -> TcpStream {
    let stream = Request::new("GET", ENDLESS).key(KEY).open(&server.flows);
    server.wait_for("the call to run", |server| (in_flight(server) == Some(before + 1)).then_some(()));
    stream
}

#[test]
fn a_run_that_repeats_itself_ends_by_its_budget_and_other_runs_go_on() {
    let ledger = Ledger::new();
    let server = serve(&ledger, "run = { calls = 20, live = 3 }", "", &[("say.toml", SAY)]);
    let ended = (0..100).map(|_| say(&server, "loop")).take_while(|reply| reply.status == 200).count();
    assert_eq!(ended, 20);
    let reply = say(&server, "loop");
    assert_eq!(refused_by(&reply), (429, "run_exhausted".into(), "run.calls".into()));
    let problem = reply.json();
    assert_eq!((&problem["retryable"], &problem["scope"], reply.header("retry-after")), (&false.into(), &"run".into(), None));
    let advice = problem["advice"].as_str().expect("what to do next");
    assert!(advice.contains("report what is known") && advice.contains("switching tools draws on the same budget"), "{advice}");
    assert_eq!(say(&server, "another").status, 200);
    assert_eq!(server.get(KEY, "/api/say/x").status, 200, "a call that names no run has its tenant's limits only");
    let of_another = Request::new("GET", "/api/say/x").key("key-two-1").header("Spillgate-Run", "loop");
    assert_eq!(of_another.send(&server.flows).status, 200, "another tenant's run of that name");
    // There are three runs of a tenant at most: the one at rest for longest gives way, and its budget with it.
    for run in ["b", "c", "d"] {
        assert_eq!(say(&server, run).status, 200);
    }
    assert_eq!(say(&server, "loop").status, 200, "it was forgotten");
    let metrics = server.admin_get(OPERATOR, "/metrics").body;
    let counts = metrics.lines().filter_map(|line| line.strip_prefix("spillgate_runs{class=")?.split_once(' ')?.1.parse::<u64>().ok());
    assert_eq!(counts.sum::<u64>(), 4, "three of this tenant, and one of another");
}

/// Two agents that hand a question to each other, each with a call of its own in between.
fn ring(server: &Server, counts_hops: bool) -> (usize, Reply) {
    let mut calls = 0;
    loop {
        let mut request = call("GET", &format!("/api/say/agent-{}", calls % 2), "ring");
        if counts_hops {
            request = request.header("Spillgate-Depth", &calls.to_string());
        }
        let reply = request.send(&server.flows);
        if reply.status != 200 {
            return (calls, reply);
        }
        calls += 1;
        assert!(calls < 1_000, "it never ends");
    }
}

#[test]
fn two_agents_that_call_each_other_in_a_ring_end_by_depth_or_by_calls() {
    let ledger = Ledger::new();
    let server = serve(&ledger, "", "", &[("say.toml", SAY)]);
    let (calls, last) = ring(&server, true);
    assert_eq!((calls, refused_by(&last)), (5, (429, "run_exhausted".into(), "run.depth".into())), "no hop, and up to four");
    let (calls, last) = ring(&server, false);
    assert_eq!((calls, refused_by(&last)), (195, (429, "run_exhausted".into(), "run.calls".into())), "200 with those before");
}

#[test]
fn a_flow_that_calls_itself_by_http_ends_by_the_depth_of_its_run() {
    let ledger = Ledger::new();
    let server = serve(&ledger, "", "", &[("say.toml", SAY)]);
    // Where it listens is known once it does: the ring is closed by a reload.
    let hosts = format!("[server]\nhttp_hosts = [\"{}\"]\n", server.flows);
    let file = std::fs::read_to_string(server.folder.join("server.toml")).expect("the file it was started with");
    server.write("server.toml", &file.replacen("[server]\n", &hosts, 1));
    let step = format!(
        "[[step]]\nname = \"next\"\nhttp = {{ method = \"GET\", url = \"http://{}/api/ring\", headers = {{ Authorization = \"Bearer {KEY}\" }}, timeout = \"5s\", max_bytes = \"8KiB\" }}\n",
        server.flows
    );
    let head = "name = \"ring\"\nabout = \"Asks itself.\"\nhttp = \"GET /ring\"\neffect = \"read\"\ndeadline = \"10s\"\n";
    server.write("flows/ring.toml", &format!("{head}{step}[[step]]\nname = \"answer\"\nmap = \"{{'inner': steps.next.value.body}}\"\n"));
    let reloaded = Request::new("POST", "/admin/v1/reload").key(OPERATOR).send(&server.admin);
    assert_eq!(reloaded.status, 200, "{reloaded:?}");
    let reply = call("GET", "/api/ring", "ring").send(&server.flows);
    let (mut answer, mut calls) = (reply.json(), 0);
    while !answer["inner"].is_null() {
        (answer, calls) = (answer["inner"].clone(), calls + 1);
    }
    assert_eq!((calls, &answer["code"], &answer["policy"]["name"]), (5, &"run_exhausted".into(), &"run.depth".into()), "{reply:?}");
    assert_eq!(server.get(KEY, "/api/say/x").status, 200, "nothing goes on turning");
}

#[test]
fn e1_each_rule_counts_a_call_once_and_refused_or_dropped_calls_give_back_what_they_took() {
    let ledger = Ledger::new();
    // A class and a tenant that both have a rate: one rule is in force, and a call counts once.
    let class = "[class.batch]\nrate = { rate = \"2/h\", burst = 2 }\nin_flight = 1\n[tenant.four]\nclass = \"batch\"\nkeys = [\"key-four-1\"]\nrate = { rate = \"2/h\", burst = 2 }\n";
    let limits = "rate = { rate = \"53/h\", burst = 53 }\nin_flight = 1\nrun = { calls = 53 }";
    let server = serve(&ledger, limits, class, &[("say.toml", SAY), ("count.toml", COUNT)]);
    let of_run = |target: &str| call("GET", target, "e1");
    // 50 calls that their callers drop, and beside each one that is refused for it.
    for _ in 0..50 {
        let dropped = of_run(ENDLESS).open(&server.flows);
        server.wait_for("the call to run", |server| (in_flight(server) == Some(1)).then_some(()));
        assert_eq!(refused_by(&of_run("/api/say/x").send(&server.flows)), (429, "in_flight_exceeded".into(), "in_flight".into()));
        drop(dropped);
        server.wait_for("its place back", |server| (in_flight(server) == Some(0)).then_some(()));
    }
    // Of 53 calls in rate and run, the 50 that ran are gone, and not one of the refused.
    for _ in 0..3 {
        assert_eq!(of_run("/api/say/x").send(&server.flows).status, 200);
    }
    assert_eq!(refused_by(&of_run("/api/say/x").send(&server.flows)), (429, "rate_exceeded".into(), "rate".into()));
    let statuses: Vec<u16> = (0..3).map(|_| server.get("key-four-1", "/api/say/x").status).collect();
    assert_eq!(statuses, [200, 200, 429]);
}

#[test]
fn repeats_of_a_failing_call_end_by_a_budget_that_tells_to_stop() {
    let ledger = Ledger::new();
    let server = serve(&ledger, "repeat_budget = { rate = \"1/h\", burst = 5 }", "", &[("book.toml", BOOK), ("say.toml", SAY)]);
    let book = |run: &str, body: &str| call("POST", "/api/book", run).body(body).send(&server.flows);
    let mut ends: BTreeMap<String, usize> = BTreeMap::new();
    for number in 0..30 {
        // The same input, however it is spelled: an agent writes it anew each time.
        let body = if number % 2 == 0 { r#"{"reference":"r","who":null}"# } else { r#"{ "who": null, "reference": "r" }"# };
        *ends.entry(book("stubborn", body).code()).or_default() += 1;
    }
    assert_eq!(ends, BTreeMap::from([("database_error".into(), 6), ("repeats_exhausted".into(), 24)]), "the first, and five repeats");
    let told = book("stubborn", r#"{"reference":"r"}"#);
    let problem = told.json();
    assert_eq!((told.status, &problem["retryable"], &problem["retry_after_ms"]), (429, &false.into(), &Json::Null), "{problem}");
    assert!(problem["advice"].as_str().is_some_and(|advice| advice.starts_with("Stop repeating")), "{problem}");
    // What the run has not tried it may; and others are not touched.
    assert_eq!(book("stubborn", r#"{"reference":"r","who":"me"}"#).status, 200);
    assert_eq!(book("other", r#"{"reference":"r"}"#).code(), "database_error");
    assert_eq!(ledger.booked("r"), 1);
}

#[test]
fn the_first_success_after_an_outage_says_so_once_to_each_run_that_met_it() {
    let (ledger, folder) = (Ledger::new(), folder("late"));
    let path = folder.join("late.db");
    let late = format!("[database.late]\ndriver = \"sqlite\"\nconnection = \"{}\"\n", path.display());
    // The test asks more often than an agent may.
    let limits = "repeat_budget = \"unlimited\"\nrun = { calls = \"unlimited\", retries = \"unlimited\" }";
    let server = serve(&ledger, limits, &late, &[("say.toml", SAY), ("late.toml", LATE)]);
    let ask = |run: &str| call("GET", "/api/late", run).send(&server.flows);
    assert_eq!((ask("a").code(), ask("b").code()), ("database_unreachable".into(), "database_unreachable".into()));
    assert_eq!(say(&server, "a").header("spillgate-recovered"), None, "another database says nothing of it");
    let database = Connection::open(&path).expect("a database can be made");
    database.execute_batch("CREATE TABLE LATER (WORD TEXT); INSERT INTO LATER VALUES ('here')").expect("its table");
    let first = server.wait_for("the database to be there", |_| Some(ask("a")).filter(|reply| reply.status == 200));
    let told = first.header("spillgate-recovered").expect("it is told").to_owned();
    assert!(told.contains("database_unreachable; since=20") && told.ends_with('Z'), "{told}");
    assert_eq!(ask("a").header("spillgate-recovered"), None, "once");
    assert_eq!(ask("c").header("spillgate-recovered"), None, "this run met nothing");
    assert!(ask("b").header("spillgate-recovered").is_some(), "each run that met it is told");
    drop(server);
    std::fs::remove_dir_all(folder).expect("the folder is ours");
}

#[test]
fn who_finds_no_place_is_told_when_one_will_have_changed_hands_and_not_all_the_same() {
    let ledger = Ledger::new();
    let server = serve(&ledger, "in_flight = 2", "", &[("say.toml", SAY), ("count.toml", COUNT)]);
    let held = [running(&server, 0), running(&server, 1)];
    let waits: Vec<u64> =
        (0..8).map(|_| server.get(KEY, "/api/say/x").json()["retry_after_ms"].as_u64().expect("when to come back")).collect();
    assert!(waits.iter().all(|wait| (10..=36_000).contains(wait)), "{waits:?}");
    assert!(waits.iter().collect::<std::collections::BTreeSet<_>>().len() > 1, "they do not all come back at once: {waits:?}");
    drop(held);
    server.wait_for("both places back", |server| (in_flight(server) == Some(0)).then_some(()));
}
