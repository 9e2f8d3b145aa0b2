//! The OpenAPI document.

use std::path::Path;

use serde_json::Value as Json;

use crate::support::Face;

/// The document as the golden file holds it: the version of the plan aside, which changes with every file.
async fn document(face: &Face, key: &str) -> Json {
    let reply = face.get(key, "/openapi.json").await;
    assert_eq!((reply.status, reply.header("cache-control")), (200, Some("private, no-cache")));
    let mut document = reply.json();
    assert!(document["info"]["version"].as_str().is_some_and(|version| !version.is_empty()));
    document["info"]["version"] = "VERSION".into();
    document
}

#[tokio::test(flavor = "multi_thread")]
async fn the_document_is_the_golden_file() {
    let face = Face::start().await;
    face.reload_with("order", crate::support::ORDER);
    let made = serde_json::to_string_pretty(&document(&face, "agent-key").await).expect("JSON") + "\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/face/openapi.golden.json");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &made).expect("written");
    }
    let golden = std::fs::read_to_string(&path).expect("run with UPDATE_GOLDEN=1 to write it, then read the difference");
    assert!(made == golden, "the document changed: run with UPDATE_GOLDEN=1 and read the difference");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_document_shows_what_this_caller_may_call_and_no_more() {
    let face = Face::start().await;
    let names = |document: &Json| -> Vec<String> {
        let methods = document["paths"].as_object().expect("paths").values().filter_map(Json::as_object);
        methods.flat_map(|item| item.values()).map(|operation| operation["operationId"].as_str().expect("a name").to_owned()).collect()
    };
    let (all, narrow) = (document(&face, "agent-key").await, document(&face, "narrow-key").await);
    assert_eq!(names(&all), ["bulk", "echo_body", "echo", "note", "slow"]);
    assert_eq!(names(&narrow), ["echo_body", "echo", "slow"]);
    let text = narrow.to_string();
    assert!(!text.contains("company") && !text.contains("SELECT") && !text.contains("fleet"), "{text}");
    assert!(!text.contains("/api/jobs"), "it has no durable flow");
    assert_eq!(narrow["paths"]["/api/echo/{id}"]["get"]["x-spillgate-limits"]["in_flight"], 1);
    assert_eq!(all["paths"]["/api/echo/{id}"]["put"]["parameters"][0]["name"], "id", "one name for one place");
}
