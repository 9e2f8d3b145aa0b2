//! Prepared statements kept by a session: reused, bounded, and none of them in the way of the next.

use std::time::Instant;

use spillgate_connector::conformance::{statement, unique, value};
use spillgate_connector::{Access, Database as _, ReadLimits};
use spillgate_model::Value;
use spillgate_odbc::{Odbc, OdbcOptions};
use spillgate_test_support::derby::Derby;
use spillgate_test_support::shim::Shim;

use crate::fixture::{Db2, WIDE, options, sound};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_is_prepared_once_and_bound_anew_each_time() {
    let _derby = Db2::new().await;
    let mut session = sound().connect(Access::ReadOnly).await.expect("a session");
    let asked = statement("SELECT CAST(? AS VARCHAR(2000)) AS T, CAST(? AS BIGINT) AS N FROM SYSIBM.SYSDUMMY1");
    let long = "x".repeat(1_500);
    // Short after long, NULL between: no buffer remembers what it held.
    for text in ["one", long.as_str(), "", "three"] {
        for (given, number) in [(Value::Text(text.into()), Value::Integer(7)), (Value::Null, Value::Null)] {
            let rows = session.read(&asked, &[given.clone(), number.clone()], WIDE).await.expect("read");
            assert_eq!([value(&rows, 0, 0), value(&rows, 0, 1)], [given, number]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_statements_than_a_session_keeps_all_work() {
    let _derby = Db2::new().await;
    let mut session = sound().connect(Access::ReadOnly).await.expect("a session");
    let text = |number| format!("SELECT {number} AS N FROM SYSIBM.SYSDUMMY1 WHERE CAST(? AS INTEGER) = 1");
    let statements: Vec<_> = (0..300).map(|number| statement(text(number))).collect();
    for _twice in 0..2 {
        for (number, asked) in (0..).zip(&statements) {
            let rows = session.read(asked, &[Value::Integer(1)], WIDE).await.expect("read");
            assert_eq!(value(&rows, 0, 0), Value::Integer(number));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f2_a_table_change_between_two_reads_is_seen() {
    let _derby = Db2::new().await;
    let mut session = sound().connect(Access::ReadWrite).await.expect("a session");
    let table = unique("CHANGED");
    let change = async |session: &mut Box<dyn spillgate_connector::Session>, text: String| {
        session.begin().await.expect("begin");
        session.write(&statement(text.as_str()), &[], WIDE).await.unwrap_or_else(|error| panic!("{text}: {error:?}"));
        session.commit().await.expect("commit");
    };
    change(&mut session, format!("CREATE TABLE {table} (A INTEGER)")).await;
    change(&mut session, format!("INSERT INTO {table} VALUES (1)")).await;
    let asked = statement(format!("SELECT * FROM {table}"));
    let rows = session.read(&asked, &[], WIDE).await.expect("read");
    assert_eq!(rows.columns().len(), 1);
    change(&mut session, format!("ALTER TABLE {table} ADD COLUMN B VARCHAR(10) DEFAULT 'new'")).await;
    for _twice in 0..2 {
        let rows = session.read(&asked, &[], WIDE).await.expect("read after the change");
        let names: Vec<&str> = rows.columns().iter().map(|column| &*column.name).collect();
        assert_eq!((names.as_slice(), value(&rows, 0, 1)), (["A", "B"].as_slice(), Value::Text("new".into())));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f3_a_new_session_starts_with_on_connect_and_nothing_else() {
    let _derby = Db2::new().await;
    let link = Shim::to(Derby::shared().address());
    let schema = unique("FLEET");
    let mut session = sound().connect(Access::ReadWrite).await.expect("a session");
    session.begin().await.expect("begin");
    session.write(&statement(format!("CREATE SCHEMA {schema}")), &[], WIDE).await.expect("create");
    session.commit().await.expect("commit");
    let on_connect = vec![format!("SET SCHEMA {schema}").into()];
    let database = Odbc::new(OdbcOptions { on_connect, ..options(link.address()) });
    let mut session = database.connect(Access::ReadOnly).await.expect("a session");
    let rows = session.read(&statement("VALUES CURRENT SCHEMA"), &[], WIDE).await.expect("read");
    assert_eq!(value(&rows, 0, 0), Value::Text(schema.as_str().into()));
    let broken = Odbc::new(OdbcOptions { on_connect: vec!["SET SCHEMA NOT_THERE_AT_ALL".into()], ..options(link.address()) });
    let Err(error) = broken.connect(Access::ReadOnly).await else { panic!("there is no such schema") };
    assert!(error.detail.contains("on_connect") && !error.detail.contains("NOT_THERE"), "{}", error.detail);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c5_a_capped_read_of_millions_leaves_the_connection_free_at_once() {
    let _derby = Db2::new().await;
    let mut session = sound().connect(Access::ReadOnly).await.expect("a session");
    let millions = statement("SELECT A.COLUMNNAME AS C FROM SYS.SYSCOLUMNS A, SYS.SYSCOLUMNS B, SYS.SYSCOLUMNS C, SYS.SYSSCHEMAS D");
    let start = Instant::now();
    for _each in 0..5 {
        let rows = session.read(&millions, &[], ReadLimits { max_rows: 150, max_bytes: 1 << 20 }).await.expect("read");
        assert_eq!((rows.len(), rows.truncated()), (150, true));
        let rows = session.read(&statement("VALUES 42"), &[], WIDE).await.expect("the connection is free");
        assert_eq!(value(&rows, 0, 0), Value::Integer(42));
    }
    assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
}
