//! The JSON of what a flow came to: a reply's body, and what is kept as the result of a job. One form for both.

use std::time::Duration;

use spillgate_model::{Datum, Rows, json};

use crate::Outcome;

/// What stands before the rows.
pub const ROWS_HEAD: &[u8] = b"{\"rows\":";

/// The body of a success; `None` for a refusal, and for a job, which has no value of its own.
pub fn body(outcome: &Outcome) -> Option<Vec<u8>> {
    match outcome {
        Outcome::Rows { rows, next, affected, stale } => Some(rows_body(rows, next.as_deref(), *affected, *stale)),
        Outcome::Value { value, .. } => Some(value_body(value)),
        Outcome::Kept(body) => Some(body.to_vec()),
        Outcome::Job(_) | Outcome::Refused(_) => None,
    }
}

/// `{"rows":[…],"row_count":n,"truncated":false}` with `next`, `affected` and `stale_seconds` where they say something.
pub fn rows_body(rows: &Rows, next: Option<&str>, affected: Option<u64>, stale: Option<Duration>) -> Vec<u8> {
    let mut out = Vec::with_capacity(likely_bytes(rows, next));
    out.extend_from_slice(ROWS_HEAD);
    json::write_rows(rows, &mut out);
    rows_tail(rows, next, affected, stale, &mut out);
    out
}

/// What stands behind the rows.
pub fn rows_tail(rows: &Rows, next: Option<&str>, affected: Option<u64>, stale: Option<Duration>, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"row_count\":");
    write_count(rows.len() as u64, out);
    out.extend_from_slice(if rows.truncated() { b",\"truncated\":true" } else { b",\"truncated\":false" });
    if let Some(affected) = affected {
        out.extend_from_slice(b",\"affected\":");
        write_count(affected, out);
    }
    if let Some(next) = next {
        out.extend_from_slice(b",\"next\":");
        json::write_text(next, out);
    }
    if let Some(age) = stale {
        out.extend_from_slice(b",\"stale_seconds\":");
        write_count(age.as_secs(), out);
    }
    out.push(b'}');
}

/// A value as it is.
pub fn value_body(value: &Datum) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    json::write_datum(value, &mut out);
    out
}

/// Names, quotes and separators of each row, and what the cells hold: seldom too little, so the buffer is made once.
fn likely_bytes(rows: &Rows, next: Option<&str>) -> usize {
    let names: usize = rows.columns().iter().map(|column| column.name.len() + 4).sum();
    128 + next.map_or(0, str::len) + rows.len() * (names + 2) + rows.held_bytes()
}

fn write_count(count: u64, out: &mut Vec<u8>) {
    json::write_integer(i64::try_from(count).unwrap_or(i64::MAX), out);
}

#[cfg(test)]
mod tests {
    use spillgate_model::{Column, RowsBuilder, Type};

    use super::*;

    fn rows(max_rows: usize) -> Rows {
        let column = |name: &str, kind| Column { name: name.into(), kind };
        let columns = [column("ID", Type::Integer), column("a \"b\"", Type::Text)];
        let mut builder = RowsBuilder::new(columns.into(), max_rows, 1_000);
        for id in 1..=2 {
            builder.integer(id);
            builder.text(Type::Text, "x\ny").expect("it fits");
            builder.end_row();
        }
        builder.finish()
    }

    fn text(body: Vec<u8>) -> String {
        String::from_utf8(body).expect("JSON is UTF-8")
    }

    #[test]
    fn c5_a_reply_says_whether_it_is_whole() {
        let all = r#"{"rows":[{"ID":1,"a \"b\"":"x\ny"},{"ID":2,"a \"b\"":"x\ny"}],"row_count":2,"truncated":false}"#;
        assert_eq!(text(rows_body(&rows(2), None, None, None)), all);
        let cut = r#"{"rows":[{"ID":1,"a \"b\"":"x\ny"}],"row_count":1,"truncated":true}"#;
        assert_eq!(text(rows_body(&rows(1), None, None, None)), cut);
    }

    #[test]
    fn a_reply_has_next_affected_and_age_where_they_say_something() {
        let empty = Rows::default();
        assert_eq!(text(rows_body(&empty, None, Some(3), None)), r#"{"rows":[],"row_count":0,"truncated":false,"affected":3}"#);
        let body = text(rows_body(&empty, Some("a\"b"), None, Some(Duration::from_millis(2_900))));
        assert_eq!(body, r#"{"rows":[],"row_count":0,"truncated":false,"next":"a\"b","stale_seconds":2}"#);
    }

    #[test]
    fn a_reply_is_built_in_one_allocation() {
        let many = {
            let columns = [Column { name: "A_RATHER_LONG_COLUMN_NAME".into(), kind: Type::Integer }];
            let mut builder = RowsBuilder::new(columns.into(), 1_000, 1 << 20);
            for id in 0..1_000 {
                builder.integer(4_000_000_000 + id);
                builder.end_row();
            }
            builder.finish()
        };
        let body = rows_body(&many, None, None, None);
        assert_eq!(body.capacity(), likely_bytes(&many, None), "it was not grown");
        assert!(body.capacity() < 2 * body.len(), "far too large: {} for {}", body.capacity(), body.len());
    }
}
