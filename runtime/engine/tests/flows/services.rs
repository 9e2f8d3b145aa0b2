//! `http` steps against a service in this process.

use spillgate_engine::Outcome;
use spillgate_model::Code;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::support::{Settings, World};

/// Answers each connection in turn with one of `answers`, and hands out what it was sent.
async fn service(answers: Vec<String>) -> (String, tokio::task::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let host = listener.local_addr().expect("bound").to_string();
    let task = tokio::spawn(async move {
        let mut seen = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().await.expect("a caller");
            let mut request = Vec::new();
            let mut buffer = [0; 4_096];
            while !request.windows(4).any(|end| end == b"\r\n\r\n") || (request.starts_with(b"POST") && !request.ends_with(b"}")) {
                let count = stream.read(&mut buffer).await.expect("readable");
                assert!(count > 0, "the request is whole");
                request.extend_from_slice(&buffer[..count]);
            }
            seen.push(String::from_utf8_lossy(&request).into_owned());
            stream.write_all(answer.as_bytes()).await.expect("writable");
            stream.shutdown().await.ok();
        }
        seen
    });
    (host, task)
}

fn answer(status: &str, kind: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

fn flow(host: &str, method: &str, rest: &str) -> String {
    let body = if method == "POST" { "body = \"{'id': input.id}\"," } else { "" };
    format!(
        r#"
name = "ask"
http = "GET /ask"
effect = "read"
deadline = "10s"
[input.id]
type = "integer"
[[step]]
name = "geo"
http = {{ method = "{method}", url = "http://{host}/geo", headers = {{ "X-Key" = "secret" }}, {body} timeout = "2s", max_bytes = "1KiB" }}
{rest}
[[step]]
name = "answer"
map = "{{'status': steps.geo.value.status, 'body': steps.geo.value.body, 'id': input.id}}"
"#
    )
}

fn world(host: &str, flow: &str) -> World {
    World::with(&Settings { hosts: vec![host.to_owned()], ..Settings::default() }, &[flow])
}

#[tokio::test]
async fn a_service_is_asked_and_its_json_is_a_value() {
    let (host, task) =
        service(vec![answer("200 OK", "application/json; charset=utf-8", r#"{"big":18446744073709551615,"x":[1,2.5,null]}"#)]).await;
    let world = world(&host, &flow(&host, "POST", ""));
    let expected = r#"{"body":{"big":"18446744073709551615","x":[1,2.5,null]},"id":7,"status":200}"#;
    assert_eq!(world.value("ask", r#"{"id": 7}"#).await, expected);
    let seen = task.await.expect("served").remove(0).to_ascii_lowercase();
    assert!(seen.starts_with("post /geo") && seen.contains("x-key: secret") && seen.ends_with(r#"{"id":7}"#), "{seen}");
}

#[tokio::test]
async fn a_call_that_names_its_run_names_it_to_the_service_one_hop_further_on() {
    let (host, task) = service((0..4).map(|_| answer("200 OK", "text/plain", "fine")).collect()).await;
    let world = world(&host, &flow(&host, "GET", ""));
    for (run, depth) in [(Some("run-7"), 0), (Some("run-7"), 3), (Some("run-7"), 255), (None, 3)] {
        let mut call = world.call("ask", r#"{"id": 7}"#);
        (call.flowfile.run, call.depth) = (run.map(Into::into), depth);
        assert!(matches!(world.engine.run(call).await, Outcome::Value { .. }));
    }
    let headers = |request: String| {
        let request = request.to_ascii_lowercase();
        let value = |name: &str| request.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned());
        (value("spillgate-run:"), value("spillgate-depth:"))
    };
    let named = |depth: &str| (Some("run-7".to_owned()), Some(depth.to_owned()));
    let seen: Vec<_> = task.await.expect("served").into_iter().map(headers).collect();
    assert_eq!(seen, [named("1"), named("4"), named("255"), (None, None)]);
}

#[tokio::test]
async fn text_stays_text_and_redirects_are_not_followed() {
    let moved = "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Type: text/plain\r\nContent-Length: 5\r\nConnection: close\r\n\r\n12e35";
    let (host, task) = service(vec![moved.to_owned()]).await;
    let world = world(&host, &flow(&host, "GET", ""));
    assert_eq!(world.value("ask", r#"{"id": 7}"#).await, r#"{"body":"12e35","id":7,"status":302}"#);
    task.await.expect("served");
}

#[tokio::test]
async fn failures_of_a_service_are_upstream_errors() {
    let large = answer("200 OK", "text/plain", &"x".repeat(2_000));
    let (host, task) = service(vec![large, answer("200 OK", "application/json", "{"), answer("503 Busy", "text/plain", "")]).await;
    let world = world(&host, &flow(&host, "GET", ""));
    for (what, retryable) in [("larger", false), ("JSON", false), ("503", true)] {
        let refused = world.refusal("ask", r#"{"id": 7}"#).await;
        assert_eq!((refused.code, refused.retryable), (Code::UpstreamError, retryable));
        assert!(refused.detail.contains(what), "{}", refused.detail);
        assert!(!refused.detail.contains("127.0.0.1"), "{}", refused.detail);
    }
    task.await.expect("served");
    // Nobody listens any more.
    assert_eq!(world.refusal("ask", r#"{"id": 7}"#).await.code, Code::UpstreamError);
}

#[tokio::test]
async fn a_request_that_was_sent_makes_a_failed_write_flow_not_retryable() {
    let (host, task) = service(vec![answer("200 OK", "text/plain", "done")]).await;
    let flow = format!(
        r#"
name = "ask"
http = "POST /ask"
effect = "write"
deadline = "10s"
[input.id]
type = "integer"
[[step]]
name = "tell"
http = {{ method = "POST", url = "http://{host}/tell", body = "{{'id': input.id}}", timeout = "2s", max_bytes = "1KiB" }}
[[step]]
name = "add"
database = "main"
sql = "UPDATE STOCK SET AMOUNT = AMOUNT + 1 WHERE ID = :id"
max_affected = 1
"#
    );
    let world = world(&host, &flow);
    world.faults.next_writes.lock().expect("not poisoned").push_back(spillgate_connector::Failure::Passing);
    let failed = world.refusal("ask", r#"{"id": 1}"#).await;
    assert_eq!((failed.code, failed.retryable), (Code::DatabaseError, false));
    task.await.expect("served");
}

#[tokio::test]
async fn a_service_is_tried_again_and_may_be_replaced_by_a_value() {
    let busy = || answer("503 Busy", "text/plain", "");
    let (host, task) = service(vec![busy(), answer("200 OK", "text/plain", "fine"), busy(), busy()]).await;
    let rest = "retry = { attempts = 2, backoff = \"1ms\" }\non_error = { value = { status = 0, body = \"none\" } }";
    let world = world(&host, &flow(&host, "GET", rest));
    assert_eq!(world.value("ask", r#"{"id": 7}"#).await, r#"{"body":"fine","id":7,"status":200}"#);
    assert_eq!(world.value("ask", r#"{"id": 7}"#).await, r#"{"body":"none","id":7,"status":0}"#);
    assert_eq!(task.await.expect("served").len(), 4);
}
