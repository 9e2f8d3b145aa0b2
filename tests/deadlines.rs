//! Promise 4: a statement past its deadline, or whose reader left, is gone from the database's own activity view a second
//! later. Asked of the database itself, never of the client that was let go.

use std::time::Duration;

use spillgate_test_support::observer::Observer;
use spillgate_test_support::postgres;
use spillgate_test_support::server::{Options, Request, Server};

const TENANT: &str = "[tenant.agent]\nkeys = [\"agent-key-1\"]\n";

fn serve(mark: &str, writable: bool) -> Server {
    let url = postgres::shared().url();
    let access = if writable { "access = \"read-write\"\n" } else { "" };
    let server = format!(
        "{TENANT}[database.main]\ndriver = \"postgres\"\nconnection = \"{url}\"\nstatement_timeout = \"60s\"\n{access}pool = {{ max = 2 }}\n"
    );
    let flow = |name: &str, method: &str, effect: &str, deadline: &str, sql: &str| {
        format!(
            "name = \"{name}\"\nabout = \"Slow.\"\nhttp = \"{method} /{name}\"\neffect = \"{effect}\"\ndeadline = \"{deadline}\"\n[[step]]\nname = \"slow\"\ndatabase = \"main\"\nsql = \"{sql}\"\n"
        )
    };
    let sleep = format!("SELECT pg_sleep(60)::text AS slept, '{mark}' AS mark");
    let write = format!("INSERT INTO {mark} SELECT 1 FROM pg_sleep(60)");
    let slow_write = format!("INSERT INTO {mark} SELECT 2 FROM pg_sleep(1)");
    let mut flows = vec![
        ("short.toml", flow("short", "GET", "read", "300ms", &sleep)),
        ("long.toml", flow("long", "GET", "read", "30s", &sleep)),
        ("quick.toml", flow("quick", "GET", "read", "5s", "SELECT 1 AS one")),
    ];
    if writable {
        flows.push(("write.toml", flow("write", "POST", "write", "300ms", &write)));
        flows.push(("slow_write.toml", flow("slow_write", "POST", "write", "20s", &slow_write)));
    }
    let flows: Vec<(&str, &str)> = flows.iter().map(|(name, text)| (*name, text.as_str())).collect();
    Server::start(&Options { binary: env!("CARGO_BIN_EXE_spillgate"), server: &server, flows: &flows, environment: &[] })
}

#[test]
fn promise_4_a_statement_past_its_deadline_is_gone_a_second_later() {
    let (server, observer) = (serve("mark_deadline", false), Observer::new());
    let reply = server.get("agent-key-1", "/api/short");
    assert_eq!((reply.status, reply.code().as_str()), (504, "deadline_exceeded"), "{reply:?}");
    assert_eq!(reply.json()["retryable"], true, "a read may be repeated");
    observer.wait_until_active("mark_deadline", false, Duration::from_secs(1));
    for _ in 0..4 {
        assert_eq!(server.get("agent-key-1", "/api/quick").status, 200, "the seats are free again");
    }
}

#[test]
fn promise_4_a_caller_that_hangs_up_ends_its_statement() {
    let (server, observer) = (serve("mark_hangup", false), Observer::new());
    let stream = Request::new("GET", "/api/long").key("agent-key-1").open(&server.flows);
    observer.wait_until_active("mark_hangup", true, Duration::from_secs(10));
    drop(stream);
    observer.wait_until_active("mark_hangup", false, Duration::from_secs(1));
    for _ in 0..4 {
        assert_eq!(server.get("agent-key-1", "/api/quick").status, 200, "the seats are free again");
    }
}

#[test]
fn a_caller_may_shorten_the_deadline_and_not_lengthen_it() {
    let (server, observer) = (serve("mark_shortened", false), Observer::new());
    let reply = Request::new("GET", "/api/long").key("agent-key-1").header("Spillgate-Deadline-Ms", "200").send(&server.flows);
    assert_eq!(reply.code(), "deadline_exceeded");
    let reply = Request::new("GET", "/api/short").key("agent-key-1").header("Spillgate-Deadline-Ms", "600000").send(&server.flows);
    assert_eq!(reply.code(), "deadline_exceeded");
    observer.wait_until_active("mark_shortened", false, Duration::from_secs(1));
}

#[test]
fn a_write_past_its_deadline_is_rolled_back_or_called_unknown() {
    let observer = Observer::new();
    observer.execute("CREATE TABLE mark_write (n integer)");
    let server = serve("mark_write", true);
    let reply = server.post("agent-key-1", "/api/write", "{}");
    assert_eq!(reply.status, 504, "{reply:?}");
    assert_eq!(reply.code(), "deadline_exceeded", "the rollback is proven: the commit was never sent");
    observer.wait_until_active("mark_write", false, Duration::from_secs(1));
    assert_eq!(observer.count("SELECT count(*) FROM mark_write"), 0);
}

#[test]
fn a_write_that_was_sent_is_not_cancelled_by_a_hang_up() {
    let observer = Observer::new();
    observer.execute("CREATE TABLE mark_kept (n integer)");
    let server = serve("mark_kept", true);
    let stream = Request::new("POST", "/api/slow_write").key("agent-key-1").body("{}").open(&server.flows);
    observer.wait_until_active("mark_kept", true, Duration::from_secs(10));
    drop(stream);
    observer.wait_until_active("mark_kept", false, Duration::from_secs(10));
    assert_eq!(observer.count("SELECT count(*) FROM mark_kept"), 1, "it was committed");
}
