//! Statements: from text with named parameters to pieces a driver's markers fit between.
//!
//! Invariants
//! 1. Pieces put together, with `:name` for each input, are the text as written (a final `;` aside).
//! 2. Values are only ever bound: a parameter where a name belongs is refused.
//! 3. One statement each; what it does (read or write) is known from its tokens. The session's own read-only mode is
//!    the first line, this check the second.

pub(crate) mod page;
pub(crate) mod statement;
#[cfg(test)]
mod tests;
pub(crate) mod token;

/// A fault in a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SqlFault {
    /// Byte offset in the statement.
    pub(crate) offset: usize,
    pub(crate) message: String,
}
