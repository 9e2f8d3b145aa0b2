//! Dead letters and notes.

use bytes::Bytes;

use crate::core::journal::{NewEntry, Sort};
use crate::core::lane::{Lane, Note, Phase};
use crate::core::write::Purpose;
use crate::core::{Core, Refused};
use crate::format::{Draft, EXTENT_BYTES};
use crate::item::Hash;
use crate::job::{JobId, JobState};
use crate::limits::{Full, WhichLimit};
use crate::record::{JournalRecord, Stream};
use crate::status::LaneStatus;
use crate::store::StoreError;
use std::time::Duration;

/// Of one note.
pub(crate) const MOST_NOTE_BYTES: usize = 16 * 1024;
/// Of one lane.
pub(crate) const MOST_NOTES: usize = 256;

impl Core {
    /// Whether a note may be kept with a job's end.
    pub(crate) fn may_note(&mut self, job: JobId, note: Option<&(Hash, Bytes)>) -> Result<(), Refused> {
        let (Some((name, content)), Some(lane)) = (note, self.lane_of(job)) else { return Ok(()) };
        let of = &self.lanes[lane];
        if content.len() > MOST_NOTE_BYTES || (of.notes.len() >= MOST_NOTES && !of.notes.contains_key(name)) {
            let (limit, used) = (MOST_NOTE_BYTES as u64, content.len() as u64);
            let full = Full { which: WhichLimit::ItemBytes, limit, used, own_share: true, retry_after: None };
            return Err(StoreError::Full(full).into());
        }
        let draft = Draft::journal(&JournalRecord::Note { name: *name, content: content.clone() });
        // The end of the job goes before it.
        if self.may_write(lane, Stream::Journal, draft.disk_bytes() as u64 + 1024, Purpose::Record) {
            return Ok(());
        }
        Err(self.later(lane))
    }

    /// A note stands there, in a record of its own or with the end of a job, in place of an older one of that name.
    pub(crate) fn enter_note(&mut self, lane: usize, at: (u64, usize), name: Hash, content: Bytes) {
        let of = &mut self.lanes[lane];
        let number = of.next_number;
        of.next_number += 1;
        of.journal.push(at.0, &NewEntry::other(Sort::Note, number, u64::MAX, at.1, content.len()));
        if let Some(before) = of.notes.insert(name, Note { number, content }) {
            of.journal.kill(Sort::Note, before.number);
        }
    }

    /// Replayed letters of which nothing is kept any more.
    pub(crate) fn drop_old_replays(&mut self, lane: usize) {
        let (of, now) = (&mut self.lanes[lane], self.now);
        let journal = &of.journal;
        of.replayed.retain(|letter, _| journal.find(Sort::Job, *letter).is_some_and(|(_, entry)| !entry.is_past(now)));
    }

    /// Whether the end of a job is on disk, and not only decided.
    pub(crate) fn is_durable_end(&self, id: JobId) -> bool {
        let Some(lane) = self.lane_of(id) else { return false };
        !self.lanes[lane].ending.contains_key(&id.sequence)
    }
}

impl Lane {
    /// As operators see it.
    pub(crate) fn status(&self, now: u64) -> LaneStatus {
        let mut aside = self.jobs.values().filter(|entry| matches!(entry.phase, Phase::Aside { .. }));
        let oldest = self.jobs.values().filter_map(|entry| entry.traits.as_ref()).map(|traits| traits.appended_at);
        let loaded = self.loaded.iter().filter_map(|loaded| loaded.items.values().next()).map(|item| item.appended_at);
        let waiting = self.items.extents.iter().find(|extent| extent.live_bytes > 0 || extent.live > 0).map(|extent| extent.time);
        let oldest = oldest.chain(loaded.min().or(waiting)).filter(|at| *at > 0).min();
        let ends = |state| self.ending.values().filter(|until| until.state == state).count() as u64;
        let ending_bytes: u64 = self.ending.values().map(|until| until.bytes).sum();
        LaneStatus {
            name: self.name.clone(),
            number: self.number,
            waiting: self.waiting() + ends(JobState::Queued) + self.purging.0,
            set_aside: aside.by_ref().count() as u64,
            running: self.running + ends(JobState::Running),
            dead: self.letters.keys().filter(|sequence| !self.ending.contains_key(sequence)).count() as u64,
            bytes: self.bytes + ending_bytes + self.purging.1,
            disk: self.held() * EXTENT_BYTES as u64,
            oldest_age: oldest.filter(|_| self.unended > self.hidden).map(|at| Duration::from_millis(now.saturating_sub(at))),
            paused: self.paused,
            waits: self.waits,
            waits_for: Duration::from_millis(now.saturating_sub(self.waits_since)),
            appended: self.appended,
            ended: self.ended,
        }
    }
}
