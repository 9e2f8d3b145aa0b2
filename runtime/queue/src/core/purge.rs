//! Purging.
