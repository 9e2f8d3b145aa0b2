//! Promises about transactions: all or nothing, counted, and on write sessions only.

use spillgate_model::{Type, Value};

use super::{Fixture, WIDE, answers, count, open, statement, table, value};
use crate::{Access, Failure};

/// What is committed is seen by other sessions, and every row is counted.
pub async fn commit_is_seen_by_others(fixture: &impl Fixture) {
    let mut session = open(fixture, Access::ReadWrite).await;
    let mut other = open(fixture, Access::ReadOnly).await;
    let table = table(fixture, &mut session, &[("N", Type::Integer)]).await;
    session.begin().await.expect("begin");
    let insert = statement(format!("INSERT INTO {table} VALUES ({})", fixture.marker(1)));
    for number in 1..=3 {
        let written = session.write(&insert, &[Value::Integer(number)], WIDE).await.expect("insert");
        assert_eq!((written.affected, written.rows.len()), (1, 0));
    }
    let none = session.write(&statement(format!("DELETE FROM {table} WHERE \"N\" > 10")), &[], WIDE).await.expect("delete");
    assert_eq!(none.affected, 0);
    let two = session.write(&statement(format!("UPDATE {table} SET \"N\" = \"N\" + 1 WHERE \"N\" > 1")), &[], WIDE).await.expect("update");
    assert_eq!(two.affected, 2);
    session.commit().await.expect("commit");
    assert_eq!(count(&mut other, &table).await, 3);
    answers(fixture, &mut session).await;
}

/// What is rolled back was never there.
pub async fn rollback_leaves_nothing(fixture: &impl Fixture) {
    let mut session = open(fixture, Access::ReadWrite).await;
    let table = table(fixture, &mut session, &[("N", Type::Integer)]).await;
    session.begin().await.expect("begin");
    let written = session.write(&statement(format!("INSERT INTO {table} VALUES (1)")), &[], WIDE).await.expect("insert");
    assert_eq!(written.affected, 1);
    assert_eq!(count(&mut session, &table).await, 1, "a transaction reads its own write");
    session.rollback().await.expect("rollback");
    assert_eq!(count(&mut session, &table).await, 0);
    answers(fixture, &mut session).await;
}

/// Rows of a RETURNING clause come with the count.
pub async fn returned_rows_come_with_the_write(fixture: &impl Fixture) {
    let mut session = open(fixture, Access::ReadWrite).await;
    let table = table(fixture, &mut session, &[("N", Type::Integer)]).await;
    let Some(insert) = fixture.insert_returning(&table) else { return };
    session.begin().await.expect("begin");
    let written = session.write(&statement(insert), &[], WIDE).await.expect("insert");
    assert_eq!((written.affected, written.rows.len()), (1, 1));
    assert_eq!(value(&written.rows, 0, 0), Value::Integer(1));
    session.commit().await.expect("commit");
    assert_eq!(count(&mut session, &table).await, 1);
}

/// C4: where the database enforces it, a read-only session cannot write, whatever the statement looks like.
pub async fn read_only_session_refuses_writes(fixture: &impl Fixture) {
    let database = fixture.database();
    assert!(!database.read_only_guard().is_empty(), "what enforces it is said");
    if !fixture.guards_reads() {
        return;
    }
    let mut writer = open(fixture, Access::ReadWrite).await;
    let table = table(fixture, &mut writer, &[("N", Type::Integer)]).await;
    let mut session = open(fixture, Access::ReadOnly).await;
    for text in
        [format!("INSERT INTO {table} VALUES (1)"), format!("/* a comment first */ DELETE FROM {table}"), format!("DROP TABLE {table}")]
    {
        let error = session.read(&statement(text.as_str()), &[], WIDE).await.expect_err(&text);
        assert_eq!(error.failure, Failure::Refused, "{text}: {error:?}");
        answers(fixture, &mut session).await;
    }
    assert_eq!(count(&mut writer, &table).await, 0);
}

/// A statement the database refuses is `Refused`, tells the caller no statement text, and leaves the session usable.
pub async fn refused_statement_leaves_the_session_usable(fixture: &impl Fixture) {
    let mut session = open(fixture, Access::ReadWrite).await;
    let table = table(fixture, &mut session, &[("N", Type::Integer)]).await;
    for text in ["SELEKT 1", "SELECT \"NOT_THERE\" FROM \"NO_SUCH_TABLE\""] {
        let error = session.read(&statement(text), &[], WIDE).await.expect_err(text);
        assert_eq!(error.failure, Failure::Refused, "{error:?}");
        assert!(!error.detail.contains("SELEKT") && !error.detail.contains("NO_SUCH"), "{}", error.detail);
        answers(fixture, &mut session).await;
    }
    session.begin().await.expect("begin");
    session.write(&statement(format!("INSERT INTO {table} VALUES (1)")), &[], WIDE).await.expect("insert");
    let error = session.write(&statement("INSERT INTO \"NO_SUCH_TABLE\" VALUES (1)"), &[], WIDE).await.expect_err("no table");
    assert_eq!(error.failure, Failure::Refused, "{error:?}");
    session.rollback().await.expect("rollback");
    assert_eq!(count(&mut session, &table).await, 0);
    answers(fixture, &mut session).await;
}
