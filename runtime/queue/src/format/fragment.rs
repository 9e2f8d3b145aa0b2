//! The frame around a piece of a record.
//!
//! ```text
//! length u16 | batch u16 | tag u8: mark, first, last, begins, kind | version u8 | checksum u32 | payload
//! ```
//! The batch is masked with the extent's serial, so that a frame that an earlier use left behind is not taken for a torn one of this use.

use crate::format::bytes::Input;
use crate::format::{EXTENT_BYTES, FRAGMENT_BYTES, Fault, HEADER_BYTES, VERSION};

/// Always set, so that text and zeros are seldom taken for a frame when a damaged extent is searched.
const MARK: u8 = 0x80;
const FIRST: u8 = 0x40;
const LAST: u8 = 0x20;
const BEGINS: u8 = 0x10;
const KIND: u8 = 0x0f;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Kind {
    Item,
    Meta,
    Job,
    Purged,
    Note,
    /// Stands where a write was not finished, so that the gap is not taken for damage later.
    Filler,
    /// What damage cost.
    Lost,
}

impl Kind {
    /// Every kind, in the order of their codes, which begin at 1.
    pub const ALL: [Kind; 7] = [Kind::Item, Kind::Meta, Kind::Job, Kind::Purged, Kind::Note, Kind::Filler, Kind::Lost];

    fn code(self) -> u8 {
        self as u8 + 1
    }
    fn from_code(code: u8) -> Result<Kind, Fault> {
        usize::from(code).checked_sub(1).and_then(|at| Kind::ALL.get(at)).copied().ok_or(Fault::Invalid("kind of record"))
    }
}

const _: () = assert!(Kind::ALL.len() <= KIND as usize);

/// A piece of a record, read and found whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// Where its frame stands in the extent.
    pub offset: usize,
    /// How it stands in its record and its batch.
    pub piece: Piece,
    /// The piece.
    pub payload: &'a [u8],
}

/// How a fragment stands in its record and its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// What it is a piece of.
    pub kind: Kind,
    /// The record begins here.
    pub first: bool,
    /// The record ends here.
    pub last: bool,
    /// It is the first that its batch wrote into this extent.
    pub begins: bool,
    /// Which write it came with, see invariant 3 of the format.
    pub batch: u16,
}

impl<'a> Fragment<'a> {
    /// Where it ends in the extent.
    pub fn end(&self) -> usize {
        self.offset + FRAGMENT_BYTES + self.payload.len()
    }

    /// From `bytes` that begin at `offset` of the extent with this serial.
    pub fn decode(bytes: &'a [u8], serial: u64, offset: usize) -> Result<Fragment<'a>, Fault> {
        let frame = Frame::decode(bytes, serial)?;
        if !(HEADER_BYTES..EXTENT_BYTES).contains(&offset) || offset + frame.bytes() > EXTENT_BYTES {
            return Err(Fault::Invalid("place"));
        }
        let payload = bytes.get(FRAGMENT_BYTES..frame.bytes()).ok_or(Fault::Cut)?;
        if frame.checksum != checksum(serial, offset, bytes, &[payload]) {
            return Err(Fault::Checksum);
        }
        if frame.version != VERSION {
            return Err(Fault::Version(frame.version));
        }
        let tag = frame.tag;
        let kind = Kind::from_code(tag & KIND)?;
        let piece = Piece { kind, first: tag & FIRST != 0, last: tag & LAST != 0, begins: tag & BEGINS != 0, batch: frame.batch };
        Ok(Fragment { offset, piece, payload })
    }

    /// How many bytes a frame says that there are from its own beginning to its payload's end; not proven by a checksum.
    pub fn announced(frame: &[u8]) -> Result<usize, Fault> {
        Frame::decode(frame, 0).map(|frame| frame.bytes())
    }
}

/// Whether it is worth looking closer.
pub(super) fn may_be_frame(bytes: &[u8]) -> bool {
    bytes.len() >= FRAGMENT_BYTES && bytes[4] & MARK != 0 && bytes[5] == VERSION
}

/// What stands before the payload, not proven yet.
pub(super) struct Frame {
    length: u16,
    pub(super) batch: u16,
    tag: u8,
    version: u8,
    checksum: u32,
}

impl Frame {
    pub(super) fn decode(bytes: &[u8], serial: u64) -> Result<Frame, Fault> {
        let mut input = Input::new(bytes);
        let (length, batch, tag, version) = (input.u16()?, input.u16()? ^ mask(serial), input.u8()?, input.u8()?);
        let frame = Frame { length, batch, tag, version, checksum: input.u32()? };
        if tag & MARK == 0 {
            return Err(if bytes[..FRAGMENT_BYTES].iter().all(|byte| *byte == 0) { Fault::Blank } else { Fault::Invalid("frame") });
        }
        Ok(frame)
    }
    pub(super) fn bytes(&self) -> usize {
        FRAGMENT_BYTES + usize::from(self.length)
    }
}

/// Puts a frame and its payload at the end of `out`. Together they fit into the extent.
pub(super) fn put(out: &mut Vec<u8>, serial: u64, offset: usize, piece: Piece, payload: &[&[u8]]) {
    let length: usize = payload.iter().map(|part| part.len()).sum();
    assert!(offset + FRAGMENT_BYTES + length <= EXTENT_BYTES, "the tail keeps room");
    let flag = |is: bool, flag: u8| if is { flag } else { 0 };
    let tag = MARK | piece.kind.code() | flag(piece.first, FIRST) | flag(piece.last, LAST) | flag(piece.begins, BEGINS);
    let frame = out.len();
    out.extend_from_slice(&(length as u16).to_le_bytes());
    out.extend_from_slice(&(piece.batch ^ mask(serial)).to_le_bytes());
    out.extend_from_slice(&[tag, VERSION]);
    let checksum = checksum(serial, offset, &out[frame..], payload);
    out.extend_from_slice(&checksum.to_le_bytes());
    for part in payload {
        out.extend_from_slice(part);
    }
}

fn mask(serial: u64) -> u16 {
    (serial.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as u16
}

/// Over the extent's serial, the place in it, the frame and the payload.
fn checksum(serial: u64, offset: usize, frame: &[u8], payload: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&serial.to_le_bytes());
    hasher.update(&(offset as u64).to_le_bytes());
    hasher.update(&frame[..FRAGMENT_BYTES - 4]);
    for part in payload {
        hasher.update(part);
    }
    hasher.finalize()
}
