//! How much disk each part of the operator state may hold.

/// The largest share: what ten thousand audit entries and a notebook of them need.
const MOST: u64 = 16 << 20;
/// The smallest ballast: free space without which a notebook is neither opened nor written.
pub(crate) const NEEDED: u64 = 128 << 10;
/// Entries of the audit.
pub(crate) const AUDIT_ENTRIES: usize = 10_000;

/// The bytes of `disk_limit` that are for control; the rest is the queue store's.
pub fn share_of(disk_limit: u64) -> u64 {
    (disk_limit / 8).min(MOST)
}

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

// The smallest `disk_limit` is 16 MiB, so the smallest share is 2 MiB.
const _: () = assert!(Share::of(2 << 20).most() <= 2 << 20 && Share::of(MOST).most() <= MOST);
