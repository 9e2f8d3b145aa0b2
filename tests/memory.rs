//! Promise 11: memory stays within `memory` plus a fixed part, whatever is asked at once.

use std::io::Read as _;

use spillgate_test_support::server::{Options, Request, Server};

/// What the server may hold for results: room for four calls.
const MEMORY: u64 = 32 << 20;
/// What it may grow beyond that: connections, caches of the database, what the allocator keeps.
const FIXED: u64 = 24 << 20;
/// Asked at once, eight mebibytes each, which is more than sockets hold: six times what there is memory for.
const CALLERS: usize = 24;
const LET_IN: usize = 4;

const SERVER: &str = "memory = \"32MiB\"\n[tenant.agent]\nkeys = [\"agent-key-1\"]\nrate = \"unlimited\"\nin_flight = \"unlimited\"\nmemory = \"unlimited\"\n[admin.operator]\nkeys = [\"operator-key-1\"]\n[database.main]\ndriver = \"sqlite\"\nconnection = \"{folder}/main.db\"\npool = { max = 4, line = 1000 }\n";
const FLOW: &str = "name = \"many\"\nabout = \"Nearly eight mebibytes of rows.\"\nhttp = \"GET /many\"\neffect = \"read\"\ndeadline = \"60s\"\n[[step]]\nname = \"many\"\ndatabase = \"main\"\nsql = \"WITH RECURSIVE counted (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < 3900) SELECT n, printf('%02000d', n) AS t FROM counted\"\nmax_rows = 10000\nmax_bytes = \"8MiB\"\n";

#[test]
fn promise_11_what_is_asked_at_once_is_bounded_by_memory_whether_or_not_replies_are_read() {
    let server = Server::start(&Options {
        binary: env!("CARGO_BIN_EXE_spillgate"),
        server: SERVER,
        flows: &[("many.toml", FLOW)],
        environment: &[],
    });
    rusqlite::Connection::open(server.folder.join("main.db"))
        .and_then(|file| file.execute_batch("CREATE TABLE t (a)"))
        .expect("a database");
    let reserved = |server: &Server| {
        let page = server.admin_get("operator-key-1", "/metrics").body;
        let line = page.lines().find_map(|line| line.strip_prefix("spillgate_memory_reserved_bytes ")).map(str::to_owned);
        line.and_then(|bytes| bytes.parse::<f64>().ok()).expect("a gauge")
    };
    let one = server.get("agent-key-1", "/api/many");
    assert_eq!((one.status, one.json()["row_count"].as_u64()), (200, Some(3_900)));
    let before = server.settled_bytes();

    // Nobody reads, so whoever was let in holds its memory; the others are refused at once and tie up nothing.
    let calls: Vec<_> = (0..CALLERS).map(|_| Request::new("GET", "/api/many").key("agent-key-1").open(&server.flows)).collect();
    server.wait_for("all but four to be refused", |server| {
        let page = server.admin_get("operator-key-1", "/metrics").body;
        let mut counts = page.lines().filter(|line| line.starts_with("spillgate_calls_total") && line.contains("memory_full"));
        counts.any(|line| line.ends_with(&format!(" {}", CALLERS - LET_IN))).then_some(())
    });
    assert!(reserved(&server) <= MEMORY as f64, "{} bytes are reserved", reserved(&server));
    let held = server.resident_bytes().saturating_sub(before);

    let (mut served, mut refused) = (0, 0);
    for mut call in calls {
        let mut reply = String::new();
        call.read_to_string(&mut reply).expect("a whole reply");
        match &reply[..12] {
            "HTTP/1.1 200" => served += 1,
            "HTTP/1.1 503" if reply.contains("\"memory_full\"") => refused += 1,
            other => panic!("{other}: {}", &reply[..reply.len().min(500)]),
        }
    }
    let grown = server.resident_bytes().saturating_sub(before).max(held);
    println!("grown by {grown} bytes, by {held} while nobody read");
    assert_eq!((served, refused), (LET_IN, CALLERS - LET_IN));
    assert!(grown < MEMORY + FIXED, "memory grew by {grown} bytes");
    server.wait_for("all memory back", |server| (reserved(server) == 0.0).then_some(()));
}
