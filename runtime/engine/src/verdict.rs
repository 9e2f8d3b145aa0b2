//! The one place that turns failures of databases into refusals.
//!
//! Invariants
//! 1. A failure of a read is retryable where another try may succeed.
//! 2. A failure of a write is retryable only where it is proven that nothing was changed.

use std::time::Duration;

use spillgate_connector::{Blame, DatabaseError, Failure};
use spillgate_model::refusal::DEFAULT_RETRY_AFTER;
use spillgate_model::{Code, Refusal};

use crate::run::Doing;

/// How long to wait before a failure that passes is tried again.
const PASSING_RETRY_AFTER: Duration = Duration::from_millis(100);

/// A step that failed.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) refusal: Refusal,
    /// The step itself may be tried again within the call: nothing was changed, and the cause may pass.
    pub(crate) again: bool,
    /// What queued work must know beyond that.
    pub(crate) cause: Cause,
}

/// What made a step fail, as far as the next attempt at an item goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Cause {
    /// What the refusal says.
    #[default]
    Said,
    /// The database said no to the statement itself, and will say so again.
    Refused,
    /// The same, until somebody mends a table or a right.
    Schema,
    /// The database could not do the work then, whatever it was: proven not executed.
    Busy,
    /// The database is known not to answer: nobody asked it this time.
    NotTried,
}

/// What fallible parts of a call return.
pub(crate) type Fallible<T> = Result<T, Box<Failed>>;

impl Failed {
    /// A failure that another try will not mend.
    pub(crate) fn refused(refusal: Refusal) -> Box<Failed> {
        Box::new(Failed { refusal, again: false, cause: Cause::Said })
    }
    /// Whether the database said no to the statement itself.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.cause, Cause::Refused | Cause::Schema)
    }
}

impl From<Refusal> for Box<Failed> {
    fn from(refusal: Refusal) -> Self {
        Failed::refused(refusal)
    }
}

/// A failure of a read, or of a write whose transaction was not asked to commit: nothing was changed.
pub(crate) fn before_commit(error: DatabaseError) -> Box<Failed> {
    let cause = cause(&error);
    let (code, again, retry_after) = match error.failure {
        Failure::Unreachable => (Code::DatabaseUnreachable, true, Some(None)),
        Failure::LinkLost => (Code::DatabaseUnreachable, true, Some(None)),
        Failure::Passing => (Code::DatabaseError, true, Some(Some(PASSING_RETRY_AFTER))),
        // Of two clocks that end the same statement either may be first: what is said must not hang on that.
        Failure::Ended => (Code::DeadlineExceeded, false, Some(Some(DEFAULT_RETRY_AFTER))),
        Failure::Refused | Failure::NoTransactions => (Code::DatabaseError, false, None),
        Failure::Unfit => (Code::DatabaseUnreachable, false, None),
        Failure::ValueInexact { .. } => (Code::ValueInexact, false, None),
        Failure::ResultTooLarge { .. } => (Code::ResultTooLarge, false, None),
    };
    let refusal = Refusal::new(code, sentence(&error)).internal(error.internal);
    let refusal = match retry_after {
        None => refusal.never(),
        Some(None) => refusal,
        Some(Some(wait)) => refusal.retry_after(wait),
    };
    Box::new(Failed { refusal, again, cause })
}

fn cause(error: &DatabaseError) -> Cause {
    match (&error.failure, error.blame) {
        (Failure::Passing, Blame::Others) | (Failure::LinkLost, _) => Cause::Busy,
        (Failure::Refused, Blame::Schema) | (Failure::NoTransactions, _) => Cause::Schema,
        (Failure::Refused, _) => Cause::Refused,
        _ => Cause::Said,
    }
}

/// A failure of the commit itself.
pub(crate) fn at_commit(error: DatabaseError) -> Box<Failed> {
    match error.failure {
        Failure::Refused => before_commit(error),
        _ => {
            let detail = format!("The commit was sent, and its end is not known: {}.", error.detail.trim_end_matches('.'));
            Failed::refused(Refusal::new(Code::OutcomeUnknown, detail).internal(error.internal))
        }
    }
}

/// The deadline of a call passed, and nothing was changed: the same call may come again.
pub(crate) fn too_late(doing: Doing, working: &str) -> Box<Failed> {
    let refusal = match doing {
        Doing::Waiting => Refusal::new(Code::WaitTooLong, "No seat of the database became free before the deadline."),
        Doing::Opening => {
            let detail = "The deadline passed while a session of the database was being opened for this call; nothing was sent to it.";
            Refusal::new(Code::DeadlineExceeded, detail).retry_after(DEFAULT_RETRY_AFTER)
        }
        Doing::Connecting => Refusal::new(Code::DatabaseUnreachable, "The database did not answer before the deadline."),
        Doing::Beginning | Doing::Working => Refusal::new(Code::DeadlineExceeded, working).retry_after(DEFAULT_RETRY_AFTER),
    };
    // A transaction that did not even begin waits for others, whatever stands in it; nor was anything asked without a session.
    let cause = if matches!(doing, Doing::Beginning | Doing::Opening) { Cause::Busy } else { Cause::Said };
    Box::new(Failed { refusal, again: false, cause })
}

fn sentence(error: &DatabaseError) -> String {
    match &error.sqlstate {
        Some(state) if !error.detail.contains(&**state) => format!("{} (SQLSTATE {state})", error.detail),
        _ => error.detail.clone(),
    }
}
