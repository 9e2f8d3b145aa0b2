//! What is written into extents, as the core means it. The bytes are the format's business.
//!
//! A lane has three streams of extents. *Items* holds item records in sequence order and nothing else. *Journal* holds what became of
//! them. *Kept* holds copies of single items (set aside, dead letters) that were moved out of the items stream to free its extents; the
//! copy with the highest serial counts. In the journal the newest record about a thing replaces every older one about the same thing, so the live part of a journal
//! is at most one record per job, per note and per purge, and one meta record.

use bytes::Bytes;

use crate::item::{Hash, Key, Unique};
use crate::job::{JobId, JobState};
use crate::status::LaneName;

/// Which of a lane's streams an extent belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Item records.
    Items,
    /// What became of items: [`JournalRecord`].
    Journal,
    /// Item records again, in any order.
    Kept,
}

/// The first sector of an extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtentHeader {
    /// Of the store: a file of another store is recognized.
    pub store: u64,
    /// Where it is: number of the file times extents per file plus index.
    pub position: u32,
    /// Number of its lane: the serial of the lane's first extent.
    pub lane: u64,
    /// Which stream.
    pub stream: Stream,
    /// Of this use of the extent: larger than every one given out before, in the whole store. Seeds the checksums inside.
    pub serial: u64,
    /// Items: the sequence of the first record that begins in it. Journal and kept: its number in the stream, from 1 without a gap.
    pub first: u64,
    /// Floors in force when it was allocated.
    pub meta: Meta,
    /// The lane.
    pub name: LaneName,
}

/// The state of a lane as a whole, in each header and as a record of its own. The newest one counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Item extents with a smaller serial are free, whatever their headers say.
    pub items_floor: u64,
    /// Journal extents with a smaller serial are free.
    pub journal_floor: u64,
    /// Kept extents with a smaller serial are free.
    pub kept_floor: u64,
    /// The next item's sequence is at least this.
    pub next_sequence: u64,
    /// Store time, milliseconds.
    pub time: u64,
    /// The wall clock then, milliseconds since 1970: tells at a start how long the process was away.
    pub wall: u64,
}

/// Where an emitted or replayed item comes from: it counts only if the newest record of that job names the same emission, or nothing
/// is kept of that job any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemOrigin {
    /// The job that handed it on.
    pub job: JobId,
    /// Tells attempts apart. Never 0.
    pub emission: u64,
}

/// An item. Times are store time in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemRecord {
    /// Its number in the lane.
    pub sequence: u64,
    /// When.
    pub appended_at: u64,
    /// When it is given up.
    pub expires_at: Option<u64>,
    /// `order_by` value.
    pub order: Option<u64>,
    /// Born started.
    pub claimed: bool,
    /// At most two.
    pub keys: Vec<Key>,
    /// Taken until `appended_at` + `within`.
    pub unique: Option<Unique>,
    /// Emitted or replayed.
    pub origin: Option<ItemOrigin>,
    /// What was appended.
    pub content: Bytes,
}

/// What stands in a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalRecord {
    /// The lane.
    Meta(Meta),
    /// A job.
    Job(JobRecord),
    /// Every job in these ranges (first and last sequence, ascending, apart) that has no record of its own was purged.
    Purged {
        /// Kept until.
        until: u64,
        /// At least one.
        ranges: Vec<(u64, u64)>,
    },
    /// What damage cost the lane.
    Lost {
        /// Told until then.
        until: u64,
        /// Whatever is missing of the journal before this place is known: the serial of an extent, and an offset in it.
        serial: u64,
        /// See `serial`.
        offset: u64,
        /// Items below it may have been started.
        suspect_below: u64,
        /// Items that are gone: as in `Purged`, maybe none.
        ranges: Vec<(u64, u64)>,
    },
    /// A note.
    Note {
        /// Its name.
        name: Hash,
        /// What it says.
        content: Bytes,
    },
}

/// A key that outlives its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptKey {
    /// As in [`Key`].
    pub hash: Hash,
    /// As in [`Key`].
    pub input: Hash,
    /// Store time, milliseconds.
    pub until: u64,
}

/// What became of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRecord {
    /// Which.
    pub sequence: u64,
    /// Where it stands. `Queued`: handed back. `Running`: a write was started.
    pub state: JobState,
    /// An emitted item whose end never came true: it never existed. State is `Cancelled`.
    pub void: bool,
    /// A write was started and its end never told.
    pub interrupted: bool,
    /// Dead, and its content is kept as a letter.
    pub letter: bool,
    /// It had an outcome that was pushed out.
    pub outcome_gone: bool,
    /// Attempts counted.
    pub attempts: u32,
    /// When this was recorded.
    pub at: u64,
    /// `Queued`: not before. An end: kept until.
    pub until: u64,
    /// Which emission became true with this record; 0: none.
    pub emission: u64,
    /// Of an end: keys still held. (Before the end they are in the item.)
    pub keys: Vec<KeptKey>,
    /// Of an end: the business key still held, and until when.
    pub unique: Option<(Hash, u64)>,
    /// Of an end.
    pub outcome: Option<Bytes>,
    /// A note that becomes true with this record: as [`JournalRecord::Note`].
    pub note: Option<(Hash, Bytes)>,
    /// Of a dead letter that was replayed: the new job.
    pub replayed_as: Option<JobId>,
}

impl JobRecord {
    /// Bytes of what stands behind its head.
    pub(crate) fn body_bytes(&self) -> usize {
        self.outcome.as_ref().map_or(0, Bytes::len) + self.note.as_ref().map_or(0, |(_, content)| content.len())
    }
}

/// What the footer of a sealed items or kept extent says of one record that begins in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FooterItem {
    /// Where its first frame begins in the extent.
    pub offset: u16,
    /// Its number. Usually the one before plus one.
    pub sequence: u64,
    /// Content bytes.
    pub bytes: u32,
    /// Born started.
    pub claimed: bool,
    /// As in the item.
    pub keys: Vec<Key>,
    /// Hash and until when.
    pub unique: Option<(Hash, u64)>,
    /// As in the item.
    pub origin: Option<ItemOrigin>,
}

/// The end of a sealed extent: what a start must know of it. Journal extents are read whole at a start; theirs is empty and only
/// says that they are complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footer {
    /// Where the last frame ends.
    pub end: u16,
    /// The earliest expiry of the items that begin in it.
    pub earliest_expiry: Option<u64>,
    /// Items that begin in it, in order.
    pub items: Vec<FooterItem>,
}
