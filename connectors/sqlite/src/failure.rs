//! What an error of SQLite means to the engine.

use rusqlite::{Error, ErrorCode, ffi};
use spillgate_connector::{Blame, DatabaseError, Failure};

/// A failed statement.
pub(crate) fn of_statement(error: &Error) -> DatabaseError {
    let (failure, detail) = match error.sqlite_error() {
        Some(cause) => of_code(*cause),
        None => match error {
            Error::MultipleStatement => (Failure::Refused, "more than one statement in one text"),
            Error::Utf8Error(..) => (Failure::Refused, "a name of a column is no UTF-8"),
            _ => (Failure::Refused, "the database refused the statement"),
        },
    };
    DatabaseError::new(failure, detail, error.to_string()).blame(error.sqlite_error_code().map_or(Blame::Statement, blame))
}

/// A statement that could not be made ready: no value was looked at yet, so it is what the statement names, or its grammar.
pub(crate) fn of_preparing(error: &Error) -> DatabaseError {
    let failed = of_statement(error);
    let schema = error.sqlite_error_code().is_some_and(|code| matches!(code, ErrorCode::Unknown | ErrorCode::SchemaChanged));
    if schema && failed.failure == Failure::Refused { failed.blame(Blame::Schema) } else { failed }
}

/// A session that could not be opened.
pub(crate) fn of_open(error: &Error) -> DatabaseError {
    let detail = match error.sqlite_error_code() {
        Some(ErrorCode::CannotOpen) => "the database file is missing or cannot be opened",
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => "the file is no sound SQLite database",
        Some(ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied) => "the database file may not be opened",
        Some(ErrorCode::ReadOnly) => "the database file or its folder is read-only",
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => "the database file is locked",
        _ => "the database file cannot be opened",
    };
    DatabaseError::new(Failure::Unreachable, detail, error.to_string())
}

/// Whether the connection is of no more use.
pub(crate) fn breaks(error: &DatabaseError) -> bool {
    error.failure == Failure::LinkLost
}

fn of_code(cause: ffi::Error) -> (Failure, &'static str) {
    match cause.code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed => {
            (Failure::Passing, "another write held the database for too long")
        }
        ErrorCode::DiskFull => (Failure::Passing, "the volume of the database is full"),
        ErrorCode::OutOfMemory => (Failure::Passing, "the database ran out of memory"),
        ErrorCode::OperationInterrupted => (Failure::Ended, "the statement was ended: its time was over, or its caller had gone"),
        ErrorCode::SystemIoFailure | ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::CannotOpen => {
            (Failure::LinkLost, "the database file can no longer be read")
        }
        ErrorCode::ReadOnly => (Failure::Refused, "this session may only read"),
        ErrorCode::ConstraintViolation => (Failure::Refused, of_constraint(cause.extended_code)),
        ErrorCode::TooBig => (Failure::Refused, "a value or the statement is too large for the database"),
        ErrorCode::TypeMismatch => (Failure::Refused, "a value has the wrong type for its column"),
        _ => (Failure::Refused, "the database refused the statement"),
    }
}

fn blame(code: ErrorCode) -> Blame {
    match code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed | ErrorCode::DiskFull => Blame::Others,
        ErrorCode::ReadOnly | ErrorCode::AuthorizationForStatementDenied | ErrorCode::PermissionDenied => Blame::Schema,
        _ => Blame::Statement,
    }
}

fn of_constraint(extended: i32) -> &'static str {
    match extended {
        ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY | ffi::SQLITE_CONSTRAINT_ROWID => {
            "a unique constraint was violated"
        }
        ffi::SQLITE_CONSTRAINT_FOREIGNKEY => "a foreign key constraint was violated",
        ffi::SQLITE_CONSTRAINT_NOTNULL => "a column that must not be null was null",
        ffi::SQLITE_CONSTRAINT_CHECK => "a check constraint was violated",
        _ => "a constraint was violated",
    }
}
