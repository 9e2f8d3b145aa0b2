//! Limits at the gate: what is refused, in which words, and that nothing grows with what strangers send (case E8).

use std::time::Duration;

use spillgate_test_support::postgres;
use spillgate_test_support::server::{Options, Request, Server};

const FLOW: &str = "name = \"say\"\nabout = \"Says a word.\"\nhttp = \"POST /say\"\neffect = \"read\"\n[input.word]\ntype = \"text\"\nabout = \"A word.\"\n[[step]]\nname = \"say\"\nmap = \"{'word': input.word}\"\n";

fn serve(tenants: &str) -> Server {
    let server = format!("{tenants}[admin.operator]\nkeys = [\"operator-key-1\"]\n");
    Server::start(&Options { binary: env!("CARGO_BIN_EXE_spillgate"), server: &server, flows: &[("say.toml", FLOW)], environment: &[] })
}

/// Starts it below a limit of file descriptors, in the words of a shell.
fn serve_below(limit: &str) -> Server {
    let server = "[tenant.agent]\nkeys = [\"agent-key-1\"]\n[admin.operator]\nkeys = [\"operator-key-1\"]\n";
    let options = Options { binary: env!("CARGO_BIN_EXE_spillgate"), server, flows: &[("say.toml", FLOW)], environment: &[] };
    let launcher = ["sh", "-c", &format!("ulimit {limit} && exec \"$0\" \"$@\"")].map(str::to_owned);
    Server::start_through(&launcher, &options)
}

#[test]
fn e8_idle_connections_leave_file_descriptors_to_everything_else() {
    let server = serve_below("-n 200");
    let connect = || std::net::TcpStream::connect(&server.flows).expect("the system accepts");
    let held: Vec<_> = (0..180).map(|_| connect()).collect();
    let mut refused = held.last().expect("there are some");
    let mut reply = String::new();
    std::io::Read::read_to_string(&mut refused, &mut reply).expect("it is answered, and closed");
    assert!(reply.starts_with("HTTP/1.1 503 ") && reply.contains("\"overloaded\""), "{reply}");
    let reload = || Request::new("POST", "/admin/v1/reload").key("operator-key-1").send(&server.admin);
    assert_eq!(reload().status, 200, "{:?}", reload());
    let mut kept = std::io::BufReader::new(held.into_iter().next().expect("the first"));
    assert_eq!(keep_alive_get(&mut kept, "/api/unknown", "agent-key-1"), 404, "who was there before is served");
    server.wait_for("call of somebody else", |server| {
        (server.post("agent-key-1", "/api/say", r#"{"word": "yes"}"#).status == 200).then_some(())
    });
}

#[test]
fn e8_a_low_soft_limit_of_file_descriptors_is_raised_as_far_as_the_hard_one_allows() {
    let server = serve_below("-Sn 64");
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.id())).expect("it runs");
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect("the system says");
    let [soft, hard] = [0, 1].map(|at| line.split_whitespace().nth(at).and_then(|number| number.parse::<u64>().ok()).unwrap_or(u64::MAX));
    assert_eq!(soft, hard.min(65_536), "{line}");
}

#[test]
fn e8_series_and_memory_do_not_grow_with_unknown_paths_and_made_up_tenants() {
    let server = serve("[tenant.agent]\nkeys = [\"agent-key-1\"]\nrate = \"unlimited\"\n");
    let series =
        |server: &Server| server.admin_get("operator-key-1", "/metrics").body.lines().filter(|line| !line.starts_with('#')).count();
    let flood = |from: usize, to: usize| {
        std::thread::scope(|threads| {
            for part in 0..4 {
                let server = &server;
                threads.spawn(move || {
                    let mut stream = std::io::BufReader::new(std::net::TcpStream::connect(&server.flows).expect("the server accepts"));
                    for number in (from..to).skip(part).step_by(4) {
                        let key = if number % 10 == 0 { format!("made-up-tenant-{number}") } else { "agent-key-1".to_owned() };
                        let status = keep_alive_get(&mut stream, &format!("/api/unknown/{number}"), &key);
                        assert!(matches!(status, 401 | 404), "{status}");
                    }
                });
            }
        });
    };
    flood(0, 2_000);
    let (series_before, memory_before) = (series(&server), server.settled_bytes());
    flood(2_000, 52_000);
    assert_eq!(series(&server), series_before);
    let grown = server.resident_bytes().saturating_sub(memory_before);
    assert!(grown < 4 << 20, "memory grew by {grown} bytes");
    let metrics = server.admin_get("operator-key-1", "/metrics").body;
    assert!(!metrics.contains("made-up") && metrics.contains("unknown"), "unknown ones share one label");
}

/// One GET on a kept connection; returns the status.
fn keep_alive_get(stream: &mut std::io::BufReader<std::net::TcpStream>, target: &str, key: &str) -> u16 {
    use std::io::{BufRead as _, Read as _, Write as _};
    let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\r\n");
    stream.get_mut().write_all(request.as_bytes()).expect("sent");
    let (mut status, mut length) = (0, 0);
    loop {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).expect("a line") > 0, "the server keeps the connection");
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(rest) = line.strip_prefix("http/1.1 ") {
            status = rest[..3].parse().expect("a status");
        }
        if let Some(rest) = line.strip_prefix("content-length:") {
            length = rest.trim().parse().expect("a length");
        }
        if line.is_empty() {
            break;
        }
    }
    stream.read_exact(&mut vec![0; length]).expect("a body");
    status
}

#[test]
fn every_refusal_is_a_problem_with_its_code_and_advice() {
    let server = serve("[tenant.agent]\nkeys = [\"agent-key-1\"]\n[tenant.other]\nkeys = [\"other-key-1\"]\nflows = [\"nothing_*\"]\n");
    let post = |key: &str, body: &str| server.post(key, "/api/say", body);
    for (reply, status, code) in [
        (Request::new("POST", "/api/say").body("{}").send(&server.flows), 401, "unauthenticated"),
        (post("agent-key-2", "{}"), 401, "unauthenticated"),
        (post("other-key-1", r#"{"word":"x"}"#), 404, "unknown_flow"),
        (server.get("agent-key-1", "/api/nothing"), 404, "unknown_flow"),
        (server.get("agent-key-1", "/api/say"), 405, "method_not_allowed"),
        (post("agent-key-1", "{"), 400, "malformed"),
        (post("agent-key-1", "[1]"), 400, "malformed"),
        (post("agent-key-1", "{}"), 400, "invalid_input"),
        (post("agent-key-1", &format!("{{\"word\":\"{}\"}}", "x".repeat(2 << 20))), 413, "too_large"),
    ] {
        assert_eq!((reply.status, reply.code().as_str()), (status, code), "{reply:?}");
        let problem = reply.json();
        for key in ["type", "title", "status", "code", "detail", "scope", "retryable", "advice", "request_id"] {
            assert!(!problem[key].is_null(), "{code} has no {key}: {problem}");
        }
        assert_eq!(problem["status"], status);
    }
    assert_eq!(server.get("agent-key-1", "/api/say").header("allow"), Some("POST"));
    let (healthy, ready) = (Request::new("GET", "/healthz").send(&server.flows), Request::new("GET", "/readyz").send(&server.flows));
    assert_eq!((healthy.status, ready.status), (200, 200));
    assert_eq!(Request::new("GET", "/openapi.json").send(&server.flows).code(), "unauthenticated");
}

#[test]
fn a_chunked_body_over_the_limit_is_refused_without_being_held() {
    use std::io::{Read as _, Write as _};
    let server = serve("[tenant.agent]\nkeys = [\"agent-key-1\"]\n");
    let before = server.settled_bytes();
    let request = Request::new("POST", "/api/say")
        .key("agent-key-1")
        .header("Transfer-Encoding", "chunked")
        .header("Content-Type", "application/json");
    let mut stream = request.open(&server.flows);
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    // Twice the limit: read away, so that the refusal arrives.
    let mut twice = request.open(&server.flows);
    twice.write_all(chunk.repeat(32).as_bytes()).and_then(|()| twice.write_all(b"0\r\n\r\n")).expect("sent");
    let mut refusal = String::new();
    twice.read_to_string(&mut refusal).expect("a whole reply");
    assert!(refusal.starts_with("HTTP/1.1 413") && refusal.contains("\"too_large\""), "{refusal}");
    // Endless: until the server has answered and closed.
    for _ in 0..4_096 {
        if stream.write_all(chunk.as_bytes()).is_err() {
            break;
        }
    }
    let mut reply = Vec::new();
    let _reset_after_the_reply = stream.read_to_end(&mut reply);
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 8 << 20, "memory grew by {grown} bytes");
    assert_eq!(server.post("agent-key-1", "/api/say", r#"{"word":"still here"}"#).json()["word"], "still here");
}

#[test]
fn the_rate_is_refused_with_when_to_come_back() {
    let server = serve("[tenant.agent]\nkeys = [\"agent-key-1\"]\nrate = { rate = \"60/min\", burst = 2 }\n");
    for _ in 0..2 {
        assert_eq!(server.post("agent-key-1", "/api/say", r#"{"word":"x"}"#).status, 200);
    }
    let refused = server.post("agent-key-1", "/api/say", r#"{"word":"x"}"#);
    assert_eq!((refused.status, refused.code().as_str()), (429, "rate_exceeded"));
    let problem = refused.json();
    let milliseconds = problem["retry_after_ms"].as_u64().expect("when to come back");
    let seconds: u64 = refused.header("retry-after").and_then(|seconds| seconds.parse().ok()).expect("Retry-After");
    assert!(seconds * 1_000 >= milliseconds && milliseconds > 0, "{refused:?}");
    assert_eq!(problem["policy"]["name"], "rate");
    assert!(refused.header("ratelimit").is_some() && refused.header("ratelimit-policy").is_some(), "{refused:?}");
    assert_eq!(problem["advice"].as_str().map(|advice| advice.contains("splitting")), Some(true));
}

#[test]
fn calls_over_the_in_flight_limit_are_refused_and_hung_up_ones_give_their_place_back() {
    let url = postgres::shared().url();
    let slow = "name = \"slow\"\nabout = \"Sleeps.\"\nhttp = \"GET /slow\"\neffect = \"read\"\ndeadline = \"20s\"\n[[step]]\nname = \"slow\"\ndatabase = \"main\"\nsql = \"SELECT pg_sleep(20)::text AS slept\"\n";
    let server = format!(
        "[tenant.agent]\nkeys = [\"agent-key-1\"]\nin_flight = 2\n[admin.operator]\nkeys = [\"operator-key-1\"]\n[database.main]\ndriver = \"postgres\"\nconnection = \"{url}\"\nstatement_timeout = \"30s\"\n"
    );
    let server = Server::start(&Options {
        binary: env!("CARGO_BIN_EXE_spillgate"),
        server: &server,
        flows: &[("say.toml", FLOW), ("slow.toml", slow)],
        environment: &[],
    });
    let in_flight =
        |server: &Server| server.admin_get("operator-key-1", "/admin/v1/tenants/agent/usage").json()["in_flight"]["used"].as_u64();
    for _ in 0..3 {
        let held: Vec<_> = (0..2).map(|_| Request::new("GET", "/api/slow").key("agent-key-1").open(&server.flows)).collect();
        server.wait_for("both calls to run", |server| (in_flight(server) == Some(2)).then_some(()));
        let refused = server.post("agent-key-1", "/api/say", r#"{"word":"x"}"#);
        assert_eq!((refused.status, refused.code().as_str()), (429, "in_flight_exceeded"));
        drop(held);
        server.wait_for("both places back", |server| (in_flight(server) == Some(0)).then_some(()));
    }
    assert_eq!(server.post("agent-key-1", "/api/say", r#"{"word":"x"}"#).status, 200);
}

#[test]
fn a_server_starts_and_serves_while_a_database_is_down() {
    let down = "name = \"down\"\nabout = \"Reads.\"\nhttp = \"GET /down\"\neffect = \"read\"\n[[step]]\nname = \"read\"\ndatabase = \"gone\"\nsql = \"SELECT 1 AS one\"\n";
    let server =
        "[tenant.agent]\nkeys = [\"agent-key-1\"]\n[database.gone]\ndriver = \"postgres\"\nconnection = \"postgres://a:b@127.0.0.1:1/x\"\n";
    let server = Server::start(&Options {
        binary: env!("CARGO_BIN_EXE_spillgate"),
        server,
        flows: &[("say.toml", FLOW), ("down.toml", down)],
        environment: &[],
    });
    let reply = server.get("agent-key-1", "/api/down");
    assert_eq!((reply.status, reply.code().as_str()), (503, "database_unreachable"));
    assert_eq!(reply.json()["retryable"], true);
    assert_eq!(server.post("agent-key-1", "/api/say", r#"{"word":"x"}"#).status, 200, "other flows serve");
    let ready = Request::new("GET", "/readyz").send(&server.flows);
    assert_eq!((ready.status, ready.json()["status"].as_str()), (200, Some("degraded")), "{ready:?}");
    assert!(ready.body.contains("gone") && !ready.body.contains("127.0.0.1"), "{ready:?}");
}

#[test]
fn a_server_told_to_stop_answers_what_it_accepted_and_ends_in_time() {
    let url = postgres::shared().url();
    let slow = "name = \"slow\"\nabout = \"Sleeps.\"\nhttp = \"GET /slow\"\neffect = \"read\"\ndeadline = \"20s\"\n[[step]]\nname = \"slow\"\ndatabase = \"main\"\nsql = \"SELECT pg_sleep(1)::text AS slept\"\n";
    let server = format!(
        "shutdown_grace = \"10s\"\n[tenant.agent]\nkeys = [\"agent-key-1\"]\n[admin.operator]\nkeys = [\"operator-key-1\"]\n[database.main]\ndriver = \"postgres\"\nconnection = \"{url}\"\n"
    );
    let mut server = Server::start(&Options {
        binary: env!("CARGO_BIN_EXE_spillgate"),
        server: &server,
        flows: &[("slow.toml", slow)],
        environment: &[],
    });
    let silent = std::net::TcpStream::connect(&server.flows).expect("an idle connection");
    let mut running = Request::new("GET", "/api/slow").key("agent-key-1").open(&server.flows);
    server.wait_for("the call to run", |server| {
        (server.admin_get("operator-key-1", "/admin/v1/tenants/agent/usage").json()["in_flight"]["used"] == 1).then_some(())
    });
    let told = std::time::Instant::now();
    server.signal("TERM");
    let mut reply = String::new();
    std::io::Read::read_to_string(&mut running, &mut reply).expect("a whole reply");
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    assert!(server.ended().success());
    assert!(told.elapsed() < Duration::from_secs(10), "an idle connection does not hold it");
    drop(silent);
}

#[test]
fn a_value_made_by_an_expression_is_bounded_like_what_it_was_made_of() {
    let twice = FLOW
        .replace("\"say\"", "\"twice\"")
        .replace("POST /say", "POST /twice")
        .replace("{'word': input.word}", "{'word': input.word + input.word}");
    let server = "[tenant.agent]\nkeys = [\"agent-key-1\"]\n";
    let server =
        Server::start(&Options { binary: env!("CARGO_BIN_EXE_spillgate"), server, flows: &[("twice.toml", &twice)], environment: &[] });
    let post = |length: usize| server.post("agent-key-1", "/api/twice", &format!("{{\"word\":\"{}\"}}", "x".repeat(length)));
    assert_eq!(post(400_000).json()["word"].as_str().map(str::len), Some(800_000));
    let refused = post(700_000);
    assert_eq!((refused.status, refused.code().as_str()), (502, "result_too_large"), "{}", refused.head);
}
