//! Real databases for tests: each is private to the test program that starts it, listens on loopback only, and is gone
//! when that program ends, however it ends.

pub mod client;
pub mod derby;
pub mod durable;
pub mod ledger;
pub mod link;
pub mod load;
pub mod nap;
pub mod narrow;
pub mod observer;
pub mod odbc;
pub mod postgres;
pub mod rig;
pub mod server;
pub mod shim;
pub mod storm;
pub mod stub;
pub mod turnstile;
pub mod volume;
