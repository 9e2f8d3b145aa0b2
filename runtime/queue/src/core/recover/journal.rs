//! A lane's journal, at a start: newest extent first, so that the first record seen about a thing is the one that counts.
//!
//! Invariants
//! 1. The first record seen about a job, a note or a letter counts; older ones change nothing.
//! 2. Nothing before the newest floor is read.
//! 3. What the last write left unfinished is no loss; any other gap is one, unless an earlier start has accounted for it.
//! 4. A record that is put together from extents has at most [`MOST_JOINED_BYTES`].

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;

use crate::core::Core;
use crate::core::journal::{JournalExtent, NewEntry, Sort};
use crate::core::keys::Holder;
use crate::core::lane::{JobEntry, Letter, Loss, Phase, Purge};
use crate::core::recover::{Notebook, Sequences, Source, merged};
use crate::core::stream::{Open, Write};
use crate::core::write::{needed_until, small_bytes};
use crate::format::{Fragment, Kind, Tail, decode_journal, encode_header, scan, scan_last};
use crate::item::Hash;
use crate::job::{JobId, JobState};
use crate::record::{ExtentHeader, JobRecord, JournalRecord, Meta};

/// Longest record that is put together at a start.
const MOST_JOINED_BYTES: usize = 64 << 20;

/// What a journal says about the lane's items.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// Jobs with a record.
    pub(super) recorded: Sequences,
    /// Of these, ended ones whose content is not needed.
    pub(super) over: Sequences,
    /// Jobs that have not ended.
    pub(super) jobs: BTreeMap<u64, JobEntry>,
    pub(super) letters: BTreeMap<u64, Letter>,
    notes: HashSet<Hash>,
    /// Highest sequence of these.
    pub(super) highest: u64,
    /// Extents of it that are lost, or parts of one: what they said of items may be lost.
    pub(super) journal_lost: u64,
    /// What is missing before this place (an extent's serial, and an offset in it) was found by an earlier start.
    accounted: (u64, u64),
}

/// An extent that the last write touched, and what of a record it leaves unfinished.
type OfLastWrite = (ExtentHeader, Option<(usize, Vec<u8>)>);

impl Facts {
    /// Something is missing there.
    fn lose(&mut self, serial: u64, offset: usize) {
        if (serial, offset as u64) >= self.accounted {
            self.journal_lost += 1;
        }
    }
    pub(super) fn is_purged(purges: &[Purge], sequence: u64) -> bool {
        let is_in = |(first, last): &(u64, u64)| (*first..=*last).contains(&sequence);
        purges.iter().any(|purge| purge.ranges.iter().any(is_in))
    }
}

/// The beginning of an extent that continues a record of the one before.
#[derive(Debug, Default)]
struct Leading {
    ordinal: u64,
    bytes: Vec<u8>,
    is_last: bool,
}

impl Core {
    /// Reads the journal and raises `floors` to its newest.
    pub(super) fn recover_journal(
        &mut self,
        source: &dyn Source,
        lane: usize,
        (headers, newest_gone): (Vec<ExtentHeader>, Option<u64>),
        floors: &mut Meta,
        notebook: &mut Notebook,
    ) -> Facts {
        let mut facts = Facts::default();
        let mut leading = Leading::default();
        let (mut before, mut before_serial) = (None::<u64>, 0);
        let newest = headers.last().map(|header| header.serial);
        // Whether the last write may have been the one that sealed it: not, if there was a later one, which is lost.
        let mut in_doubt = newest_gone < newest;
        let mut last_write = Vec::new();
        for header in headers.into_iter().rev() {
            if header.serial < floors.journal_floor {
                break;
            }
            self.extents.hold(header.position);
            self.lanes[lane].journal.extents.push_front(JournalExtent::new(header.serial, header.position));
            // What the last write did not finish may be a whole extent: it is no loss, and those behind it close up.
            let is_gap = before.is_some_and(|ordinal| ordinal != header.first + 1);
            if is_gap && !in_doubt {
                facts.lose(before_serial, 0);
            }
            (before, before_serial) = (Some(header.first), header.serial);
            let Ok(content) = source.read_extent(header.position) else {
                facts.journal_lost += 1;
                notebook.remark(format!("extent {} cannot be read: part of a journal is lost", header.position));
                continue;
            };
            let scan = if in_doubt { scan_last(&content, &header) } else { scan(&content, &header) };
            if in_doubt || newest == Some(header.serial) {
                last_write.push((header.clone(), scan.orphan_filler(header.serial)));
            }
            in_doubt &= scan.one_batch;
            self.mend(&header, &scan);
            for gap in &scan.gaps {
                notebook.report.cut_bytes += gap.bytes as u64;
                notebook.report.cut_records += 1;
            }
            leading = self.recover_fragments(lane, &header, &scan.fragments, leading, (&mut facts, floors, notebook));
            // What it says itself of what was known to be missing is read by now.
            for gap in scan.gaps.iter().filter(|gap| !gap.torn) {
                facts.lose(header.serial, gap.offset);
            }
            if source.is_cut(header.position) && scan.footer.is_none() {
                facts.journal_lost += 1;
            }
            if let (true, Some(tail)) = (newest == Some(header.serial), Tail::resume(&header, &scan)) {
                self.lanes[lane].journal.open = Some(Open::resume(&header, tail));
            } else if let Some(extent) = self.lanes[lane].journal.extents.front_mut() {
                extent.seal();
            }
        }
        self.close_up(lane, last_write);
        // The oldest that is left must be the floor's, or what lies between is lost.
        let first = self.lanes[lane].journal.extents.front().map(|extent| extent.serial);
        if first.is_some_and(|serial| floors.journal_floor > 0 && serial != floors.journal_floor) {
            facts.lose(floors.journal_floor, 0);
        }
        facts
    }

    /// Numbers extents of the last write on from the one before them; newest first.
    fn close_up(&mut self, lane: usize, last_write: Vec<OfLastWrite>) {
        let mut ordinal: Option<u64> = None;
        for (header, orphan) in last_write.into_iter().rev() {
            let first = ordinal.map_or(header.first, |before| before + 1);
            ordinal = Some(first);
            self.lanes[lane].journal.next_ordinal = first + 1;
            if first != header.first {
                let position = header.position;
                let bytes = encode_header(&ExtentHeader { first, ..header }).to_vec();
                self.mends.push(Write { position, offset: 0, bytes, padding: 0 });
                // What it begins with must not be taken for the end of something else.
                self.mends.extend(orphan.map(|(offset, bytes)| Write { position, offset, bytes, padding: 0 }));
            }
        }
    }

    /// Takes the records of one extent, last first. Answers with its beginning.
    fn recover_fragments(
        &mut self,
        lane: usize,
        header: &ExtentHeader,
        fragments: &[Fragment<'_>],
        behind: Leading,
        into: (&mut Facts, &mut Meta, &mut Notebook),
    ) -> Leading {
        let (facts, floors, notebook) = into;
        let mut rest = if behind.ordinal == header.first + 1 { behind } else { Leading::default() };
        for fragment in fragments.iter().rev().filter(|fragment| fragment.piece.kind != Kind::Filler) {
            let piece = fragment.piece;
            if piece.last {
                rest = Leading { ordinal: 0, bytes: Vec::new(), is_last: true };
            }
            if !rest.is_last || rest.bytes.len() > MOST_JOINED_BYTES {
                if piece.first {
                    // It goes on in an extent that was not written, or is lost.
                    notebook.report.cut_records += 1;
                    rest = Leading::default();
                }
                continue;
            }
            let mut bytes = fragment.payload.to_vec();
            bytes.append(&mut rest.bytes);
            rest.bytes = bytes;
            if piece.first {
                let bytes = Bytes::from(std::mem::take(&mut rest.bytes));
                rest = Leading::default();
                match decode_journal(piece.kind, &bytes) {
                    Ok(record) => {
                        self.recover_record(lane, (header.serial, fragment.offset, bytes.len()), record, (facts, floors, notebook))
                    }
                    Err(_) => facts.journal_lost += u64::from(piece.kind != Kind::Item),
                }
            }
        }
        Leading { ordinal: header.first, ..rest }
    }

    fn recover_record(
        &mut self,
        lane: usize,
        at: (u64, usize, usize),
        record: JournalRecord,
        into: (&mut Facts, &mut Meta, &mut Notebook),
    ) {
        let (facts, floors, notebook) = into;
        let (serial, offset, bytes) = at;
        let of = &mut self.lanes[lane];
        match record {
            JournalRecord::Meta(meta) => {
                *floors = merged(floors, &meta);
                notebook.see(&meta);
            }
            JournalRecord::Job(mut job) => {
                let body = job.body_bytes();
                if let Some((name, content)) = job.note.take() {
                    self.recover_note(lane, (serial, offset), (name, content), facts);
                }
                let at = (serial, offset, bytes - body);
                notebook.latest = notebook.latest.max(job.at);
                facts.highest = facts.highest.max(job.sequence);
                if facts.recorded.insert(job.sequence) {
                    self.recover_job(lane, at, job, (facts, notebook));
                }
            }
            // Once moved it stands there twice, until the older one's extent is free.
            JournalRecord::Purged { until, ranges } if of.purges.iter().any(|purge| purge.until == until && purge.ranges == ranges) => {}
            JournalRecord::Purged { until, ranges } => {
                let number = of.next_number;
                of.next_number += 1;
                of.next_sequence = of.next_sequence.max(ranges.iter().map(|(_, last)| last.saturating_add(1)).max().unwrap_or(0));
                of.purges.push(Purge { number, until, ticket: 0, ranges, bytes: bytes as u64 });
                of.journal.push(serial, &NewEntry::other(Sort::Purge, number, until, offset, bytes));
            }
            JournalRecord::Lost { until, serial, offset, .. }
                if of.losses.iter().any(|loss| (loss.until, loss.serial, loss.offset) == (until, serial, offset)) => {}
            JournalRecord::Lost { until, serial: below, offset: before, suspect_below, ranges } => {
                let number = of.next_number;
                of.next_number += 1;
                of.next_sequence = of.next_sequence.max(ranges.iter().map(|(_, last)| last.saturating_add(1)).max().unwrap_or(0));
                of.suspect_below = of.suspect_below.max(suspect_below);
                facts.accounted = facts.accounted.max((below, before));
                of.journal.push(serial, &NewEntry::other(Sort::Purge, number, until, offset, bytes));
                of.losses.push(Loss { number, until, serial: below, offset: before, suspect_below, ranges, bytes: bytes as u64 });
            }
            JournalRecord::Note { name, content } => self.recover_note(lane, (serial, offset), (name, content), facts),
        }
    }

    /// The newest of a name counts, and is found first.
    fn recover_note(&mut self, lane: usize, at: (u64, usize), note: (Hash, Bytes), facts: &mut Facts) {
        if facts.notes.insert(note.0) {
            self.enter_note(lane, at, note.0, note.1);
        }
    }

    fn recover_job(&mut self, lane: usize, at: (u64, usize, usize), job: JobRecord, into: (&mut Facts, &mut Notebook)) {
        let (facts, notebook) = into;
        let (serial, offset, bytes) = at;
        let of = &mut self.lanes[lane];
        let outcome = job.outcome.as_ref().map(|outcome| outcome.len() as u64);
        let new = NewEntry {
            sort: Sort::Job,
            name: job.sequence,
            attempts: job.attempts,
            state: job.state,
            until: needed_until(&job),
            offset,
            bytes: small_bytes(bytes),
            outcome,
            gone: job.outcome_gone,
            keyed: !job.keys.is_empty() || job.unique.is_some(),
            void: job.void,
        };
        of.journal.push(serial, &new);
        of.next_sequence = of.next_sequence.max(job.sequence.saturating_add(1));
        of.replayed.extend(job.replayed_as.map(|new| (job.sequence, new)));
        let holder = Holder { lane: u32::try_from(lane).unwrap_or(u32::MAX), sequence: job.sequence };
        for key in &job.keys {
            self.keys.hold_longest(key.hash, &key.input, holder, Some(key.until));
        }
        if let Some((hash, until)) = job.unique {
            self.uniques.hold_longest(hash, &[0; 16], holder, Some(until));
        }
        if job.emission != 0 {
            notebook.emissions.insert(JobId { lane: of.number, sequence: job.sequence }, job.emission);
        }
        if !job.state.is_end() {
            let interrupted = job.interrupted || job.state == JobState::Running;
            let not_before = if job.state == JobState::Queued { job.until } else { 0 };
            let phase = Phase::Aside { not_before };
            let entry = JobEntry { phase, attempts: job.attempts, started: false, interrupted, recorded: true, traits: None, kept: None };
            facts.jobs.insert(job.sequence, entry);
        } else if job.letter {
            let letter = Letter { at: job.at, until: job.until, attempts: job.attempts, bytes: 0, kept: None };
            facts.letters.insert(job.sequence, letter);
        } else {
            facts.over.insert(job.sequence);
        }
    }
}
