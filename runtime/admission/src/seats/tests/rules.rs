//! The rules of the module head, one by one.
