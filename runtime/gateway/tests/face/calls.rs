//! Calls and their replies: values, places, callers, paths.

use serde_json::json;

use crate::support::{Face, get, with_body};

#[tokio::test(flavor = "multi_thread")]
async fn c1_integers_beyond_a_double_are_exact_in_and_out() {
    let face = Face::start().await;
    for digits in ["9007199254740993", "-7000000000000000001"] {
        let reply = face.get("agent-key", &format!("/api/echo/{digits}")).await;
        assert_eq!((reply.status, &reply.json()["rows"][0]["ID"]), (200, &json!(digits)), "{}", reply.body);
        for body in [format!("{{\"id\":{digits}}}"), format!("{{\"id\":\"{digits}\"}}")] {
            assert_eq!(face.post("agent-key", "/api/echo", &body).await.json()["rows"][0]["ID"], json!(digits));
        }
    }
    let reply = face.get("agent-key", "/api/echo/9007199254740991").await;
    let row = r#"{"ID":9007199254740991,"COUNT":0,"NOTE":null,"COMPANY":"ACME"}"#;
    assert_eq!(reply.body, format!(r#"{{"rows":[{row}],"row_count":1,"truncated":false}}"#));
    assert_eq!(reply.header("content-type"), Some("application/json"));
}

#[tokio::test(flavor = "multi_thread")]
async fn c2_omitted_null_and_the_text_null_are_three_things() {
    let face = Face::start().await;
    for (body, count, note) in [
        (r#"{"id":1}"#, json!(0), json!(null)),
        (r#"{"id":1,"count":null,"note":null}"#, json!(null), json!(null)),
        (r#"{"id":1,"note":"null"}"#, json!(0), json!("null")),
    ] {
        let row = face.post("agent-key", "/api/echo", body).await.json()["rows"][0].clone();
        assert_eq!((&row["COUNT"], &row["NOTE"]), (&count, &note), "{body}");
    }
    face.post("agent-key", "/api/echo", r#"{"id":1,"count":"null"}"#).await.problem(400, "invalid_input");
    let row = face.get("agent-key", "/api/echo/1?note=null").await.json()["rows"][0].clone();
    assert_eq!(row["NOTE"], json!("null"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_bad_field_is_named_at_once() {
    let face = Face::start().await;
    let problem = face.get("agent-key", "/api/echo/x?cuont=1&company=OTHER").await.problem(400, "invalid_input");
    let fields: Vec<&str> = problem["errors"].as_array().expect("errors").iter().filter_map(|error| error["field"].as_str()).collect();
    assert_eq!(fields, ["cuont", "company", "id"]);
    assert!(problem["errors"][0]["problem"].as_str().is_some_and(|text| text.contains("did you mean count?")));
    assert_eq!(problem["retryable"], json!(false));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_is_a_problem_object_too() {
    let face = Face::start().await;
    for body in ["{", "[]", "{\"id\":1}{"] {
        face.post("agent-key", "/api/echo", body).await.problem(400, "malformed");
    }
    face.send(&with_body("GET", "agent-key", "/api/echo/1", "{}")).await.problem(400, "malformed");
    let request = get("agent-key", "/api/echo/1").replace("Host", "Spillgate-Deadline-Ms: soon\r\nHost");
    face.send(&request).await.problem(400, "malformed");
    let twice = get("agent-key", "/api/echo/1").replace("Host", "Authorization: Bearer other\r\nHost");
    face.send(&twice).await.problem(400, "malformed");
    let zipped = with_body("POST", "agent-key", "/api/echo", "{}").replace("Host", "Content-Encoding: gzip\r\nHost");
    face.send(&zipped).await.problem(400, "malformed");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_valid_key_nobody_learns_which_paths_exist() {
    let face = Face::start().await;
    for path in ["/api/echo/1", "/api/nothing", "/openapi.json", "/nothing"] {
        let reply = face.send(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
        reply.problem(401, "unauthenticated");
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
        for key in ["", "agent-ke", "agent-key2", "demo"] {
            face.get(key, path).await.problem(401, "unauthenticated");
        }
    }
    let other_scheme = get("agent-key", "/api/echo/1").replace("Bearer", "Basic");
    face.send(&other_scheme).await.problem(401, "unauthenticated");
    let lower = get("agent-key", "/api/echo/1").replace("Bearer", "bearer");
    assert_eq!(face.send(&lower).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flow_that_a_tenant_may_not_call_does_not_exist_for_it() {
    let face = Face::start().await;
    face.get("narrow-key", "/api/bulk").await.problem(404, "unknown_flow");
    face.get("agent-key", "/api/echo/1/").await.problem(404, "unknown_flow");
    face.get("agent-key", "/api").await.problem(404, "unknown_page");
    face.get("agent-key", "/elsewhere").await.problem(404, "unknown_page");
    let reply = face.send(&with_body("DELETE", "agent-key", "/api/echo/1", "")).await;
    reply.problem(405, "method_not_allowed");
    assert_eq!(reply.header("allow"), Some("GET, HEAD, PUT"));
    let reply = face.send(&with_body("PUT", "narrow-key", "/api/echo/1", "{}")).await;
    reply.problem(405, "method_not_allowed");
    assert_eq!(reply.header("allow"), Some("GET, HEAD"), "what it may not call is not listed");
    assert_eq!(face.get("narrow-key", "/api/echo/1").await.json()["rows"][0]["COMPANY"], json!("BOREAL"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_says_what_it_changed_and_takes_no_key_it_would_ignore() {
    let face = Face::start().await;
    let put = with_body("PUT", "agent-key", "/api/echo/7", r#"{"text":"late"}"#);
    let reply = face.send(&put).await;
    assert_eq!((reply.status, &reply.json()["affected"]), (200, &json!(1)), "{}", reply.body);
    let keyed = put.replace("Host", "Idempotency-Key: \"k\"\r\nHost");
    face.send(&keyed).await.problem(400, "malformed");
    let in_both = with_body("PUT", "agent-key", "/api/echo/7", r#"{"text":"late","truck":7}"#);
    face.send(&in_both).await.problem(400, "invalid_input");
}

#[tokio::test(flavor = "multi_thread")]
async fn health_and_help_need_no_key() {
    let face = Face::start().await;
    let open = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(face.send(&open("/healthz")).await.body, "ok\n");
    let ready = face.send(&open("/readyz")).await;
    assert_eq!((ready.status, ready.json()), (200, json!({ "status": "ok", "reasons": [] })));
    let durable = face.send(&open("/readyz?for=durable")).await;
    assert_eq!((durable.status, &durable.json()["reasons"][0]), (503, &json!("the store of durable work is being opened")));
    let page = face.send(&open("/problems/rate_exceeded")).await;
    assert!(page.status == 200 && page.body.contains("429"), "{}", page.body);
    assert!(face.send(&open("/problems")).await.body.contains("/problems/internal"));
    let posted = face.send("POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").await;
    posted.problem(405, "method_not_allowed");
    assert_eq!(posted.header("allow"), Some("GET, HEAD"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_moves_calls_to_the_new_flows() {
    let face = Face::start().await;
    let mut kept_alive = face.connect().await;
    kept_alive.write(get("agent-key", "/api/echo/1").as_bytes()).await;
    assert_eq!(kept_alive.reply().await.status, 200);
    face.reload_with("echo", &crate::support::ECHO.replace("/echo/{id}", "/echoes/{id}"));
    kept_alive.write(get("agent-key", "/api/echoes/1").as_bytes()).await;
    assert_eq!(kept_alive.reply().await.status, 200, "the same connection sees it");
    face.get("agent-key", "/api/echo/1").await.problem(405, "method_not_allowed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_database_is_gone_serves_on_and_says_so() {
    let face = Face::start().await;
    face.remove_database();
    let problem = face.get("agent-key", "/api/echo/1").await.problem(503, "database_unreachable");
    assert!(problem["retry_after_ms"].as_u64().is_some_and(|milliseconds| milliseconds > 0));
    let ready = face.send("GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let expected = json!({ "status": "degraded", "reasons": ["database fleet cannot be reached"] });
    assert_eq!((ready.status, ready.json()), (200, expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_reply_says_how_old_it_is() {
    let face = Face::start().await;
    let flow = crate::support::ECHO.replace("[input.id]", "cache = { fresh = \"1ms\", stale_if_error = \"1h\" }\n[input.id]");
    let flow = flow.replace("max_rows = 1", "max_rows = 1\non_error = { stale = true }");
    face.reload_with("echo", &flow);
    assert_eq!(face.get("agent-key", "/api/echo/1").await.status, 200);
    // Another plan for the database: its sessions are closed, and there is no file for new ones.
    face.remove_database();
    face.reload_tenant("statement_timeout = \"30s\"", "statement_timeout = \"29s\"");
    let reply = loop {
        let reply = face.get("agent-key", "/api/echo/1").await;
        // Within a millisecond it may still be fresh.
        if reply.header("spillgate-stale").is_some() {
            break reply;
        }
    };
    assert_eq!(reply.status, 200);
    assert_eq!(reply.json()["stale_seconds"].as_u64().map(|age| age.to_string()).as_deref(), reply.header("spillgate-stale"));
    assert_eq!(reply.json()["rows"][0]["ID"], json!(1));
}
