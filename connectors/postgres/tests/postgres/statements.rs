//! What a statement does, and what its end leaves behind.

use spillgate_connector::conformance::{WIDE, statement, unique, value};
use spillgate_connector::{Access, Ended, Failure, ReadLimits};
use spillgate_model::Value;

use crate::support::Server;
use crate::{one, open, text};

/// F2: `SELECT *` follows the table on every session that has the statement prepared, in transactions too.
#[tokio::test]
async fn f2_a_changed_table_shows_its_new_column_on_every_session() {
    let server = Server::new().await;
    let table = unique("f2");
    server.execute(&format!("CREATE TABLE {table} (a int); INSERT INTO {table} VALUES (1)")).await;
    let all = statement(format!("SELECT * FROM {table}"));
    let change = statement(format!("UPDATE {table} SET a = a RETURNING *"));
    let mut sessions = Vec::new();
    for _each in 0..4 {
        let mut session = open(Access::ReadWrite).await;
        assert_eq!(session.read(&all, &[], WIDE).await.expect("read").columns().len(), 1);
        session.begin().await.expect("begin");
        session.write(&change, &[], WIDE).await.expect("write");
        session.commit().await.expect("commit");
        sessions.push(session);
    }
    server.execute(&format!("ALTER TABLE {table} ADD c int")).await;
    for session in &mut sessions {
        for _twice in 0..2 {
            let rows = session.read(&all, &[], WIDE).await.expect("read");
            let names: Vec<&str> = rows.columns().iter().map(|column| &*column.name).collect();
            assert_eq!(names, ["a", "c"]);
        }
        session.begin().await.expect("begin");
        let written = session.write(&change, &[], WIDE).await.expect("a transaction in which nothing ran is begun again");
        assert_eq!((written.affected, written.rows.columns().len()), (1, 2));
        session.commit().await.expect("commit");
    }
    // Where something had run in the transaction, nothing is run twice.
    server.execute(&format!("ALTER TABLE {table} ADD d int")).await;
    let session = &mut sessions[0];
    session.begin().await.expect("begin");
    session.write(&statement(format!("INSERT INTO {table} VALUES (2)")), &[], WIDE).await.expect("insert");
    let error = session.write(&change, &[], WIDE).await.expect_err("the plan is stale");
    assert_eq!(error.failure, Failure::Passing, "{error:?}");
    session.rollback().await.expect("rollback");
    assert_eq!(one(session, &format!("SELECT count(*) FROM {table}"), &[]).await.expect("read"), Value::Integer(1));
}

/// F2: a statement that a pooler lost is prepared again.
#[tokio::test]
async fn f2_a_lost_prepared_statement_is_prepared_again() {
    let _server = Server::new().await;
    let mut session = open(Access::ReadOnly).await;
    let asked = statement("SELECT 1::int8");
    for _twice in 0..2 {
        session.read(&asked, &[], WIDE).await.expect("read");
        session.read(&statement("DEALLOCATE ALL"), &[], WIDE).await.expect("as a pooler would");
        let rows = session.read(&asked, &[], WIDE).await.expect("read");
        assert_eq!(value(&rows, 0, 0), Value::Integer(1));
    }
}

#[tokio::test]
async fn more_statements_than_are_kept_still_run() {
    let server = Server::new().await;
    let mut session = open(Access::ReadOnly).await;
    let Value::Integer(_) = one(&mut session, "SELECT pg_backend_pid()", &[]).await.expect("read") else { panic!("a process id") };
    for number in 0..600 {
        assert_eq!(one(&mut session, &format!("SELECT {number}"), &[]).await.expect("read"), Value::Integer(number));
    }
    let kept = one(&mut session, "SELECT count(*) FROM pg_prepared_statements", &[]).await.expect("read");
    assert!(matches!(kept, Value::Integer(kept) if kept <= 257), "{kept:?}");
    drop(server);
}

/// C4: the walks around a read-only guard; the table is as it was after each.
#[tokio::test]
async fn c4_a_read_session_changes_nothing_whatever_the_text_looks_like() {
    let server = Server::new().await;
    let (table, function) = (unique("c4"), unique("writes"));
    server
        .execute(&format!(
            "CREATE TABLE {table} (a int); INSERT INTO {table} VALUES (1);
             CREATE FUNCTION {function}() RETURNS int LANGUAGE sql AS 'DELETE FROM {table}; SELECT 1'"
        ))
        .await;
    let mut session = open(Access::ReadOnly).await;
    for walk in [
        format!("COMMIT; DELETE FROM {table}"),
        format!("/* a comment first */ DELETE FROM {table}"),
        format!("WITH d AS (DELETE FROM {table} RETURNING 1) SELECT * FROM d"),
        format!("SELECT {function}()"),
        format!("DELETE FROM {table} --"),
    ] {
        let error = session.read(&statement(walk.as_str()), &[], WIDE).await.expect_err(&walk);
        assert_eq!(error.failure, Failure::Refused, "{walk}: {error:?}");
        assert!(session.usable());
        assert_eq!(one(&mut session, &format!("SELECT count(*) FROM {table}"), &[]).await.expect("read"), Value::Integer(1));
    }
}

/// A cancel that ends a result beyond its limit never meets the next statement.
#[tokio::test]
async fn a_cancel_never_meets_the_next_statement() {
    let _server = Server::new().await;
    let mut session = open(Access::ReadOnly).await;
    let (many, next) = (statement("SELECT generate_series(1, 5000000)"), statement("SELECT pg_sleep(0.002)"));
    let limits = ReadLimits { max_rows: 10, max_bytes: 10_000 };
    for _each in 0..40 {
        assert!(session.read(&many, &[], limits).await.expect("read").truncated());
        session.read(&next, &[], WIDE).await.expect("the next statement is left alone");
    }
}

/// C5: a transaction survives the row limit: what lies beyond is read away, not cancelled.
#[tokio::test]
async fn c5_a_row_limit_inside_a_transaction_leaves_it_whole() {
    let server = Server::new().await;
    let table = unique("c5");
    server.execute(&format!("CREATE TABLE {table} (a int)")).await;
    let mut session = open(Access::ReadWrite).await;
    session.begin().await.expect("begin");
    session.write(&statement(format!("INSERT INTO {table} VALUES (1)")), &[], WIDE).await.expect("insert");
    let rows = session.read(&statement("SELECT generate_series(1, 200000)"), &[], ReadLimits { max_rows: 5, ..WIDE }).await.expect("read");
    assert!(rows.truncated());
    let returning = statement(format!("INSERT INTO {table} SELECT generate_series(1, 100) RETURNING a"));
    let written = session.write(&returning, &[], ReadLimits { max_rows: 5, ..WIDE }).await.expect("insert");
    assert_eq!((written.affected, written.rows.len(), written.rows.truncated()), (100, 5, true));
    session.commit().await.expect("commit");
    assert_eq!(one(&mut session, &format!("SELECT count(*) FROM {table}"), &[]).await.expect("read"), Value::Integer(101));
}

/// Promise 11: a row that no step allows is known by its length and never held here; what came before it is given.
#[tokio::test]
async fn promise_11_a_row_far_beyond_the_limit_is_refused_before_it_is_held() {
    let server = Server::new().await;
    let limits = ReadLimits { max_rows: 10, max_bytes: 1_000 };
    let long = "SELECT repeat('x', 4000000) AS \"LONG\"";
    let mut session = open(Access::ReadOnly).await;
    let error = session.read(&statement(long), &[], limits).await.expect_err("4 MB");
    assert_eq!(error.failure, Failure::ResultTooLarge { column: "LONG".into() });
    assert!(!session.usable());

    let mut session = open(Access::ReadOnly).await;
    let rows = session.read(&statement(format!("SELECT 'short' UNION ALL ({long})")), &[], limits).await.expect("the first row");
    assert_eq!((rows.len(), rows.truncated(), value(&rows, 0, 0)), (1, true, text("short")));
    assert!(!session.usable());

    let mut session = open(Access::ReadWrite).await;
    session.begin().await.expect("begin");
    let error =
        session.read(&statement(format!("SELECT 'short' UNION ALL ({long})")), &[], limits).await.expect_err("a transaction is lost");
    assert!(matches!(error.failure, Failure::ResultTooLarge { .. }), "{error}");
    session.commit().await.expect_err("it is gone");
    assert!(matches!(session.end().await, Ended::Closed));
    drop(server);
}
