//! Putting records into the batch that is being gathered.
//!
//! Whoever writes has asked before whether the extents it needs may be taken: [`Core::may_write`].

use crate::core::items::ItemExtent;
use crate::core::journal::{JournalExtent, NewEntry, Sort};
use crate::core::lane::{KeptExtent, Lane};
use crate::core::stream::{Open, extents_for};
use crate::core::{Core, Refused};
use crate::format::{ALIGNMENT, CatalogEntry, Draft, FRAGMENT_BYTES};
use crate::record::{ExtentHeader, JobRecord, JournalRecord, Meta, Stream};

/// What an allocation is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// An item: a room has promised it.
    Item,
    /// A record that the lane's share is for, or spare extents.
    Record,
    /// To make room: the cleaning reserve may be used.
    Cleaning,
}

/// Where a record begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub(crate) serial: u64,
    pub(crate) offset: usize,
}

/// Places in an extent are 16 bits.
pub(crate) fn place(offset: usize) -> u16 {
    u16::try_from(offset).unwrap_or(u16::MAX)
}

/// Bytes on disk of a record that is one head.
pub(crate) fn small_bytes(head: usize) -> u64 {
    (FRAGMENT_BYTES + head).next_multiple_of(ALIGNMENT) as u64
}

/// How long a job's record is needed for its own sake.
pub(crate) fn needed_until(job: &JobRecord) -> u64 {
    if !job.state.is_end() {
        return u64::MAX;
    }
    let keys = job.keys.iter().map(|key| key.until).chain(job.unique.map(|(_, until)| until));
    keys.fold(job.until, u64::max)
}

impl Lane {
    pub(crate) fn open(&mut self, stream: Stream) -> &mut Option<Open> {
        match stream {
            Stream::Items => &mut self.items.open,
            Stream::Journal => &mut self.journal.open,
            Stream::Kept => &mut self.kept.open,
        }
    }
    pub(crate) fn room(&self, stream: Stream) -> usize {
        match stream {
            Stream::Items => self.items.room(),
            Stream::Journal => self.journal.room(),
            Stream::Kept => self.kept.room(),
        }
    }
}

impl Core {
    /// Extents kept back for cleaning: it can always move the largest item, and say so.
    pub(crate) fn cleaning_reserve(&self) -> u64 {
        3 + extents_for(self.largest + 1024, 0)
    }

    /// Whether a record of so many bytes may be put into a stream of a lane.
    pub(crate) fn may_write(&self, lane: usize, stream: Stream, bytes: u64, purpose: Purpose) -> bool {
        let of = &self.lanes[lane];
        let more = extents_for(bytes, of.room(stream));
        if more == 0 {
            return true;
        }
        if more > self.extents.free() {
            return false;
        }
        match purpose {
            Purpose::Item => true,
            // Whatever is free but what rooms were promised. What journals were promised comes back with the step.
            Purpose::Cleaning => more <= self.extents.free().saturating_sub(self.promised_extents),
            Purpose::Record => {
                let beyond = self.beyond_promise(lane, stream, more);
                beyond == 0 || self.has_spare(lane, beyond, 0)
            }
        }
    }

    /// How many of so many more extents of a stream its lane was not promised.
    fn beyond_promise(&self, lane: usize, stream: Stream, more: u64) -> u64 {
        let journal = &self.lanes[lane].journal.extents;
        let promised = if stream == Stream::Journal { self.lanes[lane].journal_promise().saturating_sub(journal.len() as u64) } else { 0 };
        more.saturating_sub(promised)
    }

    /// Whether so many extents may be taken that nobody was promised, leaving a share of one in `leave` of tenant and store.
    pub(crate) fn has_spare(&self, lane: usize, extents: u64, leave: u64) -> bool {
        let part = |all: u64| all.checked_div(leave).unwrap_or(0);
        let usable = self.extents.usable();
        let tenant = self.tenants.get(&self.lanes[lane].name.tenant);
        let (claimed, limit) =
            tenant.map_or((0, u64::MAX), |tenant| (tenant.claimed, tenant.disk_limit / crate::format::EXTENT_BYTES as u64));
        self.claimed + extents + self.cleaning_reserve() + part(usable) <= usable && claimed + extents + part(limit) <= limit
    }

    /// Puts a record into a stream. `next`: the first sequence that may begin in an extent taken for it, and behind its beginning.
    pub(crate) fn write(&mut self, lane: usize, stream: Stream, draft: &Draft, next: (u64, u64)) -> Placed {
        self.touch(lane);
        let (mut done, mut placed) = (0, None);
        loop {
            if let Some(open) = self.lanes[lane].open(stream).as_mut() {
                let serial = open.serial;
                let (tail, out) = open.begin();
                if let Some((offset, written)) = tail.append(out, draft, done) {
                    done = written;
                    let begins = *placed.get_or_insert(Placed { serial, offset });
                    if done == draft.bytes() {
                        return begins;
                    }
                }
                self.seal(lane, stream);
            }
            let first = if placed.is_some() { next.1 } else { next.0 };
            self.open_extent(lane, stream, first);
        }
    }

    /// The open extent of a stream takes nothing more.
    pub(crate) fn seal(&mut self, lane: usize, stream: Stream) {
        let of = &mut self.lanes[lane];
        let Some(open) = of.open(stream).take() else { return };
        if let (Stream::Journal, Some(extent)) = (stream, of.journal.extents.back_mut()) {
            extent.seal();
        }
        self.gathering.sealed.push(open.seal());
        self.touch(lane);
    }

    fn open_extent(&mut self, lane: usize, stream: Stream, first: u64) {
        // Whoever writes has looked before; the room is there.
        let position = self.extents.allocate().expect("extents were promised before they are written");
        let serial = self.next_serial;
        self.next_serial += 1;
        if self.lanes[lane].number == 0 {
            self.lanes[lane].number = serial;
            self.by_number.insert(serial, lane);
        }
        let meta = self.stamp(Meta { next_sequence: self.lanes[lane].next_sequence, ..self.lanes[lane].meta });
        let of = &mut self.lanes[lane];
        let first = match stream {
            Stream::Items => {
                of.items.extents.push_back(ItemExtent::new(serial, position, first, self.now));
                first
            }
            Stream::Journal => {
                of.journal.extents.push_back(JournalExtent::new(serial, position));
                of.journal.next_ordinal += 1;
                of.journal.next_ordinal - 1
            }
            Stream::Kept => {
                of.kept.extents.push_back(KeptExtent { serial, position, items: Vec::new(), live: 0 });
                of.kept.next_ordinal += 1;
                of.kept.next_ordinal - 1
            }
        };
        let (number, name) = (of.number, of.name.clone());
        let header = ExtentHeader { store: self.store, position, lane: number, stream, serial, first, meta, name };
        self.gathering.opened.push((position, CatalogEntry { serial, lane: number, first, stream }));
        *of.open(stream) = Some(Open::new(&header));
        self.settle(lane);
    }

    /// With the time of now.
    pub(crate) fn stamp(&self, meta: Meta) -> Meta {
        Meta { time: self.now, wall: self.wall, ..meta }
    }

    /// Writes what became of a job in place of what was written before. `Later`: the journal must be cleaned first.
    pub(crate) fn write_job(&mut self, lane: usize, mut job: JobRecord, purpose: Purpose) -> Result<(), Refused> {
        let mut draft = Draft::journal(&JournalRecord::Job(job.clone()));
        let too_large = job.outcome.as_ref().is_some_and(|outcome| outcome.len() as u64 > self.lanes[lane].outcome_bytes);
        if too_large || (job.outcome.is_some() && !self.may_keep_outcome(lane, draft.disk_bytes() as u64)) {
            job.outcome = None;
            job.outcome_gone = true;
            self.room_wanted |= !too_large;
            draft = Draft::journal(&JournalRecord::Job(job.clone()));
        }
        if !self.may_write(lane, Stream::Journal, draft.disk_bytes() as u64, purpose) {
            return Err(self.later(lane));
        }
        self.gathering.commands += 1;
        if self.lanes[lane].has_record(job.sequence) {
            self.lanes[lane].journal.kill(Sort::Job, job.sequence);
        }
        let placed = self.write(lane, Stream::Journal, &draft, (0, 0));
        let outcome = job.outcome.as_ref().map(|outcome| outcome.len() as u64);
        let entry = NewEntry {
            sort: Sort::Job,
            name: job.sequence,
            attempts: job.attempts,
            state: job.state,
            until: needed_until(&job),
            offset: placed.offset,
            bytes: small_bytes(draft.bytes() - job.body_bytes()),
            outcome,
            gone: job.outcome_gone,
            keyed: !job.keys.is_empty() || job.unique.is_some(),
            void: job.void,
        };
        self.lanes[lane].journal.push(placed.serial, &entry);
        if let Some((name, content)) = job.note {
            self.enter_note(lane, (placed.serial, placed.offset), name, content);
        }
        Ok(())
    }

    /// Outcomes take spare extents only, and never the last of them.
    fn may_keep_outcome(&self, lane: usize, bytes: u64) -> bool {
        let more = extents_for(bytes, self.lanes[lane].journal.room());
        more == 0 || (more <= self.extents.free() && self.has_spare(lane, more, 16))
    }

    /// A record for something other than a job.
    pub(crate) fn write_other(
        &mut self,
        lane: usize,
        record: &JournalRecord,
        number: u64,
        until: u64,
        purpose: Purpose,
    ) -> Result<u64, Refused> {
        let draft = Draft::journal(record);
        if !self.may_write(lane, Stream::Journal, draft.disk_bytes() as u64, purpose) {
            return Err(self.later(lane));
        }
        let placed = self.write(lane, Stream::Journal, &draft, (0, 0));
        let sort = match record {
            JournalRecord::Note { .. } => Sort::Note,
            JournalRecord::Purged { .. } | JournalRecord::Lost { .. } => Sort::Purge,
            JournalRecord::Meta(_) | JournalRecord::Job(_) => return Ok(draft.bytes() as u64),
        };
        let entry = NewEntry::other(sort, number, until, placed.offset, draft.bytes());
        self.lanes[lane].journal.push(placed.serial, &entry);
        Ok(draft.bytes() as u64)
    }

    /// The lane's journal must be cleaned first.
    pub(crate) fn later(&mut self, lane: usize) -> Refused {
        self.lanes[lane].wants_cleaning = true;
        self.wanting.push(lane);
        Refused::Later
    }

    /// The lane has something in the batch that is being gathered.
    pub(crate) fn touch(&mut self, lane: usize) {
        if !self.lanes[lane].dirty {
            self.lanes[lane].dirty = true;
            self.gathering.lanes.push(lane);
        }
    }
}
