//! What can go wrong at a database, typed by what the engine must do about it.

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No connection could be made. Nothing ran.
    Unreachable,
    /// The connection was lost while the statement was on its way: a read may be repeated on another one, a write may have happened.
    LinkLost,
    /// The database refused the statement; the same statement with the same values will be refused again.
    Refused,
    /// The database refused for a passing reason (deadlock, serialization, lock wait, too many connections): nothing
    /// was changed, the same call may succeed.
    Passing,
    /// The database ended the statement (its own limit, an operator).
    Ended,
    /// A value of this column cannot be given exactly.
    ValueInexact {
        /// Name of the column.
        column: Box<str>,
    },
    /// A value of this column is larger than the step allows.
    ResultTooLarge {
        /// Name of the column.
        column: Box<str>,
    },
    /// A write needs a transaction and the database has none.
    NoTransactions,
    /// The connector's own check of driver or settings failed: nobody may use this database until it is mended.
    Unfit,
}

/// Whose a failure is, as far as the connector can tell: what queued work must know of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Blame {
    /// The statement's, or its values'; or nobody can tell.
    #[default]
    Statement,
    /// The database could not do the work now, whatever it is: a lock is held, no connection is left, it starts or stops, its volume is
    /// full. Only with [`Failure::Passing`].
    Others,
    /// The database lacks a table, a column or a right that the statement needs: it says no until somebody mends that.
    Schema,
}

/// A failed call. `Display` is for the caller, `internal` for the log.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{detail}")]
pub struct DatabaseError {
    /// What the engine must do about it.
    pub failure: Failure,
    /// SQLSTATE, where the database gave one.
    pub sqlstate: Option<Box<str>>,
    /// Safe for the caller: what happened, without host, user, connection string or statement text.
    pub detail: String,
    /// The driver's own words, scrubbed of secrets; for the log only.
    pub internal: String,
    /// Whose it is.
    pub blame: Blame,
}

impl DatabaseError {
    /// An error without an SQLSTATE. `internal` must be scrubbed ([`crate::Scrub`]) by the connector that makes it.
    pub fn new(failure: Failure, detail: impl Into<String>, internal: impl Into<String>) -> Self {
        DatabaseError { failure, sqlstate: None, detail: detail.into(), internal: internal.into(), blame: Blame::default() }
    }
    /// Says whose it is.
    #[must_use]
    pub fn blame(mut self, blame: Blame) -> Self {
        self.blame = blame;
        self
    }
    /// Adds the SQLSTATE.
    #[must_use]
    pub fn sqlstate(mut self, state: impl Into<Box<str>>) -> Self {
        self.sqlstate = Some(state.into());
        self
    }
}

impl From<spillgate_model::rows::ValueTooLarge> for DatabaseError {
    fn from(error: spillgate_model::rows::ValueTooLarge) -> Self {
        let detail = error.to_string();
        DatabaseError::new(Failure::ResultTooLarge { column: error.column }, detail.clone(), detail)
    }
}
