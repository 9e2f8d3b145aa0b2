//! What failed, and what the engine may do about it.

use std::time::Duration;

use spillgate_connector::conformance::{WIDE, statement, unique};
use spillgate_connector::{Access, Database as _, Ended, Failure};
use spillgate_model::Value;
use spillgate_postgres::Postgres;
use spillgate_test_support::postgres;

use crate::support::{Server, options};
use crate::{one, open};

/// Errors say what the engine must do, carry the SQLSTATE, and tell the caller neither names nor values.
#[tokio::test]
async fn errors_are_typed_by_what_to_do_about_them() {
    let server = Server::new().await;
    let table = unique("errors");
    server
        .execute(&format!("CREATE TABLE {table} (a int PRIMARY KEY, b int NOT NULL CHECK (b > 0)); INSERT INTO {table} VALUES (1, 1)"))
        .await;
    let mut session = open(Access::ReadWrite).await;
    for (sql, state, words) in [
        (format!("INSERT INTO {table} VALUES (1, 1)"), "23505", "unique"),
        (format!("INSERT INTO {table} VALUES (2, NULL)"), "23502", "null"),
        (format!("INSERT INTO {table} VALUES (2, -1)"), "23514", "check"),
        ("SELECT 1 / 0".into(), "22012", "value"),
        ("SELECT 1; SELECT 2".into(), "42601", "well-formed"),
    ] {
        session.begin().await.expect("begin");
        let error = session.write(&statement(sql.as_str()), &[], WIDE).await.expect_err(&sql);
        assert_eq!((error.failure.clone(), error.sqlstate.as_deref()), (Failure::Refused, Some(state)), "{error:?}");
        assert!(error.detail.contains(words) && error.detail.contains(state) && !error.detail.contains(&table), "{}", error.detail);
        let refused = session.commit().await.expect_err("the commit of a failed transaction is no commit");
        assert_eq!(refused.failure, Failure::Refused);
        assert!(session.usable());
    }
    // A lock wait is passing; the database's own limit ends.
    server.execute(&format!("BEGIN; LOCK TABLE {table}")).await;
    session.begin().await.expect("begin");
    session.write(&statement("SET LOCAL lock_timeout = '20ms'"), &[], WIDE).await.expect("set");
    let error = session.write(&statement(format!("DELETE FROM {table}")), &[], WIDE).await.expect_err("locked");
    assert_eq!((error.failure, error.sqlstate.as_deref()), (Failure::Passing, Some("55P03")));
    session.rollback().await.expect("rollback");
    server.execute("ROLLBACK").await;
    let mut limited = options(postgres::shared().url());
    limited.statement_timeout = Duration::from_millis(50);
    let mut limited = Postgres::new(limited).expect("good settings").connect(Access::ReadOnly).await.expect("a session");
    let error = one(&mut limited, "SELECT pg_sleep(60)", &[]).await.expect_err("too long");
    assert_eq!(error.failure, Failure::Ended);
    assert!(limited.usable());
}

/// A serialization failure and a deadlock's victim may try again.
#[tokio::test]
async fn conflicts_with_other_work_are_passing() {
    let server = Server::new().await;
    let table = unique("conflicts");
    server.execute(&format!("CREATE TABLE {table} (a int); INSERT INTO {table} VALUES (1)")).await;
    let mut serial = options(postgres::shared().url());
    serial.on_connect = vec!["SET default_transaction_isolation = 'repeatable read'".into()];
    let mut session = Postgres::new(serial).expect("good settings").connect(Access::ReadWrite).await.expect("a session");
    session.begin().await.expect("begin");
    session.read(&statement(format!("SELECT a FROM {table}")), &[], WIDE).await.expect("read");
    server.execute(&format!("UPDATE {table} SET a = a + 1")).await;
    let error = session.write(&statement(format!("UPDATE {table} SET a = a + 1")), &[], WIDE).await.expect_err("a conflict");
    assert_eq!((error.failure, error.sqlstate.as_deref()), (Failure::Passing, Some("40001")));
    session.rollback().await.expect("rollback");
}

/// B8: a backend that an operator ends is a lost link, and the session says so.
#[tokio::test]
async fn b8_a_backend_ended_by_an_operator_is_a_lost_link() {
    let server = Server::new().await;
    let mut session = open(Access::ReadOnly).await;
    let Value::Integer(pid) = one(&mut session, "SELECT pg_backend_pid()", &[]).await.expect("read") else { panic!("a process id") };
    let slow = statement("SELECT pg_sleep(60)");
    let (result, ()) = tokio::join!(session.read(&slow, &[], WIDE), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        server.execute(&format!("SELECT pg_terminate_backend({pid})")).await;
    });
    let error = result.expect_err("ended");
    assert_eq!(error.failure, Failure::LinkLost, "{error:?}");
    for _twice in 0..2 {
        let error = session.read(&slow, &[], WIDE).await.expect_err("no more");
        assert!(matches!(error.failure, Failure::LinkLost | Failure::Unreachable), "{error:?}");
    }
    assert!(!session.usable());
    assert!(matches!(session.end().await, Ended::Closed));
}
