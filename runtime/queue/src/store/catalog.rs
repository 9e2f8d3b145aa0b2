//! The catalog on the disk: read once at a start, written when what it names is durable, synced a moment later. See `format/catalog.rs`.
//!
//! It is there to tell what was lost. Where it cannot be read or written the store works as well; it then knows less after damage.
//!
//! Invariants
//! 1. An entry is written after the use it names is durable, never before.
//! 2. The mark follows the entries by one call, each synced: below it no entry is missing.
//! 3. What cannot be read says nothing ([`Known::Unknown`]); it never says that an extent is free.
//! 4. One piece of it is in memory at a time, whatever the limit is.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use crate::core::extents::Position;
use crate::core::recover::Known;
use crate::disk::DiskFile;
use crate::format::{
    CATALOG_AT, CATALOG_ENTRY_BYTES, CATALOG_MARK_AT, CATALOG_MARK_BYTES, CatalogEntry, decode_entry, decode_mark, encode_entry,
    encode_mark,
};
use crate::store::shared::Shared;

/// Read and written at a time.
const PIECE_BYTES: usize = 1024 * CATALOG_ENTRY_BYTES;
const PIECE_ENTRIES: Position = 1024;

/// What it says. Read in pieces as it is asked, so that it takes no memory whatever the limit is.
#[derive(Default)]
pub(crate) struct Catalog {
    head: Option<Arc<dyn DiskFile>>,
    /// Of uses from this serial on some may be missing. 0: there is no catalog.
    pub(crate) complete_below: u64,
    entries: Position,
    /// The piece that was read last, by its number.
    piece: Mutex<Option<(Position, Vec<u8>)>>,
}

impl Catalog {
    /// Of the file `head`.
    pub(crate) fn read(head: Arc<dyn DiskFile>, store: u64) -> Catalog {
        let mut mark = [0; CATALOG_MARK_BYTES];
        let read = head.read_at(&mut mark, CATALOG_MARK_AT as u64);
        let Some(complete_below) = read.ok().and_then(|()| decode_mark(&mark, store).ok()) else { return Catalog::default() };
        let bytes = head.bytes().unwrap_or(0).saturating_sub(CATALOG_AT as u64);
        let entries = Position::try_from(bytes / CATALOG_ENTRY_BYTES as u64).unwrap_or(Position::MAX);
        Catalog { head: Some(head), complete_below, entries, piece: Mutex::default() }
    }

    /// How many extents it names.
    pub(crate) fn len(&self) -> Position {
        self.entries
    }
    /// What is known of an extent.
    pub(crate) fn of(&self, position: Position) -> Known {
        let (true, Some(head)) = (position < self.entries, &self.head) else { return Known::Unknown };
        let number = position / PIECE_ENTRIES;
        let mut piece = self.piece.lock().unwrap_or_else(PoisonError::into_inner);
        if piece.as_ref().is_none_or(|(read, _)| *read != number) {
            let count = (self.entries - number * PIECE_ENTRIES).min(PIECE_ENTRIES);
            let mut bytes = vec![0; count as usize * CATALOG_ENTRY_BYTES];
            if head.read_at(&mut bytes, place(number * PIECE_ENTRIES)).is_err() {
                return Known::Unknown;
            }
            *piece = Some((number, bytes));
        }
        let at = (position % PIECE_ENTRIES) as usize * CATALOG_ENTRY_BYTES;
        match piece.as_ref().and_then(|(_, bytes)| decode_entry(bytes.get(at..)?, position).ok()) {
            Some(None) => Known::Nothing,
            Some(Some(entry)) => Known::Use(entry),
            None => Known::Unknown,
        }
    }
}

fn place(position: Position) -> u64 {
    CATALOG_AT as u64 + u64::from(position) * CATALOG_ENTRY_BYTES as u64
}

/// Entries to write, by position.
pub(crate) type Entries = BTreeMap<Position, Option<CatalogEntry>>;

/// Writes entries into the file `head`; not synced. What has no place in it is left out.
pub(crate) fn write_entries(head: &dyn DiskFile, entries: &Entries) -> io::Result<()> {
    let end = head.bytes()?;
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
