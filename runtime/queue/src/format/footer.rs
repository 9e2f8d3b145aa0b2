//! The end of a sealed extent: what a start must know of it without reading items.
//!
//! ```text
//! entries: flags u8 | offset u16 | content bytes varint | sequence u64? (else the one before plus one)
//!          | ties, as in the item, but the business key with the time until which it is taken
//! trailer, 32 bytes: earliest expiry u64 (all ones: none) | bytes of entries u16 | number of entries u16 | end u16 | version u8
//!                    | batch u16 | zeros | mark u32 | checksum u32
//! ```
//! The first entry counts from the header's `first`. A journal's footer has no entries: it says that the extent is complete.

use crate::format::bytes::{Input, put_varint};
use crate::format::item::{CLAIMED, EXPIRES, ORDER, Ties, flags, milliseconds, put_ties, ties};
use crate::format::{EXTENT_BYTES, Fault, HEADER_BYTES, TRAILER_BYTES, VERSION};
use crate::record::{ExtentHeader, Footer, FooterItem, ItemRecord};

const MARK: [u8; 4] = *b"spft";
const JUMP: u8 = 0x20;
const MARK_AT: usize = TRAILER_BYTES - 8;
const NO_EXPIRY: u64 = u64::MAX;

/// Puts an item's entry at the end of `out`.
pub(super) fn put_entry(out: &mut Vec<u8>, offset: u16, jump: bool, item: &ItemRecord, content_bytes: usize) {
    let flags = flags(item) & !(EXPIRES | ORDER) | if jump { JUMP } else { 0 };
    out.push(flags);
    out.extend_from_slice(&offset.to_le_bytes());
    put_varint(out, content_bytes as u64);
    if jump {
        out.extend_from_slice(&item.sequence.to_le_bytes());
    }
    put_ties(out, item, item.unique.map(|unique| (unique.hash, item.appended_at.saturating_add(milliseconds(unique.within)))));
}

/// What the trailer says besides the entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trailer {
    pub(super) serial: u64,
    pub(super) entries: u16,
    pub(super) end: u16,
    /// Which write sealed it.
    pub(super) batch: u16,
    pub(super) earliest_expiry: Option<u64>,
}

/// Puts entries and trailer at the end of `out`, which then holds the end of the extent.
pub(super) fn put(out: &mut Vec<u8>, entries: &[u8], trailer: &Trailer) {
    let begin = out.len();
    out.extend_from_slice(entries);
    out.extend_from_slice(&trailer.earliest_expiry.unwrap_or(NO_EXPIRY).to_le_bytes());
    out.extend_from_slice(&(entries.len() as u16).to_le_bytes());
    out.extend_from_slice(&trailer.entries.to_le_bytes());
    out.extend_from_slice(&trailer.end.to_le_bytes());
    out.push(VERSION);
    out.extend_from_slice(&trailer.batch.to_le_bytes());
    out.resize(begin + entries.len() + MARK_AT, 0);
    out.extend_from_slice(&MARK);
    let checksum = checksum(trailer.serial, &out[begin..]);
    out.extend_from_slice(&checksum.to_le_bytes());
}

fn checksum(serial: u64, footer: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&serial.to_le_bytes());
    hasher.update(footer);
    hasher.finalize()
}

/// How many bytes at the end of an extent its footer takes, as its trailer says; not proven by a checksum. `end` is the end of the
/// extent, at least [`TRAILER_BYTES`]. `Blank`: there is no footer.
pub fn footer_bytes(end: &[u8]) -> Result<usize, Fault> {
    let trailer = end.last_chunk::<TRAILER_BYTES>().ok_or(Fault::Cut)?;
    if trailer[MARK_AT..MARK_AT + 4] != MARK {
        return Err(Fault::Blank);
    }
    let bytes = usize::from(Input::new(&trailer[8..]).u16()?) + TRAILER_BYTES;
    if bytes > EXTENT_BYTES - HEADER_BYTES { Err(Fault::Invalid("footer")) } else { Ok(bytes) }
}

/// From the end of an extent, at least as long as [`footer_bytes`] says. `Blank`: there is no footer, or an earlier use left it.
pub fn decode_footer(end: &[u8], header: &ExtentHeader) -> Result<Footer, Fault> {
    decode_sealed(end, header).map(|(footer, _)| footer)
}

/// As [`decode_footer`], and with which batch it came.
pub(super) fn decode_sealed(end: &[u8], header: &ExtentHeader) -> Result<(Footer, u16), Fault> {
    let bytes = footer_bytes(end)?;
    let footer = end.len().checked_sub(bytes).map(|at| &end[at..]).ok_or(Fault::Cut)?;
    let (checked, sum) = footer.split_at(bytes - 4);
    if Input::new(sum).u32()? != checksum(header.serial, checked) {
        return Err(Fault::Checksum);
    }
    let (entries, trailer) = checked.split_at(bytes - TRAILER_BYTES);
    let mut trailer = Input::new(trailer);
    let expiry = trailer.u64()?;
    trailer.u16()?;
    let (count, end, version, batch) = (trailer.u16()?, trailer.u16()?, trailer.u8()?, trailer.u16()?);
    if version != VERSION {
        return Err(Fault::Version(version));
    }
    if !(HEADER_BYTES..=EXTENT_BYTES - bytes).contains(&usize::from(end)) {
        return Err(Fault::Invalid("end"));
    }
    let mut input = Input::new(entries);
    // An entry has four bytes at least.
    let mut items = Vec::with_capacity(usize::from(count).min(entries.len() / 4));
    let mut before = header.first.wrapping_sub(1);
    for _ in 0..count {
        let item = entry(&mut input, before)?;
        if usize::from(item.offset) < HEADER_BYTES || item.offset >= end {
            return Err(Fault::Invalid("offset"));
        }
        before = item.sequence;
        items.push(item);
    }
    if !input.rest().is_empty() {
        return Err(Fault::Invalid("length"));
    }
    Ok((Footer { end, earliest_expiry: (expiry != NO_EXPIRY).then_some(expiry), items }, batch))
}

#[inline]
fn entry(input: &mut Input<'_>, before: u64) -> Result<FooterItem, Fault> {
    let flags = input.u8()?;
    let offset = input.u16()?;
    let bytes = input.varint_u32()?;
    let sequence = if flags & JUMP != 0 { input.u64()? } else { before.wrapping_add(1) };
    if flags & !(CLAIMED | JUMP) == 0 {
        // As most are.
        return Ok(FooterItem { offset, sequence, bytes, claimed: flags & CLAIMED != 0, keys: Vec::new(), unique: None, origin: None });
    }
    let Ties { origin, unique, keys } = ties(input, flags)?;
    Ok(FooterItem { offset, sequence, bytes, claimed: flags & CLAIMED != 0, keys, unique, origin })
}
