//! One lane: its three streams, the jobs that are more than waiting, and what it may use.
//!
//! Memory
//! * per extent about 100 bytes, per item one bit, per kept state 16 bytes;
//! * per job at work, set aside, hidden or damaged one [`JobEntry`] with its [`Traits`]: at most leases + [`MOST_SET_ASIDE`] a lane;
//! * per dead letter one [`Letter`]: at most as many as the queue allows;
//! * the items of up to two extents while they are handed out.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use bytes::Bytes;

use crate::core::Ticket;
use crate::core::end_rate::EndRate;
use crate::core::extents::Position;
use crate::core::items::Items;
use crate::core::journal::Journal;
use crate::core::stream::{Open, USABLE_BYTES, extents_for};
use crate::item::{Hash, Key, Unique, Waits};
use crate::job::{JobId, JobState};
use crate::record::{ItemOrigin, ItemRecord, Meta};
use crate::status::LaneName;

/// Jobs of a lane that wait for something else than a worker: a pause, an earlier job with the same order value.
pub(crate) const MOST_SET_ASIDE: usize = 1_000;
/// A journal is promised this much more than what lives in it, so that cleaning always makes room: 5/4.
const SLACK: (u64, u64) = (5, 4);

/// What an item brought along.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Traits {
    pub(crate) appended_at: u64,
    pub(crate) expires_at: Option<u64>,
    pub(crate) order: Option<u64>,
    pub(crate) keys: Vec<Key>,
    pub(crate) unique: Option<Unique>,
    pub(crate) bytes: u64,
}

impl Traits {
    pub(crate) fn of(item: &ItemRecord) -> Self {
        Traits {
            appended_at: item.appended_at,
            expires_at: item.expires_at,
            order: item.order,
            keys: item.keys.clone(),
            unique: item.unique,
            bytes: item.content.len() as u64,
        }
    }
}

/// Why a job is more than waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Emitted by a job that has not ended: it does not exist yet.
    Hidden,
    /// At work, until the lease runs out.
    AtWork { token: u64, until: u64 },
    /// Waits for another attempt, or for its turn among those with its order value.
    Aside { not_before: u64 },
}

/// A job that is more than waiting.
#[derive(Debug)]
pub(crate) struct JobEntry {
    pub(crate) phase: Phase,
    /// Counted, with the one at work.
    pub(crate) attempts: u32,
    /// A write was started in this attempt.
    pub(crate) started: bool,
    /// A write was started in an attempt that never told its end.
    pub(crate) interrupted: bool,
    /// It has a record in the journal.
    pub(crate) recorded: bool,
    /// `None` after a start, until its extent was read.
    pub(crate) traits: Option<Box<Traits>>,
    /// Serial of the kept extent its content was moved to.
    pub(crate) kept: Option<u64>,
}

/// A dead letter: ended, but its content is kept.
#[derive(Debug)]
pub(crate) struct Letter {
    pub(crate) at: u64,
    pub(crate) until: u64,
    pub(crate) attempts: u32,
    pub(crate) bytes: u64,
    pub(crate) kept: Option<u64>,
}

/// What a job is as long as its end is not durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Until {
    pub(crate) state: JobState,
    pub(crate) attempts: u32,
    /// Content bytes; 0 where the job had ended before.
    pub(crate) bytes: u64,
}

/// Jobs that were purged together.
#[derive(Debug)]
pub(crate) struct Purge {
    pub(crate) number: u64,
    pub(crate) until: u64,
    /// Durable with it.
    pub(crate) ticket: u64,
    pub(crate) ranges: Vec<(u64, u64)>,
    pub(crate) bytes: u64,
}

/// What damage cost the lane, see [`crate::core::damage`].
#[derive(Debug)]
pub(crate) struct Loss {
    pub(crate) number: u64,
    pub(crate) until: u64,
    /// Whatever is missing of the journal before this place (an extent's serial and an offset in it) is known.
    pub(crate) serial: u64,
    pub(crate) offset: u64,
    /// Items below it may have been started.
    pub(crate) suspect_below: u64,
    /// Items that are gone.
    pub(crate) ranges: Vec<(u64, u64)>,
    pub(crate) bytes: u64,
}

/// A note.
#[derive(Debug)]
pub(crate) struct Note {
    pub(crate) number: u64,
    pub(crate) content: Bytes,
}

/// One extent of copies.
#[derive(Debug)]
pub(crate) struct KeptExtent {
    pub(crate) serial: u64,
    pub(crate) position: Position,
    /// Sequence and offset of each copy, in order of writing.
    pub(crate) items: Vec<(u64, u16)>,
    /// Copies that are needed, or not durably unneeded.
    pub(crate) live: u32,
}

/// The kept stream.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) extents: VecDeque<KeptExtent>,
    pub(crate) open: Option<Open>,
    pub(crate) next_ordinal: u64,
    /// Copies that stand on disk, needed or not.
    on_disk: HashMap<u64, u32>,
}

impl Kept {
    /// A copy was written.
    pub(crate) fn push(&mut self, serial: u64, sequence: u64, offset: u16) {
        if let Some(at) = self.by_serial(serial) {
            self.extents[at].items.push((sequence, offset));
            *self.on_disk.entry(sequence).or_default() += 1;
        }
    }
    /// Takes the first extent off, if nothing in it is needed.
    pub(crate) fn pop(&mut self) -> Option<KeptExtent> {
        let front = self.extents.front()?;
        if front.live > 0 || self.open.as_ref().is_some_and(|open| open.serial == front.serial) {
            return None;
        }
        let front = self.extents.pop_front()?;
        for (sequence, _) in &front.items {
            if let Some(copies) = self.on_disk.get_mut(sequence) {
                *copies -= 1;
                if *copies == 0 {
                    self.on_disk.remove(sequence);
                }
            }
        }
        Some(front)
    }
    pub(crate) fn by_serial(&self, serial: u64) -> Option<usize> {
        self.extents.binary_search_by_key(&serial, |extent| extent.serial).ok()
    }
    /// Whether any extent holds a copy, needed or not.
    pub(crate) fn holds(&self, sequence: u64) -> bool {
        self.on_disk.contains_key(&sequence)
    }
    /// Whether any copy is of a job for which that holds.
    pub(crate) fn holds_any(&self, is: impl Fn(u64) -> bool) -> bool {
        self.on_disk.keys().any(|sequence| is(*sequence))
    }
    pub(crate) fn room(&self) -> usize {
        self.open.as_ref().map_or(0, |open| open.tail.room())
    }
}

/// What rooms that were given out may still use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Promised {
    pub(crate) items: u64,
    /// Content bytes.
    pub(crate) bytes: u64,
    /// Bytes in item extents.
    pub(crate) disk: u64,
    /// Bytes in the journal.
    pub(crate) journal: u64,
}

/// What becomes true when the batch is durable.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// Jobs whose end is in the batch.
    pub(crate) ended: Vec<u64>,
    /// Items whose content is not needed any more; the kept extent it stands in, if it does.
    pub(crate) over: Vec<(u64, Option<u64>)>,
    /// Keys and business keys, and the jobs that hold them until then.
    pub(crate) freed_keys: Vec<(Hash, u64)>,
    pub(crate) freed_uniques: Vec<(Hash, u64)>,
    /// Jobs whose keys are free, in stretches.
    pub(crate) freed_ranges: Vec<(u64, u64)>,
    /// Jobs that count in queue and tenant until their end is durable: how many, and their content bytes.
    pub(crate) uncounted: (u64, u64),
    /// Of these, purged ones.
    pub(crate) purging: (u64, u64),
    /// As `over`, for whole extents: serial, and how many in it.
    pub(crate) purged: Vec<(u64, u32)>,
    /// Emitted items that exist now.
    pub(crate) revealed: Vec<u64>,
    /// Letters that were replayed, and their new jobs.
    pub(crate) replayed: Vec<(u64, JobId)>,
    /// Extents that the batch's meta record makes free.
    pub(crate) freed: Vec<Position>,
    /// The floors of that record.
    pub(crate) meta: Option<Meta>,
    /// Somebody may have something to take.
    pub(crate) work: bool,
}

/// Items that were read and wait to be handed out.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    pub(crate) items: BTreeMap<u64, ItemRecord>,
}

/// One lane.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) name: LaneName,
    /// 0 until it has its first extent.
    pub(crate) number: u64,
    pub(crate) items: Items,
    pub(crate) journal: Journal,
    pub(crate) kept: Kept,
    /// Floors that are durable.
    pub(crate) meta: Meta,
    pub(crate) next_sequence: u64,
    /// Items below it are durable.
    pub(crate) durable_next: u64,
    /// Items below it are over, or more than waiting.
    pub(crate) cursor: u64,
    pub(crate) jobs: BTreeMap<u64, JobEntry>,
    pub(crate) letters: BTreeMap<u64, Letter>,
    /// Jobs purged, and their content bytes, as long as that is not durable.
    pub(crate) purging: (u64, u64),
    /// Jobs whose end is decided but not durable, and what they are until then.
    pub(crate) ending: BTreeMap<u64, Until>,
    /// Jobs in `jobs` by order value.
    pub(crate) orders: HashMap<u64, BTreeSet<u64>>,
    /// Leases of jobs at work, by the time they run out.
    pub(crate) leases: BTreeSet<(u64, u64)>,
    /// Jobs in `jobs` whose traits are not known yet.
    pub(crate) unread: BTreeSet<u64>,
    /// Letters that are being replayed.
    pub(crate) replaying: BTreeSet<u64>,
    /// Letters that were, and their new jobs, as long as anything is kept of them.
    pub(crate) replayed: BTreeMap<u64, JobId>,
    pub(crate) purges: Vec<Purge>,
    pub(crate) losses: Vec<Loss>,
    pub(crate) notes: HashMap<Hash, Note>,
    pub(crate) next_number: u64,
    /// What the journal said of items below it may be lost: they are handed out as interrupted.
    pub(crate) suspect_below: u64,
    /// Of items with an origin that is not proven yet, at a start.
    pub(crate) origins: Vec<(u64, ItemOrigin)>,
    /// For the cursor, and for those set aside.
    pub(crate) loaded: [Loaded; 2],
    pub(crate) promised: Promised,
    /// Journal bytes kept for jobs that have not ended.
    pub(crate) reserved: u64,
    /// Jobs that have not ended.
    pub(crate) unended: u64,
    /// It counts among the lanes of its queue that have any.
    pub(crate) is_busy: bool,
    /// Numbers that were left out at the start, as some may have been given out to what never became durable.
    pub(crate) left_out: std::ops::Range<u64>,
    /// Their content bytes.
    pub(crate) bytes: u64,
    pub(crate) running: u64,
    pub(crate) hidden: u64,
    /// Extents that are not needed, but not durably so.
    pub(crate) freeing: u64,
    /// Extents it is charged with.
    pub(crate) claimed: u64,
    /// Of these, what rooms may still need.
    pub(crate) promised_extents: u64,
    /// Largest outcome that is kept, as last heard.
    pub(crate) outcome_bytes: u64,
    pub(crate) dirty: bool,
    /// The batch that its latest expired item ends in: until it is durable, the item is not said to be gone.
    pub(crate) expired_in: Ticket,
    pub(crate) pending: Pending,
    pub(crate) paused: bool,
    pub(crate) waits: Waits,
    pub(crate) waits_since: u64,
    /// Records that were held up because its journal was full.
    pub(crate) wants_cleaning: bool,
    /// In which sweep its journal may be passed over again to make room for others.
    pub(crate) passed_at: u64,
    pub(crate) appended: u64,
    pub(crate) ended: [u64; JobState::ALL.len()],
    pub(crate) end_rate: EndRate,
}

impl Lane {
    pub(crate) fn new(name: LaneName, now: u64) -> Self {
        Lane {
            name,
            number: 0,
            items: Items::default(),
            journal: Journal { next_ordinal: 1, ..Journal::default() },
            kept: Kept { next_ordinal: 1, ..Kept::default() },
            meta: Meta::default(),
            next_sequence: 1,
            durable_next: 1,
            cursor: 1,
            jobs: BTreeMap::new(),
            letters: BTreeMap::new(),
            purging: (0, 0),
            ending: BTreeMap::new(),
            orders: HashMap::new(),
            leases: BTreeSet::new(),
            unread: BTreeSet::new(),
            replaying: BTreeSet::new(),
            replayed: BTreeMap::new(),
            purges: Vec::new(),
            losses: Vec::new(),
            notes: HashMap::new(),
            next_number: 1,
            suspect_below: 0,
            origins: Vec::new(),
            loaded: Default::default(),
            promised: Promised::default(),
            reserved: 0,
            unended: 0,
            is_busy: false,
            left_out: 0..0,
            bytes: 0,
            running: 0,
            hidden: 0,
            freeing: 0,
            claimed: 0,
            promised_extents: 0,
            outcome_bytes: u64::MAX,
            dirty: false,
            expired_in: 0,
            pending: Pending::default(),
            paused: false,
            waits: Waits::Empty,
            waits_since: now,
            wants_cleaning: false,
            passed_at: 0,
            appended: 0,
            ended: Default::default(),
            end_rate: EndRate::default(),
        }
    }

    /// Extents that hold something of it.
    pub(crate) fn held(&self) -> u64 {
        (self.items.extents.len() + self.kept.extents.len() + self.journal.extents.len()) as u64 + self.freeing
    }
    /// Extents that its journal may have, whatever else happens in the store.
    pub(crate) fn journal_promise(&self) -> u64 {
        self.journal_promise_for(self.journal.live)
    }
    /// As if so many bytes lived in it.
    pub(crate) fn journal_promise_for(&self, live: u64) -> u64 {
        let purges = self.purges.iter().map(|purge| purge.bytes).chain(self.losses.iter().map(|loss| loss.bytes));
        let bodies: u64 = purges.chain(self.notes.values().map(|note| note.content.len() as u64)).sum();
        let bytes = live + self.reserved + self.promised.journal + bodies;
        if bytes == 0 && self.journal.extents.is_empty() {
            return 0;
        }
        (bytes * SLACK.0 / SLACK.1).div_ceil(USABLE_BYTES as u64).max(1)
    }
    /// Extents that rooms which were given out may still need.
    pub(crate) fn promised_extents(&self) -> u64 {
        extents_for(self.promised.disk, self.items.room())
    }
    /// Extents that it is charged with: what it holds and what it was promised.
    pub(crate) fn claim(&self) -> u64 {
        let items = self.items.extents.len() as u64 + self.promised_extents();
        let journal = (self.journal.extents.len() as u64).max(self.journal_promise());
        items + journal + self.kept.extents.len() as u64 + self.freeing
    }
    /// Jobs that wait for a worker, a pause or their turn.
    pub(crate) fn waiting(&self) -> u64 {
        self.unended.saturating_sub(self.running + self.hidden)
    }
    /// Jobs set aside.
    pub(crate) fn aside(&self) -> usize {
        self.jobs.len().saturating_sub(usize::try_from(self.running + self.hidden).unwrap_or(usize::MAX))
    }
    pub(crate) fn change_waits(&mut self, waits: Waits, now: u64) {
        if self.waits != waits {
            self.waits = waits;
            self.waits_since = now;
        }
    }
    /// Whether anything about a job may stand in the journal.
    pub(crate) fn has_record(&self, sequence: u64) -> bool {
        match self.jobs.get(&sequence) {
            Some(entry) => entry.recorded,
            None => self.letters.contains_key(&sequence) || !self.items.is_live(sequence),
        }
    }
    /// The smallest sequence whose end must be known as long as the item stands on disk.
    pub(crate) fn oldest_on_disk(&self) -> u64 {
        self.items.first()
    }
    /// A job joins those that are more than waiting.
    pub(crate) fn enter(&mut self, sequence: u64, entry: JobEntry) {
        match &entry.traits {
            Some(traits) => {
                if let Some(order) = traits.order {
                    self.orders.entry(order).or_default().insert(sequence);
                }
            }
            None => {
                self.unread.insert(sequence);
            }
        }
        match entry.phase {
            Phase::AtWork { until, .. } => {
                self.running += 1;
                self.leases.insert((until, sequence));
            }
            Phase::Hidden => self.hidden += 1,
            Phase::Aside { .. } => {}
        }
        self.jobs.insert(sequence, entry);
    }
    /// A job leaves them.
    pub(crate) fn leave(&mut self, sequence: u64) -> Option<JobEntry> {
        let entry = self.jobs.remove(&sequence)?;
        self.unread.remove(&sequence);
        match entry.phase {
            Phase::AtWork { until, .. } => {
                self.running -= 1;
                self.leases.remove(&(until, sequence));
            }
            Phase::Hidden => self.hidden -= 1,
            Phase::Aside { .. } => {}
        }
        if let Some(order) = entry.traits.as_ref().and_then(|traits| traits.order)
            && let Some(same) = self.orders.get_mut(&order)
        {
            same.remove(&sequence);
            if same.is_empty() {
                self.orders.remove(&order);
            }
        }
        Some(entry)
    }
    /// Whether an earlier job with the same order value has not ended.
    pub(crate) fn is_behind(&self, sequence: u64, order: Option<u64>) -> bool {
        let same = order.and_then(|order| self.orders.get(&order));
        same.and_then(BTreeSet::first).is_some_and(|first| *first < sequence)
    }
}
