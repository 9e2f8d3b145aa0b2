//! A breaker over the whole binary and a real Postgres: it opens, outlives kill -9, and closes by itself once the database is back.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use spillgate_test_support::rig::{Rig, key, tenant};
use spillgate_test_support::server::{Options, Server};

const OPERATOR: &str = "operator-key-1";

/// The breaker of the database itself, as its page shows it.
fn breaker(server: &Server) -> Value {
    let page = server.admin_get(OPERATOR, "/admin/v1/breakers").json();
    let all = page["breakers"].as_array().expect("a list");
    all.iter().find(|breaker| breaker["database"] == "main" && breaker["flow"].is_null()).expect("the database's own").clone()
}

fn is_kept(folder: &Path) -> bool {
    let files = fs::read_dir(folder.join("data/control")).into_iter().flatten().flatten();
    files.filter_map(|file| fs::read(file.path()).ok()).any(|bytes| bytes.windows(12).any(|part| part == b"breaker/main"))
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

    server.wait_for("it to be kept", |server| is_kept(&server.folder).then_some(()));
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
