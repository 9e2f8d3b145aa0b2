//! Reading everything that lanes hold, and proving it.

use crate::core::extents::Position;
use crate::core::lane::Lane;
use crate::core::lookup::ReadExtent;
use crate::format::{Join, Kind, Scan, decode_footer, decode_item, decode_item_head, decode_journal, scan};
use crate::inspect::look::Look;
use crate::inspect::{Damage, Verified};
use crate::record::{ExtentHeader, Stream};

/// Where faults go, and what was read so far.
pub(super) struct Proof<'a> {
    look: &'a Look,
    report: &'a mut dyn FnMut(Damage),
    pub(super) verified: Verified,
}

impl<'a> Proof<'a> {
    pub(super) fn new(look: &'a Look, report: &'a mut dyn FnMut(Damage)) -> Self {
        Proof { look, report, verified: Verified::default() }
    }

    pub(super) fn fault(&mut self, damage: Damage) {
        self.verified.faults += 1;
        (self.report)(damage);
    }

    pub(super) fn lane(&mut self, lane: &Lane) {
        let open = |open: &Option<crate::core::stream::Open>| open.as_ref().map(|open| open.position);
        let items = lane.items.extents.iter().map(|extent| extent.position).collect::<Vec<_>>();
        self.stream(&items, open(&lane.items.open));
        let journal = lane.journal.extents.iter().map(|extent| extent.position).collect::<Vec<_>>();
        self.stream(&journal, open(&lane.journal.open));
        let kept = lane.kept.extents.iter().map(|extent| extent.position).collect::<Vec<_>>();
        self.stream(&kept, open(&lane.kept.open));
    }

    /// One stream of a lane, in order.
    fn stream(&mut self, extents: &[Position], open: Option<Position>) {
        let mut join = Join::default();
        for (index, position) in extents.iter().enumerate() {
            let header = match self.look.header(*position) {
                Ok(Some(header)) => header,
                Ok(None) => continue,
                Err(damage) => {
                    self.fault(damage);
                    join.interrupt();
                    continue;
                }
            };
            match self.look.read_extent(*position) {
                Ok(content) => self.extent(&header, &content, open == Some(*position), &mut join, index == 0),
                Err(error) => {
                    self.fault(self.look.damage(*position, None, format!("it cannot be read: {error}")));
                    join.interrupt();
                }
            }
        }
    }

    fn extent(&mut self, header: &ExtentHeader, content: &[u8], is_open: bool, join: &mut Join, is_first: bool) {
        self.verified.extents += 1;
        let found = scan(content, header);
        for gap in &found.gaps {
            let what = if gap.torn { "a record was not wholly written" } else { "a record is damaged" };
            let reason = format!("{what}, {} bytes: {}", gap.bytes, gap.fault);
            self.fault(self.look.damage(header.position, Some(gap.offset), reason));
        }
        if !is_open {
            self.footer(header, content, &found);
        }
        let mut gaps = found.gaps.iter().map(|gap| gap.offset).peekable();
        for fragment in &found.fragments {
            while gaps.next_if(|gap| *gap < fragment.offset).is_some() {
                join.interrupt();
            }
            self.verified.bytes += fragment.payload.len() as u64;
            // What the oldest extent begins with belongs to a record whose beginning is not needed any more.
            let orphan = !fragment.piece.first && !join.is_open();
            if orphan && !is_first && found.gaps.is_empty() {
                self.fault(self.look.damage(header.position, Some(fragment.offset), "a record has no beginning".to_owned()));
            }
            let Some((kind, record)) = join.push(fragment) else { continue };
            self.verified.records += 1;
            let proven = match kind {
                Kind::Item => decode_item(&record).map(|_| ()),
                kind => decode_journal(kind, &record).map(|_| ()),
            };
            if let Err(fault) = proven {
                self.fault(self.look.damage(header.position, Some(fragment.offset), format!("a record cannot be used: {fault}")));
            }
        }
        if gaps.next().is_some() {
            join.interrupt();
        }
    }

    /// A sealed extent's footer names what is there.
    fn footer(&mut self, header: &ExtentHeader, content: &[u8], found: &Scan<'_>) {
        let footer = match decode_footer(content, header) {
            Ok(footer) => footer,
            Err(fault) => return self.fault(self.look.damage(header.position, None, format!("its footer cannot be used: {fault}"))),
        };
        if header.stream == Stream::Journal {
            return;
        }
        for fragment in found.fragments.iter().filter(|fragment| fragment.piece.first && fragment.piece.kind == Kind::Item) {
            let named = footer.items.iter().find(|item| usize::from(item.offset) == fragment.offset);
            let agrees = decode_item_head(fragment.payload)
                .is_ok_and(|(item, bytes, _)| named.is_some_and(|named| named.sequence == item.sequence && named.bytes as usize == bytes));
            if !agrees {
                self.fault(self.look.damage(header.position, Some(fragment.offset), "its footer does not name this record".to_owned()));
            }
        }
    }
}
