//! The file `head`, and what it says of the files there should be.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spillgate_model::chance;

use crate::core::recover::Known;
use crate::disk::{Disk, DiskFile};
use crate::format::{
    EXTENT_BYTES, Fault, HEAD_BYTES, HEAD_NAME, HEADER_BYTES, StoreHead, decode_header, file_bytes, file_name, head_file_bytes,
};
use crate::status::Recovered;
use crate::store::StoreError;
use crate::store::catalog::Catalog;
use crate::store::files::{is_full, unusable};
use crate::store::redo::redo_file_bytes;

const EXTENT: u64 = EXTENT_BYTES as u64;
/// Of missing files.
const MOST_NAMES: usize = 16;

/// What the limit leaves for other files than those of extents.
pub(crate) fn set_apart(disk_limit: u64) -> u64 {
    head_file_bytes(disk_limit) + redo_file_bytes(disk_limit)
}

/// Bytes that a file should have under a limit.
pub(crate) fn wanted_under(head: &StoreHead, disk_limit: u64, number: u32) -> u64 {
    let before = u64::from(number).saturating_mul(head.file_bytes).saturating_add(set_apart(disk_limit));
    let left = disk_limit.saturating_sub(before).min(head.file_bytes);
    left - left % EXTENT
}

/// Files that should be there: all before the last one that there may be, and behind it those in which something stood.
pub(crate) fn missing_numbers(there: &BTreeSet<u32>, head: &StoreHead, catalog: &Catalog) -> Vec<u32> {
    let last = there.last().copied().unwrap_or(0);
    let per_file = u32::try_from(head.file_bytes / EXTENT).unwrap_or(u32::MAX);
    let behind = (last + 1..catalog.len().div_ceil(per_file.max(1))).filter(|number| wanted_under(head, head.disk_limit, *number) > 0);
    let held = |number: u32| is_held(catalog, number, per_file);
    // Without head or catalog nobody knows how many there were.
    let may_be = |number: u32| head.disk_limit == 0 || catalog.complete_below == 0 || wanted_under(head, head.disk_limit, number) > 0;
    let before = (0..last).filter(|number| !there.contains(number)).filter(|number| may_be(*number) || held(*number));
    before.chain(behind.filter(|number| held(*number))).collect()
}

/// Whether the catalog knows of something in a file.
fn is_held(catalog: &Catalog, number: u32, per_file: u32) -> bool {
    let first = number.saturating_mul(per_file);
    (first..first.saturating_add(per_file).min(catalog.len())).any(|position| matches!(catalog.of(position), Known::Use(_)))
}

/// Files that only look as if they were the store's: beyond all that it knows of, and without an extent of it. `limit`: files within it
/// are known. One that holds nothing, behind the last one, was made by the store itself before it stopped.
pub(crate) fn strays(files: &BTreeMap<u32, Arc<dyn DiskFile>>, limit: u64, head: &StoreHead, catalog: &Catalog) -> BTreeSet<u32> {
    let per_file = u32::try_from(head.file_bytes / EXTENT).unwrap_or(u32::MAX);
    let first = |number: u32| number.saturating_mul(per_file);
    let is_known = |number: u32| wanted_under(head, limit, number) > 0 || is_held(catalog, number, per_file);
    let mut next = (0..=files.keys().next_back().copied().unwrap_or(0)).find(|number| !is_known(*number)).unwrap_or(0);
    let mut strays = BTreeSet::new();
    for (number, file) in files.iter().filter(|(number, _)| !is_known(**number)) {
        let is_ours = match look_into(file.as_ref(), head.store, first(*number)) {
            Within::Ours => true,
            Within::Nothing => *number == next,
            Within::Other => false,
        };
        if is_ours {
            next = number + 1;
        } else {
            strays.insert(*number);
        }
    }
    strays
}

/// What is said of files that are left alone.
pub(crate) fn left_alone(strays: &BTreeSet<u32>) -> Option<String> {
    let names = missing_names(&strays.iter().copied().collect::<Vec<_>>());
    (!names.is_empty()).then(|| format!("no files of this store, left alone and not counted within disk_limit: {}", names.join(", ")))
}

/// What the beginnings of a file's extents are.
enum Within {
    /// One of them belongs to the store, and there.
    Ours,
    /// All are blank.
    Nothing,
    /// Something else.
    Other,
}

fn look_into(file: &dyn DiskFile, store: u64, first: u32) -> Within {
    let Ok(bytes) = file.bytes() else { return Within::Other };
    let mut sector = [0; HEADER_BYTES];
    let mut is_blank = bytes.is_multiple_of(EXTENT);
    for (position, at) in (first..).zip((0..bytes / EXTENT).map(|index| index * EXTENT)) {
        match file.read_at(&mut sector, at).map(|()| decode_header(&sector)) {
            Ok(Ok(header)) if header.store == store && header.position == position => return Within::Ours,
            Ok(Err(Fault::Blank)) => {}
            _ => is_blank = false,
        }
    }
    if is_blank { Within::Nothing } else { Within::Other }
}

/// Their names; of many, some, and how many more there are.
pub(crate) fn missing_names(numbers: &[u32]) -> Vec<String> {
    let mut names: Vec<String> = numbers.iter().take(MOST_NAMES).copied().map(file_name).collect();
    if numbers.len() > MOST_NAMES {
        names.push(format!("and {} more", numbers.len() - MOST_NAMES));
    }
    names
}

/// Reads the head, or makes it: of a new store, or from what the extents say.
pub(crate) fn head(
    disk: &dyn Disk,
    disk_limit: u64,
    is_there: bool,
    files: &BTreeMap<u32, Arc<dyn DiskFile>>,
    report: &mut Recovered,
) -> Result<StoreHead, StoreError> {
    if is_there {
        let mut bytes = vec![0; HEAD_BYTES];
        let read = disk.open(HEAD_NAME).and_then(|file| file.read_at(&mut bytes, 0));
        match read.map(|()| StoreHead::decode(&bytes)) {
            Ok(Ok(head)) => return Ok(head),
            // Whatever it is, this program would only damage it.
            Ok(Err(fault @ Fault::Version(_))) => return Err(StoreError::Unusable(format!("the store cannot be used: {fault}"))),
            Ok(Err(fault)) if !files.is_empty() => report.remarks.push(format!("the file head cannot be used: {fault}; it was made again")),
            Err(error) if !files.is_empty() => report.remarks.push(format!("the file head cannot be read: {error}; it was made again")),
            _ => {}
        }
    } else if !files.is_empty() {
        report.remarks.push("the file head was missing; it was made again".to_owned());
    }
    let known = files.values().find_map(|file| first_store(file.as_ref()));
    let longest = files.values().filter_map(|file| file.bytes().ok()).max();
    let bytes = longest.map_or(file_bytes(disk_limit), |longest| file_bytes(longest.saturating_mul(32)));
    let store = known.unwrap_or_else(|| chance::drawn() | 1);
    // Of a head that is lost nobody knows how long the files were.
    let head = StoreHead { store, file_bytes: bytes, disk_limit: if files.is_empty() { disk_limit } else { 0 }, next_serial: 0 };
    if is_there {
        disk.remove(HEAD_NAME).map_err(|error| unusable("the file head cannot be replaced", &error))?;
    }
    let made = disk.create(HEAD_NAME, head_file_bytes(disk_limit)).and_then(|file| {
        file.write_at(&head.encode(), 0)?;
        file.sync()?;
        disk.sync_folder()
    });
    match made {
        Ok(()) => Ok(head),
        // What it says can be found again, so a full volume need not stop anybody.
        Err(error) if is_full(&error) => {
            report.remarks.push(format!("the file head could not be made: {error}"));
            Ok(head)
        }
        Err(error) => Err(unusable("the file head cannot be made", &error)),
    }
}

/// The store that the first readable extent of a file belongs to.
fn first_store(file: &dyn DiskFile) -> Option<u64> {
    let extents = file.bytes().ok()? / EXTENT;
    let mut sector = [0; HEADER_BYTES];
    (0..extents).find_map(|index| {
        file.read_at(&mut sector, index * EXTENT).ok()?;
        decode_header(&sector).ok().map(|header| header.store)
    })
}
