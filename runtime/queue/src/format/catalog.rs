//! The catalog: of every extent, the last use of it that is known to be durable. It stands in the file `head`, behind the first sector.
//!
//! ```text
//! at  512  mark: magic 8 | store u64 | complete below u64 | checksum u32
//! at 1024  one entry for each extent, by position: serial u64 | lane u64 | first u64 | stream u8, from 1 | zeros | checksum u32
//! ```
//! An entry of zeros: it was never used, or is known to hold nothing. Of uses with a serial of at least `complete below` some are missing:
//! the catalog is synced a moment later than what it names. A start that finds an extent without the use that stands here knows that it
//! was lost, and whose it was. Stores of before the catalog have zeros instead of a mark.

use crate::format::bytes::Input;
use crate::format::{EXTENT_BYTES, Fault, HEAD_BYTES, SECTOR_BYTES};
use crate::record::Stream;

/// Where the mark stands in the file `head`.
pub const CATALOG_MARK_AT: usize = SECTOR_BYTES;
/// Where the entries begin.
pub const CATALOG_AT: usize = 2 * SECTOR_BYTES;
/// One entry.
pub const CATALOG_ENTRY_BYTES: usize = 32;
/// The mark.
pub const CATALOG_MARK_BYTES: usize = 28;
const MAGIC: [u8; 8] = *b"spillqct";

/// A use of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogEntry {
    /// As in the extent's header.
    pub serial: u64,
    /// As in the header.
    pub lane: u64,
    /// As in the header.
    pub first: u64,
    /// As in the header.
    pub stream: Stream,
}

/// How long the file `head` of a store with this limit is.
pub fn head_file_bytes(disk_limit: u64) -> u64 {
    let entries = (disk_limit / EXTENT_BYTES as u64) * CATALOG_ENTRY_BYTES as u64;
    (CATALOG_AT as u64 + entries).next_multiple_of(HEAD_BYTES as u64)
}

/// The mark's bytes.
pub fn encode_mark(store: u64, complete_below: u64) -> [u8; CATALOG_MARK_BYTES] {
    let mut out = [0; CATALOG_MARK_BYTES];
    out[..8].copy_from_slice(&MAGIC);
    out[8..16].copy_from_slice(&store.to_le_bytes());
    out[16..24].copy_from_slice(&complete_below.to_le_bytes());
    let checksum = crc32fast::hash(&out[..24]);
    out[24..].copy_from_slice(&checksum.to_le_bytes());
    out
}

/// Below which serial the catalog of this store is complete.
pub fn decode_mark(bytes: &[u8], store: u64) -> Result<u64, Fault> {
    let bytes = bytes.get(..CATALOG_MARK_BYTES).ok_or(Fault::Cut)?;
    if bytes.iter().all(|byte| *byte == 0) {
        return Err(Fault::Blank);
    }
    let mut input = Input::new(bytes);
    let (magic, of, complete_below) = (input.take(8)?, input.u64()?, input.u64()?);
    if input.u32()? != crc32fast::hash(&bytes[..24]) {
        return Err(Fault::Checksum);
    }
    if magic == MAGIC && of == store { Ok(complete_below) } else { Err(Fault::Invalid("mark")) }
}

/// The entry of the extent at a position.
pub fn encode_entry(entry: Option<&CatalogEntry>, position: u32) -> [u8; CATALOG_ENTRY_BYTES] {
    let mut out = [0; CATALOG_ENTRY_BYTES];
    let Some(entry) = entry else { return out };
    out[..8].copy_from_slice(&entry.serial.to_le_bytes());
    out[8..16].copy_from_slice(&entry.lane.to_le_bytes());
    out[16..24].copy_from_slice(&entry.first.to_le_bytes());
    out[24] = match entry.stream {
        Stream::Items => 1,
        Stream::Journal => 2,
        Stream::Kept => 3,
    };
    let checksum = checksum(&out[..28], position);
    out[28..].copy_from_slice(&checksum.to_le_bytes());
    out
}

/// What the entry of the extent at a position says; `None`: nothing stands there.
pub fn decode_entry(bytes: &[u8], position: u32) -> Result<Option<CatalogEntry>, Fault> {
    let bytes = bytes.get(..CATALOG_ENTRY_BYTES).ok_or(Fault::Cut)?;
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let mut input = Input::new(bytes);
    let (serial, lane, first) = (input.u64()?, input.u64()?, input.u64()?);
    let stream = match input.take(4)?[0] {
        1 => Stream::Items,
        2 => Stream::Journal,
        3 => Stream::Kept,
        _ => return Err(Fault::Invalid("stream")),
    };
    if input.u32()? != checksum(&bytes[..28], position) {
        return Err(Fault::Checksum);
    }
    Ok(Some(CatalogEntry { serial, lane, first, stream }))
}

fn checksum(entry: &[u8], position: u32) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&position.to_le_bytes());
    hasher.update(entry);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::{CatalogEntry, decode_entry, decode_mark, encode_entry, encode_mark, head_file_bytes};
    use crate::format::{Fault, HEAD_BYTES};
    use crate::record::Stream;

    #[test]
    fn entries_and_mark_are_read_as_they_were_written_and_not_otherwise() {
        for stream in [Stream::Items, Stream::Journal, Stream::Kept] {
            let entry = CatalogEntry { serial: u64::MAX, lane: 7, first: 9, stream };
            let mut bytes = encode_entry(Some(&entry), 3);
            assert_eq!(decode_entry(&bytes, 3), Ok(Some(entry)));
            assert_eq!(decode_entry(&bytes, 4), Err(Fault::Checksum), "of another extent");
            bytes[9] ^= 1;
            assert_eq!(decode_entry(&bytes, 3), Err(Fault::Checksum));
        }
        assert_eq!(decode_entry(&encode_entry(None, 3), 3), Ok(None));
        assert_eq!(decode_entry(&[1; 31], 3), Err(Fault::Cut));
        let mut mark = encode_mark(5, 6);
        assert_eq!((decode_mark(&mark, 5), decode_mark(&mark, 4)), (Ok(6), Err(Fault::Invalid("mark"))));
        mark[20] ^= 1;
        assert_eq!((decode_mark(&mark, 5), decode_mark(&[0; 28], 5)), (Err(Fault::Checksum), Err(Fault::Blank)));
    }

    #[test]
    fn the_head_of_a_small_store_is_one_page() {
        assert_eq!(head_file_bytes(6 << 20), HEAD_BYTES as u64);
        assert_eq!(head_file_bytes(2 << 30), (1 << 20) + HEAD_BYTES as u64);
    }
}
