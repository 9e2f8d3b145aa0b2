//! Hard limits that no configuration can pass, and the relations between them.
#![allow(missing_docs)]

/// Steps of one flow.
pub const STEPS_PER_FLOW: usize = 64;
/// Inputs of one flow.
pub const INPUTS_PER_FLOW: usize = 256;
/// Items of one list input (each is a marker of the statement).
pub const LIST_ITEMS: usize = 1_000;
/// Flows of one server.
pub const FLOWS: usize = 10_000;
/// Tenants of one server.
pub const TENANTS: usize = 10_000;
/// Rows one step may return.
pub const MAX_ROWS: usize = 1_000_000;
/// Bytes one step may return.
pub const MAX_BYTES: u64 = 1 << 30;
/// Bytes of a request body for a direct flow.
pub const BODY_BYTES: u64 = 1 << 20;
/// Bytes of an idempotency key.
pub const KEY_BYTES: usize = 255;
/// Bytes of a request head.
pub const HEAD_BYTES: usize = 32 * 1024;
/// A configuration file.
pub const FILE_BYTES: u64 = 4 << 20;
/// Rows of a step that does not say.
pub const DEFAULT_MAX_ROWS: usize = 1_000;
/// Bytes of a step that does not say.
pub const DEFAULT_MAX_BYTES: u64 = 1 << 20;
/// Prepared statements kept on one connection.
pub const STATEMENTS_PER_SESSION: usize = 256;

/// The smallest `[store] disk_limit`.
pub const LEAST_DISK_LIMIT: u64 = 4 << 20;
/// The largest part of `disk_limit` that is for operator state: what ten thousand audit entries and a notebook of them need.
pub const OPERATOR_STATE_BYTES: u64 = 16 << 20;
/// The smallest part: what a notebook with its export and ballast needs.
pub const LEAST_OPERATOR_STATE_BYTES: u64 = 2 << 20;

/// What of `[store] disk_limit` is for operator state: an eighth, within bounds.
pub const fn operator_share(disk_limit: u64) -> u64 {
    match disk_limit / 8 {
        ..LEAST_OPERATOR_STATE_BYTES => LEAST_OPERATOR_STATE_BYTES,
        eighth @ LEAST_OPERATOR_STATE_BYTES..OPERATOR_STATE_BYTES => eighth,
        _ => OPERATOR_STATE_BYTES,
    }
}

/// What of `[store] disk_limit` is for durable work: all but the share of operator state.
pub const fn store_share(disk_limit: u64) -> u64 {
    disk_limit.saturating_sub(operator_share(disk_limit))
}

const _: () = assert!(MAX_BYTES + MAX_BYTES <= u32::MAX as u64, "cells address their bytes with 32 bits");
const _: () = assert!(store_share(LEAST_DISK_LIMIT) >= LEAST_DISK_LIMIT / 2, "durable work has at least half");
const _: () = assert!(DEFAULT_MAX_ROWS <= MAX_ROWS && DEFAULT_MAX_BYTES <= MAX_BYTES);
