//! Paging by a keyset: the statement becomes a derived table, ordered and cut by the key.

use super::SqlFault;
use super::statement::Statement;
use super::token::TokenKind;
use crate::plan::{Driver, PageKey};

/// A key as written, such as `SEEN desc` or `"Seen At"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyText {
    /// As it stands in SQL: quoted where it was written so.
    pub(crate) sql: String,
    /// The column's name in the result.
    pub(crate) column: String,
    pub(crate) descending: bool,
}

/// Reads a key. `None`: not of that form.
pub(crate) fn read_key(text: &str) -> Option<KeyText> {
    let text = text.trim();
    let (name, direction) = match text.strip_prefix('"') {
        Some(rest) => {
            let end = rest.find('"')?;
            (&text[..end + 2], &rest[end + 1..])
        }
        None => text.split_once(char::is_whitespace).unwrap_or((text, "")),
    };
    let descending = match direction.trim() {
        "" => false,
        word if word.eq_ignore_ascii_case("asc") => false,
        word if word.eq_ignore_ascii_case("desc") => true,
        _ => return None,
    };
    let column = name.trim_matches('"');
    let plain = column.chars().all(|letter| letter.is_alphanumeric() || matches!(letter, '_' | '#' | '@' | '$'));
    let sound = !column.is_empty() && (name.starts_with('"') || plain && !column.starts_with(|letter: char| letter.is_ascii_digit()));
    sound.then(|| KeyText { sql: name.into(), column: column.into(), descending })
}

impl From<&KeyText> for PageKey {
    fn from(key: &KeyText) -> Self {
        PageKey { column: key.column.clone().into(), descending: key.descending }
    }
}

/// A piece around the statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Around {
    Text(String),
    Cursor(usize),
}

/// What stands before the statement, in both forms.
pub(crate) const BEFORE: &str = "SELECT * FROM (\n";

/// What stands after it for the first page.
pub(crate) fn after_first(keys: &[KeyText], rows: usize, driver: Driver) -> Vec<Around> {
    vec![Around::Text(format!("\n) PAGE{}", order_and_limit(keys, rows, driver)))]
}

/// What stands after it for any later page: `(A > ? OR (A = ? AND B > ?))`.
pub(crate) fn after_cursor(keys: &[KeyText], rows: usize, driver: Driver) -> Vec<Around> {
    let mut pieces = Pieces(vec![Around::Text("\n) PAGE WHERE (".into())]);
    for (last, key) in keys.iter().enumerate() {
        pieces.text(if last == 0 { "" } else { " OR (" });
        for (index, equal) in keys[..last].iter().enumerate() {
            pieces.text(&format!("{} = ", equal.sql)).cursor(index).text(" AND ");
        }
        let beyond = if key.descending { "<" } else { ">" };
        pieces.text(&format!("{} {beyond} ", key.sql)).cursor(last).text(if last == 0 { "" } else { ")" });
    }
    pieces.text(")").text(&order_and_limit(keys, rows, driver));
    pieces.0
}

fn order_and_limit(keys: &[KeyText], rows: usize, driver: Driver) -> String {
    let order: Vec<String> = keys.iter().map(|key| format!("{}{}", key.sql, if key.descending { " DESC" } else { "" })).collect();
    let limit = match driver {
        Driver::Sqlite => format!("LIMIT {rows}"),
        Driver::Odbc | Driver::Postgres => format!("FETCH FIRST {rows} ROWS ONLY"),
    };
    format!(" ORDER BY {} {limit}", order.join(", "))
}

struct Pieces(Vec<Around>);

impl Pieces {
    fn text(&mut self, text: &str) -> &mut Self {
        match self.0.last_mut() {
            Some(Around::Text(before)) => before.push_str(text),
            _ => self.0.push(Around::Text(text.into())),
        }
        self
    }
    fn cursor(&mut self, index: usize) -> &mut Self {
        self.0.push(Around::Cursor(index));
        self
    }
}

/// An order or row limit of the statement's own would fight with the page's.
pub(crate) fn own_order(statement: &Statement<'_>) -> Option<SqlFault> {
    let mut depth = 0usize;
    for token in statement.tokens.iter().filter(|token| token.counts()) {
        let text = token.text(statement.sql);
        match (token.kind, text) {
            (TokenKind::Symbol, "(") => depth += 1,
            (TokenKind::Symbol, ")") => depth = depth.saturating_sub(1),
            (TokenKind::Word, word) if depth == 0 => {
                let word = word.to_ascii_uppercase();
                if matches!(&*word, "ORDER" | "FETCH" | "LIMIT" | "OFFSET" | "OPTIMIZE") {
                    let message = format!("`{word}` in a paged statement: `page` gives order and row limit");
                    return Some(SqlFault { offset: token.start, message });
                }
            }
            _ => {}
        }
    }
    None
}
