//! What a driver says about a failed call.

use odbc_api::sys::{Handle, HandleType, SQLGetDiagRecW, SqlReturn};

/// Records of one call that are looked at; a driver that has more is not asked for them.
const RECORDS: i16 = 8;
const MESSAGE_UNITS: i16 = 1024;

/// What this layer says of a statement nobody waited for any more when its turn came.
pub(crate) const NOT_SENT: &str = "given up before it was sent";

/// One diagnostic record.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// The five letters of SQLSTATE.
    pub(crate) state: String,
    /// The driver's own number.
    pub(crate) native: i32,
    /// The driver's own words: may hold secrets.
    pub(crate) message: String,
}

/// Every record of a failed call, the first of them the most important.
#[derive(Clone, Debug, Default)]
pub(crate) struct Diagnostics {
    pub(crate) records: Vec<Record>,
}

impl Diagnostics {
    /// The SQLSTATE of the first record, empty when the driver said nothing.
    pub(crate) fn state(&self) -> &str {
        self.records.first().map_or("", |record| &record.state)
    }
    /// Whether any record has this SQLSTATE.
    pub(crate) fn has_state(&self, state: &str) -> bool {
        self.records.iter().any(|record| record.state == state)
    }
    /// Whether the driver's words hold this text.
    pub(crate) fn mentions(&self, text: &str) -> bool {
        self.records.iter().any(|record| record.message.contains(text))
    }
    /// A failure of this layer itself.
    pub(crate) fn own(state: &str, message: impl Into<String>) -> Diagnostics {
        Diagnostics { records: vec![Record { state: state.into(), native: 0, message: message.into() }] }
    }

    /// What the last call on this handle left. The handle must be live.
    pub(super) fn of(kind: HandleType, handle: Handle) -> Diagnostics {
        let mut records = Vec::new();
        for number in 1..=RECORDS {
            let mut state = [0_u16; 6];
            let mut native = 0;
            let mut message = [0_u16; MESSAGE_UNITS as usize];
            let mut length = 0;
            // SAFETY: the handle is live (its owner is borrowed by the caller), each pointer is to a local of the stated size.
            let returned = unsafe {
                SQLGetDiagRecW(kind, handle, number, state.as_mut_ptr(), &mut native, message.as_mut_ptr(), MESSAGE_UNITS, &mut length)
            };
            if returned != SqlReturn::SUCCESS && returned != SqlReturn::SUCCESS_WITH_INFO {
                break;
            }
            let length = usize::try_from(length).unwrap_or(0).min(message.len() - 1);
            records.push(Record {
                state: String::from_utf16_lossy(&state[..5]),
                native,
                message: String::from_utf16_lossy(&message[..length]),
            });
        }
        Diagnostics { records }
    }
}

/// How a call ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Done, perhaps with a warning: what is warned of shows in the values themselves.
    Done,
    /// There is nothing (more).
    NoData,
}

/// Reads what a call returned.
pub(crate) fn outcome(returned: SqlReturn, kind: HandleType, handle: Handle) -> Result<Outcome, Diagnostics> {
    match returned {
        SqlReturn::SUCCESS | SqlReturn::SUCCESS_WITH_INFO => Ok(Outcome::Done),
        SqlReturn::NO_DATA => Ok(Outcome::NoData),
        SqlReturn::ERROR => Err(Diagnostics::of(kind, handle)),
        SqlReturn::INVALID_HANDLE => Err(Diagnostics::own("HY000", "the driver manager does not know the handle")),
        SqlReturn(other) => Err(Diagnostics::own("HY000", format!("the driver answered {other}, which was not asked for"))),
    }
}
