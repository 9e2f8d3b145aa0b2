//! The tokenizer: just enough of SQL's surface to know what is text, what is a name and what is a parameter.

use super::SqlFault;
use crate::plan::Driver;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Space,
    Comment,
    /// A word outside of quotes: keyword or name.
    Word,
    /// A quoted name.
    Quoted,
    /// A text literal.
    Text,
    Number,
    /// `:name`
    Parameter,
    /// Anything else, one letter at a time; `::` is one.
    Symbol,
}

/// A token: a range of the text. Tokens follow one another without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Token {
    pub(crate) fn text<'a>(&self, sql: &'a str) -> &'a str {
        &sql[self.start..self.end]
    }
    /// Neither space nor comment.
    pub(crate) fn counts(&self) -> bool {
        !matches!(self.kind, TokenKind::Space | TokenKind::Comment)
    }
}

/// Splits a statement into tokens.
pub(crate) fn tokens(sql: &str, driver: Driver) -> Result<Vec<Token>, SqlFault> {
    let mut reader = Reader { sql, driver, position: 0 };
    let mut found = Vec::new();
    while reader.position < sql.len() {
        let start = reader.position;
        let kind = reader.next()?;
        debug_assert!(reader.position > start && sql.is_char_boundary(reader.position));
        found.push(Token { kind, start, end: reader.position });
    }
    Ok(found)
}

struct Reader<'a> {
    sql: &'a str,
    driver: Driver,
    position: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.sql[self.position..]
    }

    fn next(&mut self) -> Result<TokenKind, SqlFault> {
        let rest = self.rest();
        let mut letters = rest.chars();
        let first = letters.next().unwrap_or(' ');
        let second = letters.next().unwrap_or(' ');
        match (first, second) {
            (letter, _) if letter.is_whitespace() => Ok(self.run(TokenKind::Space, char::is_whitespace)),
            ('-', '-') => Ok(self.run(TokenKind::Comment, |letter| letter != '\n')),
            ('/', '*') => self.block_comment(),
            ('\'', _) => self.quoted(1, '\'', TokenKind::Text, false),
            ('E' | 'e', '\'') if self.driver == Driver::Postgres => self.quoted(2, '\'', TokenKind::Text, true),
            ('"', _) => self.quoted(1, '"', TokenKind::Quoted, false),
            ('`', _) if self.driver != Driver::Postgres => self.quoted(1, '`', TokenKind::Quoted, false),
            ('[', _) if self.driver == Driver::Sqlite => self.quoted(1, ']', TokenKind::Quoted, false),
            ('$', _) if self.driver == Driver::Postgres => Ok(self.dollar_quoted()?.unwrap_or_else(|| self.take(1, TokenKind::Symbol))),
            (':', ':') => Ok(self.take(2, TokenKind::Symbol)),
            (':', letter) if starts_parameter(letter) => {
                self.position += 1;
                Ok(self.run(TokenKind::Parameter, |letter| letter.is_ascii_alphanumeric() || letter == '_'))
            }
            (letter, _) if letter.is_ascii_digit() => Ok(self.run(TokenKind::Number, |letter| letter.is_alphanumeric() || letter == '.')),
            (letter, _) if self.starts_word(letter) => {
                let driver = self.driver;
                Ok(self.run(TokenKind::Word, |letter| continues_word(letter, driver)))
            }
            (letter, _) => Ok(self.take(letter.len_utf8(), TokenKind::Symbol)),
        }
    }

    fn starts_word(&self, letter: char) -> bool {
        letter.is_alphabetic() || letter == '_' || self.driver == Driver::Odbc && matches!(letter, '#' | '@' | '$')
    }

    fn take(&mut self, length: usize, kind: TokenKind) -> TokenKind {
        self.position += length;
        kind
    }

    fn run(&mut self, kind: TokenKind, within: impl Fn(char) -> bool) -> TokenKind {
        let rest = self.rest();
        self.position += rest.find(|letter| !within(letter)).unwrap_or(rest.len());
        kind
    }

    /// From the opening quote to the closing one; a doubled closing quote is part of the text.
    fn quoted(&mut self, opening: usize, quote: char, kind: TokenKind, escapes: bool) -> Result<TokenKind, SqlFault> {
        let start = self.position;
        let mut letters = self.sql[start + opening..].char_indices().peekable();
        while let Some((offset, letter)) = letters.next() {
            if escapes && letter == '\\' {
                letters.next();
            } else if letter == quote && letters.next_if(|(_, next)| *next == quote).is_none() {
                self.position = start + opening + offset + quote.len_utf8();
                return Ok(kind);
            }
        }
        let what = if kind == TokenKind::Text { "text" } else { "quoted name" };
        Err(SqlFault { offset: start, message: format!("this {what} has no closing `{quote}`") })
    }

    /// Nested as in the standard; SQLite's do not nest.
    fn block_comment(&mut self) -> Result<TokenKind, SqlFault> {
        let start = self.position;
        let mut depth = 0usize;
        while self.position < self.sql.len() {
            let rest = self.rest();
            if rest.starts_with("/*") && (depth == 0 || self.driver != Driver::Sqlite) {
                depth += 1;
                self.position += 2;
            } else if rest.starts_with("*/") {
                depth -= 1;
                self.position += 2;
                if depth == 0 {
                    return Ok(TokenKind::Comment);
                }
            } else {
                self.position += rest.chars().next().map_or(1, char::len_utf8);
            }
        }
        Err(SqlFault { offset: start, message: "this comment has no closing `*/`".into() })
    }

    /// `$$…$$` or `$tag$…$tag$`; `None` where no such quote starts here.
    fn dollar_quoted(&mut self) -> Result<Option<TokenKind>, SqlFault> {
        let rest = self.rest();
        let Some(end) = rest[1..].find('$').map(|end| end + 2) else { return Ok(None) };
        let tag = &rest[1..end - 1];
        let name =
            tag.chars().all(|letter| letter.is_alphanumeric() || letter == '_') && !tag.starts_with(|letter: char| letter.is_ascii_digit());
        if !name {
            return Ok(None);
        }
        let Some(length) = rest[end..].find(&rest[..end]) else {
            return Err(SqlFault { offset: self.position, message: format!("this text has no closing `{}`", &rest[..end]) });
        };
        Ok(Some(self.take(end + length + end, TokenKind::Text)))
    }
}

fn starts_parameter(letter: char) -> bool {
    letter.is_ascii_alphabetic() || letter == '_'
}

fn continues_word(letter: char, driver: Driver) -> bool {
    letter.is_alphanumeric() || matches!(letter, '_' | '$') || driver == Driver::Odbc && matches!(letter, '#' | '@')
}
