//! Drivers with length indicators of 64 bits: Debian's for PostgreSQL, over a real server, and for SQLite; and one of our own that watches how it is used.

mod postgres;
mod sqlite;
mod stub;
