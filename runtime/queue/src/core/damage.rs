//! What damage has cost: found at a start, said once in the journals of the lanes concerned, and mended by that.
//!
//! found -> said (a record in the lane's journal) -> durable -> the extents it was found in go back to use
//!
//! 1. What may have been started is handed out as interrupted, for as long as it waits: a later start still knows.
//! 2. A job whose item is gone ends as dead, or, if a write was started for it, as unknown. Numbers that may have been given out are not
//!    given out again.
//! 3. A use of an extent that is lost is told once. Where it held nothing that a lane still needs, nothing is told.

use bytes::Bytes;

use crate::core::extents::Position;
use crate::core::lane::Loss;
use crate::core::purge::is_in;
use crate::core::write::Purpose;
use crate::core::{Core, LETTERS_KEEP_MS, Refused, Ticket};
use crate::job::{JobId, JobState};
use crate::record::{JobRecord, JournalRecord};

/// What those are told whose item is gone.
pub(crate) const LOST: &str = concat!(
    r#"{"type":"/problems/internal","title":"Internal error","status":500,"code":"internal","#,
    r#""detail":"What was stored of this job was lost when files of the store were damaged.","scope":"server","retryable":false}"#
);

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
    /// The batch with which all is said.
    said_with: Option<Ticket>,
    /// For whoever looks at a stopped store: extents that are gone, and a sentence about each.
    pub(crate) places: Vec<(Position, String)>,
}

impl Core {
    /// Writes down what a start found, as far as there is room to say it now; then mends it.
    pub(crate) fn say_damage(&mut self) {
        if self.damage.unsaid.is_empty() && self.damage.healing.is_empty() {
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
        }
    }

    /// Extents that are gone, and a sentence about each.
    pub(crate) fn damage_found(&self) -> &[(Position, String)] {
        &self.damage.places
    }

    fn say(&mut self, unsaid: &Unsaid) -> Result<(), Refused> {
        match unsaid {
            Unsaid::Loss { lane, suspect_below, ranges } => self.say_loss(*lane, *suspect_below, ranges),
            Unsaid::End { lane, sequence, attempts, state } => {
                let until = self.now.saturating_add(LETTERS_KEEP_MS);
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
                    outcome: Some(Bytes::from_static(LOST.as_bytes())),
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
