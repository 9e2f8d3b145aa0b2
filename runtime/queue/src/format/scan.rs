//! Finding what is valid in an extent, whatever happened to it.
//!
//! The whole extent is looked at, not only what joins up: behind a damaged frame the search goes on in steps of [`ALIGNMENT`] until
//! something valid is found, and everything valid is used. What is missing in between was either lost by a write that was not finished
//! when the machine stopped (torn: it was never acknowledged), or was durable and is damaged. Invariant 3 of the format tells them
//! apart: a gap is torn if what follows it is the rest of the last batch before the machine stopped, or if nothing follows. So that this
//! stays known, the first batch after such a start leaves out a number.

use crate::format::footer::decode_footer;
use crate::format::fragment::{Fragment, Frame};
use crate::format::{ALIGNMENT, EXTENT_BYTES, Fault, HEADER_BYTES};
use crate::record::{ExtentHeader, Footer};

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
    /// The highest number of a batch seen anywhere in it: the next one is larger.
    pub last_batch: u16,
}

/// Looks at an extent whose header was read. `extent` is all of it, or as much as there is in a file that is too short.
pub fn scan<'a>(extent: &'a [u8], header: &ExtentHeader) -> Scan<'a> {
    let footer = if extent.len() == EXTENT_BYTES { decode_footer(extent, header).ok() } else { None };
    let limit = footer.as_ref().map_or(extent.len().min(EXTENT_BYTES), |footer| usize::from(footer.end));
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
    if footer.is_some() {
        // Where every batch is over, no gap is torn.
        if found.end < limit {
            found.gaps.push(gap(extent, header.serial, found.end, limit));
            found.end = limit;
        }
        found.footer = footer;
        return found;
    }
    for gap in &mut found.gaps {
        gap.torn = is_torn(gap.offset, &found.fragments);
    }
    torn_end(&mut found, extent, header.serial);
    found
}

/// Whether a gap was left by a write that was not finished: what follows is the rest of that batch, and no other batch was written
/// behind it, or one whose number says so ([`crate::format::Tail::resume`] leaves one out).
fn is_torn(gap: usize, fragments: &[Fragment<'_>]) -> bool {
    let behind = &fragments[fragments.partition_point(|fragment| fragment.offset < gap)..];
    let Some(rest) = behind.first().filter(|fragment| !fragment.piece.begins) else { return false };
    let next = behind.iter().find(|fragment| fragment.piece.batch != rest.piece.batch);
    next.is_none_or(|next| next.piece.batch > rest.piece.batch.saturating_add(1))
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
    (from..extent.len()).step_by(ALIGNMENT).find_map(|offset| {
        // A valid fragment of an earlier batch behind a later one is left over from before an overwrite.
        Fragment::decode(&extent[offset..], serial, offset).ok().filter(|fragment| fragment.piece.batch >= batch)
    })
}

fn gap(extent: &[u8], serial: u64, from: usize, to: usize) -> Gap {
    let fault = Fragment::decode(&extent[from..], serial, from).err().unwrap_or(Fault::Invalid("order"));
    Gap { offset: from, bytes: to - from, fault, torn: false }
}
