//! Promises of the embedded database that no other has.

mod support;

use std::time::{Duration, Instant};

use spillgate_connector::conformance::{WIDE, declared, statement, value};
use spillgate_connector::{Access, Blame, Database as _, Ended, Failure, ReadLimits, Session};
use spillgate_model::{Type, Value};
use spillgate_sqlite::{SettingsError, Sqlite, SqliteOptions};
use support::File;

const MINUTE: Duration = Duration::from_secs(60);

async fn open(file: &File, access: Access) -> Box<dyn Session> {
    file.with(&[], MINUTE).connect(access).await.expect("a session")
}

/// F4: transactions that read and then write the same table wait for each other; nobody sees "locked".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f4_fifty_read_then_write_transactions_all_succeed() {
    let file = File::new();
    file.beside().execute_batch("CREATE TABLE seats (free INTEGER); INSERT INTO seats VALUES (1000);").expect("a table");
    let mut tasks = tokio::task::JoinSet::new();
    for _each in 0..50 {
        let mut session = open(&file, Access::ReadWrite).await;
        tasks.spawn(async move {
            session.begin().await.expect("begin waits");
            let rows = session.read(&statement("SELECT free FROM seats"), &[], WIDE).await.expect("read");
            let Value::Integer(free) = value(&rows, 0, 0) else { panic!("an integer") };
            let written = session.write(&statement("UPDATE seats SET free = ?"), &[Value::Integer(free - 1)], WIDE).await.expect("update");
            assert_eq!(written.affected, 1);
            session.commit().await.expect("commit");
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("every transaction succeeds");
    }
    let free: i64 = file.beside().query_row("SELECT free FROM seats", (), |row| row.get(0)).expect("read");
    assert_eq!(free, 950, "no update was lost");
}

/// F4: the wait for a lock ends with the statement's time, as a passing failure.
#[tokio::test]
async fn f4_a_lock_held_for_too_long_is_a_passing_failure() {
    let file = File::new();
    let mut session = file.with(&[], Duration::from_millis(50)).connect(Access::ReadWrite).await.expect("a session");
    let other = file.beside();
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let error = session.begin().await.expect_err("locked");
    assert_eq!(error.failure, Failure::Passing);
    assert!(!error.detail.contains("locked"), "{}", error.detail);
    other.execute_batch("COMMIT").expect("the lock is given back");
    session.begin().await.expect("begin");
    session.rollback().await.expect("rollback");
}

/// A caller who gives up waiting for a lock gets its session back at once.
#[tokio::test]
async fn f4_waiting_for_a_lock_can_be_given_up() {
    let file = File::new();
    let mut session = open(&file, Access::ReadWrite).await;
    let other = file.beside();
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    assert!(tokio::time::timeout(Duration::from_millis(30), session.begin()).await.is_err());
    let start = Instant::now();
    let Ended::Clean(session) = session.end().await else { panic!("clean") };
    assert!(start.elapsed() < Duration::from_secs(1) && session.usable());
}

#[tokio::test]
async fn a_statement_past_the_database_s_own_limit_is_ended() {
    let file = File::new();
    let mut session = file.with(&[], Duration::from_millis(100)).connect(Access::ReadOnly).await.expect("a session");
    use spillgate_connector::conformance::Fixture as _;
    let error = session.read(&statement(file.slow_read("mark")), &[], WIDE).await.expect_err("too long");
    assert_eq!(error.failure, Failure::Ended, "{error:?}");
    assert!(session.usable());
    assert_eq!(session.read(&statement("SELECT 1"), &[], WIDE).await.expect("read").len(), 1);
}

/// The storage class decides; a column called BOOLEAN or DATE is not guessed at.
#[tokio::test]
async fn storage_class_decides_the_type_unless_it_is_declared() {
    let file = File::new();
    file.beside()
        .execute_batch("CREATE TABLE t (flag BOOLEAN, day DATE, code TEXT, any); INSERT INTO t VALUES (1, '2026-03-08', '12e3', 1), (NULL, 5, '007', 'x');")
        .expect("a table");
    let mut session = open(&file, Access::ReadOnly).await;
    let rows = session.read(&statement("SELECT flag, day, code, any FROM t"), &[], WIDE).await.expect("read");
    let row = |index| (0..4).map(|column| value(&rows, index, column)).collect::<Vec<_>>();
    let text = |text: &str| Value::Text(text.into());
    assert_eq!(row(0), [Value::Integer(1), text("2026-03-08"), text("12e3"), Value::Integer(1)]);
    assert_eq!(row(1), [Value::Null, Value::Integer(5), text("007"), text("x")]);

    let asked = declared("SELECT flag, day FROM t LIMIT 1", &[("FLAG", Type::Boolean), ("day", Type::Date)]);
    let rows = session.read(&asked, &[], WIDE).await.expect("read");
    assert_eq!((value(&rows, 0, 0), value(&rows, 0, 1)), (Value::Boolean(true), Value::Date("2026-03-08".into())));
    assert_eq!(&*rows.columns()[0].name, "FLAG", "a declaration gives the column its spelling");
    let error = session.read(&declared("SELECT day FROM t", &[("day", Type::Date)]), &[], WIDE).await.expect_err("5 is no date");
    assert_eq!(error.failure, Failure::ValueInexact { column: "day".into() });
    let error = session.read(&declared("SELECT day FROM t", &[("night", Type::Date)]), &[], WIDE).await.expect_err("no such column");
    assert!(error.detail.contains("night"), "{error}");
}

/// F2: `SELECT *` follows the table on sessions that have the statement prepared.
#[tokio::test]
async fn f2_a_changed_table_shows_its_new_column() {
    let file = File::new();
    let beside = file.beside();
    beside.execute_batch("CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1);").expect("a table");
    let asked = statement("SELECT * FROM t");
    let mut sessions = [open(&file, Access::ReadOnly).await, open(&file, Access::ReadOnly).await];
    for session in &mut sessions {
        assert_eq!(session.read(&asked, &[], WIDE).await.expect("read").columns().len(), 1);
    }
    beside.execute_batch("ALTER TABLE t ADD c INTEGER; ALTER TABLE t RENAME a TO b;").expect("changed");
    for session in &mut sessions {
        let rows = session.read(&asked, &[], WIDE).await.expect("read");
        let names: Vec<&str> = rows.columns().iter().map(|column| &*column.name).collect();
        assert_eq!(names, ["b", "c"]);
    }
}

/// What a statement names may go while its session is open: that is no fault of the work, and passes when somebody mends it.
#[tokio::test]
async fn a_table_that_goes_under_a_warm_session_is_a_missing_table() {
    let file = File::new();
    file.beside().execute_batch("CREATE TABLE run (id INTEGER PRIMARY KEY, v INTEGER)").expect("a table");
    let mut session = open(&file, Access::ReadWrite).await;
    let insert = statement("INSERT INTO run (id, v) VALUES (?, ?)");
    let mut write = async |id: i64| {
        session.begin().await.expect("begin");
        let written = session.write(&insert, &[Value::Integer(id), Value::Integer(0)], WIDE).await;
        session.rollback().await.expect("rollback");
        written
    };
    write(1).await.expect("it is there");
    for (breaks, mends) in [
        ("ALTER TABLE run RENAME TO run2", "ALTER TABLE run2 RENAME TO run"),
        ("ALTER TABLE run RENAME COLUMN v TO vv", "ALTER TABLE run RENAME COLUMN vv TO v"),
    ] {
        file.beside().execute_batch(breaks).expect("renamed");
        let error = write(2).await.expect_err("it is gone");
        assert_eq!((error.failure, error.blame), (Failure::Refused, Blame::Schema), "{breaks}");
        file.beside().execute_batch(mends).expect("renamed back");
        write(3).await.expect("it is back");
    }
    file.beside().execute_batch("INSERT INTO run VALUES (4, 0)").expect("a row");
    let error = write(4).await.expect_err("it is there already");
    assert_eq!((error.failure, error.blame), (Failure::Refused, Blame::Statement), "a fault of the work stays one");
}

/// C4: one text is one statement; nothing after a semicolon runs.
#[tokio::test]
async fn c4_stacked_statements_are_refused() {
    let file = File::new();
    file.beside().execute_batch("CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1);").expect("a table");
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let mut session = open(&file, access).await;
        for text in ["SELECT 1; DELETE FROM t", "COMMIT; DELETE FROM t"] {
            session.read(&statement(text), &[], WIDE).await.expect_err(text);
        }
        assert_eq!(session.read(&statement("SELECT a FROM t; -- the end"), &[], WIDE).await.expect("read").len(), 1);
    }
    let mut session = open(&file, Access::ReadOnly).await;
    session.read(&statement("PRAGMA query_only = off"), &[], WIDE).await.ok();
    session.read(&statement("DELETE FROM t"), &[], WIDE).await.expect_err("the file itself is opened read-only");
}

#[tokio::test]
async fn what_sqlite_cannot_hold_is_refused_instead_of_changed() {
    let file = File::new();
    let mut session = open(&file, Access::ReadOnly).await;
    for values in [vec![Value::Number(f64::NAN)], vec![Value::List([Value::Integer(1)].into())], vec![], vec![Value::Null, Value::Null]] {
        let error = session.read(&statement("SELECT ?"), &values, WIDE).await.expect_err("refused");
        assert_eq!(error.failure, Failure::Refused);
    }
    file.beside().execute_batch("CREATE TABLE t (v TEXT); INSERT INTO t VALUES (CAST(x'ff41' AS TEXT));").expect("text that is no UTF-8");
    let error = session.read(&statement("SELECT v FROM t"), &[], WIDE).await.expect_err("no text");
    assert_eq!(error.failure, Failure::ValueInexact { column: "v".into() });
}

#[tokio::test]
async fn more_statements_than_are_kept_still_run() {
    let file = File::new();
    let mut session = open(&file, Access::ReadOnly).await;
    for number in 0..600 {
        let rows = session.read(&statement(format!("SELECT {number}")), &[], WIDE).await.expect("read");
        assert_eq!(value(&rows, 0, 0), Value::Integer(number));
    }
}

#[tokio::test]
async fn a_missing_or_foreign_file_is_unreachable_and_is_not_made() {
    let file = File::new();
    let folder = file.path().parent().expect("a folder").to_owned();
    std::fs::write(folder.join("foreign.db"), "no database at all, but long enough to be taken for one".repeat(30)).expect("a file");
    for (name, said) in [("missing.db", "missing"), ("foreign.db", "no sound")] {
        for access in [Access::ReadOnly, Access::ReadWrite] {
            let options = SqliteOptions { path: folder.join(name), on_connect: vec![], statement_timeout: MINUTE };
            let database = Sqlite::new(options).expect("good settings");
            let Err(error) = database.connect(access).await else { panic!("{name} is no database") };
            assert_eq!(error.failure, Failure::Unreachable);
            assert!(error.detail.contains(said) && !error.detail.contains(name), "{}", error.detail);
        }
    }
    assert!(!folder.join("missing.db").exists());
}

#[test]
fn settings_that_could_never_work_are_faults() {
    let options = |path: &str, statement_timeout| SqliteOptions { path: path.into(), on_connect: vec![], statement_timeout };
    assert_eq!(Sqlite::new(options(":memory:", MINUTE)).err(), Some(SettingsError::NoFile));
    assert_eq!(Sqlite::new(options("", MINUTE)).err(), Some(SettingsError::NoFile));
    assert_eq!(Sqlite::new(options("a.db", Duration::ZERO)).err(), Some(SettingsError::NoTime));
}

#[tokio::test]
async fn on_connect_runs_on_every_session() {
    let file = File::new();
    let database = file.with(&["PRAGMA case_sensitive_like = on"], MINUTE);
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let mut session = database.connect(access).await.expect("a session");
        let rows = session.read(&statement("SELECT 'a' LIKE 'A'"), &[], WIDE).await.expect("read");
        assert_eq!(value(&rows, 0, 0), Value::Integer(0));
        let Err(error) = file.with(&["SET SCHEMA FLEET"], MINUTE).connect(access).await else { panic!("refused") };
        assert_eq!(error.failure, Failure::Unreachable);
        assert!(error.detail.contains("on_connect"), "{error}");
    }
}

/// Promise 11: a value that is made on the way counts before it is made, though nothing of it would be returned.
#[tokio::test]
async fn promise_11_a_statement_makes_no_value_that_is_far_larger_than_its_result_may_be() {
    let file = File::new();
    let mut session = open(&file, Access::ReadOnly).await;
    let limits = ReadLimits { max_rows: 1, max_bytes: 1_000 };
    for made in ["hex(zeroblob(20000000))", "length(hex(zeroblob(20000000)))"] {
        let error = session.read(&statement(format!("SELECT {made}")), &[], limits).await.expect_err("40 MB");
        assert_eq!(error.failure, Failure::Refused, "{error}");
    }
    let rows = session.read(&statement("SELECT length(hex(zeroblob(4000000)))"), &[], limits).await.expect("8 MB on the way");
    assert_eq!(value(&rows, 0, 0), Value::Integer(8_000_000));
}
