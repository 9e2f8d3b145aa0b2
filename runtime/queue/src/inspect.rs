//! A look into the folder of a stopped store, for the command line. Nothing is written but by [`purge`].
//!
//! 1. Works on whatever is there: what cannot be read is named and passed over.
//! 2. Memory is bounded as it is for the store itself; content is read and written on one item at a time.
//! 3. The folder is locked meanwhile ([`crate::disk::RealDisk::open_existing`]), so that no server writes into it.

mod export;
mod look;
mod verify;

use std::io::{self, Write};
use std::sync::Arc;

use crate::clock::MachineClock;
use crate::core::Core;
use crate::core::recover::Source;
use crate::disk::Disk;
use crate::format::{VERSION, file_name, head_file_bytes};
use crate::inspect::export::Export;
use crate::inspect::look::Look;
use crate::inspect::verify::Proof;
use crate::status::LaneName;
use crate::store::{Store, StoreOptions, missing_names};

/// Why a folder cannot be looked into.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// There is no store in it.
    #[error("there is no store in this folder")]
    NoStore,
    /// A file cannot be read at all.
    #[error("{file} cannot be read: {source}")]
    Unreadable {
        /// Its name.
        file: String,
        /// What the system said.
        source: io::Error,
    },
    /// The store cannot be opened.
    #[error("{0}")]
    Store(String),
    /// What was found cannot be written to where it should go.
    #[error("the output cannot be written: {0}")]
    Output(#[from] io::Error),
    /// There is no such lane.
    #[error("there is no lane of queue {} and tenant {}", .0.queue, .0.tenant)]
    NoLane(LaneName),
}

/// An extent that is set aside, or a place in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The store file.
    pub file: String,
    /// The extent's number in it; `None`: the file as a whole.
    pub extent: Option<u32>,
    /// Where in the extent.
    pub offset: Option<u32>,
    /// What is wrong, a sentence.
    pub reason: String,
}

/// A lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InspectedLane {
    /// Which.
    pub name: LaneName,
    /// Its number: the first half of its job ids.
    pub number: u64,
    /// Items that have not ended.
    pub waiting: u64,
    /// Their content bytes.
    pub bytes: u64,
    /// Dead letters.
    pub dead: u64,
    /// Bytes of disk it holds, whole extents.
    pub disk: u64,
}

/// A store as it lies there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// Format version.
    pub version: u8,
    /// Names of its files.
    pub files: Vec<String>,
    /// Bytes of each.
    pub file_bytes: u64,
    /// Extents that belong to nobody.
    pub extents_free: u64,
    /// Extents that belong to lanes and are not full.
    pub extents_open: u64,
    /// Extents that belong to lanes and are full.
    pub extents_sealed: u64,
    /// Extents that are set aside, and why.
    pub quarantined: Vec<Damage>,
    /// Names of files that should be there; of many, the last entry says how many more.
    pub missing_files: Vec<String>,
    /// In name order.
    pub lanes: Vec<InspectedLane>,
    /// What else a person should know, a sentence each.
    pub remarks: Vec<String>,
}

/// What `verify` read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Extents that belong to lanes.
    pub extents: u64,
    /// Records in them, those that are not needed any more among them.
    pub records: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Faults reported.
    pub faults: u64,
}

/// What `export` wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Items that have not ended.
    pub waiting: u64,
    /// Dead letters.
    pub dead: u64,
    /// Of these, how many have content that cannot be read; their lines say so.
    pub damaged: u64,
}

/// Lanes and extents.
pub fn inspect(disk: &dyn Disk) -> Result<Inspection, InspectError> {
    let look = Look::open(disk)?;
    let core = look.recover();
    let open = |lane: &crate::core::lane::Lane| {
        u64::from(lane.items.open.is_some()) + u64::from(lane.journal.open.is_some()) + u64::from(lane.kept.open.is_some())
    };
    let extents_open = core.lanes.iter().map(open).sum();
    let mut lanes: Vec<InspectedLane> = core.lanes.iter().map(inspected).collect();
    lanes.sort_by(|one, other| one.name.cmp(&other.name));
    let mut remarks = look.remarks.clone();
    let cut = look.cut().into_iter();
    remarks.extend(cut.map(|(number, bytes, before)| format!("{} is {bytes} bytes long, not {before}", file_name(number))));
    remarks.extend(core.recovered.losses.iter().chain(&core.recovered.remarks).cloned());
    Ok(Inspection {
        version: VERSION,
        files: look.files.keys().copied().map(file_name).collect(),
        file_bytes: look.head.file_bytes,
        extents_free: core.extents.free(),
        extents_open,
        extents_sealed: core.extents.held().saturating_sub(extents_open),
        quarantined: look.positions().into_iter().filter_map(|position| look.header(position).err()).collect(),
        missing_files: missing_names(&look.missing),
        lanes,
        remarks,
    })
}

fn inspected(lane: &crate::core::lane::Lane) -> InspectedLane {
    InspectedLane {
        name: lane.name.clone(),
        number: lane.number,
        waiting: lane.waiting(),
        bytes: lane.bytes,
        dead: lane.letters.len() as u64,
        disk: lane.held() * crate::format::EXTENT_BYTES as u64,
    }
}

/// Reads every record of every lane and proves every checksum; each fault is reported as it is found.
pub fn verify(disk: &dyn Disk, report: &mut dyn FnMut(Damage)) -> Result<Verified, InspectError> {
    let look = Look::open(disk)?;
    let core = look.recover();
    let mut proof = Proof::new(&look, report);
    for file in missing_names(&look.missing) {
        proof.fault(Damage { file, extent: None, offset: None, reason: "it is missing".to_owned() });
    }
    for (number, bytes, before) in look.cut() {
        let reason = format!("it is {bytes} bytes long, not {before}");
        proof.fault(Damage { file: file_name(number), extent: None, offset: None, reason });
    }
    for position in look.positions() {
        if let Err(damage) = look.header(position)
            && !core.is_harmless(position)
        {
            proof.fault(damage);
        }
    }
    for (position, reason) in core.damage_found() {
        proof.fault(look.damage(*position, None, reason.clone()));
    }
    for lane in &core.lanes {
        proof.lane(lane);
    }
    Ok(proof.verified)
}

/// Writes every item that has not ended and every dead letter, a JSON object a line:
/// `{"job", "queue", "tenant", "state": "queued"|"dead", "attempts", "age_ms", "keys": [hex…], "content": base64}`.
/// Content that cannot be read is `null`, with `"damaged"` saying why.
pub fn export(disk: &dyn Disk, out: &mut dyn Write) -> Result<Exported, InspectError> {
    let look = Look::open(disk)?;
    let core: Core = look.recover();
    let mut export = Export { look: &look, core: &core, out, exported: Exported::default() };
    for lane in 0..core.lanes.len() {
        export.lane(lane)?;
    }
    Ok(export.exported)
}

/// Ends everything that waits in a lane as `purged`, dead letters too if asked: how many.
pub fn purge(disk: Arc<dyn Disk>, lane: &LaneName, dead_too: bool) -> Result<u64, InspectError> {
    let look = Look::open(disk.as_ref())?;
    let store = |error: crate::store::StoreError| InspectError::Store(error.to_string());
    // As large as it is: nothing is made and nothing given back.
    let last = look.files.last_key_value().map_or(0, |(number, (_, bytes))| u64::from(*number) * look.head.file_bytes + bytes);
    let known = Some(look.head.disk_limit).filter(|limit| (1..u64::MAX).contains(limit));
    let disk_limit = known.unwrap_or(last + head_file_bytes(last + head_file_bytes(last)));
    let options = StoreOptions { disk, clock: Arc::new(MachineClock::default()), disk_limit, disk_reserve: 0 };
    drop(look);
    let open = Store::open(options).map_err(store)?;
    let known = open.lanes(None).iter().any(|status| status.name == *lane);
    let ended = if known { wait(open.purge(lane, dead_too))?.map_err(store) } else { Err(InspectError::NoLane(lane.clone())) };
    open.close();
    ended
}

/// On this thread, which has nothing else to do.
fn wait<T>(future: impl Future<Output = T>) -> Result<T, InspectError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    Ok(runtime.block_on(future))
}
