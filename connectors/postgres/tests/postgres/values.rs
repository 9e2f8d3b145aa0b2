//! Values on their way out and in: exact, or refused.

use std::time::{Duration, Instant};

use spillgate_connector::conformance::{WIDE, declared, statement, unique, value};
use spillgate_connector::{Access, Failure, ReadLimits};
use spillgate_model::{Type, Value};

use crate::support::Server;
use crate::{one, open, text};

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
