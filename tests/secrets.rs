//! Promise 10: no secret leaves the process, not in a reply, log, metric, page or dump (case C10).

use spillgate_test_support::server::{Options, Server};

/// Connection strings with a password, each to a port nobody listens on, and what of them must never be seen.
const CONNECTIONS: &[(&str, &str, &str)] = &[
    ("postgres", "postgres://reader:sup3rs3cret-url@127.0.0.1:1/fleet", "sup3rs3cret-url"),
    ("postgres", "host=127.0.0.1 port=1 user=reader password='sup3rs3cret quoted' dbname=fleet", "sup3rs3cret quoted"),
    ("odbc", "Driver={driver};Server=127.0.0.1;Port=1;Database=fleet;UID=reader;PWD=sup3rs3cret-pwd", "sup3rs3cret-pwd"),
    ("odbc", "Driver={driver};Server=127.0.0.1;Port=1;Database=fleet;UID=reader;Password={sup3rs3cret;braces}", "sup3rs3cret;braces"),
];

#[test]
fn c10_no_secret_is_in_any_reply_log_metric_page_or_dump() {
    let driver = spillgate_test_support::odbc::postgres_driver();
    let mut server_file = String::from("[tenant.agent]\nkeys = [\"env:AGENT_KEY\"]\n[admin.operator]\nkeys = [\"env:OPERATOR_KEY\"]\n");
    let mut flows = Vec::new();
    let mut environment = vec![
        ("AGENT_KEY".to_owned(), "sup3rs3cret-agent-key".to_owned()),
        ("OPERATOR_KEY".to_owned(), "sup3rs3cret-operator-key".to_owned()),
    ];
    for (index, (kind, connection, _)) in CONNECTIONS.iter().enumerate() {
        server_file.push_str(&format!("[database.d{index}]\ndriver = \"{kind}\"\nconnection = \"env:CONNECTION_{index}\"\n"));
        environment.push((format!("CONNECTION_{index}"), connection.replace("{driver}", &driver.to_string_lossy())));
        flows.push((
            format!("f{index}.toml"),
            format!("name = \"f{index}\"\nabout = \"Reads.\"\nhttp = \"GET /f{index}\"\neffect = \"read\"\ndeadline = \"5s\"\n[[step]]\nname = \"read\"\ndatabase = \"d{index}\"\nsql = \"SELECT 1 AS one\"\n"),
        ));
    }
    let flows: Vec<(&str, &str)> = flows.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let server =
        Server::start(&Options { binary: env!("CARGO_BIN_EXE_spillgate"), server: &server_file, flows: &flows, environment: &environment });

    let mut seen = Vec::new();
    for index in 0..CONNECTIONS.len() {
        let reply = server.get("sup3rs3cret-agent-key", &format!("/api/f{index}"));
        assert_eq!((reply.status, reply.code().as_str()), (503, "database_unreachable"), "{reply:?}");
        for hint in ["127.0.0.1", "reader", "SELECT"] {
            assert!(!reply.body.contains(hint), "a caller sees no host, user or statement: {}", reply.body);
        }
        seen.push(format!("{reply:?}"));
    }
    seen.push(format!("{:?}", server.get("sup3rs3cret-wrong-key", "/api/f0")));
    for page in ["/openapi.json", "/readyz", "/healthz"] {
        seen.push(format!("{:?}", server.get("sup3rs3cret-agent-key", page)));
    }
    for page in
        ["/metrics", "/admin/v1/config", "/admin/v1/databases", "/admin/v1/flows", "/admin/v1/tenants", "/admin/v1/tenants/agent/usage"]
    {
        let reply = server.admin_get("sup3rs3cret-operator-key", page);
        assert_eq!(reply.status, 200, "{page}: {reply:?}");
        seen.push(format!("{reply:?}"));
    }
    server.wait_for("an access record of each call", |server| (server.output().lines().count() > CONNECTIONS.len()).then_some(()));
    seen.push(server.output());
    seen.push(server.log());
    seen.push(std::fs::read_to_string(server.folder.join("data/last-good.json")).expect("the last good configuration is kept"));
    for text in &seen {
        assert!(!text.contains("sup3rs3cret"), "a secret left the process: {text}");
    }
    assert!(server.log().contains("d0"), "the log says which database cannot be reached: {}", server.log());
}
