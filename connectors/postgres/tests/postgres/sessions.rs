//! Sessions: how they are opened, what is in place on them, and that none stays behind.

use std::time::{Duration, Instant};

use spillgate_connector::conformance::{WIDE, statement, unique};
use spillgate_connector::{Access, Database as _, Ended, Failure, ReadLimits};
use spillgate_model::Value;
use spillgate_postgres::Postgres;
use spillgate_test_support::postgres::{self, PASSWORD, USER};

use crate::support::{Server, database, options};
use crate::{one, open, text};

/// C10: a refused login names neither user nor password.
#[tokio::test]
async fn c10_a_refused_login_tells_neither_user_nor_password() {
    let _server = Server::new().await;
    let port = postgres::shared().port();
    for (connection, said) in [
        (format!("postgres://{USER}:wrong-sesame@127.0.0.1:{port}/postgres"), "login"),
        (format!("postgres://nobody_known:{PASSWORD}@127.0.0.1:{port}/postgres"), "login"),
        (format!("host=127.0.0.1 port={port} user={USER} dbname=postgres"), "login"),
        (format!("host=127.0.0.1 port={port} user={USER} password='{PASSWORD}' dbname=no_such_base"), "name"),
        (format!("host=nowhere.invalid user={USER} password={PASSWORD}"), "reached"),
    ] {
        let Err(error) = database(&*connection).connect(Access::ReadOnly).await else { panic!("{said}") };
        assert_eq!(error.failure, Failure::Unreachable, "{error:?}");
        assert!(error.detail.contains(said), "{}", error.detail);
        for hidden in [USER, "nobody_known", "no_such_base", "127.0.0.1", "nowhere.invalid"] {
            assert!(!error.detail.contains(hidden), "{}", error.detail);
        }
        assert!(!format!("{error:?}").contains("sesame"), "{error:?}");
    }
}

/// TLS: private on demand, and proven where roots are given; a cancel goes the same way.
#[tokio::test]
async fn tls_is_used_and_proven_as_the_settings_say() {
    let server = Server::new().await;
    let (port, root) = (postgres::shared().port(), postgres::shared().root_certificate());
    let base = format!("postgres://{USER}:{PASSWORD}@localhost:{port}/postgres");
    let encrypted = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let root = root.display();
    for (query, wanted) in [
        ("?sslmode=disable".to_owned(), false),
        (String::new(), true),
        ("?sslmode=require".to_owned(), true),
        (format!("?sslmode=verify-full&sslrootcert={root}"), true),
        (format!("?sslrootcert={root}"), true),
    ] {
        let mut session = database(format!("{base}{query}")).connect(Access::ReadOnly).await.expect("a session");
        assert_eq!(one(&mut session, encrypted, &[]).await.expect("read"), Value::Boolean(wanted), "{query}");
        let rows =
            session.read(&statement("SELECT generate_series(1, 5000000)"), &[], ReadLimits { max_rows: 5, ..WIDE }).await.expect("cut");
        assert!(rows.truncated());
        one(&mut session, "SELECT 1", &[]).await.expect("free");
        let slow = statement("SELECT pg_sleep(60) /* over tls */");
        assert!(tokio::time::timeout(Duration::from_millis(50), session.read(&slow, &[], WIDE)).await.is_err());
        let Ended::Clean(_) = session.end().await else { panic!("clean") };
    }
    // A root that did not sign the server's certificate.
    let other = std::env::temp_dir().join(unique("other-root"));
    std::fs::create_dir(&other).expect("a folder");
    let made = std::process::Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=Another root"])
        .args(["-keyout", "key.pem", "-out", "root.pem"])
        .current_dir(&other)
        .output()
        .expect("openssl");
    assert!(made.status.success());
    let query = format!("?sslmode=verify-full&sslrootcert={}", other.join("root.pem").display());
    let Err(error) = database(format!("{base}{query}")).connect(Access::ReadOnly).await else { panic!("not proven") };
    assert_eq!(error.failure, Failure::Unreachable);
    assert!(error.detail.contains("TLS"), "{error}");
    std::fs::remove_dir_all(other).expect("tidy");
    drop(server);
}

#[tokio::test]
async fn a_unix_socket_is_reached() {
    let _server = Server::new().await;
    let server = postgres::shared();
    let connection =
        format!("host={} port={} user={USER} password={PASSWORD} dbname=postgres", server.socket_folder().display(), server.port());
    let mut session = database(connection).connect(Access::ReadOnly).await.expect("a session");
    let rows = session.read(&statement("SELECT generate_series(1, 5000000)"), &[], ReadLimits { max_rows: 5, ..WIDE }).await.expect("cut");
    assert!(rows.truncated());
    assert_eq!(one(&mut session, "SELECT 1::int8", &[]).await.expect("read"), Value::Integer(1));
}

#[tokio::test]
async fn on_connect_and_application_name_are_in_place() {
    let _server = Server::new().await;
    let mut wanted = options(postgres::shared().url());
    wanted.on_connect = vec!["SET search_path = pg_catalog".into(), "SET TIME ZONE 'America/New_York'".into()];
    let mut session = Postgres::new(wanted.clone()).expect("good settings").connect(Access::ReadOnly).await.expect("a session");
    assert_eq!(one(&mut session, "SELECT current_setting('search_path')", &[]).await.expect("read"), text("pg_catalog"));
    assert_eq!(one(&mut session, "SELECT current_setting('application_name')", &[]).await.expect("read"), text("spillgate"));
    // The session's zone has no say in what is shown.
    let shown = one(&mut session, "SELECT '2026-03-08 02:30:00+05:00'::timestamptz", &[]).await.expect("read");
    assert_eq!(shown, Value::Timestamp("2026-03-07T21:30:00+00:00".into()));
    wanted.on_connect = vec!["SET SCHEMA FLEET".into()];
    let Err(error) = Postgres::new(wanted).expect("good settings").connect(Access::ReadOnly).await else { panic!("refused") };
    assert_eq!(error.failure, Failure::Unreachable);
    assert!(error.detail.contains("on_connect"), "{error}");
}

/// A session that is dropped in the middle of a call, without its end, takes its statement with it.
#[tokio::test]
async fn a_session_dropped_at_work_leaves_no_statement_behind() {
    use spillgate_connector::conformance::Fixture as _;
    let server = Server::new().await;
    let mut session = open(Access::ReadOnly).await;
    let mark = unique("mark");
    let slow = statement(server.slow_read(&mark));
    tokio::select! {
        _ended = session.read(&slow, &[], WIDE) => panic!("a minute has not passed"),
        () = async { while !server.running(&mark).await {} } => {}
    }
    drop(session);
    let start = Instant::now();
    while server.running(&mark).await {
        assert!(start.elapsed() < Duration::from_secs(1), "the statement is still at work");
    }
}

/// A connection that is dropped, not ended, leaves nothing on the server.
#[tokio::test]
async fn a_dropped_session_leaves_the_server() {
    let server = Server::new().await;
    let mut named = options(postgres::shared().url());
    named.application_name = unique("dropped");
    let name = named.application_name.clone();
    let session = Postgres::new(named).expect("good settings").connect(Access::ReadWrite).await.expect("a session");
    let asked = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1";
    let there = || async { server.beside.query_one(asked, &[&name]).await.expect("the activity view").get::<_, i64>(0) };
    assert_eq!(there().await, 1);
    drop(session);
    let start = Instant::now();
    while there().await > 0 {
        assert!(start.elapsed() < Duration::from_secs(5), "the connection is still there");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
