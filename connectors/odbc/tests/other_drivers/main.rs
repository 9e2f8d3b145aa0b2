//! Drivers with length indicators of 64 bits: Debian's for PostgreSQL, over a real server, and for SQLite.

mod postgres;
mod sqlite;
