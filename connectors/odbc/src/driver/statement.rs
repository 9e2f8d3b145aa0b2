//! One statement: prepared, bound, executed, fetched, closed.

use std::ptr::null_mut;
use std::rc::Rc;

use odbc_api::sys::{
    FreeStmtOption, HStmt, Handle, HandleType, Nullability, ParamType, Pointer, SQLAllocHandle, SQLBindCol, SQLBindParameter,
    SQLDescribeColW, SQLDescribeParam, SQLExecDirectW, SQLExecute, SQLFetch, SQLFreeHandle, SQLFreeStmt, SQLGetDiagFieldW,
    SQLNumResultCols, SQLPrepareW, SQLRowCount, SQLSetStmtAttr, SqlDataType, SqlReturn, StatementAttribute,
};

use super::buffers::{Parameter, Rowset};
use super::cancel::CancelPoint;
use super::connection::Connection;
use super::diagnostics::{Diagnostics, NOT_SENT, Outcome, outcome};

const NAME_UNITS: i16 = 512;
/// `SQL_DIAG_COLUMN_NUMBER`
const DIAG_COLUMN_NUMBER: i16 = -1247;

/// A column as the driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResultColumn {
    pub(crate) name: Box<str>,
    pub(crate) sql_type: SqlDataType,
    /// Letters, bytes or digits, as the type has it; 0 where the driver does not know.
    pub(crate) size: usize,
    pub(crate) digits: i16,
}

/// A statement handle with the buffers bound to it.
pub(crate) struct Statement {
    handle: HStmt,
    rowset: Option<Rowset>,
    array_size: usize,
    parameters: Vec<Parameter>,
    /// Kept open by its statements.
    _connection: Rc<Connection>,
}

impl Statement {
    pub(crate) fn new(connection: &Rc<Connection>) -> Result<Statement, Diagnostics> {
        let mut handle = Handle::null();
        let parent = connection.handle().as_handle();
        // SAFETY: the connection is live; `handle` is a local that receives the new handle.
        let returned = unsafe { SQLAllocHandle(HandleType::Stmt, parent, &mut handle) };
        outcome(returned, HandleType::Dbc, parent)?;
        Ok(Statement { handle: handle.as_hstmt(), rowset: None, array_size: 1, parameters: Vec::new(), _connection: connection.clone() })
    }
    fn outcome(&self, returned: SqlReturn) -> Result<Outcome, Diagnostics> {
        outcome(returned, HandleType::Stmt, self.handle.as_handle())
    }
    fn set(&self, attribute: StatementAttribute, value: Pointer) -> Result<Outcome, Diagnostics> {
        // SAFETY: the handle is live; `value` is a number in the place of a pointer, or points to memory this statement owns.
        self.outcome(unsafe { SQLSetStmtAttr(self.handle, attribute, value, 0) })
    }

    /// Asks the driver to end the statement by itself after so many seconds. A driver that cannot goes on without.
    pub(crate) fn set_query_timeout(&self, seconds: usize) -> Result<Outcome, Diagnostics> {
        self.set(StatementAttribute::QueryTimeout, seconds as Pointer)
    }
    pub(crate) fn prepare(&self, text: &str) -> Result<Outcome, Diagnostics> {
        let text: Vec<u16> = text.encode_utf16().collect();
        let length = i32::try_from(text.len()).map_err(|_| Diagnostics::own("HY090", "the statement is too long"))?;
        // SAFETY: the handle is live and the text has the stated length.
        self.outcome(unsafe { SQLPrepareW(self.handle, text.as_ptr(), length) })
    }
    /// Runs a text once, without preparing it.
    pub(crate) fn execute_direct(&self, text: &str) -> Result<Outcome, Diagnostics> {
        let text: Vec<u16> = text.encode_utf16().collect();
        let length = i32::try_from(text.len()).map_err(|_| Diagnostics::own("HY090", "the statement is too long"))?;
        // SAFETY: the handle is live, the text has the stated length, bound parameters are owned by this statement.
        self.outcome(unsafe { SQLExecDirectW(self.handle, text.as_ptr(), length) })
    }

    /// The parameters, to be set; then [`Statement::bind_parameters`].
    pub(crate) fn parameters(&mut self) -> &mut Vec<Parameter> {
        &mut self.parameters
    }
    /// Tells the driver of parameters whose type, size or address changed.
    pub(crate) fn bind_parameters(&mut self) -> Result<(), Diagnostics> {
        for (number, parameter) in (1..).zip(&mut self.parameters) {
            if parameter.bound {
                continue;
            }
            let bytes = isize::try_from(parameter.value.len()).unwrap_or(isize::MAX);
            // SAFETY: value and indicator are owned by this statement, do not move, and are bound anew whenever they are replaced.
            let returned = unsafe {
                SQLBindParameter(
                    self.handle,
                    number,
                    ParamType::Input,
                    parameter.c_type,
                    parameter.sql_type,
                    parameter.size,
                    parameter.digits,
                    parameter.value.pointer().cast(),
                    bytes,
                    (&raw mut *parameter.indicator).cast(),
                )
            };
            outcome(returned, HandleType::Stmt, self.handle.as_handle())?;
            parameter.bound = true;
        }
        Ok(())
    }
    /// Type, size and scale of a marker, where driver and database can say.
    pub(crate) fn describe_parameter(&self, number: u16) -> Option<(SqlDataType, usize, i16)> {
        let (mut sql_type, mut size, mut digits, mut nullable) = (SqlDataType(0), 0, 0, Nullability(0));
        // SAFETY: the handle is live and each answer is written to a local of its type; a driver that writes 32 bits of the size
        // leaves the zeroes of the upper half.
        let returned = unsafe { SQLDescribeParam(self.handle, number, &mut sql_type, &mut size, &mut digits, &mut nullable) };
        matches!(self.outcome(returned), Ok(Outcome::Done)).then_some((sql_type, size, digits))
    }

    /// Runs the prepared statement, within reach of `cancel` until [`Statement::leave`].
    pub(crate) fn execute(&self, cancel: &CancelPoint) -> Result<Outcome, Diagnostics> {
        if !cancel.arm(self.handle) {
            return Err(Diagnostics::own("HY008", NOT_SENT));
        }
        // SAFETY: the handle is live and bound parameters are owned by this statement.
        self.outcome(unsafe { SQLExecute(self.handle) })
    }
    /// Takes the statement out of reach of `cancel`.
    pub(crate) fn leave(&self, cancel: &CancelPoint) {
        cancel.disarm();
    }

    /// How many columns the result has; none after a statement that returns no rows.
    pub(crate) fn column_count(&self) -> Result<usize, Diagnostics> {
        let mut count = 0;
        // SAFETY: the handle is live and the answer is written to a local.
        self.outcome(unsafe { SQLNumResultCols(self.handle, &mut count) })?;
        Ok(usize::try_from(count).unwrap_or(0))
    }
    /// The columns of the result.
    pub(crate) fn columns(&self) -> Result<Vec<ResultColumn>, Diagnostics> {
        (1..=u16::try_from(self.column_count()?).unwrap_or(u16::MAX)).map(|number| self.describe(number)).collect()
    }
    fn describe(&self, number: u16) -> Result<ResultColumn, Diagnostics> {
        let mut name = [0_u16; NAME_UNITS as usize];
        let (mut name_units, mut sql_type, mut size, mut digits, mut nullable) = (0, SqlDataType(0), 0, 0, Nullability(0));
        // SAFETY: the handle is live and each answer is written to a local of its type and stated size.
        let returned = unsafe {
            SQLDescribeColW(
                self.handle,
                number,
                name.as_mut_ptr(),
                NAME_UNITS,
                &mut name_units,
                &mut sql_type,
                &mut size,
                &mut digits,
                &mut nullable,
            )
        };
        self.outcome(returned)?;
        let name_units = usize::try_from(name_units).unwrap_or(0).min(name.len() - 1);
        Ok(ResultColumn { name: String::from_utf16_lossy(&name[..name_units]).into(), sql_type, size, digits })
    }

    /// Binds memory for the columns of the result, in place of what was bound before.
    pub(crate) fn bind_rowset(&mut self, rowset: Rowset) -> Result<(), Diagnostics> {
        self.unbind_rowset()?;
        let rowset = self.rowset.insert(rowset);
        for (number, column) in (1..).zip(&mut rowset.columns) {
            let width = isize::try_from(column.width).unwrap_or(isize::MAX);
            // SAFETY: values and indicators are owned by this statement from here on, have room for as many rows as the array
            // size is ever set to, and are unbound before they are dropped.
            let returned = unsafe {
                SQLBindCol(self.handle, number, column.c_type, column.values.pointer().cast(), width, column.indicators.pointer().cast())
            };
            outcome(returned, HandleType::Stmt, self.handle.as_handle())?;
        }
        let (fetched, statuses) = (&raw mut *rowset.fetched, rowset.statuses.pointer());
        self.set(StatementAttribute::RowsFetchedPtr, fetched.cast())?;
        self.set(StatementAttribute::RowStatusPtr, statuses.cast())?;
        Ok(())
    }
    /// Gives the bound memory back.
    pub(crate) fn unbind_rowset(&mut self) -> Result<(), Diagnostics> {
        if self.rowset.is_some() {
            // SAFETY: the handle is live.
            self.outcome(unsafe { SQLFreeStmt(self.handle, FreeStmtOption::Unbind) })?;
            self.set(StatementAttribute::RowsFetchedPtr, null_mut())?;
            self.set(StatementAttribute::RowStatusPtr, null_mut())?;
            self.set_array_size(1)?;
            self.rowset = None;
        }
        Ok(())
    }
    fn set_array_size(&mut self, rows: usize) -> Result<(), Diagnostics> {
        if self.array_size != rows {
            self.set(StatementAttribute::RowArraySize, rows as Pointer)?;
            self.array_size = rows;
        }
        Ok(())
    }
    pub(crate) fn rowset(&self) -> Option<&Rowset> {
        self.rowset.as_ref()
    }
    /// Fetches up to `most` rows into the bound memory, or the next row where none is bound. Gives how many came.
    pub(crate) fn fetch(&mut self, most: usize) -> Result<usize, Diagnostics> {
        let room = self.rowset.as_ref().map_or(1, Rowset::rows);
        self.set_array_size(most.clamp(1, room))?;
        if let Some(rowset) = &mut self.rowset {
            *rowset.fetched = 0;
        }
        // SAFETY: the handle is live; bound memory is owned by this statement and has room for the array size.
        match self.outcome(unsafe { SQLFetch(self.handle) })? {
            Outcome::NoData => Ok(0),
            Outcome::Done => Ok(match &self.rowset {
                // A driver with 32-bit numbers writes the low half only.
                Some(rowset) => usize::try_from(*rowset.fetched & 0xFFFF_FFFF).unwrap_or(usize::MAX).min(rowset.rows),
                None => 1,
            }),
        }
    }

    /// The column, from 1, that the last fetch could not give, where the driver tells, and what it says.
    pub(crate) fn failed_column(&self) -> (Option<usize>, Diagnostics) {
        let diagnostics = Diagnostics::of(HandleType::Stmt, self.handle.as_handle());
        let mut number = 0_i64;
        // SAFETY: the handle is live; a number of 32 bits is written to a local that has room for it.
        let returned = unsafe {
            SQLGetDiagFieldW(HandleType::Stmt, self.handle.as_handle(), 1, DIAG_COLUMN_NUMBER, (&raw mut number).cast(), 0, null_mut())
        };
        let known = returned == SqlReturn::SUCCESS && number > 0;
        (known.then(|| usize::try_from(number & 0xFFFF_FFFF).ok()).flatten(), diagnostics)
    }

    /// Rows the statement changed; `None` where the driver does not know.
    pub(crate) fn row_count(&self) -> Result<Option<u64>, Diagnostics> {
        let mut count = 0_isize;
        // SAFETY: the handle is live and the answer is written to a local; a driver that writes 32 bits leaves the zeroes above.
        self.outcome(unsafe { SQLRowCount(self.handle, &mut count) })?;
        // "Not known" is -1, in 32 bits too.
        let unknown = count < 0 || count == 0xFFFF_FFFF;
        Ok((!unknown).then(|| count.unsigned_abs() as u64))
    }
    /// Closes the cursor, if there is one. The connection is free after it.
    pub(crate) fn close_cursor(&self) -> Result<(), Diagnostics> {
        // SAFETY: the handle is live.
        self.outcome(unsafe { SQLFreeStmt(self.handle, FreeStmtOption::Close) }).map(drop)
    }
    /// Bytes of the memory bound to it.
    pub(crate) fn held_bytes(&self) -> usize {
        let parameters: usize = self.parameters.iter().map(Parameter::bytes).sum();
        self.rowset.as_ref().map_or(0, Rowset::bytes) + parameters
    }
}

impl Drop for Statement {
    fn drop(&mut self) {
        // SAFETY: the handle is live and used no more; its buffers are dropped after it. A driver that refuses to free it
        // leaves it to the end of the connection, which this statement keeps open until here.
        let _left_to_the_connection = unsafe { SQLFreeHandle(HandleType::Stmt, self.handle.as_handle()) };
    }
}
