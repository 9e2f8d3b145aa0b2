//! The catalog on the disk: read once at a start, written a moment after what it names is durable. See `format/catalog.rs`.
//!
//! It is there to tell what was lost. Where it cannot be read or written the store works as well; it then knows less after damage.

use std::collections::BTreeMap;
use std::io;
use std::sync::PoisonError;

use crate::core::extents::Position;
use crate::core::recover::Known;
use crate::disk::DiskFile;
use crate::format::{
    CATALOG_AT, CATALOG_ENTRY_BYTES, CATALOG_MARK_AT, CATALOG_MARK_BYTES, CatalogEntry, decode_entry, decode_mark, encode_entry,
    encode_mark,
};
use crate::store::shared::Shared;

/// Read at a time.
const PIECE_BYTES: usize = 1024 * CATALOG_ENTRY_BYTES;

/// What it says.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    /// Of uses from this serial on some may be missing. 0: there is no catalog.
    pub(crate) complete_below: u64,
    entries: Vec<Known>,
}

impl Catalog {
    /// From the file `head`.
    pub(crate) fn read(head: &dyn DiskFile, store: u64) -> Catalog {
        let mut mark = [0; CATALOG_MARK_BYTES];
        let read = head.read_at(&mut mark, CATALOG_MARK_AT as u64);
        let Some(complete_below) = read.ok().and_then(|()| decode_mark(&mark, store).ok()) else { return Catalog::default() };
        let mut entries = Vec::new();
        let mut at = CATALOG_AT as u64;
        let end = head.bytes().unwrap_or(0);
        while at + CATALOG_ENTRY_BYTES as u64 <= end {
            let mut piece = vec![0; usize::try_from(end - at).unwrap_or(PIECE_BYTES).min(PIECE_BYTES)];
            if head.read_at(&mut piece, at).is_err() {
                break;
            }
            for bytes in piece.chunks_exact(CATALOG_ENTRY_BYTES) {
                entries.push(match decode_entry(bytes, entries.len() as u32) {
                    Ok(None) => Known::Nothing,
                    Ok(Some(entry)) => Known::Use(entry),
                    Err(_) => Known::Unknown,
                });
            }
            at += piece.len() as u64;
        }
        Catalog { complete_below, entries }
    }

    /// How many extents it names.
    pub(crate) fn len(&self) -> Position {
        self.entries.len() as Position
    }
    /// What is known of an extent.
    pub(crate) fn of(&self, position: Position) -> Known {
        self.entries.get(position as usize).copied().unwrap_or(Known::Unknown)
    }
}

/// Entries to write, by position.
pub(crate) type Entries = BTreeMap<Position, Option<CatalogEntry>>;

/// Writes entries into the file `head`; not synced. What has no place in it is left out.
pub(crate) fn write_entries(head: &dyn DiskFile, entries: &Entries) -> io::Result<()> {
    let end = head.bytes()?;
    let place = |position: Position| (CATALOG_AT + position as usize * CATALOG_ENTRY_BYTES) as u64;
    let mut entries = entries.iter().take_while(|(position, _)| place(**position) + CATALOG_ENTRY_BYTES as u64 <= end).peekable();
    while let Some((first, entry)) = entries.next() {
        // Neighbours are one write.
        let mut bytes = encode_entry(entry.as_ref(), *first).to_vec();
        let mut last = *first;
        while let Some((position, entry)) = entries.next_if(|(position, _)| **position == last + 1 && bytes.len() < PIECE_BYTES) {
            bytes.extend_from_slice(&encode_entry(entry.as_ref(), *position));
            last = *position;
        }
        head.write_at(&bytes, place(*first))?;
    }
    Ok(())
}

/// Says below which serial the catalog is complete; not synced.
pub(crate) fn write_mark(head: &dyn DiskFile, store: u64, complete_below: u64) -> io::Result<()> {
    head.write_at(&encode_mark(store, complete_below), CATALOG_MARK_AT as u64)
}

/// How far it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// Entries of uses with a smaller serial are durable.
    pub(crate) durable: u64,
    /// The mark says so up to there.
    pub(crate) marked: u64,
}

/// Brings the catalog up to date. The mark follows what is durable: it is behind by one call.
pub(crate) fn flush(shared: &Shared) {
    let mut progress = shared.catalogued.lock().unwrap_or_else(PoisonError::into_inner);
    let (entries, complete_below) = shared.core().take_uncatalogued();
    if entries.is_empty() && progress.marked == complete_below {
        return;
    }
    let mark = if entries.is_empty() { complete_below } else { progress.durable };
    match shared.files.write_catalog(&entries, mark) {
        Ok(()) => *progress = Progress { durable: complete_below, marked: mark },
        Err(_) => shared.core().put_back_uncatalogued(entries),
    }
}
