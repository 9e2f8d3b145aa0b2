//! Pages: every row once, and cursors that serve nobody else.

use spillgate_engine::Outcome;
use spillgate_model::Code;

use crate::support::{World, call, refusal, start};

const ITEMS: &str = r#"
name = "items"
http = "GET /items"
effect = "read"
deadline = "10s"
page = { key = ["KIND desc", "ID"], size = 40, max = 100 }
[input.least]
type = "integer"
default = 0
[[step]]
name = "items"
database = "main"
sql = "SELECT ID, KIND FROM ITEM WHERE ID >= :least"
columns = { ID = "integer", KIND = "integer" }
"#;

async fn page(world: &World, input: &str) -> (Vec<(i64, i64)>, Option<String>) {
    match world.run("items", input).await {
        Outcome::Rows { rows, next, .. } => {
            assert!(!rows.truncated(), "what is left is on the next page");
            let integer = |cell| match cell {
                spillgate_model::Cell::Integer(value) => value,
                other => panic!("no integer: {other:?}"),
            };
            (rows.iter().map(|row| (integer(row[1]), integer(row[0]))).collect(), next)
        }
        other => panic!("no page: {other:?}"),
    }
}

fn with_cursor(cursor: &str) -> String {
    format!(r#"{{"cursor": "{cursor}"}}"#)
}

#[tokio::test]
async fn pages_show_every_row_once_in_order() {
    let world = World::new(&[ITEMS]);
    let (mut seen, mut input, mut sizes) = (Vec::new(), "{}".to_owned(), Vec::new());
    loop {
        let (rows, next) = page(&world, &input).await;
        sizes.push(rows.len());
        seen.extend(rows);
        match next {
            Some(cursor) => input = with_cursor(&cursor),
            None => break,
        }
    }
    assert_eq!(sizes, [40, 40, 40, 31]);
    let mut expected: Vec<(i64, i64)> = (1..=151).map(|id| (id % 10, id)).collect();
    expected.sort_by_key(|(kind, id)| (-kind, *id));
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_page_of_all_rows_has_no_next() {
    let world = World::new(&[ITEMS]);
    let (rows, next) = page(&world, r#"{"size": 51, "least": 101}"#).await;
    assert_eq!((rows.len(), next), (51, None));
    let (rows, next) = page(&world, r#"{"size": 50, "least": 101}"#).await;
    assert!(rows.len() == 50 && next.is_some());
}

#[tokio::test]
async fn a_cursor_serves_its_caller_and_its_input_alone() {
    let world = World::new(&[ITEMS]);
    let cursor = page(&world, "{}").await.1.expect("there is more");
    let foreign = call(&world.engine, "two", "items", &with_cursor(&cursor));
    let other_input = world.call("items", &format!(r#"{{"cursor": "{cursor}", "least": 1}}"#));
    let touched = world.call("items", &with_cursor(&format!("A{}", &cursor[1..])));
    for refused in [foreign, other_input, touched] {
        let refused = refusal(world.engine.run(refused).await);
        assert_eq!((refused.code, refused.fields[0].name.as_str()), (Code::InvalidInput, "cursor"));
    }
}

#[tokio::test]
async fn a_cursor_outlives_a_restart_with_the_same_key_only() {
    let world = World::new(&[ITEMS]);
    let cursor = page(&world, "{}").await.1.expect("there is more");
    let again = start(&world.folder, &world.faults, [7; 32]);
    assert!(matches!(again.run(call(&again, "one", "items", &with_cursor(&cursor))).await, Outcome::Rows { .. }));
    let other = start(&world.folder, &world.faults, [8; 32]);
    assert_eq!(refusal(other.run(call(&other, "one", "items", &with_cursor(&cursor))).await).code, Code::InvalidInput);
}
