//! Breakers over the whole binary: a database's opens, outlives kill -9, and closes by itself once the database is back; a flow's opens for
//! the tenant whose calls get no answer, and for nobody else.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use spillgate_test_support::rig::{Rig, key, tenant};
use spillgate_test_support::server::{Options, Request, Server};

const OPERATOR: &str = "operator-key-1";

/// The breaker of the database itself, as its page shows it.
fn breaker(server: &Server) -> Value {
    let page = server.admin_get(OPERATOR, "/admin/v1/breakers").json();
    let all = page["breakers"].as_array().expect("a list");
    all.iter().find(|breaker| breaker["database"] == "main" && breaker["flow"].is_null()).expect("the database's own").clone()
}

/// Whether an open breaker is kept in a folder of a server.
fn is_kept(folder: &Path, name: &str) -> bool {
    let name = format!("breaker/{name}");
    let files = fs::read_dir(folder.join("data/control")).into_iter().flatten().flatten();
    files.filter_map(|file| fs::read(file.path()).ok()).any(|bytes| bytes.windows(name.len()).any(|part| part == name.as_bytes()))
}

#[test]
fn a_breaker_opens_outlives_a_crash_and_closes_when_the_database_is_back() {
    let (rig, link) = Rig::postgres(Duration::from_secs(1)).behind_a_link();
    let sections = [
        rig.database("main", "breaker = { min_calls = 5, cool_down = \"300ms\" }"),
        tenant("agents", "agent", ""),
        format!("[admin.operator]\nkeys = [\"{OPERATOR}\"]\n"),
    ];
    let [(name, quick), _] = rig.flows("main");
    let options =
        Options { binary: env!("CARGO_BIN_EXE_spillgate"), server: &sections.concat(), flows: &[(name, &quick)], environment: &[] };
    let mut server = Server::start(&options);
    let call = |server: &Server| server.get(&key("agents"), "/api/quick");
    assert_eq!(call(&server).status, 200);
    assert_eq!(breaker(&server)["state"], "closed");

    link.cut();
    let refused = server.wait_for("an open breaker", |server| Some(call(server)).filter(|reply| reply.code() == "breaker_open"));
    let said = refused.json();
    assert_eq!((refused.status, &said["scope"], &said["retryable"]), (503, &"database".into(), &true.into()), "{said}");
    assert!(refused.header("retry-after").is_some() && said["retry_after_ms"].as_u64().is_some_and(|wait| wait < 5_000), "{said}");
    assert!(said["valid_until"].as_str().is_some_and(|time| time.starts_with("20") && time.ends_with('Z')), "{said}");
    let open = breaker(&server);
    assert!(open["state"] != "closed" && open["last_moves"].as_array().is_some_and(|moves| !moves.is_empty()), "{open}");

    server.wait_for("it to be kept", |server| is_kept(&server.folder, "main").then_some(()));
    server.kill();
    server.start_again();
    let kept = server.wait_for("it to be read", |server| Some(breaker(server)).filter(|breaker| breaker["state"] != "closed"));
    assert_eq!((&kept["calls"], kept["outage_ms"].as_u64().is_some_and(|time| time > 0)), (&0.into(), true), "{kept}");

    link.heal();
    let healed = Instant::now();
    server.wait_for("a good answer", |server| (call(server).status == 200).then_some(()));
    assert!(healed.elapsed() < Duration::from_secs(10), "{:?}", healed.elapsed());
    assert_eq!(breaker(&server)["state"], "closed");
    let metrics = server.admin_get(OPERATOR, "/metrics").body;
    assert!(metrics.contains("spillgate_breaker_state{database=\"main\",flow=\"\",state=\"closed\"} 1"), "{metrics}");
    assert!(metrics.contains("spillgate_breaker_moves_total{database=\"main\",flow=\"\",to=\"closed\"} 1"), "{metrics}");
}

/// A statement that works as long as its caller wants it to.
const COUNT: &str = "name = \"count\"
about = \"As much work as is asked for.\"
http = \"GET /count\"
effect = \"read\"
deadline = \"1s\"
[input.n]
type = \"integer\"
[[step]]
name = \"count\"
database = \"main\"
sql = \"WITH RECURSIVE N(X) AS (SELECT 1 UNION ALL SELECT X + 1 FROM N WHERE X < :n) SELECT count(*) AS DONE FROM N\"
";

const ENDLESS: &str = "/api/count?n=4000000000";

/// Callers that go on until it is dropped.
struct Until<'a>(&'a AtomicBool);

impl Drop for Until<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The tenants for which the breaker of that flow has a row on its page, each with its state.
fn rows_of_tenants(server: &Server) -> Vec<(String, String)> {
    let page = server.admin_get(OPERATOR, "/admin/v1/breakers").json();
    let all = page["breakers"].as_array().expect("a list").clone();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    all.iter().filter_map(|row| Some((text(&row["tenant"])?, text(&row["state"])?))).collect()
}

fn is_shut_out(server: &Server, tenant: &str) -> bool {
    rows_of_tenants(server).iter().any(|(name, state)| name == tenant && state != "closed")
}

#[test]
fn what_one_tenant_asks_of_a_flow_shuts_the_flow_for_nobody_else() {
    let sections = [
        "[database.main]\ndriver = \"sqlite\"\nconnection = \"main.db\"\n".to_owned(),
        tenant("endless", "agent", ""),
        tenant("quick", "agent", ""),
        format!("[admin.operator]\nkeys = [\"{OPERATOR}\"]\n"),
    ];
    let options =
        Options { binary: env!("CARGO_BIN_EXE_spillgate"), server: &sections.concat(), flows: &[("count.toml", COUNT)], environment: &[] };
    let mut server = Server::start(&options);
    let database = rusqlite::Connection::open(server.folder.join("main.db")).expect("a database");
    database.execute_batch("CREATE TABLE NOTE (X INTEGER)").expect("a file");
    let quick = |server: &Server| server.get(&key("quick"), "/api/count?n=10");
    let (address, over) = (server.flows.clone(), AtomicBool::new(false));
    thread::scope(|scope| {
        let _until = Until(&over);
        for _ in 0..10 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let call = Request::new("GET", ENDLESS).key(&key("endless"));
                    let reply = call.try_send(&address).expect("an answer");
                    assert!(reply.status >= 500, "it has no end: {reply:?}");
                    // Who is refused at once is to leave the two cores to others.
                    thread::sleep(Duration::from_millis(10));
                }
            });
        }
        server.wait_for("it to be shut out", |server| is_shut_out(server, "endless").then_some(()));
        // Its probes fail all the while, and the other one asks for too much, too, once.
        let failed = server.get(&key("quick"), ENDLESS);
        assert!(failed.status >= 500 && failed.code() != "breaker_open", "{failed:?}");
        for call in 0..20 {
            let reply = quick(&server);
            assert_eq!(reply.status, 200, "call {call} of another tenant: {reply:?}");
            thread::sleep(Duration::from_millis(200));
        }
        let refused = server
            .wait_for("a refusal", |server| Some(server.get(&key("endless"), ENDLESS)).filter(|reply| reply.code() == "breaker_open"));
        let said = refused.json();
        assert_eq!((&said["scope"], &said["retryable"]), (&"flow".into(), &true.into()), "{said}");
        for (member, words) in [("detail", "Your calls of this flow"), ("advice", "other flows are not concerned")] {
            assert!(said[member].as_str().is_some_and(|text| text.contains(words)), "{said}");
        }
        assert!(is_shut_out(&server, "endless") && !is_shut_out(&server, "quick"), "{:?}", rows_of_tenants(&server));
        let explained = |tenant: &str| server.admin_get(OPERATOR, &format!("/admin/v1/tenants/{tenant}/explain?flow=count")).body;
        assert!(explained("endless").contains("\"flow.breaker\""), "{}", explained("endless"));
        assert!(!explained("quick").contains("\"flow.breaker\""), "{}", explained("quick"));
        let metrics = server.admin_get(OPERATOR, "/metrics").body;
        assert!(metrics.contains("spillgate_breaker_shut_out_tenants{database=\"main\",flow=\"count\"} 1"), "{metrics}");
    });

    server.wait_for("it to be kept", |server| is_kept(&server.folder, "main/count/endless").then_some(()));
    server.kill();
    server.start_again();
    server.wait_for("it to be read", |server| is_shut_out(server, "endless").then_some(()));
    assert_eq!(quick(&server).status, 200, "after a crash, too");
    // What it asks for now has an end.
    server.wait_for("a good answer", |server| (server.get(&key("endless"), "/api/count?n=10").status == 200).then_some(()));
    assert!(!is_shut_out(&server, "endless"), "{:?}", rows_of_tenants(&server));
}
