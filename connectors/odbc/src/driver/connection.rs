//! One connection and the environment of the process.

use std::ptr::null_mut;
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::Duration;

use odbc_api::handles::{self, AnyHandle, SqlResult};
use odbc_api::sys::{
    AttrOdbcVersion, CompletionType, ConnectionAttribute, DriverConnectOption, HDbc, Handle, HandleType, InfoType, Pointer, SQLAllocHandle,
    SQLDisconnect, SQLDriverConnectW, SQLEndTran, SQLFreeHandle, SQLGetConnectAttr, SQLGetInfo, SQLGetInfoW, SQLSetConnectAttr, SqlReturn,
};

use super::diagnostics::{Diagnostics, outcome};
use super::exit;

const AUTOCOMMIT_OFF: usize = 0;
const AUTOCOMMIT_ON: usize = 1;
const MODE_READ_ONLY: usize = 1;
/// `SQL_CD_TRUE`
const DEAD: u32 = 1;

/// The one environment of the process; its driver manager pools nothing.
struct Environment(handles::Environment);

// SAFETY: an ODBC environment may be used from any thread; the driver manager guards it with locks of its own, and this
// module only allocates connections from it.
unsafe impl Sync for Environment {}

fn environment() -> Result<Handle, Diagnostics> {
    static ENVIRONMENT: OnceLock<Option<Environment>> = OnceLock::new();
    let made = ENVIRONMENT.get_or_init(|| {
        let SqlResult::Success(environment) = handles::Environment::new() else { return None };
        let declared = environment.declare_version(AttrOdbcVersion::Odbc3_80);
        matches!(declared, SqlResult::Success(()) | SqlResult::SuccessWithInfo(())).then_some(Environment(environment))
    });
    made.as_ref()
        .map(|environment| environment.0.as_handle())
        .ok_or_else(|| Diagnostics::own("HY000", "the ODBC environment cannot be made"))
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transaction {
    Commit,
    Rollback,
}

/// An open connection. Statements keep it alive through an [`Rc`]; it is closed by the last of them.
pub(crate) struct Connection {
    handle: HDbc,
}

impl Connection {
    /// Connects. Blocks until the driver answers; `limit` is what the driver is asked to keep to.
    pub(crate) fn open(connection_string: &str, limit: Duration, read_only: bool) -> Result<Rc<Connection>, Diagnostics> {
        let mut handle = Handle::null();
        // SAFETY: the environment lives as long as the process; `handle` is a local that receives the new handle.
        let returned = unsafe { SQLAllocHandle(HandleType::Dbc, environment()?, &mut handle) };
        if returned != SqlReturn::SUCCESS {
            return Err(Diagnostics::own("HY001", "the driver manager gives no connection handle"));
        }
        let mut connection = Unconnected(handle.as_hdbc());
        // Both are wishes: a driver that does not know them connects all the same.
        let seconds = usize::try_from(limit.as_secs().max(1)).unwrap_or(usize::MAX);
        let _kept_or_not = set(connection.0, ConnectionAttribute::LOGIN_TIMEOUT, seconds);
        if read_only {
            let _kept_or_not = set(connection.0, ConnectionAttribute::ACCESS_MODE, MODE_READ_ONLY);
        }
        let text: Vec<u16> = connection_string.encode_utf16().collect();
        let length = i16::try_from(text.len()).map_err(|_| Diagnostics::own("HY090", "the connection string is too long"))?;
        let (mut completed, mut completed_length) = ([0_u16; 1024], 0);
        // SAFETY: the handle is live and unconnected; the text has the stated length; the answer is written to locals of the
        // stated size.
        let returned = unsafe {
            SQLDriverConnectW(
                connection.0,
                null_mut(),
                text.as_ptr(),
                length,
                completed.as_mut_ptr(),
                1024,
                &mut completed_length,
                DriverConnectOption::NoPrompt,
            )
        };
        // Connected or not: the driver is loaded.
        exit::wait_at_exit();
        outcome(returned, HandleType::Dbc, connection.0.as_handle())?;
        Ok(Rc::new(Connection { handle: connection.take() }))
    }
    pub(super) fn handle(&self) -> HDbc {
        self.handle
    }
    /// Each statement a transaction of its own, or not.
    pub(crate) fn set_autocommit(&self, on: bool) -> Result<(), Diagnostics> {
        set(self.handle, ConnectionAttribute::AUTOCOMMIT, if on { AUTOCOMMIT_ON } else { AUTOCOMMIT_OFF })
    }
    /// Ends the open transaction.
    pub(crate) fn end_transaction(&self, how: Transaction) -> Result<(), Diagnostics> {
        let how = match how {
            Transaction::Commit => CompletionType::Commit,
            Transaction::Rollback => CompletionType::Rollback,
        };
        // SAFETY: the handle is live.
        let returned = unsafe { SQLEndTran(HandleType::Dbc, self.handle.as_handle(), how) };
        outcome(returned, HandleType::Dbc, self.handle.as_handle()).map(drop)
    }
    /// Whether the driver itself knows that the link is gone. False where it cannot say.
    pub(crate) fn is_dead(&self) -> bool {
        let mut dead = 0_u32;
        // SAFETY: the handle is live; the attribute is a 32-bit number and is written to a local of that size.
        let returned =
            unsafe { SQLGetConnectAttr(self.handle, ConnectionAttribute::CONNECTION_DEAD, (&raw mut dead).cast(), 4, null_mut()) };
        returned == SqlReturn::SUCCESS && dead == DEAD
    }
    /// A 16-bit answer of `SQLGetInfo`.
    pub(crate) fn info_number(&self, info: InfoType) -> Option<u16> {
        let mut number = 0_u64;
        // SAFETY: the handle is live; no numeric answer is wider than the local it is written to.
        let returned = unsafe { SQLGetInfo(self.handle, info, (&raw mut number).cast(), 8, null_mut()) };
        (returned == SqlReturn::SUCCESS).then(|| u16::from_ne_bytes([number.to_ne_bytes()[0], number.to_ne_bytes()[1]]))
    }
    /// A text answer of `SQLGetInfo`, empty where there is none.
    pub(crate) fn info_text(&self, info: InfoType) -> String {
        let mut text = [0_u16; 128];
        let mut length = 0_i16;
        // SAFETY: the handle is live; the answer is written to a local of the stated size in bytes.
        let returned = unsafe { SQLGetInfoW(self.handle, info, text.as_mut_ptr().cast(), 256, &mut length) };
        if returned != SqlReturn::SUCCESS {
            return String::new();
        }
        let units = (usize::try_from(length).unwrap_or(0) / 2).min(text.len() - 1);
        String::from_utf16_lossy(&text[..units])
    }
    /// Closes the connection, an open transaction with it (rolled back). No statement may be left.
    pub(crate) fn close(self: Rc<Self>) -> Result<(), Diagnostics> {
        let Ok(mut connection) = Rc::try_unwrap(self) else {
            return Err(Diagnostics::own("HY010", "a statement is still there"));
        };
        connection.disconnect()
    }
    fn disconnect(&mut self) -> Result<(), Diagnostics> {
        let handle = std::mem::replace(&mut self.handle, HDbc(null_mut()));
        if handle.0.is_null() {
            return Ok(());
        }
        let disconnect = || {
            // SAFETY: the handle is live; no statement is left, since each holds the connection.
            outcome(unsafe { SQLDisconnect(handle) }, HandleType::Dbc, handle.as_handle())
        };
        let mut closed = disconnect();
        if closed.is_err() {
            // Most often: a transaction is open.
            // SAFETY: the handle is live.
            let _refused = unsafe { SQLEndTran(HandleType::Dbc, handle.as_handle(), CompletionType::Rollback) };
            closed = disconnect();
        }
        // SAFETY: the handle is live and used no more after this. Where the driver refuses to disconnect, the driver manager
        // refuses to free: that handle is given up, which costs some memory and no panic.
        let _given_up = unsafe { SQLFreeHandle(HandleType::Dbc, handle.as_handle()) };
        closed.map(drop)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let _given_up = self.disconnect();
    }
}

/// A handle that is not connected yet, freed when connecting fails.
struct Unconnected(HDbc);

impl Unconnected {
    fn take(&mut self) -> HDbc {
        std::mem::replace(&mut self.0, HDbc(null_mut()))
    }
}

impl Drop for Unconnected {
    fn drop(&mut self) {
        if !self.0.0.is_null() {
            // SAFETY: the handle is live, unconnected and used no more.
            let _freed = unsafe { SQLFreeHandle(HandleType::Dbc, self.0.as_handle()) };
        }
    }
}

fn set(handle: HDbc, attribute: ConnectionAttribute, value: usize) -> Result<(), Diagnostics> {
    // SAFETY: the handle is live; these attributes are numbers, which ODBC passes in the place of a pointer.
    let returned = unsafe { SQLSetConnectAttr(handle, attribute, value as Pointer, 0) };
    outcome(returned, HandleType::Dbc, handle.as_handle()).map(drop)
}
