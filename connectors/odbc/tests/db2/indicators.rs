//! B3: IBM's `libdb2.so` writes length indicators of 32 bits. Every value is exact all the same.

use spillgate_connector::conformance::{declared, statement, unique, value};
use spillgate_connector::{Access, Database as _};
use spillgate_model::{Type, Value};

use crate::fixture::{Db2, WIDE, sound};

fn text(text: &str) -> Value {
    Value::Text(text.into())
}

#[tokio::test]
async fn b3_null_and_empty_text_are_exact_with_indicators_of_32_bits() {
    let _derby = Db2::new().await;
    let database = sound();
    let mut session = database.connect(Access::ReadOnly).await.expect("a session");
    let asked = statement(
        "SELECT V FROM (VALUES (1, CAST('one' AS VARCHAR(10))), (2, 'three'), (3, ''), (4, CAST(NULL AS VARCHAR(10)))) AS T(N, V) ORDER BY N",
    );
    let rows = session.read(&asked, &[], WIDE).await.expect("read");
    let found: Vec<Value> = (0..rows.len()).map(|row| value(&rows, row, 0)).collect();
    assert_eq!(found, [text("one"), text("three"), text(""), Value::Null]);
}

/// Every form of column beside each other, NULL in every second row, over many rowsets.
#[tokio::test]
async fn b3_columns_of_every_form_over_many_rowsets_keep_their_nulls() {
    let _derby = Db2::new().await;
    let mut session = sound().connect(Access::ReadWrite).await.expect("a session");
    let table = unique("FORMS");
    session.begin().await.expect("begin");
    let create = format!(
        "CREATE TABLE {table} (N INTEGER, S SMALLINT, B BIGINT, D DECIMAL(31, 31), R REAL, C CHAR(5), V VARCHAR(20), L LONG VARCHAR, \
         BITS CHAR(3) FOR BIT DATA, DAY DATE, CLOCK TIME, SEEN TIMESTAMP, BIG CLOB(1M), BYTES BLOB(1M))"
    );
    session.write(&statement(create), &[], WIDE).await.expect("create");
    let row = [
        Value::Integer(-5),
        Value::Integer(i64::MIN),
        Value::Decimal(format!("-0.{}", "9".repeat(31)).into()),
        Value::Number(0.5),
        text("ÉÉ"),
        text("été 🚚"),
        text("long"),
        Value::Binary([0, 255, 7].into()),
        Value::Date("2026-03-08".into()),
        Value::Time("02:30:00".into()),
        Value::Timestamp("2026-03-08T02:30:00.123456".into()),
        text(&"Ü".repeat(70_000)),
        Value::Binary(vec![9; 50_000].into()),
    ];
    let insert = statement(format!("INSERT INTO {table} VALUES (?{})", ", ?".repeat(row.len())));
    let short = [0, 1, 2, 3, 4, 5, 7, 8, 9, 10];
    for number in 1..=1_200_i64 {
        // The long values in a few rows only: they are slow to write, not to tell apart.
        let given = |index: usize, value: &Value| match number % 2 == 1 && (number < 8 || short.contains(&index)) {
            true => value.clone(),
            false => Value::Null,
        };
        let mut values = vec![Value::Integer(number)];
        values.extend(row.iter().enumerate().map(|(index, value)| given(index, value)));
        session.write(&insert, &values, WIDE).await.expect("insert");
    }
    session.commit().await.expect("commit");

    // In rowsets: no long column among them.
    let asked = statement(format!("SELECT N, S, B, D, R, C, V, BITS, DAY, CLOCK, SEEN FROM {table} ORDER BY N"));
    let rows = session.read(&asked, &[], WIDE).await.expect("read");
    assert_eq!((rows.len(), rows.truncated()), (1_200, false));
    for index in 0..rows.len() {
        let number = i64::try_from(index + 1).expect("small");
        assert_eq!(value(&rows, index, 0), Value::Integer(number));
        for (column, &place) in (1..).zip(&short) {
            let wanted = if number % 2 == 1 { row[place].clone() } else { Value::Null };
            assert_eq!(value(&rows, index, column), wanted, "row {number}, column {column}");
        }
    }
    // In pieces: long values whole.
    let asked = statement(format!("SELECT N, L, BIG, V, BYTES, D FROM {table} WHERE N < 10 ORDER BY N"));
    let rows = session.read(&asked, &[], WIDE).await.expect("read");
    for (index, number) in (0..rows.len()).zip(1..) {
        let long = number < 8 && number % 2 == 1;
        for (column, place, there) in [(1, 6, long), (2, 11, long), (3, 5, number % 2 == 1), (4, 12, long), (5, 2, number % 2 == 1)] {
            let wanted = if there { row[place].clone() } else { Value::Null };
            assert!(value(&rows, index, column) == wanted, "row {number}, column {column}");
        }
    }
}

/// B1: the three decimals of the report, from a table and bound.
#[tokio::test]
async fn b1_decimals_of_a_table_keep_sign_digits_and_fraction_both_ways() {
    let _derby = Db2::new().await;
    let mut session = sound().connect(Access::ReadWrite).await.expect("a session");
    let table = unique("DECIMALS");
    let tiny = format!("-0.{}", "1".repeat(31));
    let wide = "9".repeat(31);
    let wanted = [Value::Decimal("-123.45".into()), Value::Decimal(tiny.into()), Value::Decimal(wide.into())];
    session.begin().await.expect("begin");
    session
        .write(&statement(format!("CREATE TABLE {table} (A DECIMAL(5, 2), B DECIMAL(31, 31), C DECIMAL(31, 0))")), &[], WIDE)
        .await
        .expect("create");
    session.write(&statement(format!("INSERT INTO {table} VALUES (?, ?, ?)")), &wanted, WIDE).await.expect("insert");
    session.commit().await.expect("commit");
    let asked = statement(format!("SELECT A, B, C FROM {table} WHERE A = ? AND B = ? AND C = ?"));
    let rows = session.read(&asked, &wanted, WIDE).await.expect("read");
    assert_eq!(rows.len(), 1, "a bound decimal finds its row");
    let found: Vec<Value> = (0..3).map(|column| value(&rows, 0, column)).collect();
    assert_eq!(found, wanted);
}

/// B5, B6: bytes are bytes and find their row again; a CHAR column matches an unpadded value and comes back trimmed.
#[tokio::test]
async fn b5_b6_bit_data_keys_and_padded_columns_find_their_rows() {
    let _derby = Db2::new().await;
    let mut session = sound().connect(Access::ReadWrite).await.expect("a session");
    let table = unique("KEYS");
    session.begin().await.expect("begin");
    session
        .write(&statement(format!("CREATE TABLE {table} (K CHAR(16) FOR BIT DATA, C CHAR(5), BLANK VARCHAR(5))")), &[], WIDE)
        .await
        .expect("create");
    let key = Value::Binary((0..16).map(|byte| byte * 16).collect());
    session
        .write(&statement(format!("INSERT INTO {table} VALUES (?, ?, ?)")), &[key.clone(), text("ABCD"), text("A  ")], WIDE)
        .await
        .expect("insert");
    session.commit().await.expect("commit");
    let rows = session.read(&statement(format!("SELECT K, C, BLANK FROM {table} WHERE C = ?")), &[text("ABCD")], WIDE).await.expect("read");
    assert_eq!((0..3).map(|column| value(&rows, 0, column)).collect::<Vec<_>>(), [key.clone(), text("ABCD"), text("A  ")]);
    let rows = session.read(&statement(format!("SELECT C FROM {table} WHERE K = ?")), &[key], WIDE).await.expect("read");
    assert_eq!(rows.len(), 1, "a key read by one step is found by the next");
}

/// Text columns declared otherwise are converted exactly; text that looks like a number stays text where nothing is declared.
#[tokio::test]
async fn text_that_looks_like_a_number_stays_text_unless_the_flow_declares_it() {
    let _derby = Db2::new().await;
    let mut session = sound().connect(Access::ReadOnly).await.expect("a session");
    let text_of = "SELECT CAST('0012' AS VARCHAR(10)) AS A, CAST('12e3' AS CHAR(10)) AS B FROM SYSIBM.SYSDUMMY1";
    let rows = session.read(&statement(text_of), &[], WIDE).await.expect("read");
    assert_eq!([value(&rows, 0, 0), value(&rows, 0, 1)], [text("0012"), text("12e3")]);
    let rows = session.read(&declared(text_of, &[("A", Type::Integer)]), &[], WIDE).await.expect("read");
    assert_eq!([value(&rows, 0, 0), value(&rows, 0, 1)], [Value::Integer(12), text("12e3")]);
}
