//! Promise 11: every tenant asks for its largest answer at once, and memory stays within `memory` plus a fixed part.

use std::io::Read as _;
use std::time::Duration;

use spillgate_test_support::rig::Rig;
use spillgate_test_support::server::{Request, folder};

use crate::scene::{key, serve, tenant, turn};

/// What the server may hold for results.
const MEMORY: u64 = 32 << 20;
/// What it may grow beyond that: connections, caches of the database, what the allocator keeps.
const FIXED: u64 = 24 << 20;
const TENANTS: usize = 16;
/// Each tenant's quarter of it holds one such answer, and no buffer of the system holds one.
const ANSWER: [&str; 2] = [
    "SELECT n, lpad(n::text, 2000, '0') AS t FROM generate_series(1, 3400) n",
    "WITH RECURSIVE counted (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < 3400) SELECT n, printf('%02000d', n) AS t FROM counted",
];
const EACH: usize = 2;

fn everybodys_largest(rig: &Rig, answer: &str) {
    let _turn = turn();
    let largest = format!(
        "name = \"largest\"\nabout = \"Nearly seven mebibytes of rows.\"\nhttp = \"GET /largest\"\neffect = \"read\"\ndeadline = \"30s\"\n[[step]]\nname = \"largest\"\ndatabase = \"main\"\nsql = \"{answer}\"\nmax_rows = 10000\nmax_bytes = \"7MiB\"\n"
    );
    let names: Vec<String> = (0..TENANTS).map(|number| format!("tenant-{number}")).collect();
    let mut sections = vec!["memory = \"32MiB\"\n".to_owned(), rig.database("main", "pool = { max = 4 }")];
    sections.extend(names.iter().map(|name| tenant(name, "agent", "")));
    let server = serve(&sections, &[("largest.toml", largest)]);
    let one = server.get(&key(&names[0]), "/api/largest");
    assert_eq!((one.status, one.json()["row_count"].as_u64()), (200, Some(3_400)), "{}", one.head);
    let before = server.settled_bytes();

    let calls: Vec<_> = names
        .iter()
        .flat_map(|name| (0..EACH).map(|_| Request::new("GET", "/api/largest").key(&key(name)).open_narrow(&server.flows)))
        .collect();
    // Nobody reads before everybody is refused or has the beginning of an answer: the rest of it is all there at once.
    let mut grown = 0;
    for call in &calls {
        call.peek(&mut [0]).expect("an answer");
        grown = grown.max(server.resident_bytes().saturating_sub(before));
    }
    let (mut served, mut refused) = (0, 0);
    for mut call in calls {
        let mut reply = String::new();
        call.read_to_string(&mut reply).expect("a whole reply");
        grown = grown.max(server.resident_bytes().saturating_sub(before));
        match &reply[..12] {
            "HTTP/1.1 200" => served += 1,
            "HTTP/1.1 503" if reply.contains("\"code\"") => refused += 1,
            other => panic!("{other}: {}", &reply[..reply.len().min(500)]),
        }
    }
    println!("{}: {served} served, {refused} refused, grown by {grown} bytes", rig.name);
    assert!(served >= 3, "there is memory for some: {served} served, {refused} refused");
    assert!(refused > 0 && served + refused == TENANTS * EACH, "there is not memory for all: {served} served");
    assert!(grown < MEMORY + FIXED, "memory grew by {grown} bytes");
    server.wait_for("all memory back", |server| (server.metric("spillgate_memory_reserved_bytes ") == Some(0.0)).then_some(()));
    let again = server.get(&key(&names[1]), "/api/largest");
    assert_eq!(again.status, 200, "{}", again.head);
}

#[test]
fn promise_11_every_tenant_asks_postgres_for_its_largest_answer_at_once() {
    everybodys_largest(&Rig::postgres(Duration::ZERO), ANSWER[0]);
}

#[test]
fn promise_11_every_tenant_asks_sqlite_for_its_largest_answer_at_once() {
    let folder = folder("largest");
    everybodys_largest(&Rig::sqlite(&folder, Duration::ZERO, 1), ANSWER[1]);
    let _left_behind = std::fs::remove_dir_all(&folder);
}
