//! The narrow side of the key-value store: read all at a start, write small batches, make them durable.
//!
//! There is no lookup: the state is in memory, and what is read one by one is read there.

use std::io;

/// One change: a key with its new value, or without one.
pub(crate) type Change = (String, Option<Vec<u8>>);

/// Everything in a notebook.
pub(crate) type Entries = Vec<(String, Vec<u8>)>;

/// A small durable map.
pub(crate) trait Notebook: Send {
    /// Everything in it.
    fn scan(&self) -> Result<Entries, NotebookError>;
    /// All of these or none.
    fn write(&mut self, changes: Vec<Change>) -> Result<(), NotebookError>;
    /// Makes everything written durable.
    fn flush(&mut self) -> Result<(), NotebookError>;
}

/// Why a notebook cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotebookError {
    /// The volume has no space: it works again when there is some.
    #[error("the volume is full")]
    Full,
    /// The system refused; its content may be well.
    #[error("{0}")]
    Refused(String),
    /// It never answered: a thread is stuck in it, and it is not used again before a restart.
    #[error("it does not answer; a restart is needed")]
    Lost,
    /// What is in it cannot be read.
    #[error("it is damaged: {0}")]
    Damaged(String),
}

impl From<io::Error> for NotebookError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => NotebookError::Full,
            _ => NotebookError::Refused(error.to_string()),
        }
    }
}
