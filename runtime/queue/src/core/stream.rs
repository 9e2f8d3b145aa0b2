//! The growing end of a stream: records become bytes that the next batch writes.
//!
//! Invariants
//! 1. Only what was not written yet is in memory; written bytes are never written again.
//! 2. The bytes of one extent in one batch are one write.

use crate::core::extents::Position;
use crate::format::{
    ALIGNMENT, EXTENT_BYTES, FRAGMENT_BYTES, HEADER_BYTES, MOST_ENTRY_BYTES, MOST_ITEM_HEAD_BYTES, TRAILER_BYTES, Tail, encode_header,
};
use crate::record::ExtentHeader;

/// What an extent may lose at its end because the head of the next record does not fit.
const WASTE_BYTES: usize = MOST_ITEM_HEAD_BYTES + 1 + MOST_ENTRY_BYTES + FRAGMENT_BYTES + ALIGNMENT;
/// What an extent surely takes of records.
pub(crate) const USABLE_BYTES: usize = EXTENT_BYTES - HEADER_BYTES - TRAILER_BYTES - WASTE_BYTES;
/// Files are written in whole pages where nothing stands behind: the page need not be read first, and what an earlier use left right
/// behind the end is gone.
const PAGE_BYTES: usize = 4096;

/// Bytes for one place.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) position: Position,
    /// In the extent.
    pub(crate) offset: usize,
    pub(crate) bytes: Vec<u8>,
    /// So many of them, at the end, only fill up a page with zeros.
    pub(crate) padding: usize,
}

impl Write {
    /// Where it begins, counted over all extents.
    pub(crate) fn place(&self) -> u64 {
        u64::from(self.position) * EXTENT_BYTES as u64 + self.offset as u64
    }
}

/// The open extent of a stream.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) serial: u64,
    pub(crate) position: Position,
    pub(crate) tail: Tail,
    staged: Vec<u8>,
    /// Where `staged` begins.
    at: usize,
    begun: bool,
}

impl Open {
    /// Of an extent just taken into use.
    pub(crate) fn new(header: &ExtentHeader) -> Self {
        let mut tail = Tail::new(header);
        tail.begin_batch();
        let staged = encode_header(header).to_vec();
        Open { serial: header.serial, position: header.position, tail, staged, at: 0, begun: true }
    }

    /// Of an extent found open at a start.
    pub(crate) fn resume(header: &ExtentHeader, tail: Tail) -> Self {
        let at = tail.offset();
        Open { serial: header.serial, position: header.position, tail, staged: Vec::new(), at, begun: false }
    }

    /// Where records are put.
    pub(crate) fn begin(&mut self) -> (&mut Tail, &mut Vec<u8>) {
        if !self.begun {
            self.at = self.tail.begin_batch();
            self.begun = true;
        }
        (&mut self.tail, &mut self.staged)
    }

    /// Takes what is to be written now.
    pub(crate) fn collect(&mut self) -> Option<Write> {
        if self.staged.is_empty() {
            return None;
        }
        let mut bytes = std::mem::take(&mut self.staged);
        let end = self.at + bytes.len();
        debug_assert_eq!(end, self.tail.offset());
        let filled = zeros_behind(end);
        bytes.resize(filled - self.at, 0);
        self.begun = false;
        Some(Write { position: self.position, offset: self.at, bytes, padding: filled - end })
    }

    /// Nothing more goes into it.
    pub(crate) fn seal(mut self) -> Write {
        self.begin();
        self.tail.seal(&mut self.staged);
        debug_assert_eq!(self.at + self.staged.len(), EXTENT_BYTES);
        Write { position: self.position, offset: self.at, bytes: self.staged, padding: 0 }
    }
}

/// How far behind its end a write puts zeros.
fn zeros_behind(end: usize) -> usize {
    (end + FRAGMENT_BYTES).next_multiple_of(PAGE_BYTES).min(EXTENT_BYTES)
}

/// What stands behind the end of an extent that was found open, where the write that ended there has put zeros: something of a later
/// one, that was not finished or is damaged. Where it ends.
pub(crate) fn left_behind(content: &[u8], end: usize) -> Option<usize> {
    let behind = content.get(end..zeros_behind(end).min(content.len()))?;
    behind.iter().rposition(|byte| *byte != 0).map(|last| end + last + 1)
}

/// How many more extents so many bytes of records need at most, behind an open one with so much room.
pub(crate) fn extents_for(bytes: u64, room: usize) -> u64 {
    if bytes <= room as u64 {
        return 0;
    }
    (bytes - room.saturating_sub(WASTE_BYTES).min(room) as u64).div_ceil(USABLE_BYTES as u64)
}
