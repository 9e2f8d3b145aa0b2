//! The statement of a `sql` step: read, checked against the inputs, and cut into pieces.

use std::sync::Arc;

use crate::fault::did_you_mean;
use crate::place::Place;
use crate::plan::{Driver, Input, Piece, SqlText, System};
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

/// What parameters may name.
pub(crate) struct Binding<'a> {
    pub(crate) inputs: &'a [Input],
    /// By input: a statement binds it.
    pub(crate) used: &'a mut [bool],
    /// Values that are no inputs, as far as they are known where the statement runs.
    pub(crate) system: &'a [(&'static str, System)],
}

impl Binding<'_> {
    fn piece(&self, name: &str) -> Option<Piece> {
        let system = self.system.iter().find(|(known, _)| *known == name).map(|(_, system)| Piece::System(*system));
        system.or_else(|| self.inputs.iter().position(|input| *input.name == *name).map(Piece::Input))
    }
}

/// What a statement became.
pub(crate) struct Proven {
    pub(crate) text: SqlText,
    pub(crate) text_after_cursor: Option<SqlText>,
    /// Where it writes, if it does.
    pub(crate) write: Option<Place>,
}

/// Reads a statement and binds it.
pub(crate) fn prove(
    checker: &mut Checker<'_>,
    (sql, place): (&str, &Place),
    driver: Driver,
    binding: Binding<'_>,
    paging: Option<&Paging>,
) -> Option<Proven> {
    let mut binding = binding;
    let add = |checker: &mut Checker<'_>, fault: SqlFault| checker.faults.add(&place.inside(fault.offset), fault.message);
    let (statement, mut faults) = match statement::read(sql, driver) {
        Ok(read) => read,
        Err(fault) => {
            add(checker, fault);
            return None;
        }
    };
    faults.extend(bind(&statement, &mut binding));
    let sound = faults.is_empty();
    faults.into_iter().for_each(|fault| add(checker, fault));
    if let Some(fault) = paging.and_then(|_| page::own_order(&statement)) {
        add(checker, fault);
    }
    if !sound {
        return None;
    }
    let write = statement.write.map(|offset| place.inside(offset));
    let body = pieces(&statement, &binding);
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
fn bind(statement: &Statement<'_>, binding: &mut Binding<'_>) -> Vec<SqlFault> {
    let mut faults = Vec::new();
    for parameter in &statement.parameters {
        let index = match binding.piece(parameter.name) {
            Some(Piece::Input(index)) => index,
            Some(_) => continue,
            None => {
                let hint = unknown(parameter.name, binding);
                faults.push(SqlFault { offset: parameter.start, message: format!("`:{}` is no declared input{hint}", parameter.name) });
                continue;
            }
        };
        binding.used[index] = true;
        if binding.inputs[index].list && !parameter.in_list {
            let message = format!("`:{0}` is a list: it stands in parentheses, as in `IN (:{0})`", parameter.name);
            faults.push(SqlFault { offset: parameter.start, message });
        }
    }
    faults
}

/// Where a value that is no input would be known, else the nearest input.
fn unknown(name: &str, binding: &Binding<'_>) -> String {
    match name {
        "watermark" => "; the mark of a schedule needs `[schedule] watermark`".into(),
        "job" | "idempotency_key" => "; it is known after a `queue` step, and in a direct flow with `idempotency`".into(),
        _ => did_you_mean(name, binding.inputs.iter().map(|input| &*input.name)),
    }
}

fn pieces(statement: &Statement<'_>, binding: &Binding<'_>) -> Vec<Piece> {
    let within = statement.tokens.iter().filter(|token| token.end <= statement.end);
    let piece = |token: &crate::sql::token::Token| {
        let text = token.text(statement.sql);
        let bound = if token.kind == TokenKind::Parameter { binding.piece(&text[1..]) } else { None };
        bound.unwrap_or_else(|| Piece::Text(text.into()))
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
