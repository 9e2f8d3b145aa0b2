//! Promise 9: a bad file changes nothing that runs (case C9).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use spillgate_test_support::server::{Options, Request, Server};

const SERVER: &str = "[tenant.agent]\nkeys = [\"agent-key-1\"]\nrate = \"unlimited\"\n[admin.operator]\nkeys = [\"operator-key-1\"]\n[database.main]\ndriver = \"sqlite\"\nconnection = \"{folder}/main.db\"\n";

fn flow(name: &str, words: &str) -> String {
    format!(
        "name = \"{name}\"\nabout = \"Says {words}.\"\nhttp = \"GET /{name}\"\neffect = \"read\"\n[[step]]\nname = \"say\"\nmap = \"{{'words': '{words}'}}\"\n"
    )
}

fn serve(flows: &[(&str, &str)]) -> Server {
    Server::start(&Options { binary: env!("CARGO_BIN_EXE_spillgate"), server: SERVER, flows, environment: &[] })
}

fn words(server: &Server, name: &str) -> String {
    server.get("agent-key-1", &format!("/api/{name}")).json()["words"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn c9_a_broken_file_changes_nothing_is_named_and_the_next_good_one_is_taken() {
    let server = serve(&[("first.toml", &flow("first", "one")), ("second.toml", &flow("second", "two"))]);
    let config = || server.admin_get("operator-key-1", "/admin/v1/config").json();
    let applied = config()["version"].clone();

    server.write("flows/first.toml", "name = \"first\"\nabout = \"x\"\n   http = [\n");
    let refused = Request::new("POST", "/admin/v1/reload").key("operator-key-1").send(&server.admin);
    assert_eq!(refused.status, 422, "{refused:?}");
    assert!(refused.body.contains("first.toml"), "{}", refused.body);
    assert_eq!((words(&server, "first").as_str(), words(&server, "second").as_str()), ("one", "two"), "both old flows still serve");
    let shown = config();
    assert_eq!(shown["version"], applied, "what runs is shown, not what was refused");
    let fault = shown["last_reload"]["faults"][0].to_string();
    assert!(fault.contains("first.toml") && fault.contains("\"line\""), "{shown}");

    server.write("flows/first.toml", &flow("first", "mended"));
    server.wait_for("the mended file, by the folder watch alone", |server| (words(server, "first") == "mended").then_some(()));
    // It serves a moment before the page says so.
    server.wait_for("the page without a fault", |server| {
        let shown = server.admin_get("operator-key-1", "/admin/v1/config").json();
        (shown["version"] != applied && shown["last_reload"]["faults"].as_array()?.is_empty()).then_some(())
    });
}

#[test]
fn c9_a_reload_under_load_loses_no_request() {
    let server = serve(&[("first.toml", &flow("first", "v0"))]);
    let (stop, calls) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let reply = server.get("agent-key-1", "/api/first");
                    assert_eq!(reply.status, 200, "{reply:?}");
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for version in 1..=5 {
            let wanted = format!("v{version}");
            server.write("flows/first.toml", &flow("first", &wanted));
            server.signal("HUP");
            server.wait_for("the new version", |server| (words(server, "first") == wanted).then_some(()));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(calls.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_reload_that_changes_a_listener_keeps_it_and_says_so() {
    let server = serve(&[("first.toml", &flow("first", "one"))]);
    let text = std::fs::read_to_string(server.folder.join("server.toml")).expect("the server file");
    server.write("server.toml", &text.replace("[tenant.agent]", "shutdown_grace = \"3s\"\ndata_dir = \"elsewhere\"\n[tenant.agent]"));
    let reply = Request::new("POST", "/admin/v1/reload").key("operator-key-1").send(&server.admin);
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!(reply.body.contains("server.data_dir"), "{}", reply.body);
    assert_eq!(words(&server, "first"), "one");
    assert!(!server.folder.join("elsewhere").exists());
}

#[test]
fn a_broken_file_stops_a_start_unless_the_last_good_one_is_asked_for() {
    let mut server = serve(&[("first.toml", &flow("first", "kept"))]);
    server.signal("TERM");
    assert!(server.ended().success());
    server.write("flows/first.toml", "nonsense");
    let start = |more: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_spillgate"));
        command.args(["serve", "--config"]).arg(server.folder.join("server.toml")).args(more);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped()).spawn().expect("the binary starts")
    };
    let refused = start(&[]).wait_with_output().expect("it ends");
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("first.toml:1:"));

    let mut child = start(&["--last-good"]);
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().expect("piped")));
    let line = lines.find_map(|line| line.ok().filter(|line| line.contains("flows on http://"))).expect("it serves");
    let address = line.split("http://").nth(1).and_then(|rest| rest.split(',').next()).expect("an address").to_owned();
    let reply = Request::new("GET", "/api/first").key("agent-key-1").send(&address);
    child.kill().and_then(|()| child.wait().map(drop)).expect("ours to end");
    assert_eq!(reply.json()["words"], "kept");
}

#[test]
fn c9_a_database_that_is_written_all_the_time_beside_the_files_keeps_no_change_from_being_seen() {
    let server = serve(&[("first.toml", &flow("first", "one"))]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let file = rusqlite::Connection::open(server.folder.join("main.db")).expect("a database");
            file.execute_batch("CREATE TABLE t (a)").expect("a table");
            let notes = server.folder.join("notes.txt");
            while !stop.load(Ordering::Relaxed) {
                file.execute_batch("INSERT INTO t VALUES (1)").expect("a write");
                // What is no database moves too.
                std::fs::write(&notes, "still here").expect("a note");
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        });
        server.write("flows/first.toml", &flow("first", "two"));
        server.wait_for("the change", |server| (words(server, "first") == "two").then_some(()));
        stop.store(true, Ordering::Relaxed);
    });
}
