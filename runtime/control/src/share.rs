//! How much disk each part of the operator state may hold, of the share that `spillgate_model::limits::operator_share` cuts off.

use spillgate_model::limits::{LEAST_OPERATOR_STATE_BYTES as LEAST, OPERATOR_STATE_BYTES as MOST};

/// The smallest ballast: free space without which a notebook is neither opened nor written.
pub(crate) const NEEDED: u64 = 128 << 10;
/// Entries of the audit.
pub(crate) const AUDIT_ENTRIES: usize = 10_000;

/// A share, cut up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    /// Records, counted as their lines in an export.
    pub(crate) records: u64,
    /// The notebook's files; those of one that was moved aside count the same again.
    pub(crate) notebook: u64,
    /// Set free when a notebook must open on a full volume.
    pub(crate) ballast: u64,
}

impl Share {
    pub(crate) const fn of(bytes: u64) -> Share {
        let part = bytes / 32;
        let ballast = if part > NEEDED { part } else { NEEDED };
        Share { records: part * 3, notebook: part * 9, ballast }
    }
    /// Everything at its largest: two notebooks, one batch beyond the limit, and three exports.
    const fn most(self) -> u64 {
        self.records + self.notebook * 2 + self.records * 3 + self.ballast
    }
}

const _: () = assert!(Share::of(LEAST).most() <= LEAST && Share::of(MOST).most() <= MOST);
