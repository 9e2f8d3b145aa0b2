//! The access record: one JSON line a call.
//!
//! Invariants
//! 1. No call ever waits for a log to be written: a record goes into a bounded buffer or is dropped and counted.
//! 2. A line is whole or not there; text from outside cannot end it early or fake another one.

use std::net::IpAddr;
use std::time::Duration;

use crate::trace::TraceContext;

/// What is written about a call.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct AccessRecord<'a> {
    pub request_id: &'a str,
    pub trace: Option<TraceContext>,
    pub tenant: &'a str,
    pub run: Option<&'a str>,
    pub flow: &'a str,
    pub method: &'a str,
    pub status: u16,
    /// `ok`, `hung_up` or a code's name.
    pub code: &'static str,
    pub duration: Duration,
    /// Time spent waiting for seats.
    pub wait: Duration,
    pub rows: u64,
    pub bytes: u64,
    pub truncated: bool,
    pub stale: bool,
    pub remote: IpAddr,
}
