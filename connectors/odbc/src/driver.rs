//! The thin safe layer over the ODBC functions: the only module with `unsafe` in it.
//!
//! It calls the driver manager through `odbc_api::sys` and not through odbc-api's own buffers and handles, for three reasons:
//! IBM's `libdb2.so` writes length indicators of 32 bits, on which those buffers misread or panic; a handle that cannot be
//! freed must not panic; and a statement must be cancelled from another thread than the one that waits in it.
//!
//! Invariants
//! 1. A [`Statement`] owns every buffer that is bound to it and keeps its [`Connection`] open; the driver never holds a pointer to memory
//!    that is gone.
//! 2. A statement is used by one thread. The exception is [`CancelPoint`], which reaches it only while it is armed, and
//!    a statement is disarmed before it is freed.
//! 3. Whoever calls into a driver holds [`enter`]'s guard, so that the process does not end under it.
//! 4. No answer of a driver panics: lengths are checked against the buffers they speak of.

#![allow(unsafe_code)]

mod buffers;
mod cancel;
mod connection;
mod diagnostics;
mod exit;
mod process;
mod statement;

pub(crate) use buffers::{Column, Field, Layout, Parameter, Rowset};
pub(crate) use cancel::CancelPoint;
pub(crate) use connection::{Connection, Transaction};
pub(crate) use diagnostics::{Diagnostics, NOT_SENT, Outcome};
pub(crate) use exit::enter;
pub(crate) use process::prepare;
pub(crate) use statement::{ResultColumn, Statement};
