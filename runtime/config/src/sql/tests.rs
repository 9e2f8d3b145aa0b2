//! The tokenizer and what statements are told to be.

use proptest::prelude::*;

use super::page::{Around, after_cursor, read_key};
use super::statement::{self, Statement};
use super::token::{TokenKind, tokens};
use crate::plan::Driver;

const DRIVERS: [Driver; 3] = [Driver::Odbc, Driver::Postgres, Driver::Sqlite];

fn parameters(sql: &str, driver: Driver) -> Vec<&str> {
    let tokens = tokens(sql, driver).expect("it can be read");
    tokens.iter().filter(|token| token.kind == TokenKind::Parameter).map(|token| token.text(sql)).collect()
}

fn read(sql: &str, driver: Driver) -> Statement<'_> {
    let (statement, faults) = statement::read(sql, driver).expect("it can be read");
    assert!(faults.is_empty(), "{sql}: {faults:?}");
    statement
}

#[test]
fn parameters_are_found_only_where_sql_is() {
    for driver in DRIVERS {
        for sql in ["':a'", "'it''s :a'", "\":a\"", "\"x\"\":a\"", "-- :a", "/* :a */", "a::text", "'\\' || ':a'", "12:30", "a := 1", ": a"]
        {
            assert_eq!(parameters(sql, driver), [""; 0], "{sql} on {driver:?}");
        }
        assert_eq!(parameters("x = :a AND y=:b_1+:A -- :c\nAND z = :d::text", driver), [":a", ":b_1", ":A", ":d"]);
        assert_eq!(parameters("'a' :b 'c'", driver), [":b"]);
    }
}

#[test]
fn each_database_has_its_own_quotes() {
    assert_eq!(parameters("[:a] `:b` :c", Driver::Sqlite), [":c"]);
    assert_eq!(parameters("`:b` :c x[:d]", Driver::Odbc), [":c", ":d"]);
    assert_eq!(parameters("$$ :a $$ $tag$ :b $$ $tag$ :c $1", Driver::Postgres), [":c"]);
    assert_eq!(parameters("E'\\':a' :b e'x''\\\\' :c", Driver::Postgres), [":b", ":c"]);
    assert_eq!(parameters("E'\\' :b", Driver::Sqlite), [":b"], "no backslashes outside Postgres");
    assert_eq!(parameters("/* /* :a */ :b */ :c", Driver::Odbc), [":c"], "comments nest");
    assert_eq!(parameters("/* /* :a */ :b", Driver::Sqlite), [":b"], "comments do not nest in SQLite");
    assert_eq!(parameters("F$A.#B@C = :d", Driver::Odbc), [":d"], "names of Db2 for i");
}

#[test]
fn what_has_no_end_is_a_fault_where_it_starts() {
    for (sql, offset) in [("a 'b", 2), ("ab \"c", 3), ("/* /* */", 0), ("x $q$ y", 2)] {
        assert_eq!(tokens(sql, Driver::Postgres).expect_err("it has no end").offset, offset, "{sql}");
    }
}

#[test]
fn c4_what_writes_is_known_by_its_tokens() {
    for sql in [
        "/* a */ -- b\n DELETE FROM T",
        "WITH d AS (DELETE FROM t RETURNING 1) SELECT * FROM d",
        "SELECT * FROM FINAL TABLE (INSERT INTO T VALUES (1))",
        "SELECT a INTO b FROM c",
        "SELECT 1 FROM t FOR UPDATE",
        "CALL P(1)",
        "MERGE INTO \"T\" USING S ON 1 = 1",
    ] {
        assert!(read(sql, Driver::Postgres).write.is_some(), "{sql}");
    }
    for sql in [
        "SELECT 'DELETE FROM T', \"update\" FROM T -- INSERT INTO T",
        "SELECT INSERT(NAME, 1, 2, 'x'), T.DELETE, A AS update FROM T",
        "VALUES (1)",
        "(SELECT 1 FROM T) UNION (SELECT 2 FROM T)",
        "TABLE T",
        "with x as (select 1) select * from x",
    ] {
        assert_eq!(read(sql, Driver::Odbc).write, None, "{sql}");
    }
}

#[test]
fn c3_no_form_of_quoting_makes_a_name_of_a_value() {
    for sql in
        ["SELECT * FROM :t", "SELECT * FROM (:t)", "select 1 from /* x */ :t", "INSERT INTO :t VALUES (1)", "SELECT * FROM A JOIN :t"]
    {
        let (_, faults) = statement::read(sql, Driver::Postgres).expect("it can be read");
        assert!(faults.iter().any(|fault| fault.message.contains("`:t` stands where a table's name belongs")), "{sql}: {faults:?}");
    }
    let quoted = "SELECT * FROM \":t\"";
    assert!(read(quoted, Driver::Postgres).parameters.is_empty());
}

#[test]
fn lists_stand_in_parentheses() {
    let in_list = |sql| read(sql, Driver::Odbc).parameters[0].in_list;
    assert!(in_list("SELECT 1 FROM T WHERE A IN (:a)") && in_list("SELECT 1 FROM T WHERE A IN ( 1, :a /* x */ , 2)"));
    assert!(!in_list("SELECT 1 FROM T WHERE A = :a") && !in_list("SELECT 1 FROM T WHERE A IN (1 + :a)"));
}

#[test]
fn keys_of_pages_are_columns_with_a_direction() {
    let key = read_key(" \"Seen At\" DESC ").expect("a key");
    assert_eq!((&*key.sql, &*key.column, key.descending), ("\"Seen At\"", "Seen At", true));
    for text in ["", "A B", "A; DROP", "A,B", "\"A", "A)", "1A", "A desc desc", "\"\"", "\"a\"b\""] {
        assert_eq!(read_key(text), None, "{text}");
    }
    let keys = ["A", "B desc", "C"].map(|text| read_key(text).expect("a key"));
    let shown: String = after_cursor(&keys, 3, Driver::Sqlite)
        .into_iter()
        .map(|piece| match piece {
            Around::Text(text) => text,
            Around::Cursor(index) => format!("?{index}"),
        })
        .collect();
    assert_eq!(shown, "\n) PAGE WHERE (A > ?0 OR (A = ?0 AND B < ?1) OR (A = ?0 AND B = ?1 AND C > ?2)) ORDER BY A, B DESC, C LIMIT 3");
}

/// Text made of what matters to a tokenizer.
fn sql() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "'", "''", "\"", "`", "[", "]", "--", "\n", "/*", "*/", ":", "::", ":a", ":é", "?", "$", "$$", "$t$", "$1", "E'", "\\", "é", "𝄞",
        "a", "SELECT ", "FROM ", "INTO ", "DELETE ", "(", ")", ",", ".", ";", " ", "1", "1e5", "@x", "\u{0}", "ORDER ", "BY ",
    ]);
    prop::collection::vec(part, 0..40).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn tokens_put_together_are_the_text(sql in sql()) {
        for driver in DRIVERS {
            let Ok(tokens) = tokens(&sql, driver) else { continue };
            let joined: String = tokens.iter().map(|token| token.text(&sql)).collect();
            prop_assert_eq!(&joined, &sql);
        }
    }

    #[test]
    fn any_text_is_read_without_a_panic(sql in any::<String>(), made in sql()) {
        for (text, driver) in [&sql, &made].into_iter().flat_map(|text| DRIVERS.map(|driver| (text, driver))) {
            let Ok((statement, _)) = statement::read(text, driver) else { continue };
            prop_assert!(statement.end <= text.len() && text.is_char_boundary(statement.end));
            let named = statement.parameters.iter().all(|parameter| &text[parameter.start + 1..parameter.end] == parameter.name);
            prop_assert!(named);
        }
        let _ = read_key(&made);
    }
}
