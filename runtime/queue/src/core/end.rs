//! Ending jobs, in exactly one state.

use bytes::Bytes;

use crate::core::append::milliseconds;
use crate::core::keys::Holder;
use crate::core::lane::{Letter, Pending, Phase, Traits, Until};
use crate::core::purge::is_in;
use crate::core::room::reserved_for;
use crate::core::write::Purpose;
use crate::core::{Core, Refused};
use crate::item::Hash;
use crate::job::JobState;
use crate::record::{JobRecord, KeptKey};

/// How a job ends.
#[derive(Clone, Debug)]
pub(crate) struct Ending {
    pub(crate) state: JobState,
    pub(crate) outcome: Option<Bytes>,
    pub(crate) keep_ms: u64,
    pub(crate) frees_keys: bool,
    /// 0: it emits nothing.
    pub(crate) emission: u64,
    /// It never existed.
    pub(crate) void: bool,
    /// Its content is kept as a dead letter.
    pub(crate) letter: bool,
    /// A note that becomes true with it.
    pub(crate) note: Option<(Hash, Bytes)>,
}

impl Ending {
    /// An end that the store itself makes of a job that was never executed.
    pub(crate) fn unexecuted(state: JobState) -> Self {
        Ending {
            state,
            outcome: None,
            keep_ms: super::STATE_KEEP_MS,
            frees_keys: true,
            emission: 0,
            void: false,
            letter: false,
            note: None,
        }
    }
}

impl Core {
    /// Ends a job that is waiting, or more than waiting. Durable with the batch that is being gathered.
    pub(crate) fn end(&mut self, lane: usize, sequence: u64, traits: &Traits, ending: Ending) -> Result<(), Refused> {
        let entry = self.lanes[lane].jobs.get(&sequence);
        let attempts = entry.map_or(0, |entry| entry.attempts);
        let (kept, interrupted) = (entry.and_then(|entry| entry.kept), entry.is_some_and(|entry| entry.interrupted));
        let queue = &self.queues[&self.lanes[lane].name.queue];
        let letter = ending.letter && queue.letters_most > 0;
        let (now, letters_keep) = (self.now, queue.letters_keep);
        let keep = if letter { ending.keep_ms.max(letters_keep) } else { ending.keep_ms };
        let holds = !ending.frees_keys;
        let unique = traits.unique.map(|unique| (unique.hash, traits.appended_at.saturating_add(milliseconds(unique.within))));
        let keys = traits.keys.iter().filter(|_| holds);
        let kept_key =
            |key: &crate::item::Key| KeptKey { hash: key.hash, input: key.input, until: now.saturating_add(milliseconds(key.keep)) };
        let record = JobRecord {
            sequence,
            state: ending.state,
            void: ending.void,
            interrupted: interrupted && ending.state == JobState::Unknown,
            letter,
            outcome_gone: false,
            attempts,
            at: now,
            until: if ending.void { now } else { now.saturating_add(keep) },
            emission: ending.emission,
            keys: keys.map(kept_key).collect(),
            unique: unique.filter(|(_, until)| holds && *until > now),
            outcome: ending.outcome,
            note: ending.note,
            replayed_as: None,
        };
        let kept_keys = record.keys.clone();
        self.write_job(lane, record, Purpose::Record)?;
        let before = if matches!(self.lanes[lane].jobs.get(&sequence).map(|entry| entry.phase), Some(Phase::AtWork { .. })) {
            JobState::Running
        } else {
            JobState::Queued
        };
        if !ending.void {
            self.lanes[lane].ending.insert(sequence, Until { state: before, attempts, bytes: traits.bytes });
            self.lanes[lane].pending.ended.push(sequence);
        }
        self.lanes[lane].pending.uncounted.0 += 1;
        self.lanes[lane].pending.uncounted.1 += traits.bytes;
        self.tell_keys(lane, sequence, traits, holds.then_some(kept_keys));
        self.forget_running(lane, sequence, traits);
        if letter {
            let letter = Letter { at: now, until: now.saturating_add(keep), attempts, bytes: traits.bytes, kept };
            self.lanes[lane].letters.insert(sequence, letter);
        } else {
            self.drop_content(lane, sequence, traits.bytes, kept);
        }
        self.count_end(lane, ending.state);
        if ending.state == JobState::Expired {
            self.lanes[lane].expired_in = self.gathering.number;
        }
        self.lanes[lane].pending.work = true;
        self.settle(lane);
        Ok(())
    }

    /// Keys of an ended job: kept until their time, or free.
    fn tell_keys(&mut self, lane: usize, sequence: u64, traits: &Traits, kept: Option<Vec<KeptKey>>) {
        let holder = Holder { lane: u32::try_from(lane).unwrap_or(u32::MAX), sequence };
        let Some(kept) = kept else {
            let keys = traits.keys.iter().map(|key| key.hash);
            self.free_keys(lane, sequence, keys, traits.unique.map(|unique| unique.hash));
            return;
        };
        for key in kept {
            if self.keys.find(&key.hash, &key.input, self.now).is_none_or(|(by, _)| by == holder) {
                self.keys.hold(key.hash, &key.input, holder, Some(key.until));
            }
        }
    }

    /// A job's keys may be used again as soon as that is durable: not before, or both jobs could be done after a crash.
    pub(crate) fn free_keys(&mut self, lane: usize, sequence: u64, keys: impl Iterator<Item = Hash>, unique: Option<Hash>) {
        let pending = &mut self.lanes[lane].pending;
        pending.freed_keys.extend(keys.map(|hash| (hash, sequence)));
        pending.freed_uniques.extend(unique.map(|hash| (hash, sequence)));
    }

    /// What holds keys no longer does.
    pub(crate) fn release_keys(&mut self, lane: usize, pending: &Pending) {
        let lane = u32::try_from(lane).unwrap_or(u32::MAX);
        pending.freed_keys.iter().for_each(|(hash, sequence)| self.keys.free(hash, Holder { lane, sequence: *sequence }));
        pending.freed_uniques.iter().for_each(|(hash, sequence)| self.uniques.free(hash, Holder { lane, sequence: *sequence }));
        let mut ranges = pending.freed_ranges.clone();
        ranges.sort_unstable();
        for keys in [&mut self.keys, &mut self.uniques] {
            if !ranges.is_empty() && keys.len() > 0 {
                keys.free_where(lane, |sequence| is_in(&ranges, sequence));
            }
        }
    }

    /// A job is no longer among those that have not ended.
    fn forget_running(&mut self, lane: usize, sequence: u64, traits: &Traits) {
        self.lanes[lane].leave(sequence);
        self.lanes[lane].finish(traits.bytes, reserved_for(&traits.keys, traits.unique.as_ref()));
        for loaded in &mut self.lanes[lane].loaded {
            loaded.items.remove(&sequence);
        }
    }

    /// A job's content is not needed any more once the batch is durable.
    pub(crate) fn drop_content(&mut self, lane: usize, sequence: u64, bytes: u64, kept: Option<u64>) {
        let of = &mut self.lanes[lane];
        let marked = kept.is_some() || of.items.extent_of(sequence).is_some_and(|extent| extent.set_over(sequence, bytes));
        if marked {
            of.pending.over.push((sequence, kept));
        }
        self.touch(lane);
    }

    /// An emitted item exists from now on.
    pub(crate) fn reveal(&mut self, lane: usize, sequence: u64) {
        let of = &mut self.lanes[lane];
        let Some(mut entry) = of.leave(sequence) else { return };
        if sequence < of.cursor {
            entry.phase = Phase::Aside { not_before: 0 };
            of.enter(sequence, entry);
        }
    }
}
