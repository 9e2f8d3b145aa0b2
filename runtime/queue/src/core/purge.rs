//! Purging: everything that waits in a lane ends at once, with one record whatever its size.
//!
//! What is at work, and what was started and never told its end, stays: a purge must not hide a write that may have been done.
//!
//! Invariants
//! 1. What is at work or interrupted is in no range of the record, and stays.
//! 2. Ranges are told apart for jobs that ended before up to [`MOST_RANGES`] of them; with more they go over such jobs, to which a purge is
//!    nothing.
//! 3. It is written with what cleaning may use: a purge needs no room that a full lane does not have.
//! 4. From the command on nothing of it is handed out; queue and tenant have its room back only when the record is durable.

use crate::core::end::Ending;
use crate::core::items::ItemExtent;
use crate::core::lane::{Lane, Phase, Purge};
use crate::core::room::{record_bytes, reserved_for};
use crate::core::write::Purpose;
use crate::core::{Core, Refused, STATE_KEEP_MS, Ticket};
use crate::format::MOST_KEYS;
use crate::job::JobState;
use crate::record::JournalRecord;

/// Most ranges told apart in a purge only because jobs between them had ended before.
const MOST_RANGES: usize = 4_096;

impl Core {
    /// Purges what waits; `purged` counts, also over several calls. Every job that is more than waiting must have been read.
    pub(crate) fn purge(&mut self, lane: usize, purged: &mut u64) -> Result<Ticket, Refused> {
        self.check()?;
        let is_aside = |phase: &Phase| matches!(phase, Phase::Aside { .. });
        let of = &self.lanes[lane];
        let aside = of.jobs.iter().filter(|(_, entry)| is_aside(&entry.phase) && !entry.interrupted);
        let aside: Vec<u64> = aside.filter(|(_, entry)| entry.recorded || entry.kept.is_some()).map(|(sequence, _)| *sequence).collect();
        for sequence in aside {
            let Some(traits) = self.lanes[lane].jobs.get(&sequence).and_then(|entry| entry.traits.clone()) else { continue };
            self.end(lane, sequence, &traits, Ending::unexecuted(JobState::Purged))?;
            *purged += 1;
        }
        // Those without a record of their own are like all that just wait.
        let of = &mut self.lanes[lane];
        let plain: Vec<u64> =
            of.jobs.iter().filter(|(_, entry)| is_aside(&entry.phase) && !entry.interrupted).map(|(sequence, _)| *sequence).collect();
        for sequence in plain {
            of.leave(sequence);
            of.cursor = of.cursor.min(sequence);
        }
        *purged += self.purge_waiting(lane)?;
        Ok(if self.has_batch() { self.gathering.number } else { self.gathering.number - 1 })
    }

    fn purge_waiting(&mut self, lane: usize) -> Result<u64, Refused> {
        let of = &self.lanes[lane];
        let mut ranges = of.waiting_ranges(true);
        if ranges.len() > MOST_RANGES {
            ranges = of.waiting_ranges(false);
        }
        if ranges.is_empty() {
            return Ok(0);
        }
        let (number, until) = (of.next_number, self.now.saturating_add(STATE_KEEP_MS));
        let record = JournalRecord::Purged { until, ranges: ranges.clone() };
        let bytes = self.write_other(lane, &record, number, until, Purpose::Cleaning)?;
        let ticket = self.gathering.number;
        let of = &mut self.lanes[lane];
        of.next_number += 1;
        let (mut count, mut content) = (0, 0);
        for at in 0..of.items.extents.len() {
            let (items, bytes) = of.purge_extent(at, &ranges);
            count += items;
            content += bytes;
        }
        of.unended = of.unended.saturating_sub(count);
        of.bytes = of.bytes.saturating_sub(content);
        let traits = of.jobs.values().filter_map(|entry| entry.traits.as_ref());
        of.reserved = traits.map(|traits| reserved_for(&traits.keys, traits.unique.as_ref())).sum();
        // Of those that stay because they may have been started, the keys are not known.
        of.reserved += of.unended.saturating_sub(of.jobs.len() as u64) * record_bytes(MOST_KEYS, true);
        of.loaded = Default::default();
        of.ended[JobState::Purged as usize] += count;
        of.pending.work = true;
        of.pending.uncounted.0 += count;
        of.pending.uncounted.1 += content;
        of.pending.purging = (of.pending.purging.0 + count, of.pending.purging.1 + content);
        of.purging = (of.purging.0 + count, of.purging.1 + content);
        of.pending.freed_ranges.extend(&ranges);
        self.counters.ended += count;
        self.lanes[lane].purges.push(Purge { number, until, ticket, ranges, bytes });
        self.settle(lane);
        Ok(count)
    }
}

/// Whether a sequence is in one of the ranges.
pub(crate) fn is_in(ranges: &[(u64, u64)], sequence: u64) -> bool {
    let at = ranges.partition_point(|(_, last)| *last < sequence);
    ranges.get(at).is_some_and(|(first, _)| *first <= sequence)
}

impl Lane {
    /// Stretches of items that just wait, also of those that become durable with this batch. `exact`: jobs that ended before are not between them.
    fn waiting_ranges(&self, exact: bool) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        let mut resident = false;
        let mut next = self.items.next(0);
        while let Some(sequence) = next {
            if sequence < self.suspect_below || self.jobs.contains_key(&sequence) || self.letters.contains_key(&sequence) {
                resident = true;
                next = self.items.next(sequence + 1);
                continue;
            }
            let last = self.last_waiting(sequence);
            match ranges.last_mut() {
                Some(range) if range.1 + 1 == sequence || !(exact || resident) => range.1 = last,
                _ => ranges.push((sequence, last)),
            }
            resident = false;
            next = self.items.next(last + 1);
        }
        ranges
    }

    /// The end of the stretch of waiting items that begins there, in the same extent.
    fn last_waiting(&self, sequence: u64) -> u64 {
        let end = self.items.find(sequence).map_or(sequence + 1, |at| {
            let extent = &self.items.extents[at];
            extent.next_over(sequence)
        });
        let job = self.jobs.range(sequence..).next().map_or(u64::MAX, |(at, _)| *at);
        let letter = self.letters.range(sequence..).next().map_or(u64::MAX, |(at, _)| *at);
        end.min(job).min(letter) - 1
    }

    /// Marks what of an extent is in the ranges: how many, and their content bytes.
    fn purge_extent(&mut self, at: usize, ranges: &[(u64, u64)]) -> (u64, u64) {
        let extent = &mut self.items.extents[at];
        let (first, end) = (extent.first, extent.end());
        let mut count = 0;
        let from = ranges.partition_point(|(_, last)| *last < first);
        for (low, high) in ranges[from..].iter().take_while(|(low, _)| *low < end) {
            count += extent.set_range_over((*low).max(first), (*high).min(end - 1));
        }
        if count == 0 {
            return (0, 0);
        }
        // Not every item's length is known, but all of those that stay.
        let jobs = self.jobs.range(first..end).filter(|(_, entry)| entry.kept.is_none());
        let jobs: u64 = jobs.filter_map(|(_, entry)| entry.traits.as_ref()).map(|traits| traits.bytes).sum();
        let letters: u64 = self.letters.range(first..end).filter(|(_, letter)| letter.kept.is_none()).map(|(_, letter)| letter.bytes).sum();
        let stay = (jobs + letters).min(extent.live_bytes);
        let gone = extent.live_bytes - stay;
        extent.live_bytes = stay;
        self.pending.purged.push((extent.serial, count));
        (u64::from(count), gone)
    }
}

impl ItemExtent {
    /// The first from `sequence` on that is over, or the end.
    fn next_over(&self, sequence: u64) -> u64 {
        (sequence..self.end()).find(|sequence| self.is_over(*sequence)).unwrap_or(self.end())
    }
    fn set_range_over(&mut self, low: u64, high: u64) -> u32 {
        let mut count = 0;
        for sequence in low..=high {
            count += u32::from(self.set_over(sequence, 0));
        }
        count
    }
}
