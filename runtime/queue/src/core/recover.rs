//! A start: from what is on disk to the state in memory.
//!
//! 1. The header of every extent is read. Blank ones are free, unreadable ones are set aside; the rest is grouped by lane.
//! 2. Per lane, the journal is read whole, newest extent first: the newest record about a thing counts, and the newest floors say
//!    which extents are free whatever their headers say ([`journal`]).
//! 3. Per lane, footers tell which items there are; only extents without a footer are read whole ([`items`]). An item that was not
//!    wholly written when the machine stopped was never acknowledged: it is cut, counted, and said void.
//! 4. What is missing of all that is found, and told, once ([`lost`]).
//! 5. Over all lanes: emitted items whose origin's end did not come true are void.
//!
//! It reads every extent a bounded number of times and goes on from whatever it finds.

mod items;
mod journal;
mod lost;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;

use spillgate_model::chance;

use crate::core::Core;
use crate::core::append::milliseconds;
use crate::core::extents::Position;
use crate::core::lookup::ReadExtent;
use crate::core::recover::lost::{Doubt, Gone};
use crate::core::stream::Write;
use crate::format::{CatalogEntry, Fault, HEADER_BYTES, Scan, decode_header};
use crate::item::Unique;
use crate::job::JobId;
use crate::record::{ExtentHeader, Meta, Stream};
use crate::status::Recovered;

/// Added to the next serial where extents could not be read: theirs are not used again.
const SERIAL_JUMP: u64 = 1 << 32;

/// Sentences of each kind that are kept.
const MOST_SENTENCES: usize = 50;

/// What the catalog says of an extent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Known {
    /// It says nothing, or cannot be read.
    #[default]
    Unknown,
    /// Nothing ever stood there, or nothing that is needed.
    Nothing,
    /// The last use that is known to be durable.
    Use(CatalogEntry),
}

/// What a start reads from.
pub(crate) trait Source: ReadExtent {
    /// Fills `buffer` from an extent.
    fn read_part(&self, position: Position, offset: usize, buffer: &mut [u8]) -> io::Result<()>;
    /// What the catalog says of an extent.
    fn known(&self, _: Position) -> Known {
        Known::Unknown
    }
    /// How many extents the catalog names.
    fn catalogued(&self) -> Position {
        0
    }
    /// Below which serial the catalog is complete. 0: there is none.
    fn complete_below(&self) -> u64 {
        0
    }
    /// Whether an extent was not there, or not wholly: of files that are missing or were cut.
    fn is_cut(&self, _: Position) -> bool {
        false
    }
    /// Extents of files that are missing.
    fn missing(&self) -> Vec<Range<Position>> {
        Vec::new()
    }
    /// Nothing was ever written: the files were made just now.
    fn is_new(&self) -> bool {
        false
    }
    /// Serials below it may have been given out. 0: not known.
    fn next_serial(&self) -> u64 {
        0
    }
    /// Every extent there is.
    fn positions(&self) -> Vec<Position>;
}

/// The extents of one lane, by stream, serials ascending.
#[derive(Debug, Default)]
struct LaneExtents {
    items: Vec<ExtentHeader>,
    journal: Vec<ExtentHeader>,
    kept: Vec<ExtentHeader>,
}

/// A set of sequences: a bit for each, in pieces.
#[derive(Debug, Default)]
struct Sequences {
    pieces: HashMap<u64, Box<[u64; 64]>>,
}

impl Sequences {
    /// Whether it is new.
    fn insert(&mut self, sequence: u64) -> bool {
        let word = &mut self.pieces.entry(sequence >> 12).or_insert_with(|| Box::new([0; 64]))[(sequence >> 6 & 63) as usize];
        let bit = 1 << (sequence & 63);
        let new = *word & bit == 0;
        *word |= bit;
        new
    }
    fn contains(&self, sequence: u64) -> bool {
        self.pieces.get(&(sequence >> 12)).is_some_and(|piece| piece[(sequence >> 6 & 63) as usize] & (1 << (sequence & 63)) != 0)
    }
}

/// What the journals said that other lanes ask for, and the latest time seen.
#[derive(Debug, Default)]
struct Notebook {
    emissions: HashMap<JobId, u64>,
    meta: Meta,
    latest: u64,
    gone: Gone,
    doubts: Vec<Doubt>,
    report: Recovered,
}

impl Notebook {
    fn see(&mut self, meta: &Meta) {
        if meta.time >= self.meta.time {
            self.meta = *meta;
        }
        self.latest = self.latest.max(meta.time);
    }
    /// Something a person should know.
    fn remark(&mut self, sentence: String) {
        note(&mut self.report.remarks, sentence);
    }
    /// Something that was acknowledged is lost.
    fn loss(&mut self, sentence: String) {
        note(&mut self.report.losses, sentence);
    }
}

/// So that a long list does not become longer.
fn note(list: &mut Vec<String>, sentence: String) {
    match list.len() {
        0..MOST_SENTENCES => list.push(sentence),
        MOST_SENTENCES => list.push("and more of the kind".to_owned()),
        _ => {}
    }
}

impl Core {
    /// Takes in what is on disk. `wall`: now.
    pub(crate) fn recover(&mut self, source: &dyn Source, report: Recovered, wall: u64) {
        let mut notebook = Notebook { report, ..Notebook::default() };
        let lanes = self.headers(source, &mut notebook);
        // The newest first: where a file was away for a while, its lanes had a second life, and that one goes on.
        for (number, mut extents) in lanes.into_iter().rev() {
            for of_stream in [&mut extents.items, &mut extents.journal, &mut extents.kept] {
                of_stream.sort_by_key(|header| header.serial);
            }
            self.recover_lane(source, number, extents, &mut notebook);
        }
        // Store time goes on from the latest it ever was, plus the time away as far as the wall clock knows it.
        let away = self.wall_difference(&notebook.meta, wall);
        self.now = notebook.latest.max(notebook.meta.time.saturating_add(away)).max(if notebook.latest == 0 { wall } else { 0 });
        self.wall = wall;
        // Serials of batches that were never finished are not given out again: what those left behind, a record or a footer, would be
        // taken for valid. There can be no more of them than extents; what the head says leaves them out over several starts.
        if !source.is_new() {
            self.next_serial = source.next_serial().max(self.next_serial.saturating_add(self.extents.total()));
        }
        if notebook.gone.is_any || !notebook.report.missing_files.is_empty() {
            self.next_serial = self.next_serial.saturating_add(SERIAL_JUMP);
        }
        if !source.is_new() && source.next_serial() == 0 {
            self.leave_out_serials();
        }
        self.conclude(&mut notebook);
        self.next_token = self.next_token.max(self.now << 16).max(notebook.emissions.values().copied().max().unwrap_or(0)) + 1;
        self.prove_origins(&notebook);
        for lane in 0..self.lanes.len() {
            self.lanes[lane].waits_since = self.now;
            self.settle(lane);
        }
        self.void_some();
        // All that was found is in the catalog before anything is added.
        self.committed_below = self.next_serial;
        let lanes = &self.lanes;
        notebook.report.lanes = lanes.len() as u64;
        notebook.report.waiting = lanes.iter().map(crate::core::lane::Lane::waiting).sum();
        self.recovered = notebook.report;
    }

    fn wall_difference(&self, meta: &Meta, wall: u64) -> u64 {
        if meta.wall == 0 { 0 } else { wall.saturating_sub(meta.wall) }
    }

    /// Reads every header.
    fn headers(&mut self, source: &dyn Source, notebook: &mut Notebook) -> BTreeMap<u64, LaneExtents> {
        let mut lanes: BTreeMap<u64, LaneExtents> = BTreeMap::new();
        let mut sector = [0; HEADER_BYTES];
        for position in source.positions() {
            let header = source.read_part(position, 0, &mut sector).map_err(|_| Fault::Cut).and_then(|()| decode_header(&sector));
            let Some(header) = self.judge(source, position, header, notebook) else { continue };
            self.next_serial = self.next_serial.max(header.serial.saturating_add(1));
            notebook.see(&header.meta);
            let lane = lanes.entry(header.lane).or_default();
            match header.stream {
                Stream::Items => lane.items.push(header),
                Stream::Journal => lane.journal.push(header),
                Stream::Kept => lane.kept.push(header),
            }
        }
        self.judge_rest(source, notebook);
        lanes
    }

    /// Where it is not known, or cannot be kept, which serials were given out: far enough away by chance.
    pub(crate) fn leave_out_serials(&mut self) {
        self.next_serial = self.next_serial.saturating_add(chance::drawn() >> 24);
    }
    /// Of a store that is made: serials below it, and with them numbers of lanes, belong to one that is gone.
    pub(crate) fn begin_at(&mut self, serial: u64) {
        self.next_serial = self.next_serial.max(serial);
        self.committed_below = self.next_serial;
    }
    /// What the next start may have to leave out: as many serials from the next one on as there are extents.
    pub(crate) fn serials_in_doubt(&self) -> u64 {
        self.next_serial.saturating_add(self.extents.total())
    }

    /// What the last write left unfinished is filled, before anything is written behind it.
    fn mend(&mut self, header: &ExtentHeader, scan: &Scan<'_>) {
        let fillers = scan.fillers(header.serial).into_iter();
        self.mends.extend(fillers.map(|(offset, bytes)| Write { position: header.position, offset, bytes, padding: 0 }));
        // What it left behind the end must not be seen again.
        let behind = scan.gaps.iter().filter(|gap| gap.torn && gap.offset >= scan.end);
        self.mends.extend(behind.map(|gap| Write { position: header.position, offset: gap.offset, bytes: vec![0; gap.bytes], padding: 0 }));
    }

    fn recover_lane(&mut self, source: &dyn Source, number: u64, extents: LaneExtents, notebook: &mut Notebook) {
        let mut floors = Meta::default();
        let all = extents.items.iter().chain(&extents.journal).chain(&extents.kept);
        let mut name = None;
        for header in all {
            floors = merged(&floors, &header.meta);
            name = Some(header.name.clone());
        }
        let Some(name) = name else { return };
        let index = self.lane_index(&name);
        if self.lanes[index].number != 0 {
            notebook.loss(format!("lane {}/{} was found twice: its older part, {number:x}, is left as it is", name.queue, name.tenant));
            for header in extents.items.iter().chain(&extents.journal).chain(&extents.kept) {
                self.extents.quarantine(header.position);
                notebook.report.quarantined_extents += 1;
            }
            return;
        }
        self.lanes[index].number = number;
        self.by_number.insert(number, index);
        let mut gone = notebook.gone.uses.remove(&number).unwrap_or_default();
        let newest_gone = gone.iter().filter(|(_, entry)| entry.stream == Stream::Journal).map(|(_, entry)| entry.serial).max();
        let mut facts = self.recover_journal(source, index, (extents.journal, newest_gone), &mut floors, notebook);
        self.still_needed(index, &mut gone, &floors);
        let known = self.lanes[index].losses.iter().map(|loss| loss.serial).max().unwrap_or(0);
        let of_journal = |(_, entry): &&(Position, CatalogEntry)| entry.stream == Stream::Journal && entry.serial > known;
        facts.journal_lost += gone.iter().filter(of_journal).count() as u64;
        let owned =
            |headers: Vec<ExtentHeader>, floor: u64| headers.into_iter().filter(|header| header.serial >= floor).collect::<Vec<_>>();
        let items = owned(extents.items, floors.items_floor);
        let kept = owned(extents.kept, floors.kept_floor);
        self.lanes[index].meta = floors;
        self.recover_items(source, index, (items, kept, gone), facts, notebook);
        let lane = &mut self.lanes[index];
        lane.next_sequence = lane.next_sequence.max(floors.next_sequence).max(1);
        lane.durable_next = lane.next_sequence;
        lane.cursor = lane.items.first().min(lane.next_sequence);
        let (unended, bytes) = (lane.unended, lane.bytes);
        self.count(index, unended, bytes, true);
    }

    /// Emitted items count if their origin's end says so, or nothing is known of it any more.
    fn prove_origins(&mut self, notebook: &Notebook) {
        use crate::core::emit::Truth;
        for lane in 0..self.lanes.len() {
            for (sequence, origin) in std::mem::take(&mut self.lanes[lane].origins) {
                self.next_token = self.next_token.max(origin.emission.saturating_add(1));
                let is_true = match self.came_true(&origin) {
                    Truth::No => false,
                    Truth::Forgotten => true,
                    Truth::Recorded { .. } => notebook.emissions.get(&origin.job) == Some(&origin.emission),
                };
                if is_true {
                    let traits = self.lanes[lane].jobs.get(&sequence).and_then(|entry| entry.traits.clone());
                    if let Some(traits) = traits {
                        let until = |unique: Unique| traits.appended_at.saturating_add(milliseconds(unique.within));
                        self.hold_again(lane, sequence, &traits.keys, traits.unique.map(|unique| (unique.hash, until(unique))));
                    }
                    self.reveal(lane, sequence);
                } else {
                    self.voids.push((lane, sequence));
                }
            }
        }
    }
}

/// The higher floors of two.
fn merged(one: &Meta, other: &Meta) -> Meta {
    Meta {
        items_floor: one.items_floor.max(other.items_floor),
        journal_floor: one.journal_floor.max(other.journal_floor),
        kept_floor: one.kept_floor.max(other.kept_floor),
        next_sequence: one.next_sequence.max(other.next_sequence),
        time: one.time.max(other.time),
        wall: if other.time >= one.time { other.wall } else { one.wall },
    }
}
