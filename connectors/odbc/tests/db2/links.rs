//! B9: a link that falls silent holds threads, never callers; the threads are counted and capped, and come back when it heals. B12:
//! neither a statement that waits nor connects that overlap harm another.

use std::sync::Arc;
use std::time::{Duration, Instant};

use spillgate_connector::conformance::{statement, value};
use spillgate_connector::{Access, Database as _, Ended, Failure};
use spillgate_model::Value;
use spillgate_odbc::{Odbc, OdbcOptions};
use spillgate_test_support::derby::Derby;
use spillgate_test_support::shim::Shim;
use tokio::time::timeout;

use crate::fixture::{Db2, WIDE, options, sound};

pub(crate) async fn until_none_is_lost(database: &Odbc) {
    let start = Instant::now();
    while database.lost_threads() > 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "the threads come back when the link heals");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b9_a_frozen_link_holds_threads_and_no_callers() {
    let _derby = Db2::new().await;
    let link = Shim::to(Derby::shared().address());
    let database = Odbc::new(OdbcOptions { threads: 2, ..options(link.address()) });
    let asked = statement("VALUES 42");
    let mut session = database.connect(Access::ReadOnly).await.expect("a session");
    session.read(&asked, &[], WIDE).await.expect("read");

    link.freeze();
    assert!(timeout(Duration::from_millis(300), session.read(&asked, &[], WIDE)).await.is_err(), "nothing comes");
    let start = Instant::now();
    assert!(matches!(session.end().await, Ended::Unconfirmed(_)), "nobody can know");
    assert!(start.elapsed() < Duration::from_secs(5), "an end on a frozen link has a bound: {:?}", start.elapsed());
    // The driver let go of the link.
    until_none_is_lost(&database).await;

    // Both threads are lost in connecting; a third call finds none and is told at once.
    for lost in 1..=2 {
        assert!(timeout(Duration::from_millis(300), database.connect(Access::ReadOnly)).await.is_err(), "nothing comes");
        assert_eq!(database.lost_threads(), lost);
    }
    let Err(error) = timeout(Duration::from_millis(300), database.connect(Access::ReadOnly)).await.expect("at once") else {
        panic!("no thread is left")
    };
    assert_eq!(error.failure, Failure::Unreachable);

    // Another database stays fast meanwhile.
    let other = sound();
    let mut session = timeout(Duration::from_secs(5), other.connect(Access::ReadOnly)).await.expect("fast").expect("a session");
    timeout(Duration::from_secs(5), session.read(&asked, &[], WIDE)).await.expect("fast").expect("read");

    link.thaw();
    until_none_is_lost(&database).await;
    let mut session = database.connect(Access::ReadOnly).await.expect("a session after the link healed");
    let rows = session.read(&asked, &[], WIDE).await.expect("read");
    assert_eq!(value(&rows, 0, 0), Value::Integer(42));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b12_one_waiting_statement_holds_up_no_other() {
    let _derby = Db2::new().await;
    let (frozen, sound) = (Shim::to(Derby::shared().address()), sound());
    let waiting = Odbc::new(options(frozen.address()));
    let mut stuck = waiting.connect(Access::ReadOnly).await.expect("a session");
    let mut session = sound.connect(Access::ReadOnly).await.expect("a session");
    let asked = statement("VALUES 42");
    frozen.freeze();
    let free = async {
        for _each in 0..20 {
            timeout(Duration::from_secs(5), session.read(&asked, &[], WIDE)).await.expect("not held up").expect("read");
        }
        // Connecting and closing are not held up either.
        for _each in 0..3 {
            let session = timeout(Duration::from_secs(5), sound.connect(Access::ReadOnly)).await.expect("not held up").expect("a session");
            drop(session);
        }
        frozen.thaw();
    };
    let (read, ()) = tokio::join!(stuck.read(&asked, &[], WIDE), free);
    read.expect("the stuck one goes on when its link does");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b12_connects_that_overlap_give_each_caller_a_session_of_its_own() {
    const CONNECTS: usize = 16;
    let _derby = Db2::new().await;
    let link = Shim::to(Derby::shared().address());
    let database = Arc::new(Odbc::new(OdbcOptions { threads: CONNECTS, ..options(link.address()) }));
    // Frozen, it holds all of them in the middle of their connect.
    link.freeze();
    let callers: Vec<_> = (1..=CONNECTS)
        .map(|number| {
            let database = database.clone();
            tokio::spawn(async move {
                let mut session = database.connect(Access::ReadOnly).await.expect("a session");
                let own = statement(format!("VALUES {number}"));
                for _each in 0..10 {
                    let rows = session.read(&own, &[], WIDE).await.expect("read");
                    assert_eq!(value(&rows, 0, 0), Value::Integer(i64::try_from(number).expect("small")), "nobody else's answer");
                }
            })
        })
        .collect();
    let start = Instant::now();
    while link.connections() < CONNECTS {
        assert!(start.elapsed() < Duration::from_secs(20), "{} of {CONNECTS} connect at once", link.connections());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    link.thaw();
    for caller in callers {
        timeout(Duration::from_secs(20), caller).await.expect("not held up").expect("no panic");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b13_sessions_dropped_on_a_dead_link_cost_no_thread() {
    let _derby = Db2::new().await;
    let link = Shim::to(Derby::shared().address());
    let database = Odbc::new(OdbcOptions { threads: 2, ..options(link.address()) });
    for _each in 0..3 {
        let mut sessions = Vec::new();
        for access in [Access::ReadOnly, Access::ReadWrite] {
            let mut session = database.connect(access).await.expect("a session");
            if access == Access::ReadWrite {
                session.begin().await.expect("begin");
            }
            sessions.push(session);
        }
        link.cut();
        drop(sessions);
        link.heal();
        until_none_is_lost(&database).await;
    }
}

#[tokio::test]
async fn a_refused_login_is_unreachable_and_says_so() {
    let _derby = Db2::new().await;
    let link = Shim::to(Derby::shared().address());
    let connection = spillgate_test_support::odbc::db2_connection(link.address()).replace("Authentication=SERVER;", "");
    let database = Odbc::new(OdbcOptions { connection: spillgate_model::Secret::new(connection), ..options(link.address()) });
    let Err(error) = database.connect(Access::ReadOnly).await else { panic!("Derby refuses this form of login") };
    assert_eq!((error.failure, error.detail.as_str()), (Failure::Unreachable, "the database refused the login"), "{}", error.internal);
}

#[tokio::test]
async fn a_missing_driver_is_unfit() {
    let connection = "Driver=/nowhere/libdb2.so;DATABASE=X;UID=u;PWD=secret-secret;";
    let database = Odbc::new(OdbcOptions { connection: spillgate_model::Secret::new(connection), ..options(([127, 0, 0, 1], 1).into()) });
    let Err(error) = database.connect(Access::ReadOnly).await else { panic!("there is no such driver") };
    assert_eq!(error.failure, Failure::Unfit, "{error:?}");
    assert!(!error.internal.contains("secret-secret"));
}
