//! Promises about ending: what a caller gave up is gone from the database, and nothing of it meets the next caller.

use std::time::Duration;

use spillgate_model::Type;
use tokio::time::{sleep, timeout};

use super::{Fixture, WIDE, answers, count, open, statement, table, unique, until};
use crate::{Access, Ended, Session};

const STARTED: Duration = Duration::from_secs(20);
const GONE: Duration = Duration::from_secs(1);

/// Runs the work until the database shows it at work, then drops it.
async fn drop_when_running<T>(fixture: &impl Fixture, mark: &str, work: impl Future<Output = T>) {
    tokio::select! {
        _ended = work => panic!("a statement of a minute ended by itself"),
        seen = until(STARTED, true, fixture, mark) => assert!(seen, "the activity view shows the statement"),
    }
}

/// A session that is clean after its end, or a new one where the end closed it.
async fn clean(fixture: &impl Fixture, session: Box<dyn Session>, access: Access) -> Box<dyn Session> {
    match timeout(Duration::from_secs(10), session.end()).await.expect("an end comes to an end") {
        Ended::Clean(session) => session,
        Ended::Closed => open(fixture, access).await,
        Ended::Unconfirmed(_) => panic!("the end of a statement on a healthy link is confirmed"),
    }
}

/// C11: the statement leaves the database's own activity view, not only the client.
pub async fn c11_a_dropped_read_is_gone_within_a_second(fixture: &impl Fixture) {
    let mut session = open(fixture, Access::ReadOnly).await;
    let mark = unique("mark");
    let slow = statement(fixture.slow_read(&mark));
    drop_when_running(fixture, &mark, session.read(&slow, &[], WIDE)).await;
    let ending = tokio::spawn(session.end());
    assert!(until(GONE, false, fixture, &mark).await, "the statement is still at work a second later");
    match ending.await.expect("the end does not panic") {
        Ended::Clean(mut session) => answers(fixture, &mut session).await,
        Ended::Closed => {}
        Ended::Unconfirmed(_) => panic!("the end of a statement on a healthy link is confirmed"),
    }
}

/// F1: dropped before, while and after the statement runs, the session is clean or closed, never half used.
pub async fn f1_read_dropped_at_any_point_leaves_a_clean_session(fixture: &impl Fixture) {
    let mut session = open(fixture, Access::ReadWrite).await;
    let table = table(fixture, &mut session, &[("N", Type::Integer)]).await;
    let insert = statement(format!("INSERT INTO {table} VALUES (1)"));
    let asked = statement(fixture.numbers(2_000));
    let mut written = 0;
    for step in 0..40_u64 {
        // Nothing is guessed: fractions of a millisecond move the drop over connect, send, run and read.
        let patience = Duration::from_micros(step * step * 10);
        let dropped = timeout(patience, session.read(&asked, &[], WIDE)).await.is_err();
        if dropped {
            session = clean(fixture, session, Access::ReadWrite).await;
        }
        session.begin().await.expect("a session outside of any transaction");
        let written_now = session.write(&insert, &[], WIDE).await.expect("a clean session writes");
        written += i64::try_from(written_now.affected).expect("one row");
        session.commit().await.expect("commit");
    }
    let mut other = open(fixture, Access::ReadOnly).await;
    assert_eq!(count(&mut other, &table).await, written, "what the next caller wrote is seen by others");
}

/// A write given up in its transaction is rolled back, with what came before it.
pub async fn dropped_write_is_rolled_back(fixture: &impl Fixture) {
    let mut session = open(fixture, Access::ReadWrite).await;
    let table = table(fixture, &mut session, &[("N", Type::Integer)]).await;
    let mark = unique("mark");
    let insert = statement(format!("INSERT INTO {table} VALUES (1)"));
    session.begin().await.expect("begin");
    session.write(&insert, &[], WIDE).await.expect("insert");
    let slow = statement(fixture.slow_insert(&table, &mark));
    drop_when_running(fixture, &mark, session.write(&slow, &[], WIDE)).await;
    let mut session = clean(fixture, session, Access::ReadWrite).await;
    assert!(!fixture.running(&mark).await, "an end that is told is an end");
    answers(fixture, &mut session).await;
    assert_eq!(count(&mut session, &table).await, 0, "rolled back");

    // Dropped between statements: a transaction that nobody ends is ended too.
    session.begin().await.expect("begin");
    session.write(&insert, &[], WIDE).await.expect("insert");
    let mut session = clean(fixture, session, Access::ReadWrite).await;
    assert_eq!(count(&mut session, &table).await, 0, "rolled back");

    // Dropped at the very start of a transaction.
    for step in 0..10 {
        if timeout(Duration::from_micros(step * 50), session.begin()).await.is_err() {
            session = clean(fixture, session, Access::ReadWrite).await;
        } else {
            session.rollback().await.expect("rollback");
        }
        sleep(Duration::ZERO).await;
        answers(fixture, &mut session).await;
    }
}
