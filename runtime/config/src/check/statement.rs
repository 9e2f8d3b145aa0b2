//! The statement of a `sql` step: read, checked against the inputs, and cut into pieces.

use std::sync::Arc;

use crate::fault::did_you_mean;
use crate::place::Place;
use crate::plan::{Driver, Input, Piece, SqlText};
use crate::sql::SqlFault;
use crate::sql::page::{self, Around, KeyText};
use crate::sql::statement::{self, Statement};
use crate::sql::token::TokenKind;

use super::Checker;

/// A page's key and its most rows.
pub(crate) struct Paging {
    pub(crate) keys: Vec<KeyText>,
    pub(crate) max: usize,
}

/// What a statement became.
pub(crate) struct Proven {
    pub(crate) text: SqlText,
    pub(crate) text_after_cursor: Option<SqlText>,
    /// Where it writes, if it does.
    pub(crate) write: Option<Place>,
}

/// Reads a statement. `used` marks the inputs it binds.
pub(crate) fn prove(
    checker: &mut Checker<'_>,
    (sql, place): (&str, &Place),
    driver: Driver,
    inputs: &[Input],
    used: &mut [bool],
    paging: Option<&Paging>,
) -> Option<Proven> {
    let add = |checker: &mut Checker<'_>, fault: SqlFault| checker.faults.add(&place.inside(fault.offset), fault.message);
    let (statement, mut faults) = match statement::read(sql, driver) {
        Ok(read) => read,
        Err(fault) => {
            add(checker, fault);
            return None;
        }
    };
    faults.extend(bind(&statement, inputs, used));
    let sound = faults.is_empty();
    faults.into_iter().for_each(|fault| add(checker, fault));
    if let Some(fault) = paging.and_then(|_| page::own_order(&statement)) {
        add(checker, fault);
    }
    if !sound {
        return None;
    }
    let write = statement.write.map(|offset| place.inside(offset));
    let body = pieces(&statement, inputs);
    let Some(paging) = paging else {
        return Some(Proven { text: merge(body), text_after_cursor: None, write });
    };
    // One row more than a page holds says whether there is a next one.
    let rows = paging.max + 1;
    let wrapped = |after: Vec<Around>| {
        let before = Piece::Text(page::BEFORE.into());
        let after = after.into_iter().map(|around| match around {
            Around::Text(text) => Piece::Text(text.into()),
            Around::Cursor(index) => Piece::Cursor(index),
        });
        merge(std::iter::once(before).chain(body.iter().cloned()).chain(after).collect())
    };
    Some(Proven {
        text: wrapped(page::after_first(&paging.keys, rows, driver)),
        text_after_cursor: Some(wrapped(page::after_cursor(&paging.keys, rows, driver))),
        write,
    })
}

/// Parameters without input, and lists where one value belongs.
fn bind(statement: &Statement<'_>, inputs: &[Input], used: &mut [bool]) -> Vec<SqlFault> {
    let mut faults = Vec::new();
    for parameter in &statement.parameters {
        let Some(index) = inputs.iter().position(|input| &*input.name == parameter.name) else {
            let near = did_you_mean(parameter.name, inputs.iter().map(|input| &*input.name));
            faults.push(SqlFault { offset: parameter.start, message: format!("`:{}` is no declared input{near}", parameter.name) });
            continue;
        };
        used[index] = true;
        if inputs[index].list && !parameter.in_list {
            let message = format!("`:{0}` is a list: it stands in parentheses, as in `IN (:{0})`", parameter.name);
            faults.push(SqlFault { offset: parameter.start, message });
        }
    }
    faults
}

fn pieces(statement: &Statement<'_>, inputs: &[Input]) -> Vec<Piece> {
    let within = statement.tokens.iter().filter(|token| token.end <= statement.end);
    let piece = |token: &crate::sql::token::Token| {
        let text = token.text(statement.sql);
        let input = (token.kind == TokenKind::Parameter).then(|| inputs.iter().position(|input| *input.name == text[1..])).flatten();
        input.map_or_else(|| Piece::Text(text.into()), Piece::Input)
    };
    within.map(piece).collect()
}

/// Texts that follow one another become one.
fn merge(pieces: Vec<Piece>) -> SqlText {
    let mut merged: Vec<Piece> = Vec::new();
    let mut text = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(more) => text.push_str(&more),
            other => {
                if !text.is_empty() {
                    merged.push(Piece::Text(std::mem::take(&mut text).into()));
                }
                merged.push(other);
            }
        }
    }
    if !text.is_empty() {
        merged.push(Piece::Text(text.into()));
    }
    SqlText { pieces: Arc::from(merged) }
}
