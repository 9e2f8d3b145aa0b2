//! SQLite's ODBC driver: a driver that knows little about its own columns.

use std::time::Duration;

use spillgate_connector::conformance::{statement, value};
use spillgate_connector::{Access, Database as _, ReadLimits};
use spillgate_model::{Secret, Value};
use spillgate_odbc::{Odbc, OdbcOptions};
use spillgate_test_support::odbc::sqlite_driver;

const WIDE: ReadLimits = ReadLimits { max_rows: 1_000, max_bytes: 4 << 20 };

fn memory() -> Odbc {
    Odbc::new(OdbcOptions {
        connection: Secret::new(format!("Driver={};Database=:memory:;StepAPI=1;", sqlite_driver().display())),
        on_connect: vec![],
        statement_timeout: Duration::from_secs(10),
        threads: 1,
    })
}

fn text(text: &str) -> Value {
    Value::Text(text.into())
}

#[tokio::test]
async fn b3_null_and_empty_text_are_exact_with_indicators_of_64_bits() {
    let mut session = memory().connect(Access::ReadWrite).await.expect("a session");
    session.begin().await.expect("begin");
    session.write(&statement("CREATE TABLE T (N INTEGER, V VARCHAR(10))"), &[], WIDE).await.expect("create");
    let insert = statement("INSERT INTO T VALUES (?, ?)");
    let wanted = [text("one"), text("three"), text(""), Value::Null];
    for (number, given) in (1..).zip(&wanted) {
        let written = session.write(&insert, &[Value::Integer(number), given.clone()], WIDE).await.expect("insert");
        assert_eq!(written.affected, 1);
    }
    session.commit().await.expect("commit");
    let rows = session.read(&statement("SELECT V FROM T ORDER BY N"), &[], WIDE).await.expect("read");
    let found: Vec<Value> = (0..rows.len()).map(|row| value(&rows, row, 0)).collect();
    assert_eq!(found, wanted);
}

/// B4: the driver says VARCHAR(10); the values are as long as they like.
#[tokio::test]
async fn b4_values_longer_than_the_driver_said_come_whole() {
    let mut session = memory().connect(Access::ReadWrite).await.expect("a session");
    session.begin().await.expect("begin");
    session.write(&statement("CREATE TABLE T (N INTEGER, V VARCHAR(10))"), &[], WIDE).await.expect("create");
    let wanted = ["short".to_owned(), "thirty bytes, three times ten.".to_owned(), "É".repeat(10), "🚚".repeat(30_000)];
    for (number, given) in (1..).zip(&wanted) {
        session.write(&statement("INSERT INTO T VALUES (?, ?)"), &[Value::Integer(number), text(given)], WIDE).await.expect("insert");
    }
    session.commit().await.expect("commit");
    let asked = statement("SELECT V FROM T ORDER BY N");
    for _twice in 0..2 {
        let rows = session.read(&asked, &[], WIDE).await.expect("read");
        assert_eq!(rows.len(), wanted.len());
        for (row, wanted) in wanted.iter().enumerate() {
            assert!(value(&rows, row, 0) == text(wanted), "row {row}");
        }
    }
}

#[tokio::test]
async fn text_that_looks_like_a_number_stays_text() {
    let mut session = memory().connect(Access::ReadWrite).await.expect("a session");
    session.begin().await.expect("begin");
    session.write(&statement("CREATE TABLE T (V VARCHAR(20))"), &[], WIDE).await.expect("create");
    for given in ["12e3", "007", "1.50"] {
        session.write(&statement("INSERT INTO T VALUES (?)"), &[text(given)], WIDE).await.expect("insert");
    }
    session.commit().await.expect("commit");
    let rows = session.read(&statement("SELECT V FROM T ORDER BY rowid"), &[], WIDE).await.expect("read");
    let found: Vec<Value> = (0..rows.len()).map(|row| value(&rows, row, 0)).collect();
    assert_eq!(found, [text("12e3"), text("007"), text("1.50")]);
}
