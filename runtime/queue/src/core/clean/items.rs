//! Cleaning items and kept copies, and ending what expired.

use crate::core::Core;
use crate::core::clean::half_dead;
use crate::core::end::Ending;
use crate::core::lane::{Phase, Traits};
use crate::core::lookup::{Plan, Record};
use crate::core::stream::USABLE_BYTES;
use crate::core::write::{Purpose, place};
use crate::format::{Draft, Kind, decode_item};
use crate::job::JobState;
use crate::record::{ItemRecord, Stream};

/// An item's bytes beside its content, about.
const BESIDE_BYTES: u64 = 128;

fn items(records: &[Record]) -> impl Iterator<Item = (usize, ItemRecord)> + '_ {
    let items = records.iter().filter(|record| record.kind == Kind::Item);
    items.filter_map(|record| decode_item(&record.bytes).ok().map(|item| (record.offset, item)))
}

impl Core {
    /// Extents at the front that only hold a little of what is set aside or dead, and so keep all those behind.
    pub(super) fn sparse_items(&self, lane: usize) -> usize {
        let of = &self.lanes[lane];
        // Only what the cursor has passed: the rest is taken soon, or stays where it is.
        let passed = of.items.extents.iter().take_while(|extent| extent.end() <= of.cursor);
        let (mut extents, mut bytes, mut sparse) = (0_u64, 0, 0);
        for extent in passed {
            extents += 1;
            bytes += extent.live_bytes + u64::from(extent.live) * BESIDE_BYTES;
            if bytes * 2 <= (extents - 1) * USABLE_BYTES as u64 && extents > 1 {
                sparse = extents;
            }
        }
        usize::try_from(sparse).unwrap_or(0)
    }

    pub(super) fn plan_items_cleaning(&mut self, lane: usize) -> Option<Plan> {
        let of = &self.lanes[lane];
        let extent = of.items.extents.front()?;
        let (first, end) = (extent.first, extent.end());
        let is_busy = of.jobs.range(first..end).any(|(_, entry)| matches!(entry.phase, Phase::AtWork { .. } | Phase::Hidden));
        let is_open = of.items.open.as_ref().is_some_and(|open| open.serial == extent.serial);
        if is_busy || is_open || extent.live == 0 || end > of.cursor.min(of.durable_next) {
            return None;
        }
        Some(self.plan_items(lane, 0))
    }

    /// Copies what is set aside or dead to the kept stream.
    pub(super) fn clean_items(&mut self, plan: &Plan, records: &[Record]) {
        let lane = plan.lane;
        for (_, item) in items(records) {
            let of = &self.lanes[lane];
            let is_here = of.items.is_live(item.sequence);
            let is_resident = of.jobs.contains_key(&item.sequence) || of.letters.contains_key(&item.sequence);
            if is_here && is_resident && !self.keep(lane, item, None) {
                return;
            }
        }
    }

    /// Writes a copy of an item. `before`: the kept extent it stands in. Whether there was room.
    fn keep(&mut self, lane: usize, item: ItemRecord, before: Option<u64>) -> bool {
        let (sequence, bytes) = (item.sequence, item.content.len() as u64);
        let draft = Draft::item(item);
        if !self.may_write(lane, Stream::Kept, draft.disk_bytes() as u64, Purpose::Cleaning) {
            return false;
        }
        let placed = self.write(lane, Stream::Kept, &draft, (0, 0));
        self.counters.moved += 1;
        let of = &mut self.lanes[lane];
        of.kept.push(placed.serial, sequence, place(placed.offset));
        if let Some(at) = of.kept.by_serial(placed.serial) {
            of.kept.extents[at].live += 1;
        }
        if let Some(entry) = of.jobs.get_mut(&sequence) {
            entry.kept = Some(placed.serial);
        } else if let Some(letter) = of.letters.get_mut(&sequence) {
            letter.kept = Some(placed.serial);
        }
        match before {
            Some(serial) => of.pending.over.push((sequence, Some(serial))),
            None => self.drop_content(lane, sequence, bytes, None),
        }
        true
    }

    pub(super) fn half_dead_kept(&self, lane: usize) -> usize {
        let of = &self.lanes[lane];
        let sealed = of.kept.extents.len().saturating_sub(1);
        half_dead(of.kept.extents.iter().take(sealed).map(|extent| {
            // An extent into which a copy only goes on is as needed as the copy.
            let share = (USABLE_BYTES as u64 * u64::from(extent.live)).checked_div(extent.items.len() as u64);
            share.unwrap_or(USABLE_BYTES as u64)
        }))
    }

    pub(super) fn plan_kept_cleaning(&mut self, lane: usize) -> Option<Plan> {
        let of = &self.lanes[lane];
        let extent = of.kept.extents.front()?;
        let is_open = of.kept.open.as_ref().is_some_and(|open| open.serial == extent.serial);
        let (sequence, _) = *extent.items.first()?;
        if is_open || extent.live == 0 {
            return None;
        }
        self.plan_kept(lane, extent.serial, sequence).map(|plan| Plan { offset: None, ..plan })
    }

    pub(super) fn clean_kept(&mut self, plan: &Plan, records: &[Record]) {
        let (lane, serial) = (plan.lane, plan.extents[0].serial);
        for (_, item) in items(records) {
            let of = &self.lanes[lane];
            let job = of.jobs.get(&item.sequence).map(|entry| entry.kept);
            let stands = job.or_else(|| of.letters.get(&item.sequence).map(|letter| letter.kept)).flatten();
            if stands == Some(serial) && !self.keep(lane, item, Some(serial)) {
                return;
            }
        }
    }

    /// Whether the time of some waiting item is over.
    pub(super) fn has_expired(&self, lane: usize) -> bool {
        let of = &self.lanes[lane];
        of.items.extents.iter().any(|extent| extent.earliest_expiry <= self.now && extent.live > 0)
            || of.jobs.values().any(|entry| self.is_overdue(entry))
    }

    fn is_overdue(&self, entry: &crate::core::lane::JobEntry) -> bool {
        let expires_at = entry.traits.as_ref().and_then(|traits| traits.expires_at);
        matches!(entry.phase, Phase::Aside { .. }) && !entry.interrupted && expires_at.is_some_and(|at| at <= self.now)
    }

    pub(super) fn plan_expiry(&mut self, lane: usize) -> Option<Plan> {
        let overdue: Vec<u64> =
            self.lanes[lane].jobs.iter().filter(|(_, entry)| self.is_overdue(entry)).map(|(sequence, _)| *sequence).collect();
        for sequence in overdue {
            let traits = self.lanes[lane].jobs.get(&sequence).and_then(|entry| entry.traits.clone())?;
            if self.end(lane, sequence, &traits, Ending::unexecuted(JobState::Expired)).is_err() {
                return None;
            }
        }
        let of = &self.lanes[lane];
        let is_due = |extent: &crate::core::items::ItemExtent| extent.earliest_expiry <= self.now && extent.live > 0;
        let at = of.items.extents.iter().position(|extent| is_due(extent) && extent.end() <= of.durable_next)?;
        Some(self.plan_items(lane, at))
    }

    pub(super) fn end_expired(&mut self, plan: &Plan, records: &[Record]) {
        let (lane, serial) = (plan.lane, plan.extents[0].serial);
        let mut next = u64::MAX;
        for (_, item) in items(records) {
            let of = &self.lanes[lane];
            let waits = of.items.is_live(item.sequence)
                && !of.letters.contains_key(&item.sequence)
                && !of.jobs.contains_key(&item.sequence)
                && item.sequence >= of.suspect_below;
            let Some(at) = item.expires_at.filter(|_| waits) else { continue };
            if at > self.now {
                next = next.min(at);
            } else if self.end(lane, item.sequence, &Traits::of(&item), Ending::unexecuted(JobState::Expired)).is_err() {
                return;
            }
        }
        let of = &mut self.lanes[lane];
        if let Some(at) = of.items.by_serial(serial) {
            of.items.extents[at].earliest_expiry = next;
        }
        // There may be more.
        self.agenda.tasks.push_back((lane, crate::core::clean::Task::Expiry));
    }
}
