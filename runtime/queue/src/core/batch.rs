//! Batches: what is written together, and what follows when it is durable.
//!
//! gathering -> taken (one at a time) -> durable: effects, then what they make free is said in the next batch.

use crate::core::lane::Pending;
use crate::core::stream::Write;
use crate::core::write::Purpose;
use crate::core::{Core, Ticket};
use crate::format::{CatalogEntry, Draft, META_HEAD_BYTES, record_disk_bytes};
use crate::job::JobId;
use crate::record::{JournalRecord, Meta, Stream};

/// The batch that commands add to.
#[derive(Debug)]
pub(crate) struct Gathering {
    pub(crate) number: Ticket,
    pub(crate) lanes: Vec<usize>,
    /// Extents that are complete.
    pub(crate) sealed: Vec<Write>,
    /// Commands that it is for, about.
    pub(crate) commands: usize,
    /// Extents taken into use.
    pub(crate) opened: Vec<(u32, CatalogEntry)>,
}

impl Default for Gathering {
    fn default() -> Self {
        Gathering { number: 1, lanes: Vec::new(), sealed: Vec::new(), commands: 0, opened: Vec::new() }
    }
}

/// A batch on its way to the disk.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) number: Ticket,
    pub(crate) writes: Vec<Write>,
    lanes: Vec<(usize, u64, Pending)>,
    /// Extents taken into use with it, for the catalog.
    pub(crate) opened: Vec<(u32, CatalogEntry)>,
}

/// Whom a durable batch concerns.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// Jobs that ended.
    pub(crate) ended: Vec<JobId>,
    /// Numbers of lanes that were purged.
    pub(crate) purged: Vec<u64>,
    /// Lanes that may have something to take.
    pub(crate) work: Vec<usize>,
}

impl Core {
    /// Whether there is anything to write.
    pub(crate) fn has_batch(&self) -> bool {
        !self.gathering.lanes.is_empty()
    }

    /// Takes what was gathered. The next one may be taken when this is durable.
    pub(crate) fn collect(&mut self) -> Option<Batch> {
        if self.gathering.lanes.is_empty() {
            return None;
        }
        assert_eq!(self.committed + 1, self.gathering.number, "one batch at a time");
        let number = self.gathering.number;
        let mut writes = std::mem::take(&mut self.gathering.sealed);
        let mut lanes = Vec::with_capacity(self.gathering.lanes.len());
        for index in std::mem::take(&mut self.gathering.lanes) {
            let lane = &mut self.lanes[index];
            lane.dirty = false;
            writes.extend(
                [Stream::Items, Stream::Journal, Stream::Kept].into_iter().filter_map(|stream| lane.open(stream).as_mut()?.collect()),
            );
            lanes.push((index, lane.next_sequence, std::mem::take(&mut lane.pending)));
        }
        writes.sort_by_key(|write| (write.position, write.offset));
        self.gathering.number += 1;
        self.gathering.commands = 0;
        let opened = std::mem::take(&mut self.gathering.opened);
        Some(Batch { number, writes, lanes, opened })
    }

    /// A batch is durable.
    pub(crate) fn commit(&mut self, batch: Batch) -> Effects {
        self.committed = batch.number;
        self.counters.batches += 1;
        let mut effects = Effects::default();
        for (position, entry) in batch.opened {
            self.committed_below = self.committed_below.max(entry.serial + 1);
            self.uncatalogued.insert(position, Some(entry));
        }
        for (index, durable_next, pending) in batch.lanes {
            self.release_keys(index, &pending);
            let lane = &mut self.lanes[index];
            if durable_next > lane.durable_next || pending.work {
                effects.work.push(index);
            }
            lane.durable_next = durable_next;
            if let Some(meta) = pending.meta {
                lane.meta = meta;
            }
            lane.freeing -= pending.freed.len() as u64;
            for position in pending.freed {
                self.extents.release(position);
            }
            for (sequence, kept) in &pending.over {
                self.leave_disk(index, *sequence, *kept);
            }
            let lane = &mut self.lanes[index];
            for (serial, count) in &pending.purged {
                if let Some(at) = lane.items.by_serial(*serial) {
                    lane.items.extents[at].live -= count;
                }
                effects.purged.push(lane.number);
            }
            effects.purged.dedup();
            lane.purging.0 -= pending.purging.0;
            lane.purging.1 -= pending.purging.1;
            for sequence in &pending.ended {
                lane.ending.remove(sequence);
                effects.ended.push(JobId { lane: lane.number, sequence: *sequence });
            }
            lane.replayed.extend(pending.replayed);
            for sequence in pending.revealed {
                self.reveal(index, sequence);
            }
            self.count(index, pending.uncounted.0, pending.uncounted.1, false);
            self.trim(index);
            self.settle(index);
        }
        effects
    }

    /// A job's end is durable: its content is not needed any more.
    pub(crate) fn leave_disk(&mut self, lane: usize, sequence: u64, kept: Option<u64>) {
        let lane = &mut self.lanes[lane];
        match kept {
            None => {
                if let Some(extent) = lane.items.extent_of(sequence) {
                    extent.live -= 1;
                }
            }
            Some(serial) => {
                if let Some(at) = lane.kept.by_serial(serial) {
                    lane.kept.extents[at].live -= 1;
                }
            }
        }
    }

    /// Says which extents at the front of a lane's streams are free.
    pub(crate) fn trim(&mut self, index: usize) {
        let meta_bytes = record_disk_bytes(META_HEAD_BYTES, 0, 0) as u64;
        if !self.may_write(index, Stream::Journal, meta_bytes, Purpose::Cleaning) {
            return;
        }
        let lane = &mut self.lanes[index];
        let mut freed = Vec::new();
        while let Some(extent) = lane.items.pop() {
            freed.push(extent.position);
        }
        while let Some(extent) = lane.kept.pop() {
            freed.push(extent.position);
        }
        let committed = self.committed;
        while lane.journal.extents.front().is_some_and(|front| front.moved.is_some_and(|with| with <= committed)) {
            freed.extend(lane.journal.pop().map(|extent| extent.position));
        }
        self.say_free(index, freed);
    }

    /// The lane's floors as they are now become durable with the next batch, and with them these extents are free.
    pub(crate) fn say_free(&mut self, index: usize, freed: Vec<u32>) {
        if freed.is_empty() {
            return;
        }
        let next = self.next_serial;
        let lane = &mut self.lanes[index];
        lane.freeing += freed.len() as u64;
        let meta = Meta {
            items_floor: lane.items.extents.front().map_or(next, |extent| extent.serial),
            journal_floor: lane.journal.extents.front().map_or(next, |extent| extent.serial),
            kept_floor: lane.kept.extents.front().map_or(next, |extent| extent.serial),
            next_sequence: lane.next_sequence,
            ..Meta::default()
        };
        let meta = self.stamp(meta);
        let draft = Draft::journal(&JournalRecord::Meta(meta));
        self.write(index, Stream::Journal, &draft, (0, 0));
        let lane = &mut self.lanes[index];
        // Where the record took the lane's first journal extent, that one is above the floor it names.
        lane.pending.meta = Some(meta);
        lane.pending.freed.extend(freed);
    }
}
