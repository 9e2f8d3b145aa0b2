//! The growing end of an extent: where the next fragment goes, and what the footer will say.
//!
//! Writing: `begin_batch` once per write, `append` for each record (again in the next extent while it answers with less than the
//! whole), `seal` when nothing more is to go in. What they put into a buffer is what is written at the offset that `begin_batch`
//! answered, in one piece.

use bytes::Bytes;

use crate::format::footer::{self, Trailer};
use crate::format::fragment::{self, Kind, Piece};
use crate::format::item::{decode_item_head, put_head};
use crate::format::scan::Scan;
use crate::format::{ALIGNMENT, EXTENT_BYTES, FRAGMENT_BYTES, HEADER_BYTES, MOST_KEYS, TRAILER_BYTES, journal};
use crate::record::{ExtentHeader, ItemRecord, JournalRecord};

const ORIGIN_BYTES: usize = 24;
const UNIQUE_BYTES: usize = 26;
const KEY_BYTES: usize = 42;
/// An item's head without the parts that may be missing.
pub const LEAST_ITEM_HEAD_BYTES: usize = 21;
/// The longest head of an item: expiry, order, origin, business key and both keys.
pub const MOST_ITEM_HEAD_BYTES: usize = LEAST_ITEM_HEAD_BYTES + 16 + ORIGIN_BYTES + UNIQUE_BYTES + MOST_KEYS * KEY_BYTES;
/// The longest entry in a footer of an item that nothing is tied to.
pub const LEAST_ENTRY_BYTES: usize = 3 + 5 + 8;
/// The longest entry of an item in a footer.
pub const MOST_ENTRY_BYTES: usize = LEAST_ENTRY_BYTES + ORIGIN_BYTES + UNIQUE_BYTES + MOST_KEYS * KEY_BYTES;
/// Room that an extent has for records and their entries.
const ROOM_BYTES: usize = EXTENT_BYTES - HEADER_BYTES - TRAILER_BYTES;

/// What a record of `head` and `body` bytes with a footer entry of `entry` bytes takes on disk at most, wherever it is put: frames of
/// all its fragments, rounding, and the end of an extent that its head did not fit into.
pub const fn record_disk_bytes(head: usize, body: usize, entry: usize) -> usize {
    let frame = FRAGMENT_BYTES + ALIGNMENT - 1;
    let pieces = 1 + body.div_ceil(ROOM_BYTES - frame - MOST_ENTRY_BYTES) + 1;
    head + body + entry + pieces * frame
}

/// A record made ready to be appended.
#[derive(Clone, Debug)]
pub struct Draft {
    kind: Kind,
    head: Vec<u8>,
    body: Bytes,
    /// Of an item: for its entry in the footer.
    item: Option<ItemRecord>,
}

impl Draft {
    /// An item for the items stream. Its content is shared, not copied.
    pub fn item(item: ItemRecord) -> Draft {
        let mut head = Vec::with_capacity(32);
        put_head(&mut head, &item);
        Draft { kind: Kind::Item, head, body: item.content.clone(), item: Some(item) }
    }
    /// A record for the journal.
    pub fn journal(record: &JournalRecord) -> Draft {
        let mut head = Vec::with_capacity(32);
        let (kind, body) = journal::put(&mut head, record);
        Draft { kind, head, body, item: None }
    }
    /// Head and body.
    pub fn bytes(&self) -> usize {
        self.head.len() + self.body.len()
    }
    /// What its entry in the footer takes at most.
    fn entry_bytes(&self) -> usize {
        let Some(item) = &self.item else { return 0 };
        let ties = if item.origin.is_some() { ORIGIN_BYTES } else { 0 } + if item.unique.is_some() { UNIQUE_BYTES } else { 0 };
        LEAST_ENTRY_BYTES + ties + item.keys.len().min(MOST_KEYS) * KEY_BYTES
    }
    /// What it takes on disk at most: see [`record_disk_bytes`].
    pub fn disk_bytes(&self) -> usize {
        record_disk_bytes(self.head.len(), self.body.len(), self.entry_bytes())
    }
}

/// The growing end of an extent.
#[derive(Clone, Debug)]
pub struct Tail {
    serial: u64,
    /// Where the last fragment ends, rounded up: where the next one begins.
    offset: usize,
    batch: u16,
    /// Nothing was appended in this batch yet.
    begins: bool,
    entries: Vec<u8>,
    entry_count: u16,
    last_sequence: u64,
    earliest_expiry: Option<u64>,
}

impl Tail {
    /// Of an extent that was just taken into use: its header is written, nothing else.
    pub fn new(header: &ExtentHeader) -> Tail {
        Tail {
            serial: header.serial,
            offset: HEADER_BYTES,
            batch: 0,
            begins: true,
            entries: Vec::new(),
            entry_count: 0,
            last_sequence: header.first.wrapping_sub(1),
            earliest_expiry: None,
        }
    }

    /// Of an extent that was open when it was read. `None`: it was sealed, or what was found leaves no room for a footer; nothing more
    /// goes into it.
    pub fn resume(header: &ExtentHeader, scan: &Scan<'_>) -> Option<Tail> {
        if scan.footer.is_some() {
            return None;
        }
        let mut tail = Tail { offset: scan.end.next_multiple_of(ALIGNMENT), batch: scan.last_batch, begins: false, ..Tail::new(header) };
        for fragment in scan.fragments.iter().filter(|fragment| fragment.piece.first && fragment.piece.kind == Kind::Item) {
            // What does not decode is damaged for every reader: it needs no entry.
            if let Ok((item, content_bytes, _)) = decode_item_head(fragment.payload) {
                tail.enter(fragment.offset, &item, content_bytes);
            }
        }
        let fits = tail.offset + tail.entries.len() + TRAILER_BYTES <= EXTENT_BYTES;
        fits.then_some(tail)
    }

    /// Begins a write: where its bytes go in the extent.
    pub fn begin_batch(&mut self) -> usize {
        if !self.begins || self.batch == 0 {
            self.batch += 1;
        }
        self.begins = true;
        self.offset
    }

    /// Where the next fragment would begin.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Bytes that are left for fragments and entries.
    pub fn room(&self) -> usize {
        (EXTENT_BYTES - TRAILER_BYTES).saturating_sub(self.offset + self.entries.len())
    }

    /// Whether a record would begin here, in part at least.
    pub fn takes(&self, draft: &Draft) -> bool {
        self.payload_room(draft, 0) > 0
    }

    /// Payload bytes that may go into the next fragment of a record of which `done` bytes are written. 0: nothing.
    fn payload_room(&self, draft: &Draft, done: usize) -> usize {
        let entry = if done == 0 { draft.entry_bytes() } else { 0 };
        // The place of the next fragment is rounded up: with less than that behind it the footer would not fit.
        let room = self.room().saturating_sub(entry + FRAGMENT_BYTES + ALIGNMENT - 1);
        // The first fragment holds the whole head, and something of the body if there is one.
        let least = if done > 0 { 1 } else { draft.head.len() + usize::from(!draft.body.is_empty()) };
        if room < least { 0 } else { room.min(draft.bytes() - done) }
    }

    /// Appends as much of a record as fits, of which `done` bytes are already written in earlier extents. Answers with where the
    /// fragment begins and how many bytes are written now, all in all; `None`: nothing fits, seal it.
    pub fn append(&mut self, out: &mut Vec<u8>, draft: &Draft, done: usize) -> Option<(usize, usize)> {
        let bytes = self.payload_room(draft, done);
        if bytes == 0 {
            return None;
        }
        let (head, body) = if done == 0 { (&draft.head[..], done) } else { (&[][..], done - draft.head.len()) };
        let body = &draft.body[body..body + bytes - head.len()];
        let piece =
            Piece { kind: draft.kind, first: done == 0, last: done + bytes == draft.bytes(), begins: self.begins, batch: self.batch };
        let offset = self.offset;
        fragment::put(out, self.serial, offset, piece, &[head, body]);
        let end = offset + FRAGMENT_BYTES + bytes;
        self.offset = end.next_multiple_of(ALIGNMENT);
        out.resize(out.len() + self.offset - end, 0);
        self.begins = false;
        if let (0, Some(item)) = (done, &draft.item) {
            self.enter(offset, item, item.content.len());
        }
        Some((offset, done + bytes))
    }

    fn enter(&mut self, offset: usize, item: &ItemRecord, content_bytes: usize) {
        let jump = item.sequence != self.last_sequence.wrapping_add(1);
        footer::put_entry(&mut self.entries, offset as u16, jump, item, content_bytes);
        self.entry_count += 1;
        self.last_sequence = item.sequence;
        self.earliest_expiry = match (self.earliest_expiry, item.expires_at) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }

    /// Fills up the rest of the extent: zeros and the footer.
    pub fn seal(self, out: &mut Vec<u8>) {
        let footer = self.entries.len() + TRAILER_BYTES;
        let free = (EXTENT_BYTES - footer).saturating_sub(self.offset);
        out.resize(out.len() + free, 0);
        let Tail { serial, batch, entry_count: entries, earliest_expiry, .. } = self;
        footer::put(out, &self.entries, &Trailer { serial, entries, end: self.offset as u16, batch, earliest_expiry });
    }
}
