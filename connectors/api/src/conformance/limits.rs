//! Promises about limits: a result is cut at a row, says so, and costs no more than its limits.

use std::time::{Duration, Instant};

use spillgate_model::{Type, Value};

use super::{Fixture, answers, declared, open, statement, value};
use crate::{Access, Failure, ReadLimits};

const CAP: ReadLimits = ReadLimits { max_rows: 150, max_bytes: 1 << 20 };

/// C5: 150 of 150 rows is complete, 150 of 151 is not.
pub async fn c5_row_limit_says_whether_more_was_there(fixture: &impl Fixture) {
    let mut session = open(fixture, Access::ReadOnly).await;
    for (there, truncated) in [(149, false), (150, false), (151, true)] {
        let rows = session.read(&statement(fixture.numbers(there)), &[], CAP).await.expect("read");
        assert_eq!(rows.len() as u64, there.min(150));
        assert_eq!(rows.truncated(), truncated, "{there} rows");
        answers(fixture, &mut session).await;
    }
}

/// C5: five million rows asked, 150 allowed: flat memory, at once, and the session is free for the next statement.
pub async fn c5_row_limit_on_five_million_rows_is_flat_and_frees_the_session(fixture: &impl Fixture) {
    let mut session = open(fixture, Access::ReadOnly).await;
    let millions = statement(fixture.numbers(5_000_000));
    let before = resident_bytes();
    let start = Instant::now();
    for _three_times in 0..3 {
        let rows = session.read(&millions, &[], CAP).await.expect("read");
        assert_eq!((rows.len(), rows.truncated()), (150, true));
        assert_eq!(value(&rows, 149, 0), Value::Integer(150));
        answers(fixture, &mut session).await;
    }
    assert!(start.elapsed() < Duration::from_secs(10), "five million rows were read: {:?}", start.elapsed());
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 32 << 20, "memory grew by {grown} bytes");
}

fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    pages.and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// A result that passes its byte limit keeps whole rows only.
pub async fn byte_limit_cuts_at_a_row(fixture: &impl Fixture) {
    let mut session = open(fixture, Access::ReadWrite).await;
    let table = super::table(fixture, &mut session, &[("N", Type::Integer), ("V", Type::Text)]).await;
    let insert = statement(format!("INSERT INTO {table} VALUES ({}, {})", fixture.marker(1), fixture.marker(2)));
    session.begin().await.expect("begin");
    for number in 1..=50 {
        session.write(&insert, &[Value::Integer(number), Value::Text("v".repeat(1_000).into())], super::WIDE).await.expect("insert");
    }
    session.commit().await.expect("commit");
    let asked = statement(format!("SELECT \"N\", \"V\" FROM {table} ORDER BY \"N\""));
    let limits = ReadLimits { max_rows: 1_000, max_bytes: 10_000 };
    let rows = session.read(&asked, &[], limits).await.expect("read");
    assert!(rows.truncated() && (1..10).contains(&rows.len()), "{} rows", rows.len());
    assert!(rows.held_bytes() <= limits.max_bytes);
    for row in 0..rows.len() {
        assert_eq!(value(&rows, row, 1), Value::Text("v".repeat(1_000).into()), "no short value");
    }
    answers(fixture, &mut session).await;
    let rows = session.read(&asked, &[], super::WIDE).await.expect("read");
    assert_eq!((rows.len(), rows.truncated()), (50, false));
}

/// One value beyond the byte limit fails the call and names its column.
pub async fn one_value_too_large_is_named(fixture: &impl Fixture) {
    let mut session = open(fixture, Access::ReadOnly).await;
    let large = Value::Text("x".repeat(1_900).into());
    let expression = fixture.bound(1, &large).expect("text can be bound");
    let asked = statement(format!("SELECT 1 AS \"A\", {expression} AS \"LARGE\"{}", fixture.from_nothing()));
    let limits = ReadLimits { max_rows: 10, max_bytes: 500 };
    let error = session.read(&asked, std::slice::from_ref(&large), limits).await.expect_err("too large");
    assert_eq!(error.failure, Failure::ResultTooLarge { column: "LARGE".into() });
    answers(fixture, &mut session).await;
}

/// A result without rows still names its columns, with declared types in place.
pub async fn no_rows_still_have_columns(fixture: &impl Fixture) {
    let mut session = open(fixture, Access::ReadWrite).await;
    let table = super::table(fixture, &mut session, &[("N", Type::Integer), ("V", Type::Text)]).await;
    let asked = declared(format!("SELECT \"N\", \"V\" FROM {table}"), &[("N", Type::Integer), ("V", Type::Date)]);
    let rows = session.read(&asked, &[], super::WIDE).await.expect("read");
    assert_eq!((rows.len(), rows.truncated()), (0, false));
    let columns: Vec<(&str, Type)> = rows.columns().iter().map(|column| (&*column.name, column.kind)).collect();
    assert_eq!(columns, [("N", Type::Integer), ("V", Type::Date)]);
}
