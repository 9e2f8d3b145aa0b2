//! The bytes on disk, format version 1: encoding and decoding, and nothing else. No I/O, no clock, no state of a store.
//!
//! ```text
//! head          4 KiB   magic, version, store id, extent bytes, file bytes, disk limit, checksum; behind it the catalog
//! redo          batches for many places, until they are synced there; see `redo`
//! extents-NNNN  file bytes, allocated whole; extent `index` stands at index * 64 KiB
//!
//! extent  | header, one sector | fragment | fragment | … free … | footer, when sealed |
//! header  magic, version, store id, position, lane, stream, serial, first sequence, meta, names, checksum
//! fragment, on a multiple of 8: a frame of 10 bytes with length, batch, kind and checksum, then the payload
//! record  one fragment, or several over as many extents of the same stream; its first fragment holds its whole head
//! footer  an entry per record that begins here, then a trailer of fixed size at the very end of the extent
//! ```
//! All numbers are little-endian. Times are milliseconds of store time.
//!
//! Invariants
//! 1. Decoding never panics, on any bytes, and allocates no more than a small multiple of what it was given.
//! 2. Everything carries a checksum and a version. The checksum of fragments and footers covers the extent's serial and the
//!    place in it, so what an earlier use of the extent left behind is never taken for valid.
//! 3. Batches of one extent are numbered upwards: one write, one number. A batch is only written when the one before it is
//!    durable, so a gap with a later batch behind it is damage, and a gap inside the last batch is a torn write. A start writes a filler
//!    into a torn gap ([`Scan::fillers`]) before it writes anything behind it.
//! 4. A fragment, its entry in the footer and the trailer always fit together: what was appended can be sealed.
//!
//! Writing: [`Tail::new`] of a new header, or [`Tail::resume`] of a scan. Once per write [`Tail::begin_batch`], which answers where the bytes
//! go; then [`Tail::append`] for each [`Draft`], which answers how much of it is in: where it answers `None` or less than all, [`Tail::seal`]
//! and go on in the next extent of the stream with the same draft. All of it goes into one buffer that is written in one piece.
//!
//! Reading: [`decode_header`]; [`footer_bytes`] and [`decode_footer`] of a sealed extent; `scan` of an open or damaged one
//! and [`scan_last`] of one that the last write may have sealed, [`Join`] for
//! records over several extents, then [`decode_item`] or [`decode_journal`]. One record alone: [`Fragment::decode`] at its offset;
//! [`decode_item_head`] and [`decode_job`] read what stands in its first fragment.
//!
//! After a crash any part of the last batch may be there and is used: what must become true together is one record.
//!
//! Limits: names of 128 bytes, two keys an item, records of [`MOST_RECORD_BYTES`].
//!
//! It refuses: unknown versions and kinds (`Fault::Version`, `Fault::Invalid`), never guessing what they mean.

mod bytes;
mod catalog;
mod footer;
mod fragment;
mod head;
mod header;
mod item;
mod join;
mod journal;
mod redo;
mod scan;
mod tail;

pub use catalog::{
    CATALOG_AT, CATALOG_ENTRY_BYTES, CATALOG_MARK_AT, CATALOG_MARK_BYTES, CatalogEntry, decode_entry, decode_mark, encode_entry,
    encode_mark, head_file_bytes,
};
pub use footer::{decode_footer, footer_bytes};
pub use fragment::{Fragment, Kind, Piece};
pub use head::StoreHead;
pub use header::{decode_header, encode_header};
pub use item::{decode_item, decode_item_head};
pub use join::Join;
pub use journal::{META_HEAD_BYTES, MOST_JOB_HEAD_BYTES, decode_job, decode_journal};
pub use redo::{REDO_HEAD_BYTES, REDO_PAGE_BYTES, RedoHead, RedoWrite, decode_redo, put_redo, redo_announced, redo_bytes};
pub use scan::{Gap, Scan, scan, scan_last};
pub use tail::{Draft, LEAST_ENTRY_BYTES, LEAST_ITEM_HEAD_BYTES, MOST_ENTRY_BYTES, MOST_ITEM_HEAD_BYTES, Tail, record_disk_bytes};

/// The version this code writes.
pub const VERSION: u8 = 1;
/// What a disk writes whole or not at all.
pub const SECTOR_BYTES: usize = 512;
/// The file `head`.
pub const HEAD_BYTES: usize = 4096;
/// Its name.
pub const HEAD_NAME: &str = "head";
/// The file of batches for many places.
pub const REDO_NAME: &str = "redo";
/// Its smallest and largest size.
pub const REDO_BYTES: std::ops::RangeInclusive<u64> = 16 * 1024..=16 * 1024 * 1024;
/// One extent.
pub const EXTENT_BYTES: usize = 64 * 1024;
/// The header of an extent.
pub const HEADER_BYTES: usize = SECTOR_BYTES;
/// What stands before the payload of a fragment.
pub const FRAGMENT_BYTES: usize = 10;
/// Fragments begin on a multiple of this.
pub const ALIGNMENT: usize = 8;
/// The end of a footer.
pub const TRAILER_BYTES: usize = 32;
/// Of a queue's or a tenant's name.
pub const MOST_NAME_BYTES: usize = 128;
/// Keys of one item.
pub const MOST_KEYS: usize = 2;
/// Head and body of one record.
pub const MOST_RECORD_BYTES: usize = 1 << 30;
/// Files have smaller numbers: the place of an extent is 32 bits.
const MOST_FILES: u32 = 1 << 20;
/// Smallest and largest store file.
pub const FILE_BYTES: std::ops::RangeInclusive<u64> = 1024 * 1024..=64 * 1024 * 1024;

const _: () = assert!(EXTENT_BYTES - 1 <= u16::MAX as usize, "offsets in an extent are 16 bits");
const _: () = assert!(HEADER_BYTES.is_multiple_of(ALIGNMENT) && EXTENT_BYTES.is_multiple_of(SECTOR_BYTES));
const _: () = assert!(FILE_BYTES.start().is_multiple_of(EXTENT_BYTES as u64));

/// Why bytes are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Nothing of ours was ever written here.
    #[error("nothing was written here")]
    Blank,
    /// There are fewer bytes than there should be.
    #[error("it is cut short")]
    Cut,
    /// The checksum does not match.
    #[error("its checksum does not match")]
    Checksum,
    /// A version this program does not know.
    #[error("it has format version {0}, which this program does not know")]
    Version(u8),
    /// A value that cannot be.
    #[error("it has an impossible {0}")]
    Invalid(&'static str),
}

/// The name of a store file.
pub fn file_name(number: u32) -> String {
    format!("extents-{number:04}")
}

/// The number of a store file, or `None` for other files. One spelling for each number.
pub fn file_number(name: &str) -> Option<u32> {
    let number = name.strip_prefix("extents-")?.parse().ok()?;
    (number < MOST_FILES && file_name(number) == name).then_some(number)
}

/// How large the files of a store with this limit are: a 32nd, whole extents, 1 to 64 MiB. Fixed when the store is made.
pub fn file_bytes(disk_limit: u64) -> u64 {
    let bytes = (disk_limit / 32).clamp(*FILE_BYTES.start(), *FILE_BYTES.end());
    bytes - bytes % EXTENT_BYTES as u64
}
