//! The words that three or more crates share: values, rows, codes, refusals, units, hard limits, flowfiles; and numbers by chance.
//!
//! Invariants
//! 1. Nothing here does I/O, waits, or reads a clock.
//! 2. Every code a caller can see stands in [`code::Code`] and nowhere else, with its status, scope and retry rule.
//! 3. A [`rows::Rows`] holds exact values only; a value that cannot be held exactly is an error of its reader.
//!
//! It refuses: configuration, wire formats of a single face, anything only one or two crates need.

pub mod chance;
pub mod code;
pub mod datum;
pub mod flowfile;
pub mod json;
pub mod limits;
pub mod problem;
pub mod refusal;
pub mod rows;
pub mod secret;
pub mod units;
pub mod value;
pub mod wall;
pub mod work;

pub use code::{Code, Retryable, Scope};
pub use datum::Datum;
pub use flowfile::Flowfile;
pub use refusal::{Policy, Refusal};
pub use rows::{Cell, Column, Rows, RowsBuilder};
pub use secret::Secret;
pub use value::{Type, Value};
pub use work::Work;
