//! Promises about values: exact, or the call fails.

use spillgate_model::{Type, Value};

use super::{Fixture, declared, one, open, read, statement, value};
use crate::{Access, Failure, Statement};

/// `SELECT expression AS "C"`, the column declared where the database does not know the type by itself.
fn select(fixture: &impl Fixture, expression: &str, kind: Type) -> Statement {
    let text = format!("SELECT {expression} AS \"C\"{}", fixture.from_nothing());
    if fixture.native(kind) { statement(text) } else { declared(text, &[("C", kind)]) }
}

/// Fractions of a second may carry the zeros of their column's scale; nothing else may differ.
fn same(found: &Value, wanted: &Value) -> bool {
    let trim = |text: &str| match text.split_once('.') {
        Some((head, fraction)) => match fraction.trim_end_matches('0') {
            "" => head.to_owned(),
            kept => format!("{head}.{kept}"),
        },
        None => text.to_owned(),
    };
    match (found, wanted) {
        (Value::Timestamp(found), Value::Timestamp(wanted)) | (Value::Time(found), Value::Time(wanted)) => trim(found) == trim(wanted),
        (Value::Number(found), Value::Number(wanted)) => found.to_bits() == wanted.to_bits() || (found.is_nan() && wanted.is_nan()),
        _ => found == wanted,
    }
}

/// Each value read as a literal is what it was written as.
async fn literals_are_exact(fixture: &impl Fixture, values: &[Value]) -> usize {
    let mut session = open(fixture, Access::ReadOnly).await;
    let mut tried = 0;
    for wanted in values {
        let Some(expression) = fixture.literal(wanted) else { continue };
        let found = one(&mut session, &select(fixture, &expression, Type::of(wanted)), &[]).await;
        assert!(same(&found, wanted), "{expression}: found {found:?}, wanted {wanted:?}");
        tried += 1;
    }
    tried
}

/// Each value bound as a parameter comes back as it was.
async fn bindings_are_exact(fixture: &impl Fixture, values: &[Value]) -> usize {
    let mut session = open(fixture, Access::ReadOnly).await;
    let mut tried = 0;
    for wanted in values {
        let Some(expression) = fixture.bound(1, wanted) else { continue };
        let found = one(&mut session, &select(fixture, &expression, Type::of(wanted)), std::slice::from_ref(wanted)).await;
        assert!(same(&found, wanted), "{expression}: found {found:?}, wanted {wanted:?}");
        tried += 1;
    }
    tried
}

fn integers() -> Vec<Value> {
    [0, 1, -1, 9_007_199_254_740_993, -7_000_000_000_000_000_001, i64::MAX, i64::MIN].map(Value::Integer).into()
}

fn decimals() -> Vec<Value> {
    let tiny = format!("-0.{}1", "0".repeat(30));
    let wide = "9".repeat(31);
    ["-123.45", "0.00", "-0.05", "100", "1234.56", &tiny, &wide].map(|digits| Value::Decimal(digits.into())).into()
}

fn texts() -> Vec<Value> {
    let long = "é".repeat(900);
    ["plain", "naïve café ÉÉÉÉÉÉÉÉÉÉ", "🚚 truck 🛻", "it's \"quoted\" \\ and %", " blanks inside and before", "line\nbreak\ttab", &long]
        .map(|text| Value::Text(text.into()))
        .into()
}

fn numeric_texts() -> Vec<Value> {
    ["12e3", "007", "1.50", "-0", "0x1F", "NaN", "true", "null", "2026-03-08"].map(|text| Value::Text(text.into())).into()
}

fn binaries() -> Vec<Value> {
    let every: Vec<u8> = (0..=255).collect();
    [&b"\x00\x01\xFF"[..], b"", &every].map(|bytes| Value::Binary(bytes.into())).into()
}

fn numbers() -> Vec<Value> {
    [0.1, -2.5, 1e300, 5e-324, f64::MAX, 1.0 / 3.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(Value::Number).into()
}

fn times() -> Vec<Value> {
    vec![
        Value::Timestamp("2026-03-08T02:30:00".into()), // no local time of that day in New York
        Value::Timestamp("2026-11-01T01:30:00.123456".into()),
        Value::Timestamp("1969-12-31T23:59:59.999999".into()),
        Value::Date("2026-03-08".into()),
        Value::Date("0001-01-01".into()),
        Value::Date("2000-02-29".into()),
        Value::Time("02:30:00".into()),
        Value::Time("23:59:59".into()),
    ]
}

/// C1: 64-bit integers, beyond what a double holds.
pub async fn c1_integers_are_exact(fixture: &impl Fixture) {
    assert_eq!(literals_are_exact(fixture, &integers()).await, integers().len());
    assert_eq!(bindings_are_exact(fixture, &integers()).await, integers().len());
}

/// B1: sign, digits and scale of decimals, both ways; never in exponent form.
pub async fn b1_decimals_keep_every_digit(fixture: &impl Fixture) {
    assert!(literals_are_exact(fixture, &decimals()).await >= 5, "most decimals can be written");
    assert!(bindings_are_exact(fixture, &decimals()).await >= 5, "most decimals can be bound");
}

/// Text is never looked at, neither as a literal nor when it is bound and read back.
pub async fn text_that_looks_like_a_number_stays_text(fixture: &impl Fixture) {
    assert_eq!(literals_are_exact(fixture, &numeric_texts()).await, numeric_texts().len());
    assert_eq!(bindings_are_exact(fixture, &numeric_texts()).await, numeric_texts().len());
}

/// B3: NULL and '' side by side, with text before and after.
pub async fn null_and_empty_text_are_two_things(fixture: &impl Fixture) {
    let mut session = open(fixture, Access::ReadWrite).await;
    let table = super::table(fixture, &mut session, &[("N", Type::Integer), ("V", Type::Text)]).await;
    let wanted = [Value::Text("one".into()), Value::Text("three".into()), Value::Text("".into()), Value::Null];
    let insert = statement(format!("INSERT INTO {table} VALUES ({}, {})", fixture.marker(1), fixture.marker(2)));
    session.begin().await.expect("begin");
    for (number, text) in (1..).zip(&wanted) {
        let written = session.write(&insert, &[Value::Integer(number), text.clone()], super::WIDE).await.expect("insert");
        assert_eq!(written.affected, 1);
    }
    session.commit().await.expect("commit");
    let rows = read(&mut session, &statement(format!("SELECT \"V\" FROM {table} ORDER BY \"N\"")), &[]).await.expect("read");
    let found: Vec<Value> = (0..rows.len()).map(|row| value(&rows, row, 0)).collect();
    assert_eq!(found, wanted);
}

/// Accents, emoji, quotes and long text arrive whole.
pub async fn text_is_kept_whole(fixture: &impl Fixture) {
    assert!(literals_are_exact(fixture, &texts()).await >= texts().len() - 1);
    assert_eq!(bindings_are_exact(fixture, &texts()).await, texts().len());
}

/// A NUL inside text is kept, or the value is refused; it never ends the text.
pub async fn text_with_a_nul_is_never_cut(fixture: &impl Fixture) {
    let text = Value::Text("before\0after".into());
    let Some(expression) = fixture.bound(1, &text) else { return };
    let mut session = open(fixture, Access::ReadOnly).await;
    match read(&mut session, &select(fixture, &expression, Type::Text), std::slice::from_ref(&text)).await {
        Ok(rows) => assert_eq!(value(&rows, 0, 0), text),
        Err(error) => assert!(matches!(error.failure, Failure::Refused | Failure::ValueInexact { .. }), "{error:?}"),
    }
    super::answers(fixture, &mut session).await;
}

/// Bytes are bytes, the empty ones too.
pub async fn binary_is_byte_exact(fixture: &impl Fixture) {
    assert!(literals_are_exact(fixture, &binaries()).await >= 1);
    assert!(bindings_are_exact(fixture, &binaries()).await >= 2);
}

/// True, false and NULL.
pub async fn booleans_are_booleans(fixture: &impl Fixture) {
    let both = [Value::Boolean(true), Value::Boolean(false)];
    literals_are_exact(fixture, &both).await;
    bindings_are_exact(fixture, &both).await;
}

/// Doubles to the last bit; NaN and infinities where the database has them.
pub async fn numbers_are_exact_doubles(fixture: &impl Fixture) {
    assert!(literals_are_exact(fixture, &numbers()).await >= 3);
    assert!(bindings_are_exact(fixture, &numbers()).await >= 3);
}

/// C6: dates, times and timestamps without zone show the digits they were stored with, wherever the process runs.
pub async fn c6_zone_less_times_are_not_shifted(fixture: &impl Fixture) {
    assert!(literals_are_exact(fixture, &times()).await >= 5);
    assert!(bindings_are_exact(fixture, &times()).await >= 5);
}

/// C6: a timestamp with time zone shows its offset.
pub async fn timestamps_with_a_zone_carry_their_offset(fixture: &impl Fixture) {
    let Some((expression, shown)) = fixture.zoned_timestamp() else { return };
    let mut session = open(fixture, Access::ReadOnly).await;
    let found = one(&mut session, &select(fixture, expression, Type::Timestamp), &[]).await;
    assert_eq!(found, Value::Timestamp(shown.into()));
}

/// Each kind of value beside each other in one statement, NULL among them.
pub async fn every_value_is_bound_exactly(fixture: &impl Fixture) {
    let all = [integers(), decimals(), texts(), binaries(), times()].concat();
    let mut wanted = Vec::new();
    let mut expressions = Vec::new();
    let mut columns = Vec::new();
    for value in all {
        let Some(expression) = fixture.bound(wanted.len() + 1, &value) else { continue };
        expressions.push(format!("{expression} AS \"C{}\"", wanted.len()));
        if !fixture.native(Type::of(&value)) {
            columns.push((format!("C{}", wanted.len()), Type::of(&value)));
        }
        wanted.push(value);
    }
    let text = format!("SELECT {}{}", expressions.join(", "), fixture.from_nothing());
    let columns: Vec<(&str, Type)> = columns.iter().map(|(name, kind)| (name.as_str(), *kind)).collect();
    let statement = declared(text, &columns);
    let mut session = open(fixture, Access::ReadOnly).await;
    for _twice in 0..2 {
        let rows = read(&mut session, &statement, &wanted).await.expect("read");
        for (column, wanted) in wanted.iter().enumerate() {
            let found = value(&rows, 0, column);
            assert!(same(&found, wanted), "column {column}: found {found:?}, wanted {wanted:?}");
        }
    }
    let nothing = vec![Value::Null; wanted.len()];
    let rows = read(&mut session, &statement, &nothing).await.expect("read");
    assert!((0..wanted.len()).all(|column| value(&rows, 0, column) == Value::Null), "NULL is bound as NULL");
}

/// `columns` fixes types: a value that does not fit exactly fails the call and names its column.
pub async fn columns_convert_exactly_or_fail(fixture: &impl Fixture) {
    let text = |text: &str| Value::Text(text.into());
    let decimal = |digits: &str| Value::Decimal(digits.into());
    let cases: [(Value, Type, Option<Value>); 18] = [
        (decimal("5.00"), Type::Integer, Some(Value::Integer(5))),
        (decimal("5.25"), Type::Integer, None),
        (decimal("99999999999999999999"), Type::Integer, None),
        (Value::Integer(7), Type::Decimal, Some(decimal("7"))),
        (Value::Integer(7), Type::Text, Some(text("7"))),
        (Value::Integer(1), Type::Boolean, Some(Value::Boolean(true))),
        (Value::Integer(0), Type::Boolean, Some(Value::Boolean(false))),
        (Value::Integer(2), Type::Boolean, None),
        (Value::Integer(3), Type::Number, Some(Value::Number(3.0))),
        (Value::Integer((1 << 53) + 1), Type::Number, None),
        (text("12"), Type::Integer, Some(Value::Integer(12))),
        (text("12e3"), Type::Integer, None),
        (text("12x"), Type::Decimal, None),
        (text("1.50"), Type::Decimal, Some(decimal("1.50"))),
        (text("2026-03-08 02:30:00"), Type::Timestamp, Some(Value::Timestamp("2026-03-08T02:30:00".into()))),
        (text("yesterday"), Type::Timestamp, None),
        (text("2026-02-30"), Type::Date, None),
        (text("2026-03-08"), Type::Date, Some(Value::Date("2026-03-08".into()))),
    ];
    let mut session = open(fixture, Access::ReadOnly).await;
    for (stored, declared_as, wanted) in cases {
        let Some(expression) = fixture.literal(&stored) else { continue };
        let text = format!("SELECT {expression} AS \"C\"{}", fixture.from_nothing());
        let found = read(&mut session, &declared(text, &[("C", declared_as)]), &[]).await;
        match (found, wanted) {
            (Ok(rows), Some(wanted)) => {
                let found = value(&rows, 0, 0);
                assert!(same(&found, &wanted), "{stored:?} as {declared_as:?}: found {found:?}");
                assert_eq!(rows.columns()[0].kind, declared_as);
            }
            (Err(error), None) => assert_eq!(error.failure, Failure::ValueInexact { column: "C".into() }, "{stored:?} as {declared_as:?}"),
            (found, wanted) => panic!("{stored:?} as {declared_as:?}: wanted {wanted:?}, found {found:?}"),
        }
        super::answers(fixture, &mut session).await;
    }
}

/// B10: names come as the statement gives them, the same both times, long ones too.
pub async fn b10_column_names_are_kept(fixture: &impl Fixture) {
    let long = "A_QUITE_LONG_COLUMN_NAME_THAT_SOME_DRIVERS_CUT_OR_GARBLE_ONCE";
    let asked = statement(format!("SELECT 1 AS \"X\", 2 AS \"Mixed Case\", 3 AS \"{}\"{}", &long[..60], fixture.from_nothing()));
    let mut session = open(fixture, Access::ReadOnly).await;
    for _twice in 0..2 {
        let rows = read(&mut session, &asked, &[]).await.expect("read");
        let names: Vec<&str> = rows.columns().iter().map(|column| &*column.name).collect();
        assert_eq!(names, ["X", "Mixed Case", &long[..60]]);
    }
}
