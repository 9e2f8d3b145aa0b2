//! The data folder: one server at a time, operator state across restarts and damage, commands on a stopped one.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value as Json;
use spillgate_test_support::server::{Options, Reply, Request, Server, folder};

const BINARY: &str = env!("CARGO_BIN_EXE_spillgate");
const SERVER: &str = "data_dir = \"{folder}/data\"\n[store]\ndisk_limit = \"32MiB\"\ndisk_reserve = \"1MiB\"\n[tenant.agent]\nkeys = [\"agent-key-1\"]\n[admin.operator]\nkeys = [\"operator-key-1\"]\n";
const QUEUE: &str = "[queue.notes]\nworkers = 1\n";
const DIRECT: &str = "name = \"hello\"\nabout = \"Says hello.\"\nhttp = \"GET /hello\"\neffect = \"read\"\n[[step]]\nname = \"say\"\nmap = \"{'words': 'hello'}\"\n";
const QUEUED: &str = "name = \"later\"\nabout = \"Says it later.\"\nhttp = \"POST /later\"\neffect = \"write\"\n[input.words]\ntype = \"text\"\nabout = \"Words.\"\n[[step]]\nqueue = \"notes\"\n[[step]]\nname = \"say\"\nmap = \"{'words': input.words}\"\n";

fn direct() -> Server {
    Server::start(&Options { binary: BINARY, server: SERVER, flows: &[("hello.toml", DIRECT)], environment: &[] })
}

fn durable() -> Server {
    let flows = &[("hello.toml", DIRECT), ("later.toml", QUEUED)];
    let server = Server::start(&Options { binary: BINARY, server: &format!("{SERVER}{QUEUE}"), flows, environment: &[] });
    ready(&server);
    server
}

fn ready(server: &Server) {
    server.wait_for("durable readiness", |server| (server.get("", "/readyz?for=durable").status == 200).then_some(()));
}

fn spillgate(arguments: &[&str], data: &Path) -> Output {
    Command::new(BINARY).args(arguments).arg("--data").arg(data).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn admin_post(server: &Server, target: &str) -> Reply {
    Request::new("POST", target).key("operator-key-1").body("{}").send(&server.admin)
}

fn audit(server: &Server) -> Vec<Json> {
    let page = server.wait_for("operator state", |server| {
        let reply = server.admin_get("operator-key-1", "/admin/v1/audit");
        (reply.status == 200).then_some(reply)
    });
    page.json()["entries"].as_array().expect("a list").clone()
}

/// Starts again on the files of one that has ended.
fn again(server: &Server) -> Server {
    // A copy, for the folder goes with the first one.
    let files = folder("again");
    let copied = Command::new("cp").arg("-a").arg(format!("{}/.", server.folder.display())).arg(&files).status().expect("cp runs");
    assert!(copied.success());
    let config = std::fs::read_to_string(files.join("server.toml")).expect("the server file");
    let moved = config.replace(&*server.folder.to_string_lossy(), &files.to_string_lossy());
    std::fs::write(files.join("server.toml"), moved).expect("written");
    Server::start_in(BINARY, files, &[])
}

#[test]
fn a_second_server_on_the_same_data_is_told_who_has_it_and_commands_are_too() {
    let mut server = direct();
    let data = server.folder.join("data");
    let second = Command::new(BINARY).args(["serve", "--config"]).arg(server.folder.join("server.toml")).output().expect("it runs");
    assert_eq!(second.status.code(), Some(1));
    let who = format!("(process {})", server.id());
    assert!(text(&second.stderr).contains(&who), "{}", text(&second.stderr));
    audit(&server);
    for command in [&["control", "export"][..], &["queue", "inspect"]] {
        let refused = spillgate(command, &data);
        assert_eq!(refused.status.code(), Some(1), "{command:?}");
        assert!(text(&refused.stderr).contains(&who), "{}", text(&refused.stderr));
    }
    assert_eq!(server.get("agent-key-1", "/api/hello").status, 200, "the first one goes on");
    server.signal("KILL");
    server.ended();
    let after = spillgate(&["control", "export"], &data);
    assert!(after.status.success(), "a crash gives the lock back: {}", text(&after.stderr));
}

#[test]
fn without_queues_keys_and_schedules_no_store_is_made() {
    let server = direct();
    audit(&server);
    let data = server.folder.join("data");
    assert!(data.join("control").is_dir() && !data.join("store").exists());
    assert_eq!(server.get("", "/readyz").json()["status"], "ok");
    let for_durable = server.get("", "/readyz?for=durable");
    assert!(for_durable.status == 503 && for_durable.body.contains("no flow of this server needs a store"), "{for_durable:?}");
    assert_eq!(server.get("agent-key-1", "/api/jobs/1-1").code(), "unknown_job");
    assert_eq!(server.admin_get("operator-key-1", "/admin/v1/queues").json()["store"]["state"], "absent");
    assert_eq!(spillgate(&["queue", "inspect"], Path::new("/nonexistent")).status.code(), Some(1));
}

#[test]
fn p2_the_audit_and_a_pause_outlive_kill_9() {
    let mut server = durable();
    assert_eq!(admin_post(&server, "/admin/v1/reload").status, 200);
    let paused = admin_post(&server, "/admin/v1/queues/notes/lanes/agent/pause");
    assert_eq!(paused.status, 200, "{paused:?}");
    let before = audit(&server);
    assert_eq!(before.len(), 2, "{before:?}");
    server.signal("KILL");
    server.ended();
    let server = again(&server);
    ready(&server);
    assert_eq!(audit(&server), before);
    // Paused from the first moment: what comes now is not run.
    let job = server.post("agent-key-1", "/api/later", "{\"words\":\"a\"}");
    assert_eq!(job.status, 202, "{job:?}");
    let lanes = || server.admin_get("operator-key-1", "/admin/v1/queues").json().to_string();
    assert!(lanes().contains("\"paused\":true"), "{}", lanes());
    let href = job.json()["job"]["href"].as_str().expect("a path").to_owned();
    assert_eq!(server.get("agent-key-1", &href).json()["job"]["state"], "queued");
    let resumed = admin_post(&server, "/admin/v1/queues/notes/lanes/agent/resume");
    assert_eq!(resumed.status, 200, "{resumed:?}");
    server.wait_for("the end of the job", |server| (server.get("agent-key-1", &href).json()["job"]["state"] == "succeeded").then_some(()));
}

#[test]
fn a_damaged_notebook_is_said_and_its_export_is_loaded() {
    let mut server = direct();
    assert_eq!(admin_post(&server, "/admin/v1/reload").status, 200);
    let before = audit(&server);
    assert_eq!(before.len(), 1);
    server.signal("TERM");
    assert!(server.ended().success());
    std::fs::write(server.folder.join("data/control/sled/db"), vec![0x5a; 200_000]).expect("damaged");
    let server = again(&server);
    assert_eq!(server.get("agent-key-1", "/api/hello").status, 200, "direct flows do not mind");
    assert_eq!(audit(&server), before);
    let readiness = server.get("", "/readyz").json();
    assert_eq!(readiness["status"], "degraded", "{readiness}");
    assert!(!readiness.to_string().contains("sled"), "strangers learn no paths: {readiness}");
    let config = server.admin_get("operator-key-1", "/admin/v1/config").json();
    assert!(config["remarks"].to_string().contains("sled.aside"), "{}", config["remarks"]);
}

#[test]
fn a_pause_outlives_the_loss_of_the_notebook_and_the_loss_of_everything_is_said() {
    let mut server = durable();
    assert_eq!(admin_post(&server, "/admin/v1/queues/notes/lanes/agent/pause").status, 200);
    server.signal("KILL");
    server.ended();
    std::fs::remove_dir_all(server.folder.join("data/control/sled")).expect("it was there");
    let mut server = again(&server);
    ready(&server);
    let queues = |server: &Server| server.admin_get("operator-key-1", "/admin/v1/queues").json().to_string();
    assert!(queues(&server).contains("\"paused\":true"), "{}", queues(&server));
    assert_eq!(server.get("", "/readyz").json()["status"], "degraded");
    server.signal("KILL");
    server.ended();

    std::fs::remove_dir_all(server.folder.join("data/control")).expect("it was there");
    let mut server = again(&server);
    ready(&server);
    assert!(!queues(&server).contains("\"paused\":true"), "{}", queues(&server));
    let readiness = server.get("", "/readyz").json();
    assert!(readiness["reasons"][0].as_str().is_some_and(|reason| reason.contains("operator state of this store is gone")), "{readiness}");
    let remarks = server.admin_get("operator-key-1", "/admin/v1/config").json()["remarks"].to_string();
    assert!(remarks.contains("paused are served"), "{remarks}");
    server.wait_for("the log of it", |server| server.log().contains("operator state of this store is gone").then_some(()));
    server.signal("TERM");
    server.ended();
    let server = again(&server);
    ready(&server);
    assert_eq!(server.get("", "/readyz").json()["status"], "ok", "said once; the audit begins anew");
}

#[test]
fn a_call_from_the_command_line_has_a_key_and_waits() {
    let keyed = QUEUED.replacen("effect = \"write\"", "effect = \"write\"\nidempotency = { key = \"required\" }", 1);
    let flows = &[("later.toml", keyed.as_str())];
    let server = Server::start(&Options { binary: BINARY, server: &format!("{SERVER}{QUEUE}"), flows, environment: &[] });
    ready(&server);
    let url = format!("http://{}", server.flows);
    let call = |more: &[&str]| {
        let called = Command::new(BINARY).args(["call", "later", "words=a", "--url", &url, "--key", "agent-key-1"]).args(more).output();
        let called = called.expect("the binary runs");
        (called.status.code(), serde_json::from_slice::<Json>(&called.stdout).expect("JSON"))
    };
    let (code, refused) = call(&[]);
    assert_eq!((code, &refused["code"]), (Some(1), &Json::from("key_required")));
    let (code, done) = call(&["--idempotency-key", "a-1", "--wait", "4"]);
    assert_eq!((code, &done["job"]["state"], &done["result"]["words"]), (Some(0), &Json::from("succeeded"), &Json::from("a")), "{done}");
    let (code, again) = call(&["--idempotency-key", "a-1"]);
    assert_eq!((code, &again["job"]["id"]), (Some(0), &done["job"]["id"]), "the same work");
}

#[test]
fn a_damaged_cursor_key_stops_no_start() {
    let mut server = durable();
    server.signal("TERM");
    server.ended();
    std::fs::write(server.folder.join("data/cursor.key"), b"short").expect("damaged");
    let server = again(&server);
    ready(&server);
    assert_eq!(std::fs::read(server.folder.join("data/cursor.key.aside")).expect("kept"), b"short");
    server.wait_for("the log of it", |server| server.log().contains("cursor.key does not hold 32 bytes").then_some(()));
}

#[test]
fn promise_2_a_store_that_is_gone_is_said_once_and_its_jobs_are_never_those_of_others() {
    let mut server = durable();
    assert_eq!(admin_post(&server, "/admin/v1/queues/notes/lanes/agent/pause").status, 200);
    let later = |server: &Server, words: &str| {
        let reply = server.post("agent-key-1", "/api/later", &format!("{{\"words\":\"{words}\"}}"));
        assert_eq!(reply.status, 202, "{reply:?}");
        reply.json()["job"]["href"].as_str().expect("a path").to_owned()
    };
    let old: Vec<String> = ["first", "second"].iter().map(|words| later(&server, words)).collect();
    server.signal("KILL");
    server.ended();
    std::fs::remove_dir_all(server.folder.join("data/store")).expect("it was there");
    let verified = spillgate(&["queue", "verify"], &server.folder.join("data"));
    assert!(verified.status.code() == Some(1) && text(&verified.stderr).contains("is gone"), "{verified:?}");

    let mut server = again(&server);
    ready(&server);
    let readiness = server.get("", "/readyz").json();
    assert!(readiness["status"] == "degraded" && readiness["reasons"].to_string().contains("is gone"), "{readiness}");
    server.wait_for("the log", |server| server.log().contains("is gone").then_some(()));
    let new: Vec<String> = ["third", "fourth"].iter().map(|words| later(&server, words)).collect();
    assert!(old.iter().all(|href| !new.contains(href)), "{old:?} {new:?}");
    for href in &old {
        assert_eq!(server.get("agent-key-1", href).code(), "unknown_job", "{href}");
    }
    server.signal("KILL");
    server.ended();
    let server = again(&server);
    ready(&server);
    assert_eq!(server.get("", "/readyz").json()["status"], "ok");
    assert!(new.iter().all(|href| server.get("agent-key-1", href).json()["job"]["state"] == "queued"));
}

#[test]
fn promise_7_an_item_that_cannot_be_read_is_logged_counted_and_explained_and_its_key_is_free() {
    let keyed = QUEUED.replace("[input.words]", "idempotency = { key = \"optional\" }\n[input.words]");
    let flows = &[("later.toml", &*keyed)];
    let mut server = Server::start(&Options { binary: BINARY, server: &format!("{SERVER}{QUEUE}"), flows, environment: &[] });
    ready(&server);
    assert_eq!(admin_post(&server, "/admin/v1/queues/notes/lanes/agent/pause").status, 200);
    let words = |number: usize| format!("{number:02}").repeat(4_000);
    let later = |server: &Server, number: usize| {
        let body = format!("{{\"words\":\"{}\"}}", words(number));
        Request::new("POST", "/api/later")
            .key("agent-key-1")
            .header("Idempotency-Key", &format!("note-{number}"))
            .body(&body)
            .send(&server.flows)
    };
    let href = |reply: &Reply| reply.json()["job"]["href"].as_str().unwrap_or_else(|| panic!("a path: {reply:?}")).to_owned();
    // More than an extent holds: the first is full, and names what is in it.
    let jobs: Vec<String> = (0..20).map(|number| href(&later(&server, number))).collect();
    server.signal("KILL");
    server.ended();
    let file = server.folder.join("data/store/extents-0000");
    let mut bytes = std::fs::read(&file).expect("it is there");
    let wanted = words(3).into_bytes();
    let at = bytes.windows(1_000).position(|window| *window == wanted[..1_000]).expect("it was written");
    bytes[at + 2_000..at + 2_512].fill(0);
    std::fs::write(&file, bytes).expect("written");
    let server = again(&server);
    ready(&server);
    assert_eq!(admin_post(&server, "/admin/v1/queues/notes/lanes/agent/resume").status, 200);
    let dead = server.wait_for("its end", |server| {
        let reply = server.get("agent-key-1", &jobs[3]);
        reply.body.contains("\"dead\"").then(|| reply.json())
    });
    assert!(dead["error"]["advice"].as_str().is_some_and(|advice| advice.contains("send the work again")), "{dead}");
    assert!(dead["error"]["request_id"].is_string() && dead["error"]["retry_after_ms"].is_null(), "{dead}");
    server.wait_for("the log", |server| server.log().contains("store read: lost").then_some(()));
    assert!(server.get("", "/readyz").json()["reasons"].to_string().contains("lost"));
    let metrics = server.admin_get("operator-key-1", "/metrics").body;
    assert!(metrics.lines().any(|line| line.starts_with("spillgate_queue_ended_total") && line.contains("state=\"dead\"} 1")), "{metrics}");
    assert_ne!(href(&later(&server, 3)), jobs[3], "its key is free");
    assert_eq!(href(&later(&server, 4)), jobs[4], "that of another is not");
}

#[test]
fn operator_state_moves_to_another_folder_by_export_and_import() {
    let mut server = direct();
    assert_eq!(admin_post(&server, "/admin/v1/reload").status, 200);
    audit(&server);
    server.signal("TERM");
    assert!(server.ended().success());
    let (data, other) = (server.folder.join("data"), server.folder.join("other"));
    let exported = spillgate(&["control", "export"], &data);
    assert!(exported.status.success() && text(&exported.stdout).contains("\"action\":\"reload\""), "{exported:?}");
    let file = server.folder.join("kept.jsonl");
    std::fs::write(&file, &exported.stdout).expect("written");
    let imported = spillgate(&["control", "import", "--file", &file.to_string_lossy()], &other);
    assert!(imported.status.success(), "{}", text(&imported.stderr));
    let again = spillgate(&["control", "export"], &other);
    // The first line counts changes; the records are the same, byte by byte.
    let records =
        |output: &Output| text(&output.stdout).lines().filter(|line| line.starts_with("{\"key\"")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(records(&again), records(&exported));
    std::fs::write(&file, &exported.stdout[..exported.stdout.len() / 2]).expect("cut");
    assert_eq!(spillgate(&["control", "import", "--file", &file.to_string_lossy()], &other).status.code(), Some(1));
    assert_eq!(records(&spillgate(&["control", "export"], &other)), records(&exported), "half a file changes nothing");
}

#[test]
fn a_stopped_store_is_inspected_verified_exported_and_purged() {
    let mut server = durable();
    assert_eq!(admin_post(&server, "/admin/v1/queues/notes/lanes/agent/pause").status, 200);
    for words in ["first", "second", "third"] {
        assert_eq!(server.post("agent-key-1", "/api/later", &format!("{{\"words\":\"{words}\"}}")).status, 202);
    }
    server.signal("TERM");
    assert!(server.ended().success(), "{}", server.log());
    let data = server.folder.join("data");
    let shown = spillgate(&["queue", "inspect"], &data);
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    let lane = text(&shown.stdout).lines().find(|line| line.starts_with("notes")).expect("the lane").to_owned();
    assert_eq!(lane.split_whitespace().take(3).collect::<Vec<_>>(), ["notes", "agent", "3"]);
    let json: Json = serde_json::from_slice(&spillgate(&["queue", "inspect", "--format", "json"], &data).stdout).expect("JSON");
    assert_eq!(json["lanes"][0]["waiting"], 3);
    let none: Json =
        serde_json::from_slice(&spillgate(&["queue", "inspect", "--tenant", "nobody", "--format", "json"], &data).stdout).expect("JSON");
    assert_eq!(none["lanes"], serde_json::json!([]));
    let verified = spillgate(&["queue", "verify"], &data);
    assert!(verified.status.success() && text(&verified.stdout).contains("no faults"), "{verified:?}");
    let exported = spillgate(&["queue", "export", "--queue", "notes"], &data);
    assert!(exported.status.success(), "{}", text(&exported.stderr));
    assert_eq!(text(&exported.stdout).lines().count(), 3);
    let misspelt = spillgate(&["queue", "export", "--queue", "note"], &data);
    assert!(misspelt.status.code() == Some(1) && text(&misspelt.stderr).contains("no such lane"), "{misspelt:?}");
    assert_eq!(spillgate(&["queue", "purge", "--queue", "notes", "--tenant", "nobody"], &data).status.code(), Some(1));
    let purged = spillgate(&["queue", "purge", "--queue", "notes", "--tenant", "agent"], &data);
    assert!(purged.status.success() && text(&purged.stdout).starts_with("3 items"), "{purged:?}");
    assert_eq!(text(&spillgate(&["queue", "export"], &data).stdout), "");
}

#[test]
fn a_reload_that_brings_the_first_queue_opens_the_store() {
    let server = direct();
    audit(&server);
    assert!(!server.folder.join("data/store").exists());
    let config = std::fs::read_to_string(server.folder.join("server.toml")).expect("the server file");
    server.write("flows/later.toml", QUEUED);
    server.write("server.toml", &format!("{config}{QUEUE}"));
    let reloaded = admin_post(&server, "/admin/v1/reload");
    assert_eq!(reloaded.status, 200, "{reloaded:?}");
    ready(&server);
    assert_eq!(server.post("agent-key-1", "/api/later", "{\"words\":\"a\"}").status, 202);
}

#[test]
fn disk_limit_holds_for_store_and_operator_state_together() {
    let server = durable();
    let used =
        Command::new("du").args(["-sb", "--"]).arg(server.folder.join("data/store")).arg(server.folder.join("data/control")).output();
    let used = text(&used.expect("du runs").stdout);
    let bytes: u64 = used.lines().filter_map(|line| line.split_whitespace().next()?.parse::<u64>().ok()).sum();
    assert!(bytes > 20 << 20 && bytes <= 32 << 20, "allocated ahead, and not more: {used}");
}

#[test]
fn a_store_that_nothing_needs_any_more_is_opened_all_the_same() {
    let mut server = durable();
    assert_eq!(admin_post(&server, "/admin/v1/queues/notes/lanes/agent/pause").status, 200);
    let job = server.post("agent-key-1", "/api/later", "{\"words\":\"a\"}");
    let href = job.json()["job"]["href"].as_str().expect("a path").to_owned();
    server.signal("TERM");
    assert!(server.ended().success(), "{}", server.log());
    let config = std::fs::read_to_string(server.folder.join("server.toml")).expect("the server file");
    server.write("server.toml", &config.replace(QUEUE, ""));
    std::fs::remove_file(server.folder.join("flows/later.toml")).expect("the flow goes");
    let server = again(&server);
    ready(&server);
    assert_eq!(server.get("agent-key-1", &href).json()["job"]["state"], "queued");
}
