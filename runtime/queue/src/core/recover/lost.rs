//! What is gone, at a start: which extents were in use and are not there, whose they were, and what that costs.
//!
//! The catalog says of every extent its last use that was durable. An extent without that use is lost. Where the catalog is missing or
//! older than the extent's last use, nobody knows whose it was: then it may have been part of any lane's journal.
//!
//! Invariants
//! 1. What is of another store, place or version, or cannot be read, is put aside and never written over, but for copies of what stands
//!    in its own place.
//! 2. A loss is said once: written into the journals concerned, it is known to later starts.
//! 3. Where a part of a journal may be lost, items that may have been started are handed out as interrupted, never as if new.
//! 4. A number that may have been given out is not given out again: they jump by [`NUMBER_JUMP`].

use std::collections::BTreeMap;

use crate::core::Core;
use crate::core::damage::{Unsaid, blank};
use crate::core::extents::Position;
use crate::core::lane::{Lane, MOST_SET_ASIDE};
use crate::core::purge::is_in;
use crate::core::recover::journal::Facts;
use crate::core::recover::{Known, Notebook, Source};
use crate::format::{CatalogEntry, EXTENT_BYTES, Fault, HEADER_BYTES, decode_header};
use crate::job::JobState;
use crate::record::{ExtentHeader, Meta, Stream};

/// Records of jobs in one extent, at most.
const MOST_RECORDS: u64 = (EXTENT_BYTES / 32) as u64;
/// Numbers of items that are left out where some may have been given out and nothing says so any more.
const NUMBER_JUMP: u64 = 1 << 20;
/// Items of one stretch that are looked at one by one.
const MOST_COUNTED: u64 = 1 << 16;

/// Extents that are not what they should be, and of which nothing is known yet but that.
#[derive(Debug, Default)]
pub(super) struct Gone {
    /// By lane.
    pub(super) uses: BTreeMap<u64, Vec<(Position, CatalogEntry)>>,
    /// Garbage where nothing is known to have been.
    empty: Vec<Position>,
    /// Something of another store or place, or that cannot be read, where nothing is known to have been.
    foreign: Vec<Position>,
    /// Lost, and nobody knows whose.
    pub(super) unknown: u64,
    /// Any of it was seen.
    pub(super) is_any: bool,
}

/// What a lane may have lost.
#[derive(Debug, Default)]
pub(super) struct Doubt {
    pub(super) lane: usize,
    /// Extents of its journal, or parts of one.
    pub(super) journal: u64,
    /// Highest sequence that the journal names.
    pub(super) highest: u64,
    /// Items that are gone, and how many of them nothing says the end of.
    pub(super) ranges: Vec<(u64, u64)>,
    pub(super) count: u64,
    /// From there on all that may have been appended.
    pub(super) tail: Option<u64>,
    /// Copies of items that were set aside.
    pub(super) kept: u64,
    /// What was written last was not finished; or it was, and is damaged: nobody can tell.
    pub(super) is_cut: bool,
}

impl Known {
    fn is_newer_than(&self, serial: u64) -> bool {
        matches!(self, Known::Use(entry) if entry.serial > serial)
    }
}

impl Core {
    /// Whether what an extent says of itself counts; what does not is put aside.
    pub(super) fn judge(
        &mut self,
        source: &dyn Source,
        position: Position,
        header: Result<ExtentHeader, Fault>,
        notebook: &mut Notebook,
    ) -> Option<ExtentHeader> {
        let known = source.known(position);
        let is_ours = |header: &ExtentHeader| header.position == position && header.store == self.store;
        match header {
            Ok(header) if is_ours(&header) && !known.is_newer_than(header.serial) => {
                let entry = CatalogEntry { serial: header.serial, lane: header.lane, first: header.first, stream: header.stream };
                if known != Known::Use(entry) {
                    self.uncatalogued.insert(position, Some(entry));
                }
                return Some(header);
            }
            Err(Fault::Blank) if !matches!(known, Known::Use(_)) => {
                let lost = known == Known::Unknown && source.is_cut(position);
                notebook.gone.unknown += u64::from(lost);
                notebook.gone.is_any |= lost;
            }
            // What cannot be read, and what is of another store, place or version, is nothing to write over.
            Err(Fault::Cut | Fault::Version(_)) => self.put_aside_extent(position, known, false, notebook),
            Ok(header) if !is_ours(&header) => self.put_aside_extent(position, known, self.is_copy(source, &header), notebook),
            Ok(_) | Err(_) => self.put_aside_extent(position, known, true, notebook),
        }
        None
    }

    /// Whether what stands in a wrong place stands in its own as well.
    fn is_copy(&self, source: &dyn Source, header: &ExtentHeader) -> bool {
        let mut sector = [0; HEADER_BYTES];
        let read = source.read_part(header.position, 0, &mut sector);
        header.store == self.store && read.is_ok_and(|()| decode_header(&sector).as_ref() == Ok(header))
    }

    fn put_aside_extent(&mut self, position: Position, known: Known, heals: bool, notebook: &mut Notebook) {
        self.extents.quarantine(position);
        match known {
            Known::Use(entry) => notebook.gone.uses.entry(entry.lane).or_default().push((position, entry)),
            Known::Nothing if heals => return notebook.gone.empty.push(position),
            Known::Nothing => return notebook.gone.foreign.push(position),
            Known::Unknown => notebook.gone.unknown += 1,
        }
        notebook.report.quarantined_extents += 1;
        notebook.gone.is_any = true;
        if heals {
            self.damage.healing.push(position);
        } else {
            self.damage.left.push(position);
        }
    }

    /// When all headers were read.
    pub(super) fn judge_rest(&mut self, source: &dyn Source, notebook: &mut Notebook) {
        let (catalogued, missing) = (source.catalogued(), source.missing());
        for position in 0..catalogued {
            // Of files that were given back.
            let is_missing = || missing.iter().any(|range| range.contains(&position));
            if source.known(position) != Known::Nothing && !self.extents.has(position) && !is_missing() {
                self.uncatalogued.insert(position, None);
            }
        }
        for range in missing {
            let unknown = u64::from(range.end - range.start.max(catalogued).min(range.end));
            let (start, end) = (range.start, range.end.min(catalogued));
            notebook.gone.unknown += if source.complete_below() == 0 && !self.extents.has(start) { unknown } else { 0 };
            for position in start..end.max(start) {
                match source.known(position) {
                    _ if self.extents.has(position) => {}
                    Known::Use(entry) => notebook.gone.uses.entry(entry.lane).or_default().push((position, entry)),
                    Known::Unknown => notebook.gone.unknown += 1,
                    Known::Nothing => {}
                }
            }
            notebook.gone.is_any = true;
        }
        self.judge_unneeded(source, notebook);
    }

    /// What cannot be used where nothing is known to have been.
    fn judge_unneeded(&mut self, source: &dyn Source, notebook: &mut Notebook) {
        let gone = &mut notebook.gone;
        let (empty, foreign) = (std::mem::take(&mut gone.empty), std::mem::take(&mut gone.foreign));
        if empty.is_empty() && foreign.is_empty() {
            return;
        }
        gone.is_any = true;
        // Something may have been taken into use behind what the catalog tells.
        if self.next_serial > source.complete_below() {
            let count = (empty.len() + foreign.len()) as u64;
            gone.unknown += count;
            notebook.report.quarantined_extents += count;
            self.damage.healing.extend(empty);
            self.damage.left.extend(foreign);
            return;
        }
        self.damage.harmless.extend(empty.iter().chain(&foreign));
        if !empty.is_empty() {
            notebook.remark(format!("{} extents that held nothing could not be read: they are used again", empty.len()));
        }
        if !foreign.is_empty() {
            let count = foreign.len();
            notebook.remark(format!("{count} extents that held nothing are of another store or place: they are left as they are, unused"));
        }
        for position in empty {
            self.extents.heal(position);
            self.mends.push(blank(position));
        }
    }

    /// What of a lane's lost extents still held something.
    pub(super) fn still_needed(&mut self, lane: usize, gone: &mut Vec<(Position, CatalogEntry)>, floors: &Meta) {
        gone.retain(|(_, entry)| {
            let floor = match entry.stream {
                Stream::Items => floors.items_floor,
                Stream::Journal => floors.journal_floor,
                Stream::Kept => floors.kept_floor,
            };
            entry.serial >= floor
        });
        let name = &self.lanes[lane].name;
        let place = |(position, entry): &(Position, CatalogEntry)| {
            let what = match entry.stream {
                Stream::Items => "items",
                Stream::Journal => "journal",
                Stream::Kept => "items set aside",
            };
            (*position, format!("an extent with {what} of lane {}/{} stood here and is lost", name.queue, name.tenant))
        };
        self.damage.places.extend(gone.iter().map(place));
    }

    /// What is said of the damage, to people and to later starts.
    pub(super) fn conclude(&mut self, notebook: &mut Notebook) {
        let unknown = notebook.gone.unknown;
        if unknown > 0 {
            notebook.loss(format!("{unknown} extents are lost and nobody knows whose they were"));
        }
        for doubt in std::mem::take(&mut notebook.doubts) {
            self.doubt(doubt, unknown, notebook);
        }
        let uses = std::mem::take(&mut notebook.gone.uses);
        let lanes = uses.len();
        let gone: Vec<Position> = uses.into_values().flatten().map(|(position, _)| position).collect();
        if !gone.is_empty() {
            notebook.loss(format!("{} extents are lost with all that was known of their {lanes} lanes", gone.len()));
        }
        let place = |position| (position, "an extent of a lane of which nothing is left stood here and is lost".to_owned());
        self.damage.places.extend(gone.into_iter().map(place));
    }

    /// Where parts of the journal may be lost, items that may have been started are handed out as interrupted: never run again as if
    /// nothing had been. As a lane hands out in order, that is none far behind the last one known to have been started.
    fn doubt(&mut self, doubt: Doubt, unknown: u64, notebook: &mut Notebook) {
        let of = &mut self.lanes[doubt.lane];
        let (journal, name) = (unknown.saturating_add(doubt.journal), format!("{}/{}", of.name.queue, of.name.tenant));
        let mut ranges = doubt.ranges;
        if journal > 0 || doubt.tail.is_some() {
            let first = doubt.tail.unwrap_or(of.next_sequence).min(of.next_sequence);
            of.next_sequence = of.next_sequence.saturating_add(NUMBER_JUMP);
            of.durable_next = of.next_sequence;
            ranges.push((first, of.next_sequence - 1));
        } else if doubt.is_cut {
            of.left_out = of.next_sequence..of.next_sequence + MOST_RECORDS;
            of.next_sequence = of.left_out.end;
            of.durable_next = of.next_sequence;
        }
        let mut suspect_below = 0;
        if journal > 0 && of.unended > 0 {
            let most = (MOST_SET_ASIDE as u64 * 2).saturating_add(journal.saturating_mul(MOST_RECORDS));
            let known = doubt.highest.max(of.oldest_on_disk().min(of.next_sequence));
            suspect_below = known.saturating_add(most).min(of.next_sequence);
            // A whole extent is suspect or not at all.
            if let Some(at) = of.items.find(suspect_below) {
                suspect_below = of.items.extents[at].end();
            }
            of.suspect_below = of.suspect_below.max(suspect_below);
        }
        if let Some(first) = doubt.tail {
            notebook.loss(format!("items of lane {name} from number {first} on are lost: their jobs ended as dead"));
        }
        if doubt.count > 0 {
            self.counters.ended += doubt.count;
            self.lanes[doubt.lane].ended[JobState::Dead as usize] += doubt.count;
            notebook.loss(format!("{} items of lane {name} are lost: their jobs ended as dead", doubt.count));
        }
        if doubt.kept > 0 {
            notebook.loss(format!("copies of items of lane {name} that were set aside, or are dead letters, are lost"));
        }
        if doubt.journal > 0 {
            notebook.loss(format!(
                "part of the journal of lane {name} is lost: its items are handed out as interrupted, its notes (how far a schedule is) \
                 may be older or gone"
            ));
        } else if suspect_below > 0 {
            notebook.remark(format!("part of the journal of lane {name} may be lost: items are handed out as interrupted"));
        }
        if journal > 0 || !ranges.is_empty() {
            self.damage.unsaid.push(Unsaid::Loss { lane: doubt.lane, suspect_below, ranges: apart(ranges) });
        }
    }

    /// Jobs whose items are nowhere end; letters stay what they are, without their content.
    pub(super) fn end_lost_jobs(&mut self, lane: usize, facts: &mut Facts) {
        for (sequence, entry) in std::mem::take(&mut facts.jobs) {
            let state = if entry.interrupted { JobState::Unknown } else { JobState::Dead };
            self.damage.unsaid.push(Unsaid::End { lane, sequence, attempts: entry.attempts, state });
        }
    }
}

/// Where a stream's extents begin: those that are there and those that are not, and what follows from that.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// Serial, first sequence, and whether it is lost from there on.
    links: Vec<(u64, u64, bool)>,
}

impl Chain {
    pub(super) fn found(&mut self, serial: u64, first: u64) {
        self.links.push((serial, first, false));
    }
    pub(super) fn lost(&mut self, serial: u64, first: u64) {
        self.links.push((serial, first, true));
    }
    /// Items that are gone, in stretches, and from which one on all that there may have been is.
    pub(super) fn gaps(mut self) -> (Vec<(u64, u64)>, Option<u64>) {
        self.links.sort_by_key(|(serial, ..)| *serial);
        let (mut ranges, mut tail) = (Vec::new(), None);
        for (at, (_, first, is_lost)) in self.links.iter().enumerate() {
            if !is_lost {
                continue;
            }
            match self.links[at + 1..].iter().find(|(_, next, _)| next >= first) {
                Some((_, next, _)) if next > first => ranges.push((*first, next - 1)),
                Some(_) => {}
                None => tail = Some(tail.unwrap_or(*first)),
            }
        }
        (ranges, tail)
    }
}

impl Lane {
    /// How many of these items nothing is known of.
    pub(super) fn count_lost(&self, (first, last): (u64, u64), facts: &Facts) -> u64 {
        let is_known = |sequence: &u64| {
            facts.recorded.contains(*sequence)
                || Facts::is_purged(&self.purges, *sequence)
                || self.losses.iter().any(|loss| is_in(&loss.ranges, *sequence))
                || self.items.is_live(*sequence)
        };
        (first..=last.min(first.saturating_add(MOST_COUNTED))).filter(|sequence| !is_known(sequence)).count() as u64
    }
}

/// In order, those that touch as one.
fn apart(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut out: Vec<(u64, u64)> = Vec::new();
    for (first, last) in ranges {
        match out.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            _ => out.push((first, last)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{Chain, apart};

    #[test]
    fn what_is_gone_lies_between_what_is_there() {
        let mut chain = Chain::default();
        chain.found(9, 30);
        chain.lost(2, 1);
        chain.lost(5, 12);
        chain.found(3, 8);
        chain.lost(3, 10);
        assert_eq!(chain.gaps(), (vec![(1, 7), (10, 11), (12, 29)], None));
        let mut chain = Chain::default();
        chain.found(3, 8);
        chain.lost(4, 11);
        chain.lost(5, 14);
        assert_eq!(chain.gaps(), (vec![(11, 13)], Some(14)));
        assert_eq!(apart(vec![(12, 29), (1, 7), (10, 11)]), [(1, 7), (10, 29)]);
    }
}
