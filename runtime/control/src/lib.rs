//! Durable operator state.
