//! Real databases for tests: each is private to the test program that starts it, listens on loopback only, and is gone
//! when that program ends, however it ends.

pub mod derby;
pub mod durable;
pub mod ledger;
pub mod narrow;
pub mod observer;
pub mod odbc;
pub mod postgres;
pub mod server;
pub mod shim;
pub mod volume;
