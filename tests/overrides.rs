//! Limits that an operator sets over a tenant's while the server runs: on the next call, across kill -9 and reload, and in `explain`.

use std::process::Command;

use serde_json::{Value, json};
use spillgate_test_support::server::{Options, Reply, Request, Server};

const BINARY: &str = env!("CARGO_BIN_EXE_spillgate");
const OPERATOR: &str = "operator-key-1";
const AGENT: &str = "/admin/v1/tenants/agent";
const SERVER: &str = "[admin.operator]\nkeys = [\"operator-key-1\"]\n[tenant.agent]\nkeys = [\"agent-key-1\"]\nin_flight = 8\n";
const FLOW: &str = "name = \"hello\"\nabout = \"Says hello.\"\nhttp = \"GET /hello\"\n[[step]]\nmap = \"{'words': 'hello'}\"\n";

fn serve() -> Server {
    Server::start(&Options { binary: BINARY, server: SERVER, flows: &[("hello.toml", FLOW)], environment: &[] })
}

fn change(server: &Server, method: &str, etag: &str, body: &Value) -> Reply {
    let request = Request::new(method, AGENT).key(OPERATOR).header("If-Match", etag);
    request.body(&body.to_string()).send(&server.admin)
}

/// What is in force for that limit, and where it comes from.
fn limit(server: &Server, name: &str) -> (Value, String) {
    let page = server.admin_get(OPERATOR, AGENT).json();
    let limit = &page["limits"][name];
    (limit["limit"].clone(), limit["from"].as_str().unwrap_or_default().to_owned())
}

fn explain(server: &Server, key: Option<&str>) -> (bool, String, String) {
    explain_of(server, key, "agent", "hello")
}

fn explain_of(server: &Server, key: Option<&str>, tenant: &str, flow: &str) -> (bool, String, String) {
    let mut command = Command::new(BINARY);
    command.args(["explain", "--tenant", tenant, "--flow", flow, "--config"]).arg(server.folder.join("server.toml"));
    command.args(["--url", &format!("http://{}", server.admin)]).env_remove("SPILLGATE_ADMIN_KEY");
    if let Some(key) = key {
        command.env("SPILLGATE_ADMIN_KEY", key);
    }
    let output = command.output().expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_limit_acts_on_the_next_call_and_is_given_up_as_fast() {
    let server = serve();
    let call = || server.get("agent-key-1", "/api/hello");
    assert_eq!((call().status, call().status), (200, 200));
    let seen = server.admin_get(OPERATOR, AGENT);
    let etag = seen.header("etag").expect("the page has its version").to_owned();
    let put = change(&server, "PUT", &etag, &json!({ "rate": { "rate": "1/h", "burst": 1 } }));
    assert_eq!(put.status, 200, "{put:?}");
    // The calls before were let through at another rate: one more may come in this hour.
    assert_eq!(call().status, 200);
    let refused = call();
    assert_eq!((refused.status, refused.code().as_str()), (429, "rate_exceeded"));
    assert_eq!(change(&server, "PATCH", &etag, &json!({ "weight": 2 })).status, 412, "the page is another one now");
    let now = put.header("etag").expect("a version").to_owned();
    assert_eq!(change(&server, "PATCH", &now, &json!({ "rate": null })).status, 200);
    let raised = call();
    let wait = if raised.status == 200 { Some(0) } else { raised.json()["retry_after_ms"].as_u64() };
    assert!(wait.is_some_and(|wait| wait <= 5_000), "not an hour: {raised:?}");
    server.wait_for("call at the file's rate", |server| (server.get("agent-key-1", "/api/hello").status == 200).then_some(()));
    let audit = server.admin_get(OPERATOR, "/admin/v1/audit").json();
    let entries: Vec<(&str, &str, &str)> = audit["entries"]
        .as_array()
        .expect("entries")
        .iter()
        .filter(|entry| entry["outcome"] == "done")
        .map(|entry| (entry["who"].as_str().unwrap_or(""), entry["from"].as_str().unwrap_or(""), entry["to"].as_str().unwrap_or("")))
        .collect();
    let set = r#"{"rate":{"rate":"1/h","burst":1}}"#;
    assert_eq!(entries, [("operator", "{}", set), ("operator", set, "{}")]);
}

#[test]
fn an_override_outlives_kill_and_reload_and_null_is_as_in_the_file() {
    let mut server = serve();
    let put = change(&server, "PUT", "*", &json!({ "in_flight": 3, "run": { "calls": 7 } }));
    assert_eq!((put.status, &put.json()["audited"]), (200, &json!(true)), "{put:?}");
    server.kill();
    server.start_again();
    let kept = (json!(3), "override".to_owned());
    server.wait_for("limit as it was set before", |server| (limit(server, "in_flight") == kept).then_some(()));
    assert_eq!(limit(&server, "run.calls"), (json!(7), "override".to_owned()));

    let file = std::fs::read_to_string(server.folder.join("server.toml")).expect("it is there");
    server.write("server.toml", &file.replace("in_flight = 8", "in_flight = 20"));
    let reloaded = Request::new("POST", "/admin/v1/reload").key(OPERATOR).send(&server.admin);
    assert_eq!((reloaded.status, limit(&server, "in_flight")), (200, kept), "a reload changes what stands below");
    assert_eq!(change(&server, "PATCH", "*", &json!({ "in_flight": null })).status, 200);
    let (value, from) = limit(&server, "in_flight");
    assert!(value == 20 && from.contains("server.toml:"), "{value} {from}");
    assert_eq!(limit(&server, "run.calls").0, 7, "what was not given up stays");
    let usage = server.admin_get(OPERATOR, "/admin/v1/tenants/agent/usage").json();
    assert_eq!(usage["run.calls"], json!({ "used": null, "limit": 7, "from": "override" }));
    assert_eq!((&usage["queued.disk"]["limit"], &usage["queued.disk"]["from"]), (&json!(512 << 20), &json!("default")));

    assert_eq!(change(&server, "DELETE", "*", &Value::Null).status, 200);
    server.kill();
    server.start_again();
    assert_eq!(server.admin_get(OPERATOR, AGENT).json()["override"], json!({}));
    server.wait_for("answer that operator state was read", |server| (change(server, "PATCH", "*", &json!({})).status == 200).then_some(()));
    assert_eq!(server.admin_get(OPERATOR, AGENT).json()["override"], json!({}), "nothing came back");
}

#[test]
fn explain_asks_the_server_that_runs_and_says_so() {
    let server = serve();
    assert_eq!(change(&server, "PUT", "*", &json!({ "in_flight": 3 })).status, 200);
    let line = |text: &str| text.lines().find(|line| line.starts_with("tenant.in_flight")).unwrap_or_default().to_owned();
    let (good, limits, said) = explain(&server, Some(OPERATOR));
    assert!(good && line(&limits).ends_with("override") && said.contains("in force on the server"), "{limits}{said}");
    let (good, limits, said) = explain(&server, None);
    assert!(good && line(&limits).contains("server.toml:") && said.contains("as the files say"), "{limits}{said}");
    let (good, limits, said) = explain(&server, Some("wrong-key"));
    assert!(!good && limits.is_empty() && said.contains("401"), "{limits}{said}");
    let file = std::fs::read_to_string(server.folder.join("server.toml")).expect("it is there");
    let (admin, nobody) = (server.admin.clone(), std::net::TcpListener::bind("127.0.0.1:0").expect("a port"));
    let free = nobody.local_addr().expect("bound").to_string();
    drop(nobody);
    assert!(!file.contains(&admin), "the test asks by --url, for the file says port 0");
    let output = Command::new(BINARY)
        .args(["explain", "--tenant", "agent", "--flow", "hello", "--key", OPERATOR, "--url", &format!("http://{free}"), "--config"])
        .arg(server.folder.join("server.toml"))
        .output()
        .expect("the binary runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("as the files say") && said.contains("does not answer"), "{said}");
}

#[test]
fn explain_asks_for_names_as_they_are_written() {
    let server_file = format!("{SERVER}[tenant.night_agent-2]\nkeys = [\"agent-key-2\"]\nin_flight = 5\n");
    let flow = FLOW.replace("hello", "say_hello");
    let server = Server::start(&Options { binary: BINARY, server: &server_file, flows: &[("say_hello.toml", &flow)], environment: &[] });
    let (good, limits, said) = explain_of(&server, Some(OPERATOR), "night_agent-2", "say_hello");
    let line = limits.lines().find(|line| line.starts_with("tenant.in_flight")).unwrap_or_default();
    assert!(good && line.contains(" 5 ") && said.contains("in force on the server"), "{limits}{said}");
}
