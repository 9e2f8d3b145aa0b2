//! The OpenAPI document is one that a public validator accepts, and says only what this caller may see.

use std::path::Path;
use std::process::Command;

use spillgate_test_support::server::{Server, folder};

/// Starts the fleet example on free ports, with a third tenant that may call little.
fn fleet() -> Server {
    let folder = folder("openapi");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("flows/fleet");
    std::fs::create_dir_all(folder.join("flows")).expect("a folder");
    for entry in std::fs::read_dir(source.join("flows")).expect("the example is there").flatten() {
        std::fs::copy(entry.path(), folder.join("flows").join(entry.file_name())).expect("copied");
    }
    let server = std::fs::read_to_string(source.join("server.toml")).expect("the example is there");
    let server = server.replace("127.0.0.1:8080", "127.0.0.1:0").replace("127.0.0.1:8081", "127.0.0.1:0");
    let narrow = "\n[tenant.narrow]\nkeys = [\"narrow-key-1\"]\nflows = [\"truck_*\"]\nattributes = { company = \"ACME\" }\n";
    std::fs::write(folder.join("server.toml"), server + narrow).expect("written");
    Server::start_in(env!("CARGO_BIN_EXE_spillgate"), folder, &[])
}

#[test]
fn a_public_validator_accepts_the_document() {
    let server = fleet();
    let document = server.get("demo-agent", "/openapi.json");
    assert_eq!(document.status, 200);
    let file = server.folder.join("openapi.json");
    std::fs::write(&file, &document.body).expect("written");
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join(".test-tools/venv/bin/python");
    assert!(python.exists(), "the validator is installed by deploy/test-tools.sh (make test runs it)");
    let checked = Command::new(python).args(["-m", "openapi_spec_validator"]).arg(&file).output().expect("the validator runs");
    assert!(checked.status.success(), "{}{}", String::from_utf8_lossy(&checked.stdout), String::from_utf8_lossy(&checked.stderr));
    assert_eq!(document.json()["openapi"].as_str().map(|version| version.starts_with("3.1")), Some(true));
}

#[test]
fn the_document_shows_what_this_caller_may_call_and_nothing_else() {
    let server = fleet();
    let names = |key: &str| {
        let document = server.get(key, "/openapi.json").json();
        let operations = document["paths"]
            .as_object()
            .expect("paths")
            .values()
            .flat_map(|item| item.as_object().expect("methods").values().cloned().collect::<Vec<_>>());
        operations.filter_map(|operation| operation["operationId"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let (all, narrow) = (names("demo-agent"), names("narrow-key-1"));
    assert!(all.contains(&"book_trip".to_owned()) && all.len() > narrow.len());
    assert!(!narrow.is_empty() && narrow.iter().all(|name| name.starts_with("truck_")), "{narrow:?}");
    let document = server.get("demo-agent", "/openapi.json").body;
    let shown = document.contains("\"name\":\"company\"") || document.contains("\"company\":");
    assert!(!shown, "an identity-bound input is none of the caller's business");
}
