//! What damage has cost: found at a start, said once in the journals of the lanes concerned, and mended by that.
//!
//! found -> said (a record in the lane's journal) -> durable -> the extents it was found in go back to use
//!
//! 1. What may have been started is handed out as interrupted, for as long as it waits: a later start still knows.
//! 2. A job whose item is gone ends as dead, or, if a write was started for it, as unknown. Numbers that may have been given out are not
//!    given out again.
//! 3. A use of an extent that is lost is told once. Where it held nothing that a lane still needs, nothing is told.

use std::collections::BTreeSet;

use bytes::Bytes;
use spillgate_model::{Code, Refusal, problem};

use crate::core::end::Ending;
use crate::core::extents::Position;
use crate::core::lane::{Loss, Traits};
use crate::core::purge::is_in;
use crate::core::stream::Write;
use crate::core::write::Purpose;
use crate::core::{Core, LETTERS_KEEP_MS, Refused, Ticket};
use crate::format::HEADER_BYTES;
use crate::job::{JobId, JobState};
use crate::record::{JobRecord, JournalRecord};

/// Losses told, kept in memory.
const MOST_LOSSES: usize = 100;
/// What those are told whose item is gone.
pub(crate) const LOST: &str = "What was stored of this job was lost when files of the store were damaged.";
/// What those are told whose item is there and cannot be read any more.
pub(crate) const UNREADABLE: &str = "The stored copy of this item is damaged and cannot be read.";

/// The problem that a job ends with whose item is gone. No call is there to be named: its job stands for it.
pub(crate) fn told(job: JobId, state: JobState, detail: &str) -> Bytes {
    let refusal = match state {
        JobState::Unknown => Refusal::new(Code::OutcomeUnknown, detail),
        _ => Refusal::new(Code::Internal, detail).lost(),
    };
    problem::body(&refusal, None, &job.to_string()).into()
}

/// An extent's header is no more.
pub(crate) fn blank(position: Position) -> Write {
    Write { position, offset: 0, bytes: vec![0; HEADER_BYTES], padding: 0 }
}

/// Something that is still to be written down.
#[derive(Debug)]
pub(crate) enum Unsaid {
    /// In the lane's journal: items that are gone, and below which sequence items may have been started.
    Loss { lane: usize, suspect_below: u64, ranges: Vec<(u64, u64)> },
    /// The end of a job whose item is gone.
    End { lane: usize, sequence: u64, attempts: u32, state: JobState },
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    pub(crate) unsaid: Vec<Unsaid>,
    /// Extents that go back to use when all is said.
    pub(crate) healing: Vec<Position>,
    /// Extents that stay aside, and of which the next start need not tell again.
    pub(crate) left: Vec<Position>,
    /// What cannot be used stands there, and nothing that was needed ever did.
    pub(crate) harmless: BTreeSet<Position>,
    /// The batch with which all is said.
    said_with: Option<Ticket>,
    /// Losses found while items are read, that nobody was told of yet.
    untold: Vec<String>,
    /// For whoever looks at a stopped store: extents that are gone, and a sentence about each.
    pub(crate) places: Vec<(Position, String)>,
}

impl Core {
    /// Writes down what a start found, as far as there is room to say it now; then mends it.
    pub(crate) fn say_damage(&mut self) {
        if self.damage.unsaid.is_empty() && self.damage.healing.is_empty() && self.damage.left.is_empty() {
            return;
        }
        for unsaid in std::mem::take(&mut self.damage.unsaid) {
            if self.say(&unsaid).is_err() {
                self.damage.unsaid.push(unsaid);
            }
        }
        if !self.damage.unsaid.is_empty() {
            return;
        }
        let said_with = *self.damage.said_with.get_or_insert(if self.has_batch() { self.gathering.number } else { self.committed });
        if said_with > self.committed {
            return;
        }
        for position in std::mem::take(&mut self.damage.healing) {
            self.extents.heal(position);
            self.uncatalogued.insert(position, None);
            // With what is written next, before anything is written into it: no start takes it for a loss again. What lies beyond the
            // limit may be given back before.
            if u64::from(position) < self.extents.most() {
                self.gathering.sealed.push(blank(position));
            }
        }
        for position in std::mem::take(&mut self.damage.left) {
            self.uncatalogued.insert(position, None);
        }
    }

    /// Whether what stands in an extent concerns nobody, though it cannot be read.
    pub(crate) fn is_harmless(&self, position: Position) -> bool {
        self.damage.harmless.contains(&position)
    }

    /// Extents that are gone, and a sentence about each.
    pub(crate) fn damage_found(&self) -> &[(Position, String)] {
        &self.damage.places
    }

    /// The stored copy of a job cannot be read: it ends as dead, or, if a write was started for it, as unknown. As with an extent that is
    /// lost, the keys of one that was not done are free.
    pub(crate) fn end_damaged(&mut self, lane: usize, sequence: u64) -> Result<(), Refused> {
        let of = &self.lanes[lane];
        let average = of.items.find(sequence).map_or(0, |at| {
            let extent = &of.items.extents[at];
            extent.live_bytes / u64::from(extent.live.max(1))
        });
        let entry = of.jobs.get(&sequence);
        let is_suspect = sequence < of.suspect_below || entry.is_some_and(|entry| entry.interrupted);
        let known = entry.and_then(|entry| entry.traits.clone());
        let are_known = known.is_some();
        let traits = known.unwrap_or_else(|| {
            Box::new(Traits { appended_at: 0, expires_at: None, order: None, keys: Vec::new(), unique: None, bytes: average })
        });
        let (id, state) = (self.id(lane, sequence), if is_suspect { JobState::Unknown } else { JobState::Dead });
        let outcome = Some(told(id, state, UNREADABLE));
        self.end(lane, sequence, &traits, Ending { outcome, frees_keys: !is_suspect, ..Ending::unexecuted(state) })?;
        if !is_suspect && !are_known {
            self.lanes[lane].pending.freed_ranges.push((sequence, sequence));
        }
        let loss = format!("the stored copy of {id} cannot be read: it ended as {}", state.name());
        if self.recovered.losses.len() < MOST_LOSSES {
            self.recovered.losses.push(loss.clone());
        }
        if self.damage.untold.len() < MOST_LOSSES {
            self.damage.untold.push(loss);
        }
        Ok(())
    }

    /// Losses found since this was asked last, for the log.
    pub(crate) fn take_untold(&mut self) -> Vec<String> {
        std::mem::take(&mut self.damage.untold)
    }

    fn say(&mut self, unsaid: &Unsaid) -> Result<(), Refused> {
        match unsaid {
            Unsaid::Loss { lane, suspect_below, ranges } => self.say_loss(*lane, *suspect_below, ranges),
            Unsaid::End { lane, sequence, attempts, state } => {
                let until = self.now.saturating_add(LETTERS_KEEP_MS);
                let outcome = Some(told(self.id(*lane, *sequence), *state, LOST));
                let record = JobRecord {
                    sequence: *sequence,
                    state: *state,
                    void: false,
                    interrupted: *state == JobState::Unknown,
                    letter: false,
                    outcome_gone: false,
                    attempts: *attempts,
                    at: self.now,
                    until,
                    emission: 0,
                    keys: Vec::new(),
                    unique: None,
                    outcome,
                    note: None,
                    replayed_as: None,
                };
                self.write_job(*lane, record, Purpose::Cleaning)?;
                self.count_end(*lane, *state);
                Ok(())
            }
        }
    }

    fn say_loss(&mut self, lane: usize, suspect_below: u64, ranges: &[(u64, u64)]) -> Result<(), Refused> {
        let until = self.now.saturating_add(LETTERS_KEEP_MS);
        let of = &self.lanes[lane];
        let open = of.journal.open.as_ref().map(|open| (open.serial, open.tail.offset() as u64));
        let (serial, offset) = open.unwrap_or((self.next_serial, 0));
        let number = of.next_number;
        let record = JournalRecord::Lost { until, serial, offset, suspect_below, ranges: ranges.to_vec() };
        let bytes = self.write_other(lane, &record, number, until, Purpose::Cleaning)?;
        let of = &mut self.lanes[lane];
        of.next_number += 1;
        of.losses.push(Loss { number, until, serial, offset, suspect_below, ranges: ranges.to_vec(), bytes });
        self.settle(lane);
        Ok(())
    }

    /// What damage cost and nobody needs to know any more.
    pub(crate) fn drop_old_losses(&mut self, lane: usize) {
        let now = self.now;
        let of = &mut self.lanes[lane];
        let oldest = of.items.next(0).unwrap_or(u64::MAX).min(of.jobs.keys().next().copied().unwrap_or(u64::MAX));
        let old: Vec<u64> =
            of.losses.iter().filter(|loss| loss.until <= now && loss.suspect_below <= oldest).map(|loss| loss.number).collect();
        for number in old {
            of.journal.kill(super::journal::Sort::Purge, number);
            of.losses.retain(|loss| loss.number != number);
        }
    }

    /// Whether a job's item is gone, and nothing else is known of it.
    pub(crate) fn is_lost(&self, id: JobId) -> bool {
        let Some(lane) = self.lane_of(id) else { return false };
        let of = &self.lanes[lane];
        let is_known = of.jobs.contains_key(&id.sequence) || of.journal.find(super::journal::Sort::Job, id.sequence).is_some();
        self.has_lost(lane, id.sequence) && !is_known
    }

    /// Whether an item is said to be gone, or is still to be.
    pub(crate) fn has_lost(&self, lane: usize, sequence: u64) -> bool {
        let is_said = self.lanes[lane].losses.iter().any(|loss| loss.until > self.now && is_in(&loss.ranges, sequence));
        is_said
            || self.damage.unsaid.iter().any(|unsaid| match unsaid {
                Unsaid::Loss { lane: of, ranges, .. } => *of == lane && is_in(ranges, sequence),
                Unsaid::End { .. } => false,
            })
    }
}
