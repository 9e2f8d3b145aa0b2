//! The journal stream of a lane: where the newest record of each job, note and purge stands.
//!
//! Invariants
//! 1. Of each thing at most one entry is live: the newest.
//! 2. A live entry is needed, or was when last looked at; cleaning looks again.
//! 3. Memory is 16 bytes per record that is kept, and 16 more where it has an outcome.

use std::collections::VecDeque;

use crate::core::extents::Position;
use crate::core::stream::Open;
use crate::core::write::place;
use crate::core::write::small_bytes;
use crate::job::JobState;

/// What an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    Job,
    Purge,
    Note,
}

/// One record, packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Sequence of a job, number of a purge or a note; 56 bits. Above: attempts of a job.
    name: u64,
    /// Seconds of store time until which it is needed for itself.
    until: u32,
    /// In the extent.
    pub(crate) offset: u16,
    /// 0..4 state, 4..6 sort, 6 outcome, 7 gone, 8 dead, 9 keyed, 10..15 length in words, 15 void.
    bits: u16,
}

const OUTCOME: u16 = 1 << 6;
const GONE: u16 = 1 << 7;
const DEAD: u16 = 1 << 8;
const KEYED: u16 = 1 << 9;
const VOID: u16 = 1 << 15;
const NAME_BITS: u32 = 56;

/// What an entry is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewEntry {
    pub(crate) sort: Sort,
    pub(crate) name: u64,
    pub(crate) attempts: u32,
    pub(crate) state: JobState,
    /// Milliseconds.
    pub(crate) until: u64,
    pub(crate) offset: usize,
    /// Bytes on disk without the outcome.
    pub(crate) bytes: u64,
    /// Bytes of the outcome.
    pub(crate) outcome: Option<u64>,
    pub(crate) gone: bool,
    pub(crate) keyed: bool,
    pub(crate) void: bool,
}

impl NewEntry {
    /// Of a purge or a note.
    pub(crate) fn other(sort: Sort, name: u64, until: u64, offset: usize, bytes: usize) -> Self {
        NewEntry {
            sort,
            name,
            attempts: 0,
            state: JobState::Purged,
            until,
            offset,
            bytes: small_bytes(bytes.min(128)),
            outcome: None,
            gone: false,
            keyed: false,
            void: false,
        }
    }
}

impl Entry {
    fn new(new: &NewEntry) -> Self {
        let state = new.state as u16;
        let flag = |is: bool, flag: u16| if is { flag } else { 0 };
        let words = u16::try_from(new.bytes.div_ceil(8)).unwrap_or(u16::MAX).min(31);
        let bits = state
            | (new.sort as u16) << 4
            | flag(new.outcome.is_some(), OUTCOME)
            | flag(new.gone, GONE)
            | flag(new.keyed, KEYED)
            | flag(new.void, VOID)
            | words << 10;
        let name = new.name & ((1 << NAME_BITS) - 1) | u64::from(new.attempts.min(255)) << NAME_BITS;
        let until = u32::try_from(new.until.div_ceil(1000)).unwrap_or(u32::MAX);
        Entry { name, until, offset: place(new.offset), bits }
    }
    pub(crate) fn name(&self) -> u64 {
        self.name & ((1 << NAME_BITS) - 1)
    }
    pub(crate) fn attempts(&self) -> u32 {
        (self.name >> NAME_BITS) as u32
    }
    pub(crate) fn state(&self) -> JobState {
        JobState::ALL.get(usize::from(self.bits & 15)).copied().unwrap_or(JobState::Unknown)
    }
    pub(crate) fn is_job(&self) -> bool {
        self.bits >> 4 & 3 == Sort::Job as u16
    }
    fn has_key_or_lives(&self) -> bool {
        self.is_keyed() || !self.is_job() || !self.state().is_end()
    }
    fn is(&self, sort: Sort, name: u64) -> bool {
        self.name() == name && self.bits >> 4 & 3 == sort as u16
    }
    pub(crate) fn has_outcome(&self) -> bool {
        self.bits & OUTCOME != 0
    }
    pub(crate) fn outcome_gone(&self) -> bool {
        self.bits & GONE != 0
    }
    pub(crate) fn is_dead(&self) -> bool {
        self.bits & DEAD != 0
    }
    pub(crate) fn is_keyed(&self) -> bool {
        self.bits & KEYED != 0
    }
    pub(crate) fn is_void(&self) -> bool {
        self.bits & VOID != 0
    }
    /// Whether it is past its time.
    pub(crate) fn is_past(&self, now: u64) -> bool {
        u64::from(self.until) * 1000 <= now
    }
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.bits >> 10 & 31) * 8
    }
}

/// One extent.
#[derive(Debug)]
pub(crate) struct JournalExtent {
    pub(crate) serial: u64,
    pub(crate) position: Position,
    /// Sorted by name when sealed.
    entries: Vec<Entry>,
    sealed: bool,
    /// Bytes of live records without their outcomes.
    pub(crate) live: u64,
    /// Bytes of outcomes of live records.
    pub(crate) outcomes: u64,
    /// Of `live`, what must outlive it, and what of that has no key: when last counted.
    pub(crate) needed: (u64, u64),
    /// The batch with which all that was needed of it stands elsewhere.
    pub(crate) moved: Option<u64>,
    /// Length of each outcome that begins in it.
    long: Vec<(u64, u64)>,
    lowest: u64,
    highest: u64,
}

impl JournalExtent {
    pub(crate) fn new(serial: u64, position: Position) -> Self {
        JournalExtent {
            serial,
            position,
            entries: Vec::new(),
            sealed: false,
            live: 0,
            outcomes: 0,
            needed: (0, 0),
            moved: None,
            long: Vec::new(),
            lowest: u64::MAX,
            highest: 0,
        }
    }
    pub(crate) fn push(&mut self, new: &NewEntry) {
        let entry = Entry::new(new);
        self.lowest = self.lowest.min(entry.name());
        self.highest = self.highest.max(entry.name());
        self.live += entry.bytes();
        self.needed.0 += entry.bytes();
        self.needed.1 += if entry.has_key_or_lives() { 0 } else { entry.bytes() };
        if let Some(bytes) = new.outcome {
            self.outcomes += bytes;
            self.long.push((entry.name(), bytes));
        }
        self.entries.push(entry);
    }
    pub(crate) fn seal(&mut self) {
        self.entries.sort_by_key(Entry::name);
        self.entries.shrink_to_fit();
        self.long.shrink_to_fit();
        self.sealed = true;
    }
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }
    pub(crate) fn longest_outcome(&self) -> u64 {
        self.long.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0)
    }
    /// Length of the outcome that the newest record of a job in it has.
    pub(crate) fn outcome_bytes(&self, name: u64) -> u64 {
        self.long.iter().rfind(|(of, _)| *of == name).map_or(0, |(_, bytes)| *bytes)
    }
    fn find(&self, sort: Sort, name: u64) -> Option<usize> {
        if name < self.lowest || name > self.highest {
            return None;
        }
        let wanted = |entry: &Entry| entry.is(sort, name) && !entry.is_dead();
        if !self.sealed {
            return self.entries.iter().rposition(wanted);
        }
        let from = self.entries.partition_point(|entry| entry.name() < name);
        let same = self.entries[from..].iter().take_while(|entry| entry.name() == name).position(wanted);
        same.map(|index| from + index)
    }
    fn kill(&mut self, index: usize) -> (u64, u64) {
        let entry = &mut self.entries[index];
        entry.bits |= DEAD;
        let (name, bytes, long) = (entry.name(), entry.bytes(), entry.has_outcome());
        let keyless = if entry.has_key_or_lives() { 0 } else { bytes };
        self.live -= bytes;
        self.needed = (self.needed.0.saturating_sub(bytes), self.needed.1.saturating_sub(keyless));
        let outcome = if long { self.long.iter().rfind(|(of, _)| *of == name).map_or(0, |(_, bytes)| *bytes) } else { 0 };
        self.outcomes = self.outcomes.saturating_sub(outcome);
        (bytes, outcome)
    }
}

/// The stream.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    pub(crate) extents: VecDeque<JournalExtent>,
    pub(crate) open: Option<Open>,
    /// Bytes of live records without their outcomes.
    pub(crate) live: u64,
    /// Bytes of outcomes of live records.
    pub(crate) outcomes: u64,
    /// Number of the next extent, from 1.
    pub(crate) next_ordinal: u64,
}

impl Journal {
    /// The live entry about something, and the index of its extent.
    pub(crate) fn find(&self, sort: Sort, name: u64) -> Option<(usize, Entry)> {
        self.extents.iter().enumerate().rev().find_map(|(at, extent)| Some((at, extent.entries[extent.find(sort, name)?])))
    }
    /// A record was written into the last extent or, where it began earlier, the one with that serial.
    pub(crate) fn push(&mut self, serial: u64, new: &NewEntry) {
        let Ok(at) = self.extents.binary_search_by_key(&serial, |extent| extent.serial) else { return };
        self.extents[at].push(new);
        self.live += new.bytes.div_ceil(8).min(31) * 8;
        self.outcomes += new.outcome.unwrap_or(0);
        if self.extents[at].sealed {
            self.extents[at].seal();
        }
    }
    /// The record about something is no longer needed.
    pub(crate) fn kill(&mut self, sort: Sort, name: u64) {
        let found =
            self.extents.iter_mut().rev().find_map(|extent| Some(extent.find(sort, name)).flatten().map(|index| extent.kill(index)));
        if let Some((bytes, outcome)) = found {
            self.live -= bytes;
            self.outcomes = self.outcomes.saturating_sub(outcome);
        }
    }
    /// Takes the oldest extent off: all that lived in it was moved.
    pub(crate) fn pop(&mut self) -> Option<JournalExtent> {
        let extent = self.extents.pop_front()?;
        self.live -= extent.live;
        self.outcomes = self.outcomes.saturating_sub(extent.outcomes);
        Some(extent)
    }
    /// Index of the extent with this serial.
    pub(crate) fn at(&self, serial: u64) -> Option<usize> {
        self.extents.binary_search_by_key(&serial, |extent| extent.serial).ok()
    }
    pub(crate) fn room(&self) -> usize {
        self.open.as_ref().map_or(0, |open| open.tail.room())
    }
    pub(crate) fn is_open(&self, serial: u64) -> bool {
        self.open.as_ref().is_some_and(|open| open.serial == serial)
    }
}

#[cfg(test)]
mod tests {
    use super::{Entry, Journal, JournalExtent, NewEntry, Sort};
    use crate::job::JobState;

    #[test]
    fn a_kept_state_takes_16_bytes() {
        assert_eq!(size_of::<Entry>(), 16);
    }

    #[test]
    fn the_newest_record_counts_and_killed_ones_cost_nothing() {
        let mut journal = Journal::default();
        let new = |name, state, outcome| NewEntry {
            sort: Sort::Job,
            name,
            attempts: 3,
            state,
            until: 9_000,
            offset: 512,
            bytes: 40,
            outcome,
            gone: false,
            keyed: false,
            void: false,
        };
        journal.extents.push_back(JournalExtent::new(4, 0));
        journal.push(4, &new(9, JobState::Running, None));
        journal.push(4, &new(2, JobState::Failed, Some(500)));
        journal.extents[0].seal();
        journal.extents.push_back(JournalExtent::new(6, 1));
        journal.kill(Sort::Job, 9);
        journal.push(6, &new(9, JobState::Succeeded, Some(70)));
        let (at, entry) = journal.find(Sort::Job, 9).expect("it is there");
        assert_eq!((at, entry.state(), entry.attempts(), entry.has_outcome()), (1, JobState::Succeeded, 3, true));
        assert!(journal.find(Sort::Note, 9).is_none() && entry.is_past(9_000) && !entry.is_past(8_999));
        assert_eq!((journal.live, journal.outcomes), (80, 570));
        journal.kill(Sort::Job, 2);
        assert_eq!((journal.live, journal.outcomes, journal.extents[0].live), (40, 70, 0));
    }
}
