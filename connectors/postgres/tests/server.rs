//! Promises of Postgres that no other database has.

mod support;

use std::time::{Duration, Instant};

use spillgate_connector::conformance::{WIDE, declared, statement, unique, value};
use spillgate_connector::{Access, Database as _, DatabaseError, Ended, Failure, ReadLimits, Session};
use spillgate_model::{Type, Value};
use spillgate_postgres::Postgres;
use spillgate_test_support::postgres::{self, PASSWORD, USER};
use support::{Server, database, options};

impl Server {
    async fn execute(&self, text: &str) {
        self.beside.batch_execute(text).await.unwrap_or_else(|error| panic!("{text}: {error:?}"));
    }
}

async fn open(access: Access) -> Box<dyn Session> {
    database(postgres::shared().url()).connect(access).await.expect("a session")
}

async fn one(session: &mut Box<dyn Session>, text: &str, values: &[Value]) -> Result<Value, DatabaseError> {
    let rows = session.read(&statement(text), values, WIDE).await?;
    Ok(value(&rows, 0, 0))
}

fn text(text: &str) -> Value {
    Value::Text(text.into())
}

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

/// A value that cannot be given stops the read as a row limit does: the session is free at once.
#[tokio::test]
async fn an_inexact_value_in_a_long_result_frees_the_session() {
    let _server = Server::new().await;
    let mut session = open(Access::ReadOnly).await;
    let asked = declared("SELECT n + 0.5 AS c FROM generate_series(1, 100000) n, generate_series(1, 100)", &[("c", Type::Integer)]);
    let start = Instant::now();
    let error = session.read(&asked, &[], WIDE).await.expect_err("no whole number");
    assert_eq!(error.failure, Failure::ValueInexact { column: "c".into() });
    one(&mut session, "SELECT 1", &[]).await.expect("free");
    assert!(start.elapsed() < Duration::from_secs(5));
}

/// Every type that has an exact form, and advice for those that have none.
#[tokio::test]
async fn types_have_an_exact_form_or_the_column_is_named() {
    let server = Server::new().await;
    let (mood, domain) = (unique("mood"), unique("positive"));
    server.execute(&format!("CREATE TYPE {mood} AS ENUM ('sad', 'happy'); CREATE DOMAIN {domain} AS numeric(8,3) CHECK (VALUE > 0)")).await;
    let mut session = open(Access::ReadOnly).await;
    let decimal = |digits: &str| Value::Decimal(digits.into());
    for (expression, wanted) in [
        ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid", text("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")),
        (r#"'{"b": 1,  "a": 1.50}'::json"#, text(r#"{"b": 1,  "a": 1.50}"#)),
        (r#"'{"b": 1,  "a": 1.50}'::jsonb"#, text(r#"{"a": 1.50, "b": 1}"#)),
        ("'padded'::char(10)", text("padded")),
        ("' kept '::varchar(10)", text(" kept ")),
        ("'x'::\"char\"", text("x")),
        ("'a_name'::name", text("a_name")),
        (&format!("'happy'::{mood}"), text("happy")),
        (&format!("'12.5'::{domain}"), decimal("12.500")),
        ("0.1::float4", Value::Number(0.1)),
        ("16777217::float8", Value::Number(16_777_217.0)),
        ("'NaN'::numeric", decimal("NaN")),
        ("-123.45::numeric(5,2)", decimal("-123.45")),
        ("1e50::numeric", decimal(&format!("1{}", "0".repeat(50)))),
        ("'infinity'::timestamp", Value::Timestamp("infinity".into())),
        ("'-infinity'::date", Value::Date("-infinity".into())),
        ("'24:00:00'::time", Value::Time("24:00:00".into())),
        ("'2026-01-02 03:04:05.1+00'::timestamptz", Value::Timestamp("2026-01-02T03:04:05.1+00:00".into())),
        ("4294967295::oid", Value::Integer(4_294_967_295)),
        ("32767::int2", Value::Integer(32_767)),
        ("NULL::interval::text", Value::Null),
        ("'1 day'::interval::text", text("1 day")),
    ] {
        let found = one(&mut session, &format!("SELECT {expression} AS c"), &[]).await;
        assert_eq!(found.as_ref().ok(), Some(&wanted), "{expression}: {found:?}");
    }
    for expression in ["'1 day'::interval", "ARRAY[1,2]", "'10.0.0.1'::inet", "'20000-01-01'::date", "'0044-03-15 BC'::timestamp"] {
        let error = one(&mut session, &format!("SELECT 1 AS a, {expression} AS c"), &[]).await.expect_err(expression);
        assert_eq!(error.failure, Failure::ValueInexact { column: "c".into() }, "{expression}");
        assert!(session.usable());
    }
    let error = one(&mut session, "SELECT ARRAY[1,2] AS c", &[]).await.expect_err("an array");
    assert!(error.detail.contains("cast it to text"), "{error}");
}

/// B1, C6: thousands of numbers, days and moments are what the server itself prints.
#[tokio::test]
async fn b1_what_is_decoded_is_what_the_server_prints() {
    let _server = Server::new().await;
    let mut session = open(Access::ReadOnly).await;
    let limits = ReadLimits { max_rows: 100_000, max_bytes: 64 << 20 };
    for (value_of, printed, from) in [
        (
            "v",
            "v::text",
            "(SELECT round(((random() - 0.5) * 10::numeric ^ (i % 60 - 30))::numeric, i % 37) AS v FROM generate_series(1, 4000) i) x",
        ),
        ("v", "v::text", "(SELECT (10::numeric ^ i) - 1 AS v FROM generate_series(0, 300) i) x"),
        ("v::date", "to_char(v, 'YYYY-MM-DD')", "generate_series('0001-01-01'::timestamp, '9999-12-31', '97 days') v"),
        (
            "v",
            "to_char(v, 'YYYY-MM-DD\"T\"HH24:MI:SS') || rtrim(rtrim(to_char(v, '.US'), '0'), '.')",
            "(SELECT '0001-01-01'::timestamp + random() * '9998 years'::interval + '0.000001s'::interval AS v FROM generate_series(1, 4000)) x",
        ),
        ("v", "v::text", "(SELECT gen_random_uuid() AS v FROM generate_series(1, 1000)) x"),
        ("v", "v::text", "(SELECT i AS v FROM generate_series(-9223372036854775807, 9223372036854775000, 9223372036854775807 / 500) i) x"),
    ] {
        let rows =
            session.read(&statement(format!("SELECT {value_of} AS v, {printed} AS p FROM {from}")), &[], limits).await.expect("read");
        assert!(rows.len() >= 300, "{} rows of {from}", rows.len());
        for index in 0..rows.len() {
            let shown = match value(&rows, index, 0) {
                Value::Integer(value) => value.to_string(),
                Value::Decimal(text) | Value::Date(text) | Value::Timestamp(text) | Value::Text(text) => text.into(),
                other => panic!("{other:?}"),
            };
            let Value::Text(printed) = value(&rows, index, 1) else { panic!("text") };
            assert_eq!(shown, *printed, "{from}");
        }
    }
}

/// What an input function would round or shift in silence is refused.
#[tokio::test]
async fn values_that_would_change_on_their_way_in_are_refused() {
    let _server = Server::new().await;
    let mut session = open(Access::ReadOnly).await;
    let timestamp = |text: &str| Value::Timestamp(text.into());
    for (marker, bound) in [
        ("$1::int2", Value::Integer(40_000)),
        ("$1::int4", Value::Integer(1 << 40)),
        ("$1::float8", Value::Integer((1 << 53) + 1)),
        ("$1::timestamp", timestamp("2026-03-08T02:30:00+05:00")),
        ("$1::timestamptz", timestamp("2026-03-08T02:30:00")),
        ("$1::int4", text("12e3")),
        ("$1::int8", Value::Decimal("1.5".into())),
        ("$1::text", Value::List([Value::Null].into())),
    ] {
        let error = one(&mut session, &format!("SELECT {marker}"), std::slice::from_ref(&bound)).await.expect_err(marker);
        assert_eq!(error.failure, Failure::Refused, "{marker} {bound:?}: {error:?}");
        assert!(session.usable());
    }
    for (marker, bound, wanted) in [
        ("$1::int2", Value::Integer(-32_768), Value::Integer(-32_768)),
        ("$1::numeric", Value::Integer(i64::MIN), Value::Decimal(i64::MIN.to_string().into())),
        ("$1::text", Value::Integer(7), text("7")),
        ("$1::text", Value::Boolean(true), text("true")),
        ("$1::numeric", Value::Number(0.1), Value::Decimal("0.1".into())),
        ("$1::timestamptz", timestamp("2026-03-08T02:30:00+05:00"), timestamp("2026-03-07T21:30:00+00:00")),
        ("$1::jsonb", text("{\"a\":1}"), text("{\"a\": 1}")),
        ("$1::uuid", text("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"), text("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")),
    ] {
        let found = one(&mut session, &format!("SELECT {marker}"), std::slice::from_ref(&bound)).await;
        assert_eq!(found.as_ref().ok(), Some(&wanted), "{marker} {bound:?}: {found:?}");
    }
    let error = one(&mut session, "SELECT $1::int4", &[]).await.expect_err("a value is missing");
    assert_eq!(error.failure, Failure::Refused);
}

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
