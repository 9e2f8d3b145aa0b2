//! Reaching a statement from another thread than the one that waits in it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use odbc_api::sys::{HStmt, SQLCancel};

/// The statement a worker is in, for whoever wants to end it.
#[derive(Default)]
pub(crate) struct CancelPoint {
    armed: Mutex<Armed>,
}

#[derive(Default)]
struct Armed {
    statement: Option<Live>,
    /// Whoever asked for the work is gone: nothing may be started any more.
    abandoned: bool,
}

struct Live(HStmt);

// SAFETY: `SQLCancel` is the one function ODBC lets another thread call on a statement in use, and nothing else is done with
// the handle. It is live as long as it stands here (invariant 2 of the module).
unsafe impl Send for Live {}

impl CancelPoint {
    fn armed(&self) -> MutexGuard<'_, Armed> {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Says which statement is about to run. False: nobody waits for it any more and it must not be started.
    pub(super) fn arm(&self, statement: HStmt) -> bool {
        let mut armed = self.armed();
        if armed.abandoned {
            return false;
        }
        armed.statement = Some(Live(statement));
        true
    }
    /// Takes the statement out of reach; waits while it is being cancelled.
    pub(super) fn disarm(&self) {
        self.armed().statement = None;
    }
    /// Lets nothing start any more, until [`CancelPoint::reset`].
    pub(crate) fn abandon(&self) {
        self.armed().abandoned = true;
    }
    /// For the next one.
    pub(crate) fn reset(&self) {
        self.armed().abandoned = false;
    }
    /// Asks the driver to end the statement that is armed. Returns whether there was one. May block as long as the driver does.
    pub(crate) fn cancel(&self) -> bool {
        let armed = self.armed();
        let Some(statement) = &armed.statement else { return false };
        // SAFETY: the handle is live: it is disarmed before it is freed, and that waits for the lock held here.
        let _said_by_the_statement_itself = unsafe { SQLCancel(statement.0) };
        true
    }
}
