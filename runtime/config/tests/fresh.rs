//! Generated files are fresh. `SPILLGATE_BLESS=1` writes them anew.

use std::path::{Path, PathBuf};

use spillgate_config::{reference_flow, reference_server, schema_flow, schema_server};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn assert_fresh(path: &str, content: &str) {
    let path = root().join(path);
    if std::env::var_os("SPILLGATE_BLESS").is_some() {
        std::fs::write(&path, content).expect("a generated file can be written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == content, "{} is not fresh: run this test with SPILLGATE_BLESS=1", path.display());
}

#[test]
fn schemas_are_fresh() {
    let pretty = |schema: &serde_json::Value| format!("{}\n", serde_json::to_string_pretty(schema).expect("a schema is JSON"));
    assert_fresh("flows/schema/server.json", &pretty(&schema_server()));
    assert_fresh("flows/schema/flow.json", &pretty(&schema_flow()));
}

#[test]
fn the_reference_is_fresh() {
    const MARK: &str = "<!-- From here on generated from the tables of keys. -->\n";
    let path = root().join("docs/reference.md");
    let text = std::fs::read_to_string(&path).expect("the reference is there");
    let preface = text.split(MARK).next().expect("a text has a beginning");
    assert_fresh("docs/reference.md", &format!("{preface}{MARK}\n{}\n{}", reference_server(), reference_flow()));
}

#[test]
fn schemas_know_every_key_the_files_may_have_and_no_later_one() {
    let flow = schema_flow();
    assert_eq!(flow["properties"]["step"]["items"]["properties"]["max_rows"]["default"], 1000);
    assert_eq!(flow["additionalProperties"], false);
    assert_eq!(flow["properties"]["step"]["items"]["properties"]["queue"]["type"], "string");
    assert_eq!(flow["properties"]["idempotency"]["properties"]["keep"]["default"], "48h");
    let server = schema_server();
    assert_eq!(server["properties"]["queue"]["additionalProperties"]["properties"]["expires"]["default"], "7d");
    let tenant = &server["properties"]["tenant"]["additionalProperties"]["properties"];
    assert_eq!((&tenant["weight"]["default"], &tenant["run"]["properties"]["ttl"]["default"]), (&1.into(), &"30min".into()));
    assert!(server["properties"]["server"]["properties"].get("tls").is_none(), "of a later version");
    assert_eq!(server["properties"]["tenant"]["additionalProperties"]["properties"]["rate"]["default"], "6000/min");
    assert_eq!(server["properties"]["database"]["additionalProperties"]["required"], serde_json::json!(["driver", "connection"]));
}
