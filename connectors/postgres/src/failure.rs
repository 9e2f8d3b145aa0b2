//! What an error of the driver means to the engine, and what a caller may read of it.

use std::error::Error as _;

use spillgate_connector::{Blame, DatabaseError, Failure, Scrub};
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use crate::bind::Misfit;

/// A failed statement. `sent`: it may have reached the server.
pub(crate) fn of_statement(error: &Error, sent: bool, scrub: &Scrub) -> DatabaseError {
    let internal = internal(error, scrub);
    if let Some(state) = error.code() {
        let (failure, words) = of_state(state.code());
        let detail = format!("{words} (SQLSTATE {})", state.code());
        return DatabaseError::new(failure, detail, internal).sqlstate(state.code()).blame(blame(state.code()));
    }
    if let Some(misfit) = error.source().and_then(|source| source.downcast_ref::<Misfit>()) {
        return DatabaseError::new(Failure::Refused, misfit.to_string(), internal);
    }
    if error.to_string().starts_with("expected ") {
        return DatabaseError::new(Failure::Refused, "the statement has another number of markers than it was given values", internal);
    }
    if sent {
        return DatabaseError::new(Failure::LinkLost, "the connection to the database was lost", internal);
    }
    DatabaseError::new(Failure::Unreachable, "the connection to the database had been lost before", internal)
}

/// A session that could not be opened.
pub(crate) fn of_connect(error: &Error, scrub: &Scrub) -> DatabaseError {
    let internal = internal(error, scrub);
    let Some(state) = error.code() else {
        let words = match error.to_string() {
            told if told.contains("TLS") => "no TLS connection to the database could be agreed on",
            told if told.contains("authentication") || told.contains("configuration") => "the login to the database could not be made",
            _ => "the database cannot be reached",
        };
        return DatabaseError::new(Failure::Unreachable, words, internal);
    };
    let (failure, words) = match of_state(state.code()) {
        (Failure::Passing, words) => (Failure::Passing, words),
        (_, words) => match *state {
            SqlState::INVALID_CATALOG_NAME => (Failure::Unreachable, "the server has no database of that name"),
            _ if state.code().starts_with("28") => (Failure::Unreachable, words),
            _ => (Failure::Unreachable, "the database refused the connection"),
        },
    };
    DatabaseError::new(failure, format!("{words} (SQLSTATE {})", state.code()), internal).sqlstate(state.code()).blame(blame(state.code()))
}

/// A place that did not answer.
pub(crate) fn of_link(error: &std::io::Error, scrub: &Scrub) -> DatabaseError {
    DatabaseError::new(Failure::Unreachable, "the database cannot be reached", scrub.clean(&error.to_string()))
}

/// A statement that must be prepared anew: the tables below it changed, or a pooler in between lost it.
pub(crate) fn is_stale(error: &Error) -> bool {
    error.code().is_some_and(|state| {
        matches!(*state, SqlState::FEATURE_NOT_SUPPORTED | SqlState::INVALID_SQL_STATEMENT_NAME | SqlState::DUPLICATE_PSTATEMENT)
    })
}

/// The driver's words and all their causes.
fn internal(error: &Error, scrub: &Scrub) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        told.push_str(": ");
        told.push_str(&error.to_string());
        cause = error.source();
    }
    scrub.clean(&told)
}

fn of_state(state: &str) -> (Failure, &'static str) {
    match state {
        "40001" | "40P01" => (Failure::Passing, "the database rolled the work back because of other work at the same time"),
        "55P03" => (Failure::Passing, "the database could not get a lock in time"),
        "57P03" => (Failure::Passing, "the database is starting or stopping"),
        "53300" => (Failure::Passing, "the database has no connection left"),
        "57014" => (Failure::Ended, "the database ended the statement: its time was over, or an operator ended it"),
        "57P01" | "57P02" | "57P04" | "57P05" | "25P03" | "40003" => (Failure::LinkLost, "the database closed the connection"),
        "23505" => (Failure::Refused, "a unique constraint was violated"),
        "23503" => (Failure::Refused, "a foreign key constraint was violated"),
        "23502" => (Failure::Refused, "a column that must not be null was null"),
        "23514" => (Failure::Refused, "a check constraint was violated"),
        "25006" => (Failure::Refused, "this session may only read"),
        "25P02" => (Failure::Refused, "the transaction had failed before"),
        "42501" => (Failure::Refused, "the database user may not do this"),
        "42P01" | "42703" | "42883" => (Failure::Refused, "the statement names something the database does not have"),
        "42601" => (Failure::Refused, "the statement is not well-formed"),
        _ => match state.get(..2).unwrap_or_default() {
            "08" => (Failure::LinkLost, "the connection to the database was lost"),
            "53" => (Failure::Passing, "the database is short of resources"),
            "28" => (Failure::Unreachable, "the database refused the login"),
            "22" => (Failure::Refused, "a value does not fit"),
            "23" => (Failure::Refused, "a constraint was violated"),
            _ => (Failure::Refused, "the database refused the statement"),
        },
    }
}

fn blame(state: &str) -> Blame {
    match state {
        // A lock, a start or stop, no connection left, a full volume. What else is short (class 53) may be the statement's own doing.
        "55P03" | "57P03" | "53300" | "53100" => Blame::Others,
        "25006" => Blame::Schema,
        _ if matches!(state.get(..2), Some("42" | "3D" | "3F")) => Blame::Schema,
        _ => Blame::Statement,
    }
}
