//! A lane's items and kept copies, at a start: from footers, and from the extents that have none.
//!
//! Invariants
//! 1. An item whose end was not written was never acknowledged: it is cut, counted, and said void once.
//! 2. Only what the last write may have touched is in doubt; what stands before something that was durable is durable.
//! 3. A copy counts only if it is whole; otherwise the item is where it was.
//! 4. An item that the journal says is over does not come back to life.
//! 5. Items that only wait take no entry of their own.

use std::time::Duration;

use crate::core::Core;
use crate::core::append::milliseconds;
use crate::core::extents::Position;
use crate::core::items::ItemExtent;
use crate::core::keys::Holder;
use crate::core::lane::{JobEntry, KeptExtent, Phase, Traits};
use crate::core::lookup::{Plan, read};
use crate::core::recover::journal::Facts;
use crate::core::recover::lost::{Chain, Doubt};
use crate::core::recover::{Notebook, Source};
use crate::core::room::record_bytes;
use crate::core::stream::{Open, Write, left_behind};
use crate::core::write::place;
use crate::format::{
    CatalogEntry, EXTENT_BYTES, FRAGMENT_BYTES, Kind, MOST_ITEM_HEAD_BYTES, TRAILER_BYTES, Tail, decode_footer, decode_item,
    decode_item_head, footer_bytes, scan_last,
};
use crate::item::{Hash, Key, Unique};
use crate::record::{ExtentHeader, Footer, FooterItem, Stream};

/// Most footers are within this.
const FOOTER_GUESS: usize = 1536;

/// What one extent holds.
struct Contents {
    footer: Footer,
    /// It goes on here.
    tail: Option<Tail>,
    /// It was never sealed: its last record may not be whole.
    is_open: bool,
    /// Something at its end was not wholly written, or cannot be read.
    is_cut: bool,
    /// Items that stood in the middle of it and cannot be read: first and last of each stretch.
    holes: Vec<(u64, u64)>,
}

impl Core {
    pub(super) fn recover_items(
        &mut self,
        source: &dyn Source,
        lane: usize,
        headers: (Vec<ExtentHeader>, Vec<ExtentHeader>, Vec<(Position, CatalogEntry)>),
        mut facts: Facts,
        notebook: &mut Notebook,
    ) {
        let (items, kept, gone) = headers;
        let of_stream = |stream| gone.iter().filter(move |(_, entry)| entry.stream == stream);
        let kept_lost = of_stream(Stream::Kept).count() as u64;
        let copies = self.recover_kept(source, lane, kept, &mut facts, notebook);
        let mut chain = Chain::default();
        of_stream(Stream::Items).for_each(|(_, entry)| chain.lost(entry.serial, entry.first));
        let newest_gone = of_stream(Stream::Items).map(|(_, entry)| entry.serial).max().unwrap_or(0);
        // What stands before something that was durable was durable.
        let first_in_doubt = in_doubt(source, &items).max(items.partition_point(|header| header.serial < newest_gone));
        let (mut doubtful, mut is_cut) = (Vec::new(), false);
        for (index, header) in items.iter().enumerate() {
            let is_newest = index + 1 == items.len();
            chain.found(header.serial, header.first);
            let Some(contents) = self.contents(source, header, is_newest, notebook) else {
                chain.lost(header.serial, header.first);
                continue;
            };
            self.extents.hold(header.position);
            let mut extent = ItemExtent::new(header.serial, header.position, header.first, header.meta.time);
            if index >= first_in_doubt {
                doubtful.extend(self.not_found(source, header, &contents.footer));
            }
            // Its end may be in an extent that was never written.
            if header.serial > newest_gone && (contents.is_open || index + 1 >= first_in_doubt) {
                doubtful.extend(last_doubtful(&contents).cloned());
            }
            for item in &contents.footer.items {
                self.recover_item(lane, &mut extent, item, &copies, &mut facts);
            }
            for (first, last) in contents.holes {
                chain.lost(header.serial, first);
                chain.found(header.serial, last + 1);
            }
            if contents.is_open && source.is_cut(header.position) {
                chain.lost(header.serial, extent.end());
            }
            is_cut = is_newest && contents.is_cut;
            extent.earliest_expiry = contents.footer.earliest_expiry.unwrap_or(u64::MAX);
            let of = &mut self.lanes[lane];
            of.next_sequence = of.next_sequence.max(extent.end());
            of.items.extents.push_back(extent);
            of.items.open = contents.tail.map(|tail| Open::resume(header, tail));
        }
        for item in doubtful {
            self.cut_if_torn(source, lane, &item, notebook);
        }
        self.note_doubt(lane, chain, (kept_lost, is_cut), facts, notebook);
    }

    /// What the lane may have lost; what it says of each is found out when all lanes are known.
    fn note_doubt(&mut self, lane: usize, chain: Chain, (kept, is_cut): (u64, bool), mut facts: Facts, notebook: &mut Notebook) {
        let (ranges, tail) = chain.gaps();
        let of = &self.lanes[lane];
        let counts = ranges.into_iter().map(|range| (range, of.count_lost(range, &facts)));
        let ranges: Vec<((u64, u64), u64)> = counts.filter(|(_, count)| *count > 0).collect();
        let tail_count =
            tail.filter(|first| *first < of.next_sequence).map_or(0, |first| of.count_lost((first, of.next_sequence - 1), &facts));
        let count = ranges.iter().map(|(_, count)| count).sum::<u64>() + tail_count;
        let ranges = ranges.into_iter().map(|(range, _)| range).collect();
        self.end_lost_jobs(lane, &mut facts);
        let Facts { journal_lost: journal, highest, .. } = facts;
        notebook.doubts.push(Doubt { lane, journal, highest, ranges, count, tail, kept, is_cut });
    }

    /// Reads what an extent holds, from its footer if it has one.
    fn contents(&mut self, source: &dyn Source, header: &ExtentHeader, is_newest: bool, notebook: &mut Notebook) -> Option<Contents> {
        // Few and small as kept extents are, they are read whole: a copy that was not finished must not stand for its item.
        if let Some(footer) = read_footer(source, header).filter(|_| header.stream == Stream::Items) {
            return Some(Contents { footer, tail: None, is_open: false, is_cut: false, holes: Vec::new() });
        }
        let Ok(content) = source.read_extent(header.position) else {
            notebook.remark(format!("extent {} cannot be read", header.position));
            notebook.report.quarantined_extents += 1;
            self.extents.quarantine(header.position);
            return None;
        };
        let scan = scan_last(&content, header);
        self.mend(header, &scan);
        for gap in &scan.gaps {
            notebook.report.cut_bytes += gap.bytes as u64;
            notebook.report.cut_records += 1;
        }
        let left = left_behind(&content, scan.end).filter(|_| scan.footer.is_none() && scan.gaps.iter().all(|gap| gap.offset < scan.end));
        if let Some(until) = left {
            (notebook.report.cut_bytes, notebook.report.cut_records) =
                (notebook.report.cut_bytes + (until - scan.end) as u64, notebook.report.cut_records + 1);
            self.mends.push(Write { position: header.position, offset: scan.end, bytes: vec![0; until - scan.end], padding: 0 });
        }
        let mut items: Vec<FooterItem> = Vec::new();
        let mut holes = Vec::new();
        let mut damaged = scan.gaps.iter().filter(|gap| !gap.torn).map(|gap| gap.offset).peekable();
        let mut earliest_expiry: Option<u64> = None;
        for fragment in scan.fragments.iter().filter(|fragment| fragment.piece.first && fragment.piece.kind == Kind::Item) {
            let Ok((item, bytes, _)) = decode_item_head(fragment.payload) else { continue };
            notebook.latest = notebook.latest.max(item.appended_at);
            let expected = items.last().map_or(header.first, |before| before.sequence + 1);
            let mut is_behind_damage = false;
            while damaged.next_if(|offset| *offset < fragment.offset).is_some() {
                is_behind_damage = true;
            }
            if is_behind_damage && item.sequence > expected {
                holes.push((expected, item.sequence - 1));
            }
            earliest_expiry = [earliest_expiry, item.expires_at].into_iter().flatten().min();
            items.push(FooterItem {
                offset: place(fragment.offset),
                sequence: item.sequence,
                bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
                claimed: item.claimed,
                unique: item.unique.map(|unique| (unique.hash, item.appended_at.saturating_add(milliseconds(unique.within)))),
                keys: item.keys,
                origin: item.origin,
            });
        }
        let footer = Footer { end: 0, earliest_expiry, items };
        let tail = if is_newest { Tail::resume(header, &scan) } else { None };
        Some(Contents { footer, tail, is_open: true, is_cut: left.is_some() || !scan.gaps.is_empty(), holes })
    }

    /// Items that the footer of an extent in doubt names and that are not there.
    fn not_found(&mut self, source: &dyn Source, header: &ExtentHeader, footer: &Footer) -> Vec<FooterItem> {
        let Ok(content) = source.read_extent(header.position) else { return Vec::new() };
        let scan = scan_last(&content, header);
        self.mend(header, &scan);
        let is_there = |item: &&FooterItem| scan.fragments.iter().any(|fragment| fragment.offset == usize::from(item.offset));
        footer.items.iter().filter(|item| !is_there(item)).cloned().collect()
    }

    fn recover_item(&mut self, lane: usize, extent: &mut ItemExtent, item: &FooterItem, copies: &[(u64, u64)], facts: &mut Facts) {
        let sequence = item.sequence;
        if sequence < extent.end() {
            return;
        }
        // Too large a gap: what comes behind it is not known here, and its content stays where it is.
        if !extent.skip_to(sequence) {
            return;
        }
        let bytes = u64::from(item.bytes);
        extent.push(bytes, None);
        let recorded = facts.recorded.contains(sequence);
        let is_over = facts.over.contains(sequence) || (!recorded && Facts::is_purged(&self.lanes[lane].purges, sequence));
        let is_moved = copies.iter().any(|(moved, _)| *moved == sequence);
        if is_over || is_moved {
            extent.set_over(sequence, bytes);
            extent.live -= 1;
            return;
        }
        self.recover_live(lane, item, None, facts);
    }

    /// An item that has not ended, or is a letter, is there.
    fn recover_live(&mut self, lane: usize, item: &FooterItem, kept: Option<u64>, facts: &mut Facts) {
        let (sequence, bytes) = (item.sequence, u64::from(item.bytes));
        let is_plain = item.keys.is_empty() && item.unique.is_none() && item.origin.is_none() && !item.claimed && kept.is_none();
        if is_plain && facts.jobs.is_empty() && facts.letters.is_empty() {
            // As most are: it waits, and nothing else is known of it.
            return self.lanes[lane].begin(bytes, record_bytes(0, false));
        }
        if let Some(mut letter) = facts.letters.remove(&sequence) {
            (letter.bytes, letter.kept) = (bytes, kept);
            self.lanes[lane].letters.insert(sequence, letter);
            return;
        }
        // What may never have been holds nothing yet: a letter whose replay did not come true holds its keys itself.
        let is_unproven = item.origin.is_some() && kept.is_none() && !item.claimed && !facts.jobs.contains_key(&sequence);
        if !is_unproven {
            self.hold_again(lane, sequence, &item.keys, item.unique);
        }
        self.lanes[lane].begin(bytes, record_bytes(item.keys.len(), item.unique.is_some()));
        let aside = JobEntry {
            phase: Phase::Aside { not_before: 0 },
            attempts: u32::from(item.claimed),
            started: false,
            interrupted: item.claimed,
            recorded: item.claimed,
            traits: None,
            kept,
        };
        if let Some(entry) = facts.jobs.remove(&sequence) {
            self.lanes[lane].enter(sequence, JobEntry { kept, ..entry });
        } else if item.claimed || kept.is_some() {
            self.lanes[lane].enter(sequence, aside);
        } else if let Some(origin) = item.origin {
            self.lanes[lane].enter(sequence, hidden(item));
            self.lanes[lane].origins.push((sequence, origin));
        }
    }

    /// What a job that has not ended holds.
    pub(super) fn hold_again(&mut self, lane: usize, sequence: u64, keys: &[Key], unique: Option<(Hash, u64)>) {
        let holder = Holder { lane: u32::try_from(lane).unwrap_or(u32::MAX), sequence };
        for key in keys {
            self.keys.hold_longest(key.hash, &key.input, holder, None);
        }
        if let Some((hash, until)) = unique {
            self.uniques.hold_longest(hash, &[0; 16], holder, Some(until));
        }
    }

    /// Copies of items that are still needed: sequence and serial of the newest of each.
    fn recover_kept(
        &mut self,
        source: &dyn Source,
        lane: usize,
        headers: Vec<ExtentHeader>,
        facts: &mut Facts,
        notebook: &mut Notebook,
    ) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        let count = headers.len();
        for (index, header) in headers.into_iter().enumerate() {
            let Some(contents) = self.contents(source, &header, index + 1 == count, notebook) else { continue };
            self.extents.hold(header.position);
            let of = &mut self.lanes[lane].kept;
            of.extents.push_back(KeptExtent { serial: header.serial, position: header.position, items: Vec::new(), live: 0 });
            of.next_ordinal = header.first + 1;
            of.open = contents.tail.map(|tail| Open::resume(&header, tail));
            for item in &contents.footer.items {
                of.push(header.serial, item.sequence, item.offset);
            }
            found.push((header.serial, contents.footer.items));
        }
        let mut newest = std::collections::BTreeMap::new();
        for (serial, mut items) in found {
            // A copy that was not finished does not count: the item is still where it was.
            if let Some(last) = items.last().map(|item| item.sequence)
                && !self.is_whole(source, self.plan_kept(lane, serial, last), last)
            {
                items.pop();
            }
            newest.extend(items.into_iter().map(|item| (item.sequence, (serial, item))));
        }
        let mut copies = Vec::new();
        for (sequence, (serial, item)) in newest {
            if facts.over.contains(sequence) || (!facts.recorded.contains(sequence) && Facts::is_purged(&self.lanes[lane].purges, sequence))
            {
                continue;
            }
            copies.push((sequence, serial));
            if let Some(at) = self.lanes[lane].kept.by_serial(serial) {
                self.lanes[lane].kept.extents[at].live += 1;
            }
            self.recover_live(lane, &item, Some(serial), facts);
        }
        copies
    }

    fn is_whole(&self, source: &dyn Source, plan: Option<Plan>, sequence: u64) -> bool {
        let records = plan.and_then(|plan| read(source, &plan).ok()).unwrap_or_default();
        let items = records.iter().filter(|record| record.kind == Kind::Item).filter_map(|record| decode_item(&record.bytes).ok());
        items.into_iter().any(|item| item.sequence == sequence)
    }

    /// An item that does not end was never acknowledged: it is said void, so that no later start takes it for damaged.
    fn cut_if_torn(&mut self, source: &dyn Source, lane: usize, item: &FooterItem, notebook: &mut Notebook) {
        let sequence = item.sequence;
        let Some(at) = self.lanes[lane].items.find(sequence).filter(|_| self.lanes[lane].items.is_live(sequence)) else { return };
        if self.is_whole(source, Some(self.plan_items(lane, at)), sequence) {
            return;
        }
        notebook.report.cut_records += 1;
        let of = &mut self.lanes[lane];
        of.origins.retain(|(of_item, _)| *of_item != sequence);
        of.leave(sequence);
        of.enter(sequence, hidden(item));
        self.voids.push((lane, sequence));
    }
}

/// The first of a stream's extents that the last write before the machine stopped may have sealed or begun, by index.
fn in_doubt(source: &dyn Source, headers: &[ExtentHeader]) -> usize {
    let is_older = |header: &ExtentHeader| source.read_extent(header.position).is_ok_and(|content| !scan_last(&content, header).one_batch);
    headers.iter().rposition(is_older).unwrap_or(0)
}

/// An item that may never have been.
fn hidden(item: &FooterItem) -> JobEntry {
    // The footer has the time until which a business key is taken: as if it were appended at 0.
    let unique = item.unique.map(|(hash, until)| Unique { hash, within: Duration::from_millis(until) });
    let bytes = u64::from(item.bytes);
    let traits = Some(Box::new(Traits { appended_at: 0, expires_at: None, order: None, keys: item.keys.clone(), unique, bytes }));
    JobEntry { phase: Phase::Hidden, attempts: 0, started: false, interrupted: false, recorded: false, traits, kept: None }
}

/// The last item that begins in an extent, if it may go on behind it.
fn last_doubtful(contents: &Contents) -> Option<&FooterItem> {
    let last = contents.footer.items.last()?;
    let most = usize::from(last.offset) + FRAGMENT_BYTES + MOST_ITEM_HEAD_BYTES + last.bytes as usize;
    let end = if contents.is_open { 0 } else { usize::from(contents.footer.end) };
    (most > end).then_some(last)
}

fn read_footer(source: &dyn Source, header: &ExtentHeader) -> Option<Footer> {
    let mut end = vec![0; FOOTER_GUESS];
    source.read_part(header.position, EXTENT_BYTES - FOOTER_GUESS, &mut end).ok()?;
    let bytes = footer_bytes(&end).ok()?;
    if bytes > end.len() {
        end.resize(bytes.max(TRAILER_BYTES), 0);
        source.read_part(header.position, EXTENT_BYTES - bytes, &mut end).ok()?;
    }
    decode_footer(&end, header).ok()
}
