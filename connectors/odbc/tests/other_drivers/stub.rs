//! B12, over a driver that ends the process when two threads use one handle.

use std::sync::Arc;
use std::time::Duration;

use spillgate_connector::conformance::{statement, value};
use spillgate_connector::{Access, Database as _, Ended, ReadLimits};
use spillgate_model::{Secret, Value};
use spillgate_odbc::{Odbc, OdbcOptions};
use spillgate_test_support::stub::StubDriver;
use tokio::time::timeout;

const WIDE: ReadLimits = ReadLimits { max_rows: 10, max_bytes: 1 << 10 };
const PATIENCE: Duration = Duration::from_secs(20);
const CALLERS: i64 = 7;

/// Sessions come and go, statements run, one is given up and cancelled from another thread, all of it beside others.
async fn caller(database: Arc<Odbc>, number: i64) {
    let own = statement(format!("VALUES {number}"));
    for _each in 0..3 {
        let mut session = database.connect(Access::ReadOnly).await.expect("a session");
        for _each in 0..20 {
            let rows = session.read(&own, &[], WIDE).await.expect("read");
            assert_eq!(value(&rows, 0, 0), Value::Integer(number), "nobody else's answer");
        }
        let given_up = timeout(Duration::from_millis(20), session.read(&statement("SLEEP"), &[], WIDE)).await;
        assert!(given_up.is_err(), "it sleeps");
        assert!(!matches!(session.end().await, Ended::Clean(_)), "a cancelled connection is not used again");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b12_no_handle_is_used_by_two_threads_and_a_waiting_statement_holds_up_no_other() {
    let driver = StubDriver::compile();
    let database = Arc::new(Odbc::new(OdbcOptions {
        connection: Secret::new(driver.connection()),
        on_connect: vec![],
        statement_timeout: PATIENCE,
        threads: usize::try_from(CALLERS).expect("few") + 1,
    }));
    let mut stuck = database.connect(Access::ReadOnly).await.expect("a session");
    let waiting = tokio::spawn(async move { stuck.read(&statement("SLEEP"), &[], WIDE).await.map(drop) });
    let callers: Vec<_> = (1..=CALLERS).map(|number| tokio::spawn(caller(database.clone(), number))).collect();
    for caller in callers {
        timeout(PATIENCE, caller).await.expect("not held up").expect("its own answers");
    }
    assert!(!waiting.is_finished(), "it waits all the while");
    waiting.abort();

    let mut session = timeout(PATIENCE, database.connect(Access::ReadOnly)).await.expect("a thread is free").expect("a session");
    let rows = session.read(&statement("OVERLAPPED"), &[], WIDE).await.expect("read");
    let Value::Integer(overlapped) = value(&rows, 0, 0) else { panic!("a number") };
    assert!(overlapped > 1, "connects did overlap, {overlapped} of them");
}
