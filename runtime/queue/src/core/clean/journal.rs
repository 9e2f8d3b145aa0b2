//! Cleaning journals.

use crate::core::clean::{GiveUp, half_dead};
use crate::core::journal::{Entry, JournalExtent, Sort};
use crate::core::lane::Lane;
use crate::core::lookup::{Plan, Record};
use crate::core::stream::USABLE_BYTES;
use crate::core::write::Purpose;
use crate::core::{Core, Refused};
use crate::format::decode_journal;
use crate::record::{JobRecord, JournalRecord, Stream};

impl Lane {
    /// Whether an entry must outlive its extent.
    fn needs(&self, entry: &Entry, now: u64, give_up: GiveUp) -> bool {
        if entry.is_dead() {
            return false;
        }
        if !entry.is_job() {
            return !entry.is_past(now)
                || self.purges.iter().any(|purge| purge.number == entry.name())
                || self.losses.iter().any(|loss| loss.number == entry.name());
        }
        // As long as the item stands on disk it would come back to life without its end.
        let sequence = entry.name();
        if sequence >= self.oldest_on_disk() || self.kept.holds(sequence) {
            return true;
        }
        let may_go = give_up == GiveUp::States && !entry.is_keyed() && entry.state().is_end();
        !entry.is_past(now) && !may_go
    }

    /// Bytes of an extent that must outlive it, as last counted.
    fn needed_bytes(extent: &JournalExtent, give_up: GiveUp) -> u64 {
        match give_up {
            GiveUp::Nothing => extent.needed.0 + extent.outcomes,
            GiveUp::Outcomes => extent.needed.0,
            GiveUp::States => extent.needed.0.saturating_sub(extent.needed.1),
        }
    }
}

impl Core {
    /// Extents at the front of which half is not needed.
    pub(super) fn half_dead_journal(&self, lane: usize) -> usize {
        let extents = &self.lanes[lane].journal.extents;
        let sealed = extents.len().saturating_sub(1);
        let staying = extents.iter().take(sealed).filter(|extent| extent.moved.is_none());
        half_dead(staying.map(|extent| Lane::needed_bytes(extent, GiveUp::Nothing)))
    }

    /// Counts again what is needed in an extent.
    pub(super) fn count_needed_in(&mut self, lane: usize, at: usize) {
        let of = &self.lanes[lane];
        let Some(extent) = of.journal.extents.get(at) else { return };
        let bytes = |give_up| -> u64 { extent.entries().iter().filter(|entry| of.needs(entry, self.now, give_up)).map(Entry::bytes).sum() };
        let (all, keyed) = (bytes(GiveUp::Outcomes), bytes(GiveUp::States));
        let outcomes: u64 = if all == 0 { 0 } else { extent.outcomes };
        let extent = &mut self.lanes[lane].journal.extents[at];
        extent.needed = (all, all - keyed);
        extent.outcomes = outcomes;
    }

    /// Extents by which a lane's charge would fall with a pass over its journal.
    pub(super) fn journal_gain(&self, lane: usize, give_up: GiveUp) -> u64 {
        let of = &self.lanes[lane];
        let extents = &of.journal.extents;
        let needed: u64 = extents.iter().map(|extent| Lane::needed_bytes(extent, give_up)).sum();
        let without_outcomes: u64 = extents.iter().map(|extent| Lane::needed_bytes(extent, give_up.max(GiveUp::Outcomes))).sum();
        let claim = (extents.len() as u64).max(of.journal_promise());
        let after = (needed.div_ceil(USABLE_BYTES as u64) + 1).max(of.journal_promise_for(without_outcomes));
        if extents.len() < 2 { 0 } else { claim.saturating_sub(after) }
    }

    pub(super) fn plan_journal_cleaning(&mut self, lane: usize, give_up: GiveUp) -> Option<Plan> {
        let of = &self.lanes[lane];
        let at = of.journal.extents.iter().position(|extent| extent.moved.is_none())?;
        let serial = of.journal.extents[at].serial;
        if of.journal.is_open(serial) {
            // The only extent there is: what lives in it moves to a new one.
            let stays = of.journal.room() > 4096 && !self.extents.lies_beyond(of.journal.extents[at].position);
            if stays || self.extents.free() < 2 {
                return None;
            }
            self.seal(lane, Stream::Journal);
        }
        let of = &self.lanes[lane];
        if !of.journal.extents[at].entries().iter().any(|entry| of.needs(entry, self.now, give_up)) {
            self.moved(lane, at);
            return None;
        }
        // Its seal may be in the batch that is being gathered: then it is read after that.
        if self.lanes[lane].dirty && self.lanes[lane].journal.extents.back().is_some_and(|extent| extent.serial == serial) {
            self.agenda.after_batch.push((lane, crate::core::clean::Task::Journal { give_up }));
            return None;
        }
        Some(self.plan_journal(lane, at, None, of_longest(&self.lanes[lane].journal.extents[at])))
    }

    /// All that an extent held is in the batch that is being gathered, or was not needed.
    fn moved(&mut self, lane: usize, at: usize) {
        let ticket = self.gathering.number;
        self.lanes[lane].journal.extents[at].moved = Some(ticket);
        // Taken off when that batch is durable.
        self.touch(lane);
    }

    pub(super) fn clean_journal(&mut self, plan: &Plan, records: &[Record], give_up: GiveUp) {
        let (lane, serial) = (plan.lane, plan.extents[0].serial);
        let mut left = true;
        for record in records {
            let Some(at) = self.lanes[lane].journal.at(serial) else { return };
            let Ok(decoded) = decode_journal(record.kind, &record.bytes) else { continue };
            for part in parts(decoded) {
                let Some(entry) = self.current(lane, at, record.offset, &part) else { continue };
                if self.lanes[lane].needs(&entry, self.now, give_up) {
                    left &= self.move_record(lane, part, give_up).is_ok();
                }
            }
        }
        let Some(at) = self.lanes[lane].journal.at(serial) else { return };
        let of = &self.lanes[lane];
        let remains = of.journal.extents[at].entries().iter().any(|entry| of.needs(entry, self.now, give_up));
        // A record that could not be read is lost; the extent is kept as long as it says something nobody else does.
        if left && !remains {
            self.moved(lane, at);
        }
    }

    /// The entry that a record stands for, if it is the newest about its subject.
    fn current(&self, lane: usize, at: usize, offset: usize, record: &JournalRecord) -> Option<Entry> {
        let of = &self.lanes[lane];
        let wanted = match record {
            JournalRecord::Job(job) => Some(job.sequence),
            JournalRecord::Note { name, .. } => of.notes.get(name).map(|note| note.number),
            JournalRecord::Purged { .. } | JournalRecord::Lost { .. } | JournalRecord::Meta(_) => None,
        };
        let entries = of.journal.extents[at].entries().iter();
        let is_job = matches!(record, JournalRecord::Job(_));
        let mut here = entries.filter(|entry| usize::from(entry.offset) == offset && !entry.is_dead() && entry.is_job() == is_job);
        let entry = here.find(|entry| wanted.is_none_or(|name| entry.name() == name))?;
        if matches!(record, JournalRecord::Meta(_)) { None } else { Some(*entry) }
    }

    fn move_record(&mut self, lane: usize, record: JournalRecord, give_up: GiveUp) -> Result<(), Refused> {
        self.counters.moved += 1;
        match record {
            JournalRecord::Job(job) => {
                let now = self.now;
                let dropped = give_up > GiveUp::Nothing && job.outcome.is_some();
                let job = JobRecord {
                    outcome_gone: job.outcome_gone || dropped,
                    outcome: job.outcome.filter(|_| !dropped),
                    keys: job.keys.into_iter().filter(|key| key.until > now).collect(),
                    unique: job.unique.filter(|(_, until)| *until > now),
                    ..job
                };
                self.write_job(lane, job, Purpose::Cleaning)
            }
            JournalRecord::Note { name, content } => {
                let of = &self.lanes[lane];
                let Some(number) = of.notes.get(&name).map(|note| note.number) else { return Ok(()) };
                let record = JournalRecord::Note { name, content };
                self.lanes[lane].journal.kill(Sort::Note, number);
                self.write_other(lane, &record, number, u64::MAX, Purpose::Cleaning).map(|_| ())
            }
            JournalRecord::Purged { until, ranges } => {
                let of = &mut self.lanes[lane];
                let purge = of.purges.iter().find(|purge| purge.until == until && purge.ranges == ranges).map(|purge| purge.number);
                let Some(number) = purge else { return Ok(()) };
                of.journal.kill(Sort::Purge, number);
                self.write_other(lane, &JournalRecord::Purged { until, ranges }, number, until, Purpose::Cleaning).map(|_| ())
            }
            JournalRecord::Lost { until, serial, offset, suspect_below, ranges } => {
                let of = &mut self.lanes[lane];
                let same = |loss: &&crate::core::lane::Loss| (loss.until, loss.serial, loss.offset) == (until, serial, offset);
                let Some(number) = of.losses.iter().find(same).map(|loss| loss.number) else { return Ok(()) };
                of.journal.kill(Sort::Purge, number);
                let record = JournalRecord::Lost { until, serial, offset, suspect_below, ranges };
                self.write_other(lane, &record, number, until, Purpose::Cleaning).map(|_| ())
            }
            JournalRecord::Meta(_) => Ok(()),
        }
    }

    /// Purges whose time is over, and none of whose items stands on disk any more.
    pub(super) fn drop_old_purges(&mut self, lane: usize) {
        let now = self.now;
        let of = &mut self.lanes[lane];
        let oldest = of.oldest_on_disk();
        let is_old = |purge: &crate::core::lane::Purge| purge.until <= now && purge.ranges.last().is_none_or(|(_, last)| *last < oldest);
        let stands = |purge: &crate::core::lane::Purge| of.kept.holds_any(|sequence| crate::core::purge::is_in(&purge.ranges, sequence));
        let old = of.purges.iter().filter(|purge| is_old(purge) && !stands(purge));
        let old: Vec<u64> = old.map(|purge| purge.number).collect();
        for number in old {
            of.journal.kill(Sort::Purge, number);
            of.purges.retain(|purge| purge.number != number);
        }
    }
}

/// The longest record that may begin in an extent.
fn of_longest(extent: &JournalExtent) -> u64 {
    extent.longest_outcome() + USABLE_BYTES as u64 * 2
}

/// A note that came with a job's record lives and moves by itself.
fn parts(record: JournalRecord) -> impl Iterator<Item = JournalRecord> {
    let (job, note) = match record {
        JournalRecord::Job(mut job) => {
            let note = job.note.take();
            (JournalRecord::Job(job), note)
        }
        other => (other, None),
    };
    std::iter::once(job).chain(note.map(|(name, content)| JournalRecord::Note { name, content }))
}
