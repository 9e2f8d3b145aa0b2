//! Reads what a caller sent into typed inputs.
