//! A database that falls ill and heals.
