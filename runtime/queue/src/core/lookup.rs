//! Reading: what to read is decided under the state's lock, read without it, and judged under it again.
//!
//! An extent that is reused meanwhile has another serial, so its old records do not check; and a lane that still has the extent when
//! the answer comes back had it all the while. Nothing is pinned.

use std::io;

use bytes::Bytes;

use crate::core::Core;
use crate::core::extents::Position;
use crate::core::stream::extents_for;
use crate::format::{EXTENT_BYTES, Fragment, Join, Kind, scan};
use crate::record::{ExtentHeader, Meta, Stream};
use crate::status::LaneName;

/// Most extents read for one record or one extent of records.
const MOST_EXTENTS: usize = 4096;

/// An extent to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExtentAt {
    pub(crate) serial: u64,
    pub(crate) position: Position,
    pub(crate) first: u64,
}

/// What to read: the records that begin in the first of these extents.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) lane: usize,
    pub(crate) stream: Stream,
    pub(crate) extents: Vec<ExtentAt>,
    /// Sequences below it are durable.
    pub(crate) below: u64,
    /// Only the record that begins here.
    pub(crate) offset: Option<usize>,
}

/// A record that was read.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) offset: usize,
    pub(crate) kind: Kind,
    pub(crate) bytes: Bytes,
}

/// Reads whole extents: as much as there is.
pub(crate) trait ReadExtent {
    fn read_extent(&self, position: Position) -> io::Result<Vec<u8>>;
}

/// A header that says what reading needs.
pub(crate) fn stub(extent: &ExtentAt, stream: Stream) -> ExtentHeader {
    let name = LaneName { queue: "".into(), tenant: "".into() };
    let ExtentAt { serial, position, first } = *extent;
    ExtentHeader { store: 0, position, lane: 0, stream, serial, first, meta: Meta::default(), name }
}

/// Does what a plan says.
pub(crate) fn read(disk: &dyn ReadExtent, plan: &Plan) -> io::Result<Vec<Record>> {
    let mut found = Vec::new();
    let mut join = Join::default();
    let mut begun = None;
    for (index, extent) in plan.extents.iter().enumerate() {
        let content = disk.read_extent(extent.position)?;
        let scan = scan(&content, &stub(extent, plan.stream));
        for fragment in &scan.fragments {
            if fragment.piece.first {
                if index > 0 {
                    return Ok(found);
                }
                begun = Some(fragment.offset).filter(|offset| plan.offset.is_none_or(|wanted| wanted == *offset));
            }
            push(&mut join, fragment, begun, &mut found);
        }
        if !join.is_open() || begun.is_none() {
            break;
        }
    }
    Ok(found)
}

fn push(join: &mut Join, fragment: &Fragment<'_>, begun: Option<usize>, found: &mut Vec<Record>) {
    let Some(offset) = begun else { return };
    if let Some((kind, bytes)) = join.push(fragment) {
        found.push(Record { offset, kind, bytes });
    }
}

impl Core {
    /// To read the items that begin in an extent of a lane, by its index.
    pub(crate) fn plan_items(&self, lane: usize, at: usize) -> Plan {
        let of = &self.lanes[lane];
        let mut extents = Vec::with_capacity(2);
        for (index, extent) in of.items.extents.range(at..).enumerate().take(MOST_EXTENTS) {
            extents.push(ExtentAt { serial: extent.serial, position: extent.position, first: extent.first });
            // The last record may go on until something else begins.
            if index > 0 && extent.count > 0 {
                break;
            }
        }
        Plan { lane, stream: Stream::Items, extents, below: of.durable_next, offset: None }
    }

    /// To read a copy that was moved to the kept extent with this serial.
    pub(crate) fn plan_kept(&self, lane: usize, serial: u64, sequence: u64) -> Option<Plan> {
        let of = &self.lanes[lane];
        let at = of.kept.by_serial(serial)?;
        let (_, offset) = of.kept.extents[at].items.iter().rfind(|(of, _)| *of == sequence)?;
        let mut extents = Vec::with_capacity(2);
        for (index, extent) in of.kept.extents.range(at..).enumerate().take(MOST_EXTENTS) {
            extents.push(ExtentAt { serial: extent.serial, position: extent.position, first: 0 });
            if index > 0 && !extent.items.is_empty() {
                break;
            }
        }
        Some(Plan { lane, stream: Stream::Kept, extents, below: of.durable_next, offset: Some(usize::from(*offset)) })
    }

    /// To read a journal record of at most so many bytes that begins there.
    pub(crate) fn plan_journal(&self, lane: usize, at: usize, offset: Option<usize>, bytes: u64) -> Plan {
        let of = &self.lanes[lane];
        let most = usize::try_from(extents_for(bytes + EXTENT_BYTES as u64, 0)).unwrap_or(MOST_EXTENTS) + 1;
        let extents = of.journal.extents.range(at..).take(most.min(MOST_EXTENTS));
        let extents = extents.map(|extent| ExtentAt { serial: extent.serial, position: extent.position, first: 0 }).collect();
        Plan { lane, stream: Stream::Journal, extents, below: of.durable_next, offset }
    }

    /// To read the content of a job that has not ended, or of a letter.
    pub(crate) fn plan_job(&self, lane: usize, sequence: u64) -> Option<Plan> {
        let of = &self.lanes[lane];
        let entry = of.jobs.get(&sequence).map(|entry| entry.kept);
        let kept = entry.or_else(|| of.letters.get(&sequence).map(|letter| letter.kept)).flatten();
        match kept {
            Some(serial) => self.plan_kept(lane, serial, sequence),
            None => of.items.find(sequence).map(|at| self.plan_items(lane, at)),
        }
    }

    /// Whether the lane still has the extent that was read.
    pub(crate) fn still_has(&self, plan: &Plan) -> bool {
        let Some(extent) = plan.extents.first() else { return false };
        let of = &self.lanes[plan.lane];
        match plan.stream {
            Stream::Items => of.items.by_serial(extent.serial).is_some(),
            Stream::Kept => of.kept.by_serial(extent.serial).is_some(),
            Stream::Journal => of.journal.extents.binary_search_by_key(&extent.serial, |extent| extent.serial).is_ok(),
        }
    }
}
