//! The command line from an empty folder to an answered call, and its exit codes: 0 fine, 1 faults found, 2 usage.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use spillgate_test_support::server::{PATIENCE, Request, Server, folder};

const BINARY: &str = env!("CARGO_BIN_EXE_spillgate");

fn spillgate(arguments: &[&str]) -> Output {
    Command::new(BINARY).args(arguments).env_remove("SPILLGATE_KEY").output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn with_config<'a>(command: &'a str, config: &'a Path) -> Vec<&'a str> {
    vec![command, "--config", config.to_str().expect("a plain path")]
}

#[test]
fn a_new_folder_is_checked_tested_explained_served_and_called() {
    let folder = folder("init");
    let config = folder.join("server.toml");
    let made = spillgate(&["init", folder.to_str().expect("a plain path")]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let again = spillgate(&["init", folder.to_str().expect("a plain path")]);
    assert_eq!(again.status.code(), Some(1), "nothing is overwritten");

    let checked = spillgate(&with_config("check", &config));
    assert!(checked.status.success(), "{}", text(&checked.stderr));
    assert!(text(&checked.stdout).contains("read-only on example"), "what enforces read-only is printed");
    assert!(text(&checked.stdout).contains("from the input: replay"), "the order of the gate is printed: {}", text(&checked.stdout));
    let tested = spillgate(&with_config("test", &config));
    assert!(tested.status.success(), "{}", text(&tested.stdout));
    assert!(text(&tested.stdout).ends_with("2 passed, 0 failed\n"), "{}", text(&tested.stdout));
    let mut explain = with_config("explain", &config);
    explain.extend(["--tenant", "first-agent", "--flow", "greeting"]);
    let explained = spillgate(&explain);
    assert!(explained.status.success());
    let limits = text(&explained.stdout);
    assert!(limits.contains("in_flight") && limits.contains("default") && limits.contains("greeting.toml:"), "{limits}");

    // The listeners of the file are fixed ones; two servers at once must not meet.
    let server_file = std::fs::read_to_string(&config).expect("written");
    std::fs::write(&config, server_file.replace("127.0.0.1:8080", "127.0.0.1:0").replace("127.0.0.1:8081", "127.0.0.1:0"))
        .expect("changed");
    let server = Server::start_in(BINARY, folder, &[]);
    let url = format!("http://{}", server.flows);
    let called = spillgate(&["call", "greeting", "language=fr", "--url", &url, "--key", "first-key"]);
    assert!(called.status.success(), "{}", text(&called.stderr));
    assert!(text(&called.stdout).contains("Bonjour"), "{}", text(&called.stdout));
    let refused = spillgate(&["call", "greeting", "language=french", "--url", &url, "--key", "first-key"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stdout).contains("invalid_input"), "{}", text(&refused.stdout));
    let unknown = spillgate(&["call", "greting", "--url", &url, "--key", "first-key"]);
    assert!(text(&unknown.stderr).contains("greeting"), "it names what can be called: {}", text(&unknown.stderr));
}

#[test]
fn every_fault_is_reported_at_once_with_its_place() {
    let folder = folder("faults");
    let config = folder.join("server.toml");
    assert!(spillgate(&["init", folder.to_str().expect("a plain path")]).status.success());
    let server_file = std::fs::read_to_string(&config).expect("written");
    std::fs::write(&config, server_file.replace("data_dir", "data_dirr")).expect("changed");
    let flow = std::fs::read_to_string(folder.join("flows/greeting.toml")).expect("written");
    std::fs::write(
        folder.join("flows/greeting.toml"),
        flow.replace(":language\"", ":languge\"").replace("deadline = \"1s\"", "deadline = 1"),
    )
    .expect("changed");
    let checked = spillgate(&with_config("check", &config));
    assert_eq!(checked.status.code(), Some(1));
    let said = text(&checked.stderr);
    for part in ["server.toml:", "data_dir", "greeting.toml:", "languge", "deadline"] {
        assert!(said.contains(part), "{part} is missing: {said}");
    }
    let mut json = with_config("check", &config);
    json.extend(["--format", "json"]);
    let faults: serde_json::Value = serde_json::from_slice(&spillgate(&json).stdout).expect("JSON");
    let faults = faults["faults"].as_array().expect("a list");
    assert!(faults.len() >= 3 && faults.iter().all(|fault| fault["line"].is_u64() && fault["column"].is_u64()), "{faults:?}");
    std::fs::remove_dir_all(&folder).expect("cleaned");
}

#[test]
fn a_flow_whose_own_test_fails_ends_with_one_and_says_what_differs() {
    let folder = folder("failing");
    assert!(spillgate(&["init", folder.to_str().expect("a plain path")]).status.success());
    let flow = std::fs::read_to_string(folder.join("flows/greeting.toml")).expect("written");
    std::fs::write(folder.join("flows/greeting.toml"), flow.replace("WORDS = \"Bonjour\" }] }", "WORDS = \"Salut\" }] }"))
        .expect("changed");
    let tested = spillgate(&with_config("test", &folder.join("server.toml")));
    assert_eq!(tested.status.code(), Some(1));
    let said = text(&tested.stdout);
    assert!(said.contains("expected \"Salut\", got \"Bonjour\"") && said.ends_with("1 passed, 1 failed\n"), "{said}");
    std::fs::remove_dir_all(&folder).expect("cleaned");
}

#[test]
fn a_test_of_a_flow_that_writes_runs_the_write_and_keeps_nothing() {
    let folder = folder("rehearsal");
    assert!(spillgate(&["init", folder.to_str().expect("a plain path")]).status.success());
    let server_file = std::fs::read_to_string(folder.join("server.toml")).expect("written");
    let writable = server_file.replace("connection = \"example.db\"", "connection = \"example.db\"\naccess = \"read-write\"");
    std::fs::write(folder.join("server.toml"), writable).expect("changed");
    let flow = "name = \"learn\"\nabout = \"Learns a greeting.\"\nhttp = \"POST /greetings\"\neffect = \"write\"\n[input.words]\ntype = \"text\"\nabout = \"Words.\"\n[[step]]\nname = \"learn\"\ndatabase = \"example\"\nsql = \"INSERT INTO GREETING VALUES ('es', :words) RETURNING LANGUAGE\"\ncolumns = { LANGUAGE = \"text\" }\n[[test]]\nname = \"spanish\"\ntenant = \"first-agent\"\ngiven = { words = \"Buenos dias\" }\nexpect = { status = 200, body = { affected = 1 } }\n";
    std::fs::write(folder.join("flows/learn.toml"), flow).expect("written");
    // Kept, the second run would meet the first one's row: LANGUAGE is the primary key.
    for _ in 0..2 {
        let tested = spillgate(&with_config("test", &folder.join("server.toml")));
        assert!(tested.status.success(), "{}", text(&tested.stdout));
    }
    let rows: i64 = rusqlite::Connection::open(folder.join("example.db"))
        .and_then(|connection| connection.query_row("SELECT count(*) FROM GREETING", [], |row| row.get(0)))
        .expect("a count");
    assert_eq!(rows, 3);
    std::fs::remove_dir_all(&folder).expect("cleaned");
}

#[test]
fn usage_errors_end_with_two_and_schemas_are_json() {
    for arguments in [&["serve"][..], &["nonsense"], &[], &["check", "--config"], &["queue"], &["queue", "inspect"], &["control", "import"]]
    {
        assert_eq!(spillgate(arguments).status.code(), Some(2), "{arguments:?}");
    }
    for of in ["server", "flow"] {
        let schema: serde_json::Value = serde_json::from_slice(&spillgate(&["schema", of]).stdout).expect("JSON");
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    }
    assert_eq!(spillgate(&["demo", "--listen", "0.0.0.0:0"]).status.code(), Some(1), "the demo listens on loopback only");
}

#[test]
fn the_demo_answers_every_call_it_prints() {
    let folder = folder("demo");
    let mut child = Command::new(BINARY)
        .args(["demo", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--data"])
        .arg(&folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let mut calls = Vec::new();
    for line in lines.by_ref() {
        if line.trim_start().starts_with("curl ") {
            calls.push(line.trim().to_owned());
        }
        if line.contains("one line a call") {
            break;
        }
    }
    // Everything after the calls is access records; they must not fill the pipe.
    std::thread::spawn(move || lines.for_each(drop));
    assert!(calls.len() >= 8, "{calls:?}");
    let becomes_a_job = |call: &str| call.ends_with("/api/bookings") && !call.contains("Prefer");
    for call in &calls {
        let reply = Command::new("sh").args(["-c", &format!("{call} -w '\\n%{{http_code}}'")]).output().expect("curl runs");
        let reply = text(&reply.stdout);
        let expected = if becomes_a_job(call) { "\n202" } else { "\n200" };
        assert!(reply.ends_with(expected), "{call}: {reply}");
    }
    assert_eq!(calls.iter().filter(|call| becomes_a_job(call)).count(), 1, "{calls:?}");
    // A write really wrote, once for all the times it was sent, and the schedule saw it.
    let address = calls[0].split("http://").nth(1).and_then(|rest| rest.split('/').next()).expect("an address").to_owned();
    let get = |target: &str| Request::new("GET", target).key("demo-agent").send(&address).json();
    assert_eq!(get("/api/trips/2002/bookings")["row_count"], 1);
    let end = Instant::now() + PATIENCE;
    while get("/api/trips/2002/events")["row_count"] != 1 {
        assert!(Instant::now() < end, "a new booking is noted in the history of its trip");
        std::thread::sleep(Duration::from_millis(100));
    }
    child.kill().and_then(|()| child.wait().map(drop)).expect("ours to end");
    std::fs::remove_dir_all(&folder).expect("cleaned");
}
