//! A look into the folder of a stopped store, for the command line. Nothing is written but by [`purge`].
//!
//! 1. Works on whatever is there: what cannot be read is named and passed over.
//! 2. Memory is bounded as it is for the store itself; content is read and written on one item at a time.
//! 3. The folder is locked meanwhile ([`crate::disk::RealDisk::open_existing`]), so that no server writes into it.

use std::io::{self, Write};
use std::sync::Arc;

use crate::disk::Disk;
use crate::status::LaneName;

/// Why a folder cannot be looked into.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// There is no store in it.
    #[error("there is no store in this folder")]
    NoStore,
    /// A file cannot be read at all.
    #[error("{file} cannot be read: {source}")]
    Unreadable {
        /// Its name.
        file: String,
        /// What the system said.
        source: io::Error,
    },
    /// The store cannot be opened.
    #[error("{0}")]
    Store(String),
    /// What was found cannot be written to where it should go.
    #[error("the output cannot be written: {0}")]
    Output(#[from] io::Error),
    /// There is no such lane.
    #[error("there is no lane of queue {} and tenant {}", .0.queue, .0.tenant)]
    NoLane(LaneName),
}

/// An extent that is set aside, or a place in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The store file.
    pub file: String,
    /// The extent's number in it; `None`: the file as a whole.
    pub extent: Option<u32>,
    /// Where in the extent.
    pub offset: Option<u32>,
    /// What is wrong, a sentence.
    pub reason: String,
}

/// A lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InspectedLane {
    /// Which.
    pub name: LaneName,
    /// Its number: the first half of its job ids.
    pub number: u64,
    /// Items that have not ended.
    pub waiting: u64,
    /// Their content bytes.
    pub bytes: u64,
    /// Dead letters.
    pub dead: u64,
    /// Bytes of disk it holds, whole extents.
    pub disk: u64,
}

/// A store as it lies there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// Format version.
    pub version: u8,
    /// Names of its files.
    pub files: Vec<String>,
    /// Bytes of each.
    pub file_bytes: u64,
    /// Extents that belong to nobody.
    pub extents_free: u64,
    /// Extents that belong to lanes and are not full.
    pub extents_open: u64,
    /// Extents that belong to lanes and are full.
    pub extents_sealed: u64,
    /// Extents that are set aside, and why.
    pub quarantined: Vec<Damage>,
    /// Names of files that should be there.
    pub missing_files: Vec<String>,
    /// In name order.
    pub lanes: Vec<InspectedLane>,
    /// What else a person should know, a sentence each.
    pub remarks: Vec<String>,
}

/// What [`verify`] read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Extents that belong to lanes.
    pub extents: u64,
    /// Records in them, those that are not needed any more among them.
    pub records: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Faults reported.
    pub faults: u64,
}

/// What [`export`] wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Items that have not ended.
    pub waiting: u64,
    /// Dead letters.
    pub dead: u64,
    /// Of these, how many have content that cannot be read; their lines say so.
    pub damaged: u64,
}

/// Lanes and extents.
pub fn inspect(_disk: &dyn Disk) -> Result<Inspection, InspectError> {
    unimplemented!()
}

/// Reads every record of every lane and proves every checksum; each fault is reported as it is found.
pub fn verify(_disk: &dyn Disk, _report: &mut dyn FnMut(Damage)) -> Result<Verified, InspectError> {
    unimplemented!()
}

/// Writes every item that has not ended and every dead letter, a JSON object a line:
/// `{"job", "queue", "tenant", "state": "queued"|"dead", "attempts", "age_ms", "keys": [hex…], "content": base64}`.
/// Content that cannot be read is `null`, with `"damaged"` saying why.
pub fn export(_disk: &dyn Disk, _out: &mut dyn Write) -> Result<Exported, InspectError> {
    unimplemented!()
}

/// Ends everything that waits in a lane as `purged`, dead letters too if asked: how many.
pub fn purge(_disk: Arc<dyn Disk>, _lane: &LaneName, _dead_too: bool) -> Result<u64, InspectError> {
    unimplemented!()
}
