//! C11, promise 4: an end is never claimed. IBM's driver ends a statement by dropping its link, which Derby notices only when it next
//! writes: so the connector says `Unconfirmed`, and Derby's own activity view shows that it is right to.

use std::time::{Duration, Instant};

use spillgate_connector::conformance::{statement, unique, value};
use spillgate_connector::{Access, Database as _, Ended, Failure, Session};
use spillgate_model::{Secret, Value};
use spillgate_odbc::{Odbc, OdbcOptions};
use spillgate_test_support::derby::Derby;
use spillgate_test_support::odbc::db2_connection;
use spillgate_test_support::shim::Shim;
use tokio::time::timeout;

use crate::fixture::{Db2, WIDE, options, running, slow_read, sound};
use crate::links::until_none_is_lost;

const STARTED: Duration = Duration::from_secs(20);
const FINISHED: Duration = Duration::from_secs(60);

async fn until(within: Duration, wanted: bool, mark: &str) -> bool {
    let start = Instant::now();
    while running(mark).await != wanted {
        if start.elapsed() > within {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    true
}

async fn drop_when_running<T>(mark: &str, work: impl Future<Output = T>) {
    tokio::select! {
        _ended = work => panic!("the statement ended before it was dropped"),
        seen = until(STARTED, true, mark) => assert!(seen, "Derby shows the statement"),
    }
}

/// What an end says is what Derby shows.
async fn assert_honest(ended: Ended, mark: &str) -> Option<Box<dyn Session>> {
    match ended {
        Ended::Clean(session) => {
            assert!(!running(mark).await, "a clean end is an end");
            Some(session)
        }
        Ended::Closed => {
            assert!(!running(mark).await, "a closed end is an end");
            None
        }
        Ended::Unconfirmed(rest) => {
            assert!(rest > Duration::ZERO && rest <= Duration::from_secs(60), "the seat stays taken, not for ever: {rest:?}");
            assert!(until(FINISHED, false, mark).await, "Derby comes to its end");
            None
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c11_a_dropped_read_ends_at_once_here_and_is_not_said_to_have_ended_there() {
    let _derby = Db2::new().await;
    let database = sound();
    let mut session = database.connect(Access::ReadOnly).await.expect("a session");
    let mark = unique("mark");
    let slow = statement(slow_read(&mark));
    drop_when_running(&mark, session.read(&slow, &[], WIDE)).await;
    let start = Instant::now();
    let ended = session.end().await;
    // Most often within 50 ms; now and then the driver does not react to a cancel, and the end has a bound all the same.
    assert!(start.elapsed() < Duration::from_secs(5), "an end has a bound: {:?}", start.elapsed());
    assert!(matches!(ended, Ended::Unconfirmed(_)) && running(&mark).await, "Derby's own view shows it at work");
    assert_honest(ended, &mark).await;
    until_none_is_lost(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c11_a_dropped_write_never_becomes_visible() {
    let _derby = Db2::new().await;
    let database = sound();
    let mut session = database.connect(Access::ReadWrite).await.expect("a session");
    let (table, mark) = (unique("DROPPED"), unique("mark"));
    session.begin().await.expect("begin");
    session.write(&statement(format!("CREATE TABLE {table} (N BIGINT)")), &[], WIDE).await.expect("create");
    session.commit().await.expect("commit");
    session.begin().await.expect("begin");
    session.write(&statement(format!("INSERT INTO {table} VALUES (1)")), &[], WIDE).await.expect("insert");
    let slow = statement(format!("INSERT INTO {table} {}", slow_read(&mark)));
    drop_when_running(&mark, session.write(&slow, &[], WIDE)).await;
    let ended = session.end().await;
    assert_honest(ended, &mark).await;
    let mut other = database.connect(Access::ReadOnly).await.expect("another session");
    let rows = other.read(&statement(format!("SELECT COUNT(*) AS C FROM {table}")), &[], WIDE).await.expect("read");
    assert_eq!(value(&rows, 0, 0), Value::Integer(0), "rolled back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f1_a_read_dropped_at_any_point_leaves_nothing_behind() {
    let _derby = Db2::new().await;
    let database = sound();
    let mut session = database.connect(Access::ReadWrite).await.expect("a session");
    let mut dropped = 0;
    for step in 0..30_u64 {
        let mark = unique("mark");
        let asked = statement(format!(
            "SELECT ROW_NUMBER() OVER () AS N FROM SYS.SYSCOLUMNS A, SYS.SYSCOLUMNS B FETCH FIRST 2000 ROWS ONLY /* {mark} */"
        ));
        if timeout(Duration::from_micros(step * step * 20), session.read(&asked, &[], WIDE)).await.is_err() {
            dropped += 1;
            let ended = timeout(Duration::from_secs(10), session.end()).await.expect("an end comes to an end");
            session = match assert_honest(ended, &mark).await {
                Some(session) => session,
                None => database.connect(Access::ReadWrite).await.expect("a new session"),
            };
        }
        session.begin().await.expect("a session outside of any transaction");
        session.rollback().await.expect("rollback");
        let rows = session.read(&statement("VALUES 42"), &[], WIDE).await.expect("read");
        assert_eq!(value(&rows, 0, 0), Value::Integer(42));
    }
    assert!(dropped > 3, "some reads were dropped: {dropped}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_left_between_statements_is_rolled_back_and_the_session_kept() {
    let _derby = Db2::new().await;
    let database = sound();
    let mut session = database.connect(Access::ReadWrite).await.expect("a session");
    let table = unique("LEFT_OPEN");
    session.begin().await.expect("begin");
    session.write(&statement(format!("CREATE TABLE {table} (N BIGINT)")), &[], WIDE).await.expect("create");
    session.commit().await.expect("commit");
    session.begin().await.expect("begin");
    session.write(&statement(format!("INSERT INTO {table} VALUES (1)")), &[], WIDE).await.expect("insert");
    let Ended::Clean(mut session) = session.end().await else { panic!("nothing runs: the session is kept") };
    let rows = session.read(&statement(format!("SELECT COUNT(*) AS C FROM {table}")), &[], WIDE).await.expect("read");
    assert_eq!(value(&rows, 0, 0), Value::Integer(0));
}

/// The driver's own limit is the backstop where nobody else ends the statement; it is told as ended, not as a lost link.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_statement_limit_is_the_drivers_backstop() {
    let _derby = Db2::new().await;
    let link = Shim::to(Derby::shared().address());
    // IBM's driver looks at its limits every five seconds unless told otherwise.
    let connection = Secret::new(format!("{}QueryTimeoutInterval=1;", db2_connection(link.address())));
    let database = Odbc::new(OdbcOptions { connection, statement_timeout: Duration::from_secs(1), ..options(link.address()) });
    let mut session = database.connect(Access::ReadOnly).await.expect("a session");
    let mark = unique("mark");
    let start = Instant::now();
    let slow = slow_read(&mark).replace("SYSCOLUMNS C", "SYSCOLUMNS C, (VALUES 1, 2, 3, 4) D");
    let result = session.read(&statement(slow), &[], WIDE).await;
    let error = result.map_err(Box::new).expect_err(&format!("past its limit after {:?}", start.elapsed()));
    assert_eq!(error.failure, Failure::Ended, "{error:?}");
    assert!(start.elapsed() >= Duration::from_secs(1), "{:?}", start.elapsed());
    assert!(!session.usable());
    assert_honest(session.end().await, &mark).await;
}
