//! Writes: one transaction, its limit, and what is left when something fails.

use spillgate_connector::Failure;
use spillgate_engine::Outcome;
use spillgate_model::Code;

use crate::support::{Settings, World, json};

const TWO: &str = r#"
name = "two"
http = "POST /two"
effect = "write"
deadline = "10s"
[input.amount]
type = "integer"
[[step]]
name = "log"
database = "main"
sql = "INSERT INTO ITEM (ID, NAME, KIND) VALUES (1000, 'log', :amount)"
max_affected = 1
[[step]]
name = "seen"
database = "main"
sql = "SELECT count(*) AS N FROM ITEM WHERE NAME = 'log'"
columns = { N = "integer" }
[[step]]
name = "stock"
database = "main"
sql = "UPDATE STOCK SET AMOUNT = AMOUNT + :amount WHERE ID = 1"
max_affected = 1
[[step]]
name = "answer"
map = "{'seen': steps.seen.rows[0].N, 'changed': steps.stock.value.affected}"
"#;

#[tokio::test]
async fn writes_of_a_flow_are_one_transaction_that_sees_itself() {
    let world = World::with(&Settings { pool: Some("{ max = 1 }"), ..Settings::default() }, &[TWO]);
    assert_eq!(world.value("two", r#"{"amount": 3}"#).await, r#"{"changed":1,"seen":1}"#);
    assert_eq!(world.count("SELECT AMOUNT FROM STOCK"), 3);
    assert_eq!(world.count("SELECT count(*) FROM ITEM WHERE NAME = 'log'"), 1);
}

#[tokio::test]
async fn a_failed_write_takes_the_others_back() {
    let world = World::new(&[TWO]);
    let refused = world.refusal("two", r#"{"amount": -1}"#).await;
    assert_eq!((refused.code, refused.retryable), (Code::DatabaseError, false));
    assert_eq!(world.count("SELECT count(*) FROM ITEM WHERE NAME = 'log'"), 0);
    assert_eq!(world.value("two", r#"{"amount": 1}"#).await, r#"{"changed":1,"seen":1}"#);
}

#[tokio::test]
async fn more_than_max_affected_is_rolled_back() {
    let flow = r#"
name = "all"
http = "POST /all"
effect = "write"
deadline = "10s"
[[step]]
name = "all"
database = "main"
sql = "UPDATE ITEM SET NAME = 'gone' WHERE ID <= 3"
max_affected = 2
"#;
    let world = World::new(&[flow]);
    let refused = world.refusal("all", "{}").await;
    assert_eq!((refused.code, refused.retryable), (Code::DatabaseError, false));
    assert_eq!(refused.policy.map(|policy| (policy.name, policy.limit, policy.used)), Some(("max_affected", 2, 3)));
    assert_eq!(world.count("SELECT count(*) FROM ITEM WHERE NAME = 'gone'"), 0);
}

#[tokio::test]
async fn a_passing_failure_of_the_first_write_is_tried_again() {
    let flow = r#"
name = "add"
http = "POST /add"
effect = "write"
deadline = "10s"
[[step]]
name = "add"
database = "main"
sql = "UPDATE STOCK SET AMOUNT = AMOUNT + 1 WHERE ID = 1"
max_affected = 1
retry = { attempts = 3, backoff = "1ms" }
"#;
    let world = World::new(&[flow]);
    world.faults.next_writes.lock().expect("not poisoned").extend([Failure::Passing, Failure::Passing]);
    assert!(matches!(world.run("add", "{}").await, Outcome::Rows { affected: Some(1), .. }));
    assert_eq!(world.count("SELECT AMOUNT FROM STOCK"), 1);
    // A link lost before the commit was sent: nothing was changed, so another try is safe.
    world.faults.next_writes.lock().expect("not poisoned").push_back(Failure::LinkLost);
    assert!(matches!(world.run("add", "{}").await, Outcome::Rows { affected: Some(1), .. }));
    assert_eq!(world.count("SELECT AMOUNT FROM STOCK"), 2);
}

#[tokio::test]
async fn nothing_written_may_be_an_answer() {
    let flow = r#"
name = "take"
http = "POST /take"
effect = "write"
deadline = "10s"
[input.id]
type = "integer"
[[step]]
name = "take"
database = "main"
sql = "UPDATE ITEM SET NAME = 'taken' WHERE ID = :id RETURNING ID, NAME"
max_affected = 1
on_empty = { status = 404 }
"#;
    let world = World::new(&[flow]);
    assert_eq!(world.refusal("take", r#"{"id": 999}"#).await.code, Code::Empty);
    let taken = world.rows("take", r#"{"id": 5}"#).await;
    assert_eq!(crate::support::json_rows(&taken), r#"[{"ID":5,"NAME":"taken"}]"#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f4_fifty_flows_that_read_and_then_write_all_succeed() {
    let flow = r#"
name = "count"
http = "POST /count"
effect = "write"
deadline = "25s"
[[step]]
name = "now"
database = "main"
sql = "SELECT AMOUNT FROM STOCK WHERE ID = 1"
[[step]]
name = "add"
database = "main"
sql = "UPDATE STOCK SET AMOUNT = AMOUNT + 1 WHERE ID = 1"
max_affected = 1
"#;
    let world = World::with(&Settings { pool: Some("{ max = 8, line = 100, shed = \"off\" }"), ..Settings::default() }, &[flow]);
    let calls: Vec<_> = (0..50).map(|_| world.spawn("count")).collect();
    for call in calls {
        let outcome = call.await.expect("no panic");
        assert!(matches!(outcome, Outcome::Rows { affected: Some(1), .. }), "{outcome:?}");
    }
    assert_eq!(world.count("SELECT AMOUNT FROM STOCK"), 50);
}

#[tokio::test]
async fn two_databases_commit_in_order_and_a_late_failure_says_so() {
    let flow = r#"
name = "both"
http = "POST /both"
effect = "write"
deadline = "10s"
[input.amount]
type = "integer"
[[step]]
name = "first"
database = "main"
sql = "UPDATE STOCK SET AMOUNT = AMOUNT + 1 WHERE ID = 1"
max_affected = 1
[[step]]
name = "second"
database = "second"
sql = "UPDATE STOCK SET AMOUNT = :amount WHERE ID = 1"
max_affected = 1
"#;
    let world = World::with(&Settings { second: true, ..Settings::default() }, &[flow]);
    assert!(matches!(world.run("both", r#"{"amount": 1}"#).await, Outcome::Rows { affected: Some(1), .. }));
    let refused = world.refusal("both", r#"{"amount": -1}"#).await;
    assert!(!refused.retryable && refused.detail.contains("committed"), "{}", refused.detail);
    assert_eq!(world.count("SELECT AMOUNT FROM STOCK"), 2);
}

#[tokio::test]
async fn a_step_that_is_passed_over_takes_no_write_with_it() {
    let flow = |step: &str| {
        format!(
            r#"
name = "after"
http = "POST /after"
effect = "write"
deadline = "10s"
[input.id]
type = "integer"
[[step]]
name = "add"
database = "main"
sql = "UPDATE STOCK SET AMOUNT = AMOUNT + 1 WHERE ID = :id"
max_affected = 1
[[step]]
name = "bad"
{step}
on_error = {{ value = "none" }}
"#
        )
    };
    // The failed step has nothing to do with the transaction: it is committed.
    let world = World::new(&[&flow("map = \"1 / (input.id - 1)\"")]);
    assert_eq!(world.value("after", r#"{"id": 1}"#).await, "\"none\"");
    assert_eq!(world.count("SELECT AMOUNT FROM STOCK"), 1);
    // It failed inside the transaction: going on would lose the write before it, so the flow fails as a whole.
    let read = "database = \"main\"\nsql = \"SELECT AMOUNT FROM STOCK WHERE ID = :id\"";
    world.reload(&Settings::default(), &[&flow(read)]).expect("applied");
    world.faults.fail_reads([Failure::Refused]);
    assert_eq!(world.refusal("after", r#"{"id": 1}"#).await.code, Code::DatabaseError);
    assert_eq!(world.count("SELECT AMOUNT FROM STOCK"), 1);
}

#[tokio::test]
async fn a_write_that_failed_may_be_passed_over_only_where_nothing_else_is_lost() {
    let flow = |first: &str| {
        format!(
            r#"
name = "over"
http = "POST /over"
effect = "write"
deadline = "10s"
{first}
[[step]]
name = "bad"
database = "main"
sql = "UPDATE STOCK SET AMOUNT = -1 WHERE ID = 1"
max_affected = 1
on_error = {{ value = "none" }}
[[step]]
name = "answer"
map = "{{'bad': steps.bad.value, 'error': steps.bad.error}}"
"#
        )
    };
    let before =
        "[[step]]\nname = \"before\"\ndatabase = \"main\"\nsql = \"UPDATE ITEM SET NAME = 'before' WHERE ID = 1\"\nmax_affected = 1";
    let world = World::new(&[&flow("")]);
    let Outcome::Value { value, .. } = world.run("over", "{}").await else { panic!("it goes on") };
    assert_eq!(json(&value), r#"{"bad":"none","error":"database_error"}"#);
    world.reload(&Settings::default(), &[&flow(before)]).expect("applied");
    assert_eq!(world.refusal("over", "{}").await.code, Code::DatabaseError);
    assert_eq!(world.count("SELECT count(*) FROM ITEM WHERE NAME = 'before'"), 0);
}
