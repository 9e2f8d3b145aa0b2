//! Reads: limits, lists, routes, expressions, failures, tries.

use spillgate_connector::Failure;
use spillgate_model::Code;

use crate::support::{World, json_rows};

const ITEM: &str = r#"
name = "item"
http = "GET /item/{id}"
effect = "read"
deadline = "5s"
[input.id]
type = "integer"
[[step]]
name = "item"
database = "main"
sql = "SELECT ID, NAME FROM ITEM WHERE ID = :id"
max_rows = 1
on_empty = { status = 404 }
"#;

#[tokio::test]
async fn a_lookup_gives_its_row_or_says_that_there_is_none() {
    let world = World::new(&[ITEM]);
    assert_eq!(json_rows(world.rows("item", r#"{"id": 7}"#).await.as_ref()), r#"[{"ID":7,"NAME":"item 7"}]"#);
    let empty = world.refusal("item", r#"{"id": 999}"#).await;
    assert_eq!((empty.code, empty.status()), (Code::Empty, 404));
    assert_eq!((world.seats().in_use, world.seats().idle), (0, 1));
}

#[tokio::test]
async fn c5_a_cap_never_hits_silently() {
    let flow = |name: &str, sql: &str| {
        format!(
            "name = \"{name}\"\nhttp = \"GET /{name}\"\neffect = \"read\"\ndeadline = \"20s\"\n[[step]]\nname = \"s\"\ndatabase = \"main\"\nsql = \"{sql}\"\nmax_rows = 150\n"
        )
    };
    let exact = flow("exact", "SELECT ID FROM ITEM WHERE ID <= 150");
    let over = flow("over", "SELECT ID FROM ITEM");
    let millions = flow("millions", "WITH RECURSIVE N(X) AS (SELECT 1 UNION ALL SELECT X + 1 FROM N WHERE X < 5000000) SELECT X FROM N");
    let world = World::with(&crate::support::Settings { pool: Some("{ max = 1 }"), ..Default::default() }, &[&exact, &over, &millions]);
    for (name, truncated) in [("exact", false), ("over", true), ("millions", true)] {
        let rows = world.rows(name, "{}").await;
        assert_eq!((rows.len(), rows.truncated()), (150, truncated), "{name}");
        assert_eq!((world.seats().in_use, world.seats().ending), (0, 0), "{name} gives its seat back at once");
    }
    assert_eq!(world.faults.connects.load(std::sync::atomic::Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_list_becomes_as_many_markers_as_it_has_items() {
    let flow = r#"
name = "items"
http = "GET /items"
effect = "read"
deadline = "5s"
[input.below]
type = "integer"
[input.ids]
type = ["integer"]
[[step]]
name = "items"
database = "main"
sql = "SELECT ID FROM ITEM WHERE ID IN (:ids) AND ID < :below ORDER BY ID"
"#;
    let world = World::new(&[flow]);
    for (ids, found) in [("[3]", r#"[{"ID":3}]"#), ("[5, 3, 4]", r#"[{"ID":3},{"ID":4},{"ID":5}]"#), ("[100, 2]", r#"[{"ID":2}]"#)] {
        let input = format!(r#"{{"ids": {ids}, "below": 50}}"#);
        assert_eq!(json_rows(world.rows("items", &input).await.as_ref()), found);
    }
}

const STORY: &str = r#"
name = "story"
http = "GET /story/{id}"
effect = "read"
deadline = "5s"
[input.id]
type = "integer"
[[step]]
name = "item"
database = "main"
sql = "SELECT ID, NAME, KIND FROM ITEM WHERE ID = :id"
columns = { ID = "integer", NAME = "text", KIND = "integer" }
route = [{ when = "size(steps.item.rows) == 0", goto = "nothing" }]
[[step]]
name = "like"
when = "steps.item.rows[0].KIND == 1"
database = "main"
sql = "SELECT count(*) AS N FROM ITEM WHERE ID < :id"
columns = { N = "integer" }
[[step]]
name = "found"
map = "{'id': steps.item.rows[0].ID, 'before': size(steps.like.rows) > 0 ? steps.like.rows[0].N : -1, 'of': tenant.company, 'by': tenant.name}"
route = [{ when = "true", goto = "end" }]
[[step]]
name = "nothing"
map = "{'id': input.id, 'found': false}"
[[step]]
name = "end"
when = "false"
map = "1"
"#;

#[tokio::test]
async fn steps_run_forward_as_their_conditions_say() {
    let world = World::new(&[STORY]);
    assert_eq!(world.value("story", r#"{"id": 11}"#).await, r#"{"before":10,"by":"one","id":11,"of":"ACME"}"#);
    assert_eq!(world.value("story", r#"{"id": 12}"#).await, r#"{"before":-1,"by":"one","id":12,"of":"ACME"}"#);
    assert_eq!(world.value("story", r#"{"id": 999}"#).await, r#"{"found":false,"id":999}"#);
}

const CAREFUL: &str = r#"
name = "careful"
http = "GET /careful"
effect = "read"
deadline = "5s"
[[step]]
name = "item"
database = "main"
sql = "SELECT count(*) AS N FROM ITEM"
retry = { attempts = 3, backoff = "1ms" }
on_error = { value = { status = "unknown" } }
[[step]]
name = "answer"
map = "{'error': steps.item.error, 'value': steps.item.value, 'rows': size(steps.item.rows)}"
"#;

#[tokio::test]
async fn a_failure_that_may_pass_is_tried_again_and_no_other() {
    let world = World::new(&[CAREFUL]);
    let fine = r#"{"error":null,"rows":1,"value":[{"N":151}]}"#;
    world.faults.fail_reads([Failure::Passing, Failure::Passing]);
    assert_eq!(world.value("careful", "{}").await, fine);
    assert_eq!(world.faults.reads(), 3);
    world.faults.fail_reads([Failure::Passing, Failure::Passing, Failure::Passing]);
    let failed = r#"{"error":"database_error","rows":0,"value":{"status":"unknown"}}"#;
    assert_eq!(world.value("careful", "{}").await, failed);
    assert_eq!(world.faults.reads(), 6);
    world.faults.fail_reads([Failure::Refused]);
    assert_eq!(world.value("careful", "{}").await, failed);
    assert_eq!(world.faults.reads(), 7);
}

#[tokio::test]
async fn b8_a_link_that_died_while_idle_costs_the_caller_nothing() {
    let world = World::new(&[ITEM]);
    world.rows("item", r#"{"id": 1}"#).await;
    world.faults.fail_reads([Failure::LinkLost]);
    assert_eq!(world.rows("item", r#"{"id": 1}"#).await.len(), 1);
    // A link lost twice is the caller's to know.
    world.faults.fail_reads([Failure::LinkLost, Failure::LinkLost]);
    let lost = world.refusal("item", r#"{"id": 1}"#).await;
    assert_eq!((lost.code, lost.retryable), (Code::DatabaseUnreachable, true));
    assert_eq!(world.seats().in_use, 0);
}

#[tokio::test]
async fn failures_say_what_helps_and_hide_the_rest() {
    let broken = ITEM.replace("FROM ITEM", "FROM GONE").replace("\"item\"", "\"broken\"").replace("/item/", "/broken/");
    let world = World::new(&[ITEM, &broken]);
    let refused = world.refusal("broken", r#"{"id": 1}"#).await;
    assert_eq!((refused.code, refused.retryable, refused.retry_after), (Code::DatabaseError, false, None));
    assert!(!refused.detail.contains("SELECT"), "{}", refused.detail);
    for (failure, code, retryable) in [
        (Failure::Passing, Code::DatabaseError, true),
        (Failure::Ended, Code::DeadlineExceeded, true),
        (Failure::Unfit, Code::DatabaseUnreachable, false),
        (Failure::ValueInexact { column: "X".into() }, Code::ValueInexact, false),
        (Failure::ResultTooLarge { column: "X".into() }, Code::ResultTooLarge, false),
    ] {
        world.faults.fail_reads([failure.clone()]);
        let refusal = world.refusal("item", r#"{"id": 1}"#).await;
        assert_eq!((refusal.code, refusal.retryable), (code, retryable), "{failure:?}");
    }
}

#[tokio::test]
async fn a_database_that_is_down_stops_nothing_and_comes_back() {
    let world = World::new(&[ITEM]);
    let (file, away) = (world.folder.join("main.db"), world.folder.join("away.db"));
    std::fs::rename(&file, &away).expect("moved");
    let down = world.refusal("item", r#"{"id": 1}"#).await;
    assert_eq!((down.code, down.retryable), (Code::DatabaseUnreachable, true));
    let status = world.engine.live().databases[0].status();
    assert_eq!((status.reachable, status.last_error.is_some()), (Some(false), true));
    std::fs::rename(&away, &file).expect("moved back");
    let retry_after = world.refusal("item", r#"{"id": 1}"#).await.retry_after.expect("it says when");
    tokio::time::sleep(retry_after).await;
    assert_eq!(world.rows("item", r#"{"id": 1}"#).await.len(), 1);
    assert_eq!(world.engine.live().databases[0].status().reachable, Some(true));
}

#[tokio::test]
async fn an_expression_that_fails_names_its_step_and_no_value() {
    let flow = r#"
name = "wrong"
http = "GET /wrong"
effect = "read"
deadline = "5s"
[[step]]
name = "item"
database = "main"
sql = "SELECT NAME FROM ITEM WHERE ID = 1"
[[step]]
name = "sum"
map = "steps.item.rows[0].NAME - 1"
"#;
    let wrong = World::new(&[flow]).refusal("wrong", "{}").await;
    assert_eq!((wrong.code, wrong.scope), (Code::ExpressionFailed, spillgate_model::Scope::Flow));
    assert!(wrong.detail.contains("sum") && !wrong.detail.contains("item 1"), "{}", wrong.detail);
    let misspelt = World::new(&[&flow.replace("NAME - 1", "Name")]).refusal("wrong", "{}").await;
    assert_eq!((misspelt.code, misspelt.retryable), (Code::ExpressionFailed, false));
    assert!(misspelt.detail.contains("there is no `Name`; the rows of step item have `NAME`"), "{}", misspelt.detail);
}

#[tokio::test]
async fn memory_for_an_evaluation_is_reserved_before_it_is_used() {
    let world = World::new(&[CAREFUL]);
    let memory = world.engine.live().plan.server.memory.value;
    let others = world.engine.memory().reserve(memory - 100, memory).expect("nothing else runs");
    let full = world.refusal("careful", "{}").await;
    assert_eq!((full.code, full.retryable), (Code::MemoryFull, true));
    drop(others);
    world.value("careful", "{}").await;
    assert_eq!(world.engine.memory().used(), 0);
}

#[tokio::test]
async fn a_large_evaluation_gives_the_same_value() {
    let flow = r#"
name = "large"
http = "GET /large"
effect = "read"
deadline = "20s"
[[step]]
name = "item"
database = "main"
sql = "SELECT ID, KIND FROM ITEM"
columns = { ID = "integer", KIND = "integer" }
[[step]]
name = "pairs"
map = "size(steps.item.rows.filter(a, steps.item.rows.exists(b, b.ID == a.ID + 1 && b.KIND == 0)))"
"#;
    assert_eq!(World::new(&[flow]).value("large", "{}").await, "15");
}

#[tokio::test]
async fn the_state_of_a_call_is_small() {
    let world = World::new(&[ITEM]);
    let call = world.call("item", r#"{"id": 7}"#);
    let bytes = size_of_val(&world.engine.run(call));
    assert!(bytes < 4_096, "{bytes} bytes are moved around with every call");
}
