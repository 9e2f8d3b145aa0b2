//! Cleaning: giving back extents in which little is still needed, by moving that to the end of its stream.
//!
//! Streams are cleaned from the front, as floors free them from the front. A step reads one extent and writes what is needed of it
//! into the next batch; when that is durable the extent is taken off, and the record that says so makes it free ([`Core::trim`]).
//!
//! When
//! * routine: at least half of some extents at the front is not needed;
//! * a lane's journal is full and a command waits: until it has room again. The promise of its journal is 5/4 of what lives in it, so
//!   one pass always makes room;
//! * room was refused: where a pass would give extents back. Only then states without keys and outcomes are given up, oldest first.
//!
//! Invariants
//! 1. The cleaning reserve is used by one step at a time and comes back with it.
//! 2. An extent is given back only when all that is needed of it is durable elsewhere.
//! 3. What cannot be read is not moved and not given back.
//! 4. Nothing is given up for room but outcomes, and states without keys: never a waiting item, a letter or a key that still holds.

mod items;
mod journal;

use std::collections::VecDeque;
use std::io;

use crate::core::Core;
use crate::core::lookup::{Plan, Record};
use crate::core::stream::USABLE_BYTES;

/// Extents at the front that are looked at together.
const LOOKAHEAD: usize = 16;
/// Room for others is looked for in the same journal no more often than in so many sweeps.
const PASSED_EVERY: u64 = 5;
/// Journal extents whose needed bytes are counted in a sweep.
const COUNTED: usize = 64;

/// What a step is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// The first extent of a lane's journal. `give_up`: outcomes, and states without keys where that may be.
    Journal { give_up: GiveUp },
    /// The first extent of its items: what is set aside or dead moves to the kept stream.
    Items,
    /// The first extent of kept copies.
    Kept,
    /// Items whose time is over end.
    Expiry,
}

/// What need not be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GiveUp {
    Nothing,
    Outcomes,
    /// And states that carry no key.
    States,
}

/// A step of cleaning: what to read for it.
#[derive(Debug)]
pub(crate) struct Cleaning {
    pub(crate) plan: Plan,
    task: Task,
}

/// What is to be cleaned.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    tasks: VecDeque<(usize, Task)>,
    /// What can only be done when the batch that is being gathered is written.
    after_batch: Vec<(usize, Task)>,
    /// Sweeps.
    sweeps: u64,
    /// Where counting goes on: lane, extent.
    counted: (usize, usize),
}

impl Core {
    pub(crate) fn wants_cleaning(&self) -> bool {
        !self.agenda.tasks.is_empty()
            || self.wanting.iter().any(|lane| self.lanes[*lane].wants_cleaning)
            || (self.room_wanted && self.may_look)
    }

    /// The next step, if there is any.
    pub(crate) fn next_cleaning(&mut self) -> Option<Cleaning> {
        for lane in std::mem::take(&mut self.wanting) {
            let of = &mut self.lanes[lane];
            // Extents that a pass has emptied are on their way back.
            let is_coming = of.freeing > 0 || of.journal.extents.iter().any(|extent| extent.moved.is_some());
            let is_planned = self.agenda.tasks.iter().any(|(planned, _)| *planned == lane);
            if std::mem::take(&mut of.wants_cleaning) && !is_coming && !is_planned && self.journal_is_tight(lane) {
                self.start_pass(lane, GiveUp::Outcomes);
            }
        }
        if self.room_wanted && self.may_look && self.agenda.tasks.is_empty() {
            (self.room_wanted, self.may_look) = (false, false);
            self.look_for_room();
        }
        let waited = std::mem::take(&mut self.agenda.after_batch);
        self.agenda.tasks.extend(waited);
        while let Some((lane, task)) = self.agenda.tasks.pop_front() {
            let plan = match task {
                Task::Journal { give_up } => self.plan_journal_cleaning(lane, give_up),
                Task::Items => self.plan_items_cleaning(lane),
                Task::Kept => self.plan_kept_cleaning(lane),
                Task::Expiry => self.plan_expiry(lane),
            };
            if let Some(plan) = plan {
                return Some(Cleaning { plan, task });
            }
        }
        None
    }

    /// Does a step with what was read.
    pub(crate) fn cleaned(&mut self, step: Cleaning, records: io::Result<Vec<Record>>) {
        let Cleaning { plan, task } = step;
        if self.check().is_err() || !self.still_has(&plan) {
            return;
        }
        // What cannot be read stays where it is; whoever needs it will find out.
        let Ok(records) = records else { return };
        match task {
            Task::Journal { give_up } => self.clean_journal(&plan, &records, give_up),
            Task::Items => self.clean_items(&plan, &records),
            Task::Kept => self.clean_kept(&plan, &records),
            Task::Expiry => self.end_expired(&plan, &records),
        }
        self.settle(plan.lane);
    }

    /// Cleans a journal once through.
    fn start_pass(&mut self, lane: usize, give_up: GiveUp) {
        let extents = self.lanes[lane].journal.extents.len();
        self.agenda.tasks.extend(std::iter::repeat_n((lane, Task::Journal { give_up }), extents));
    }

    /// Whether a small record would not find room.
    fn journal_is_tight(&self, lane: usize) -> bool {
        !self.may_write(lane, crate::record::Stream::Journal, 4096, crate::core::write::Purpose::Record)
    }

    /// Once a second: what time alone has changed.
    pub(crate) fn sweep(&mut self) {
        let now = self.now;
        self.keys.sweep(now);
        self.uniques.sweep(now);
        self.agenda.sweeps += 1;
        self.count_needed();
        let is_idle = self.agenda.tasks.is_empty();
        for lane in 0..self.lanes.len() {
            self.drop_old_letters(lane);
            self.drop_old_purges(lane);
            self.drop_old_losses(lane);
            self.drop_old_replays(lane);
            self.trim(lane);
            if is_idle {
                self.look_for_routine(lane);
                self.leave_files_beyond(lane);
            }
            self.settle(lane);
        }
    }

    fn look_for_routine(&mut self, lane: usize) {
        if self.has_expired(lane) {
            self.agenda.tasks.push_back((lane, Task::Expiry));
        }
        let tasks = [
            (self.half_dead_journal(lane), Task::Journal { give_up: GiveUp::Nothing }),
            (self.sparse_items(lane), Task::Items),
            (self.half_dead_kept(lane), Task::Kept),
        ];
        for (extents, task) in tasks {
            self.agenda.tasks.extend(std::iter::repeat_n((lane, task), extents));
        }
    }

    /// Somebody was refused room: where would a pass give extents back?
    fn look_for_room(&mut self) {
        for lane in 0..self.lanes.len() {
            self.give_up_idle(lane);
            if self.sparse_items(lane) > 0 {
                self.agenda.tasks.push_back((lane, Task::Items));
            }
        }
        for give_up in [GiveUp::Nothing, GiveUp::Outcomes, GiveUp::States] {
            let rested = |lane: &usize| self.agenda.sweeps >= self.lanes[*lane].passed_at;
            let gains = (0..self.lanes.len()).filter(rested).map(|lane| (self.journal_gain(lane, give_up), lane));
            if let Some((_, lane)) = gains.filter(|(gain, _)| *gain > 0).max() {
                self.lanes[lane].passed_at = self.agenda.sweeps + PASSED_EVERY;
                self.start_pass(lane, give_up);
                return;
            }
        }
    }

    /// Counts what is needed in some journal extents: time makes it less without anything being written.
    fn count_needed(&mut self) {
        for _ in 0..COUNTED.min(self.lanes.iter().map(|lane| lane.journal.extents.len()).sum()) {
            let (mut lane, mut extent) = self.agenda.counted;
            if self.lanes.get(lane).is_none_or(|of| extent >= of.journal.extents.len()) {
                (lane, extent) = ((lane + 1) % self.lanes.len(), 0);
            }
            self.count_needed_in(lane, extent);
            self.agenda.counted = (lane, extent + 1);
        }
    }

    /// Where files are to be given back, what is in them moves.
    fn leave_files_beyond(&mut self, lane: usize) {
        if !self.extents.is_beyond_limit() || !self.extents.has_free_within() {
            return;
        }
        self.give_up_idle(lane);
        let of = &self.lanes[lane];
        let journal = of.journal.extents.iter().rposition(|extent| self.extents.lies_beyond(extent.position));
        let kept = of.kept.extents.iter().rposition(|extent| self.extents.lies_beyond(extent.position));
        let tasks = [(journal, Task::Journal { give_up: GiveUp::Nothing }), (kept, Task::Kept)];
        for (last, task) in tasks {
            self.agenda.tasks.extend(std::iter::repeat_n((lane, task), last.map_or(0, |last| last + 1)));
        }
    }

    /// The open extent of items of a lane that has none is given back.
    fn give_up_idle(&mut self, lane: usize) {
        let of = &mut self.lanes[lane];
        let is_idle = of.promised.items == 0 && of.items.extents.back().is_some_and(|extent| extent.live == 0 && extent.live_bytes == 0);
        if is_idle && !of.dirty && of.items.open.is_some() && of.items.extents.iter().all(|extent| extent.live == 0) {
            of.items.open = None;
            self.trim(lane);
        }
    }
}

/// The smallest number of extents, within the look-ahead, of which at least half is not needed.
fn half_dead(needed: impl Iterator<Item = u64>) -> usize {
    let mut sum = 0;
    for (index, bytes) in needed.take(LOOKAHEAD).enumerate() {
        sum += bytes;
        if sum * 2 <= (index as u64 + 1) * USABLE_BYTES as u64 {
            return index + 1;
        }
    }
    0
}
