//! What a statement is: its parameters, whether it reads or writes, and what is refused in it.

use super::SqlFault;
use super::token::{Token, TokenKind, tokens};
use crate::plan::Driver;

/// A statement that passed the checks that need nothing but itself.
#[derive(Debug)]
pub(crate) struct Statement<'a> {
    pub(crate) sql: &'a str,
    pub(crate) tokens: Vec<Token>,
    /// Where the statement ends: before a final `;`.
    pub(crate) end: usize,
    /// Where it writes, if it does.
    pub(crate) write: Option<usize>,
    pub(crate) parameters: Vec<Parameter<'a>>,
}

/// `:name`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parameter<'a> {
    pub(crate) name: &'a str,
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Stands alone or with others in parentheses, as in `IN (:ids)`.
    pub(crate) in_list: bool,
}

/// First words of statements that read.
const READS: &[&str] = &["SELECT", "WITH", "VALUES", "TABLE"];
/// First words of statements that write.
const WRITES: &[&str] = &["INSERT", "UPDATE", "DELETE", "MERGE", "REPLACE", "CALL"];
/// Words that make a reading statement write, where a name follows them.
const WRITES_WITHIN: &[&str] = &["INSERT", "UPDATE", "DELETE", "MERGE", "INTO"];
/// Words after which a table's name stands.
const BEFORE_TABLE: &[&str] = &["FROM", "JOIN", "INTO", "UPDATE", "TABLE", "USING"];
/// Functions with a FROM of their own: `EXTRACT(YEAR FROM :day)`.
const FUNCTIONS_WITH_FROM: &[&str] = &["EXTRACT", "SUBSTRING", "TRIM", "OVERLAY", "LTRIM", "RTRIM"];

/// Reads a statement; all its faults beside it. `Err`: its end cannot be told.
pub(crate) fn read(sql: &str, driver: Driver) -> Result<(Statement<'_>, Vec<SqlFault>), SqlFault> {
    let tokens = tokens(sql, driver)?;
    let look = Look { sql, significant: tokens.iter().copied().filter(Token::counts).collect() };
    let mut faults = Vec::new();
    let end = look.end(&mut faults);
    let write = look.effect(&mut faults);
    look.markers(driver, &mut faults);
    let parameters = look.parameters(&mut faults);
    Ok((Statement { sql, end: end.unwrap_or(sql.len()), tokens, write, parameters }, faults))
}

struct Look<'a> {
    sql: &'a str,
    significant: Vec<Token>,
}

impl<'a> Look<'a> {
    fn text(&self, index: usize) -> &'a str {
        self.significant.get(index).map_or("", |token| token.text(self.sql))
    }
    /// Whether an unquoted word stands there, and it is one of these.
    fn is_word(&self, index: usize, words: &[&str]) -> bool {
        let token = self.significant.get(index).filter(|token| token.kind == TokenKind::Word);
        token.is_some_and(|token| words.iter().any(|word| word.eq_ignore_ascii_case(token.text(self.sql))))
    }
    fn is_before(&self, index: usize, words: &[&str]) -> bool {
        index > 0 && self.is_word(index - 1, words)
    }
    fn text_before(&self, index: usize) -> &'a str {
        if index == 0 { "" } else { self.text(index - 1) }
    }
    fn offset(&self, index: usize) -> usize {
        self.significant.get(index).map_or(0, |token| token.start)
    }

    /// One statement: a final `;` is dropped, one with anything after it is a fault.
    fn end(&self, faults: &mut Vec<SqlFault>) -> Option<usize> {
        let semicolon = self.significant.iter().position(|token| token.text(self.sql) == ";")?;
        if semicolon + 1 < self.significant.len() {
            let message = "one statement each: something follows this `;`".into();
            faults.push(SqlFault { offset: self.offset(semicolon), message });
        }
        Some(self.offset(semicolon))
    }

    /// Where it writes.
    fn effect(&self, faults: &mut Vec<SqlFault>) -> Option<usize> {
        let first = self.significant.iter().position(|token| token.text(self.sql) != "(").unwrap_or(0);
        if self.is_word(0, WRITES) {
            return Some(self.offset(0));
        }
        if !self.is_word(first, READS) {
            let found = if self.significant.is_empty() { "nothing".into() } else { format!("`{}`", self.text(0)) };
            let message = format!("expected a statement that starts with {} or {}, found {found}", READS.join(", "), WRITES.join(", "));
            faults.push(SqlFault { offset: self.offset(0), message });
            return None;
        }
        (1..self.significant.len()).find(|index| self.writes_at(*index)).map(|index| self.offset(index))
    }

    /// A writing keyword: not a column (`t.update`, `AS update`), not a function (`INSERT(…)`).
    fn writes_at(&self, index: usize) -> bool {
        let name_follows = self.significant.get(index + 1).is_some_and(|next| matches!(next.kind, TokenKind::Word | TokenKind::Quoted));
        let is_name = self.text_before(index) == "." || self.is_before(index, &["AS"]);
        let locks = self.is_before(index, &["FOR"]) && self.is_word(index, &["UPDATE"]);
        self.is_word(index, WRITES_WITHIN) && !is_name && (name_follows || locks)
    }

    /// Markers of the driver's own would be bound to nothing.
    fn markers(&self, driver: Driver, faults: &mut Vec<SqlFault>) {
        for (index, token) in self.significant.iter().enumerate().filter(|(_, token)| token.kind == TokenKind::Symbol) {
            let next = self.significant.get(index + 1).filter(|next| next.start == token.end);
            let message = match (token.text(self.sql), driver, next.map(|next| next.kind)) {
                ("?", Driver::Odbc | Driver::Sqlite, _) => "`?` has no meaning here: write `:name` for an input",
                ("$", Driver::Postgres, Some(TokenKind::Number)) => "`$1` has no meaning here: write `:name` for an input",
                ("$" | "@", Driver::Sqlite, Some(TokenKind::Word)) => {
                    "`$name` and `@name` have no meaning here: write `:name` for an input"
                }
                (":", _, Some(TokenKind::Word)) => "this `:` starts no parameter: names are made of the letters a to z, digits and _",
                _ => continue,
            };
            faults.push(SqlFault { offset: token.start, message: message.into() });
        }
    }

    fn parameters(&self, faults: &mut Vec<SqlFault>) -> Vec<Parameter<'a>> {
        let mut found = Vec::new();
        // Where each parenthesis that is open now stands.
        let mut open: Vec<usize> = Vec::new();
        for (index, token) in self.significant.iter().enumerate() {
            match (token.kind, token.text(self.sql)) {
                (TokenKind::Symbol, "(") => open.push(index),
                (TokenKind::Symbol, ")") => drop(open.pop()),
                (TokenKind::Parameter, text) => {
                    let name = &text[1..];
                    if let Some(message) = self.misplaced(index, name, open.last().copied()) {
                        faults.push(SqlFault { offset: token.start, message });
                    }
                    let in_list = matches!(self.text_before(index), "(" | ",") && matches!(self.text(index + 1), ")" | ",");
                    found.push(Parameter { name, start: token.start, end: token.end, in_list: in_list && !open.is_empty() });
                }
                _ => {}
            }
        }
        found
    }

    /// A parameter where only a name can stand.
    fn misplaced(&self, index: usize, name: &str, open: Option<usize>) -> Option<String> {
        let from_of_function = self.is_before(index, &["FROM"])
            && (index >= 2 && self.is_word(index - 2, &["DISTINCT"])
                || open.is_some_and(|open| open > 0 && self.is_word(open - 1, FUNCTIONS_WITH_FROM)));
        let adjoining = |other: Option<&Token>| other.is_some_and(|token| token.text(self.sql) == ".");
        // `FROM (:t)` as much as `FROM :t`.
        let in_place_of_table = index >= 2 && self.text_before(index) == "(" && self.is_word(index - 2, BEFORE_TABLE);
        if in_place_of_table || self.is_before(index, BEFORE_TABLE) && !from_of_function {
            return Some(format!(
                "`:{name}` stands where a table's name belongs: inputs are only ever bound as values, names are fixed in the file"
            ));
        }
        if adjoining(self.significant.get(index + 1))
            || index > 0 && adjoining(self.significant.get(index - 1))
            || self.is_before(index, &["AS"])
        {
            return Some(format!(
                "`:{name}` stands where a name belongs: inputs are only ever bound as values, names are fixed in the file"
            ));
        }
        if self.is_before(index, &["BY"]) {
            return Some(format!("`:{name}` stands where a column's name belongs: bound as a value it would order by a constant"));
        }
        None
    }
}
