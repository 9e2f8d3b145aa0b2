//! Finding what is valid in an extent, whatever happened to it.
//!
//! The whole extent is looked at, not only what joins up: behind a damaged frame the search goes on in steps of [`ALIGNMENT`] until
//! something valid is found, and everything valid is used. What is missing in between was either lost by a write that was not finished
//! when the machine stopped (torn: it was never acknowledged), or was durable and is damaged. Invariant 3 of the format tells them
//! apart: a gap is torn if what follows it is the rest of the last batch, or if nothing follows. A start mends it with a filler before
//! anything is written behind.

use crate::format::footer::decode_sealed;
use crate::format::fragment::{self, Fragment, Frame, Kind, Piece, may_be_frame};
use crate::format::{ALIGNMENT, EXTENT_BYTES, FRAGMENT_BYTES, Fault, HEADER_BYTES, SECTOR_BYTES};
use crate::record::{ExtentHeader, Footer};

const ZEROS: [u8; SECTOR_BYTES] = [0; SECTOR_BYTES];

/// A stretch of an extent that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Where it begins in the extent.
    pub offset: usize,
    /// How long it is.
    pub bytes: usize,
    /// What is wrong where it begins.
    pub fault: Fault,
    /// The write that it was part of was not finished: nothing in it was ever acknowledged.
    pub torn: bool,
}

/// What was found in an extent.
#[derive(Clone, Debug, Default)]
pub struct Scan<'a> {
    /// Everything valid, in order.
    pub fragments: Vec<Fragment<'a>>,
    /// What is missing between them; of an open extent, also a torn fragment at the end as far as it can be seen.
    pub gaps: Vec<Gap>,
    /// Where the next fragment may begin.
    pub end: usize,
    /// If it was sealed.
    pub footer: Option<Footer>,
    /// All of it came with one write. What that write sealed before is in doubt if this one is.
    pub one_batch: bool,
    /// The highest number of a batch seen anywhere in it: the next one is larger.
    pub last_batch: u16,
}

impl Scan<'_> {
    /// What to write, and where in the extent, so that what was torn is not taken for damage when other batches stand behind it.
    pub fn fillers(&self, serial: u64) -> Vec<(usize, Vec<u8>)> {
        let between = self.gaps.iter().filter(|gap| gap.torn && gap.offset < self.end && gap.bytes >= FRAGMENT_BYTES);
        let filler = |gap: &Gap| {
            let behind = self.fragments.iter().find(|fragment| fragment.offset > gap.offset);
            let batch = behind.map_or(self.last_batch, |fragment| fragment.piece.batch);
            let piece = Piece { kind: Kind::Filler, first: true, last: true, begins: true, batch };
            let mut out = Vec::with_capacity(gap.bytes);
            fragment::put(&mut out, serial, gap.offset, piece, &[&vec![0; gap.bytes - FRAGMENT_BYTES]]);
            (gap.offset, out)
        };
        between.map(filler).collect()
    }

    /// As [`Scan::fillers`], in place of the end of a record whose beginning was not finished: what the extent begins with, if it
    /// continues something.
    pub fn orphan_filler(&self, serial: u64) -> Option<(usize, Vec<u8>)> {
        let orphan = self.fragments.first().filter(|fragment| fragment.offset == HEADER_BYTES && !fragment.piece.first)?;
        let piece = Piece { kind: Kind::Filler, first: true, last: true, ..orphan.piece };
        let mut out = Vec::with_capacity(FRAGMENT_BYTES + orphan.payload.len());
        fragment::put(&mut out, serial, orphan.offset, piece, &[&vec![0; orphan.payload.len()]]);
        Some((orphan.offset, out))
    }
}

/// Looks at an extent whose header was read. `extent` is all of it, or as much as there is in a file that is too short. What was sealed
/// is taken to be durable as a whole.
pub fn scan<'a>(extent: &'a [u8], header: &ExtentHeader) -> Scan<'a> {
    look(extent, header, false)
}

/// As [`scan`], of an extent that the last write before the machine stopped may have sealed: its footer may have reached the disk without
/// everything that it names.
pub fn scan_last<'a>(extent: &'a [u8], header: &ExtentHeader) -> Scan<'a> {
    look(extent, header, true)
}

fn look<'a>(extent: &'a [u8], header: &ExtentHeader, in_doubt: bool) -> Scan<'a> {
    let sealed = if extent.len() == EXTENT_BYTES { decode_sealed(extent, header).ok() } else { None };
    let limit = sealed.as_ref().map_or(extent.len().min(EXTENT_BYTES), |(footer, _)| usize::from(footer.end));
    let extent = &extent[..limit];
    let mut found = Scan { end: HEADER_BYTES, ..Scan::default() };
    while let Some(fragment) = next_valid(extent, header.serial, found.end, found.last_batch) {
        if fragment.offset > found.end {
            found.gaps.push(gap(extent, header.serial, found.end, fragment.offset));
        }
        found.last_batch = fragment.piece.batch;
        found.end = fragment.end().next_multiple_of(ALIGNMENT);
        found.fragments.push(fragment);
    }
    let seal = sealed.as_ref().map(|(_, batch)| *batch);
    if seal.is_some() && found.end < limit {
        found.gaps.push(gap(extent, header.serial, found.end, limit));
        found.end = limit;
    }
    for gap in &mut found.gaps {
        gap.torn = is_torn(gap.offset, &found.fragments, seal, in_doubt || seal.is_none());
    }
    let first = found.fragments.first().map(|fragment| fragment.piece.batch);
    found.one_batch = first.is_none_or(|first| first == found.last_batch && seal.is_none_or(|seal| seal == first));
    match sealed {
        Some((footer, _)) => found.footer = Some(footer),
        None => torn_end(&mut found, extent, header.serial),
    }
    found
}

/// Whether a gap was left by a write that was not finished: its batch may be the last, what follows is the rest of it, and nothing of a
/// later batch stands behind.
fn is_torn(gap: usize, fragments: &[Fragment<'_>], seal: Option<u16>, may_be_last: bool) -> bool {
    let behind = &fragments[fragments.partition_point(|fragment| fragment.offset < gap)..];
    let mut batches = behind.iter().map(|fragment| fragment.piece.batch).chain(seal);
    let Some(of_gap) = batches.next().filter(|_| behind.first().is_none_or(|fragment| !fragment.piece.begins)) else { return false };
    may_be_last && batches.all(|batch| batch == of_gap)
}

/// The last write may have left a frame without all of its payload: it is counted, and its number not used again.
fn torn_end(found: &mut Scan<'_>, extent: &[u8], serial: u64) {
    let Some(frame) = extent.get(found.end..).and_then(|rest| Frame::decode(rest, serial).ok()) else { return };
    let next = found.last_batch.saturating_add(1);
    if frame.batch > 0 && (frame.batch == found.last_batch || frame.batch == next) && found.end + frame.bytes() <= EXTENT_BYTES {
        found.gaps.push(Gap { offset: found.end, bytes: frame.bytes(), fault: Fault::Checksum, torn: true });
        found.last_batch = frame.batch;
    }
}

fn next_valid(extent: &[u8], serial: u64, from: usize, batch: u16) -> Option<Fragment<'_>> {
    let mut offset = from;
    while offset + FRAGMENT_BYTES <= extent.len() {
        // Most of what is searched was never written.
        if offset.is_multiple_of(SECTOR_BYTES) && extent[offset..].starts_with(&ZEROS) {
            offset += SECTOR_BYTES;
            continue;
        }
        if may_be_frame(&extent[offset..])
            && let Ok(fragment) = Fragment::decode(&extent[offset..], serial, offset)
            // A valid fragment of an earlier batch behind a later one is left over from before an overwrite.
            && fragment.piece.batch >= batch
        {
            return Some(fragment);
        }
        offset += ALIGNMENT;
    }
    None
}

fn gap(extent: &[u8], serial: u64, from: usize, to: usize) -> Gap {
    let fault = Fragment::decode(&extent[from..], serial, from).err().unwrap_or(Fault::Invalid("order"));
    Gap { offset: from, bytes: to - from, fault, torn: false }
}
