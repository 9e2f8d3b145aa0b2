//! The store's files on a disk: made ahead, found again, read, written, synced.
//!
//! The file `head` holds what is fixed. Files of extents are made until the limit is reached; the last takes what is left. Where the
//! volume has no space for all of them the store starts with what there is, and the rest is made later.
//!
//! Invariants
//! 1. Files that are made take no more than `disk_limit`, with what is set apart for `head` and `redo`. Only a spare one
//!    ([`Files::make_spare`]) is beyond it, until what had to move has moved.
//! 2. A file's length is synced before an extent of it is used, and its name when all that were made with it are there.
//! 3. A file that is there and cannot be opened stops the start: its lanes get no second life beside it. One that is missing is named.
//! 4. A note of a failed sync stays until the next start has read from the disk, not from the system's memory, what it left.
//! 5. A file that is none of this store's is told, and neither read as its own nor written; it makes nothing suspect.
//! 6. No file in use is removed or cut but by a caller who knows that nothing needs what goes.

mod writing;

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::core::extents::{Extents, Position};
use crate::core::lookup::ReadExtent;
use crate::core::recover::{Known, Source};
use crate::disk::{Disk, DiskFile};
use crate::format::{CatalogEntry, EXTENT_BYTES, HEAD_NAME, REDO_NAME, SECTOR_BYTES, StoreHead, file_name, file_number, head_file_bytes};
use crate::status::Recovered;
use crate::store::StoreError;
use crate::store::catalog::{Catalog, Entries, write_entries, write_mark};
use crate::store::head::{head, left_alone, missing_names, missing_numbers, set_apart, strays, wanted_under};
use crate::store::redo::Redo;

pub(crate) use writing::WriteError;

const EXTENT: u64 = EXTENT_BYTES as u64;
/// A file that was cut short is filled up in pieces of this.
static ZEROS: [u8; EXTENT_BYTES] = [0; EXTENT_BYTES];
/// Is there after a sync failed, until the next start: the system may show what is not on the disk.
const FAILED_NAME: &str = "failed";
/// Files of others, at most, behind which one beyond the limit is made.
const MOST_IN_THE_WAY: u32 = 16;
/// How often a read is tried.
const READS: u32 = 3;

/// Files of extents, by number.
type Opened = BTreeMap<u32, Arc<dyn DiskFile>>;

struct OpenFile {
    file: Arc<dyn DiskFile>,
    extents: u32,
}

/// See the module.
pub(crate) struct Files {
    disk: Arc<dyn Disk>,
    head: StoreHead,
    /// `None`: it could not be made.
    head_file: Option<Arc<dyn DiskFile>>,
    per_file: u32,
    disk_limit: u64,
    open: RwLock<BTreeMap<u32, OpenFile>>,
    redo: Option<Redo>,
    /// There was no file before.
    is_new: bool,
    /// Found at the start: from which extent on files were cut; of missing ones, from the first.
    cut: BTreeMap<u32, u32>,
    /// As it was found at the start.
    catalog: RwLock<Catalog>,
    /// The file `head` is longer than the limit has it.
    is_head_long: AtomicBool,
}

pub(crate) fn unusable(what: &str, error: &io::Error) -> StoreError {
    StoreError::Unusable(format!("{what}: {error}"))
}

impl Files {
    /// Opens what is there and makes what is missing. Answers also with what a person should know.
    pub(crate) fn open(disk: Arc<dyn Disk>, disk_limit: u64) -> Result<(Files, Recovered), StoreError> {
        let mut report = Recovered::default();
        let names = disk.list().map_err(|error| unusable("the store's folder cannot be read", &error))?;
        let numbers: Vec<u32> = names.iter().filter_map(|name| file_number(name)).collect();
        let mut opened = Opened::new();
        for number in &numbers {
            match disk.open(&file_name(*number)) {
                Ok(file) => {
                    opened.insert(*number, file);
                }
                // It is there: going on without it would give its lanes a second life beside the one in it.
                Err(error) => return Err(unusable(&format!("{} cannot be opened", file_name(*number)), &error)),
            }
        }
        if names.iter().any(|name| name == FAILED_NAME) {
            for file in opened.values() {
                file.forget_cached().map_err(|error| unusable("what is on the disk cannot be told after a sync failed", &error))?;
            }
            report.remarks.push("a sync had failed: what it should have made durable is read from the disk again".to_owned());
        }
        let head = head(disk.as_ref(), disk_limit, names.iter().any(|name| name == HEAD_NAME), &opened, &mut report)?;
        let per_file = u32::try_from(head.file_bytes / EXTENT).unwrap_or(u32::MAX);
        let head_file = disk.open(HEAD_NAME).ok();
        let catalog = head_file.as_ref().map(|file| Catalog::read(file.clone(), head.store)).unwrap_or_default();
        let (cut, catalog) = (BTreeMap::new(), RwLock::new(catalog));
        let mut files = Files {
            disk,
            head,
            head_file,
            per_file,
            disk_limit,
            open: RwLock::default(),
            redo: None,
            is_new: false,
            cut,
            catalog,
            is_head_long: AtomicBool::new(false),
        };
        files.set_strays_aside(&mut opened, &mut report);
        files.is_new = opened.is_empty();
        let missing = files.missing_numbers(&opened);
        for (number, file) in opened {
            files.adopt(number, file, &mut report)?;
        }
        files.redo = files.open_redo(&names, &mut report)?;
        report.missing_files = missing_names(&missing);
        files.cut.extend(missing.into_iter().map(|number| (number, 0)));
        match files.make_missing().1 {
            Some(error) if files.read_open().is_empty() && !is_full(&error) => return Err(unusable("files cannot be made", &error)),
            Some(error) if is_full(&error) => {
                report.remarks.push(format!("the volume has no space for all of disk_limit ({error}): the rest is made later"));
            }
            Some(error) => report.remarks.push(format!("files could not be made, so there is less than disk_limit: {error}")),
            None if files.is_incomplete() => {
                report.remarks.push("files of a higher disk_limit are not given back yet: the rest is made then".to_owned());
            }
            None => {}
        }
        Ok((files, report))
    }

    /// Takes an existing file into use; one that was cut short is filled up first.
    fn adopt(&mut self, number: u32, file: Arc<dyn DiskFile>, report: &mut Recovered) -> Result<(), StoreError> {
        let name = file_name(number);
        let mut bytes = file.bytes().map_err(|error| unusable(&format!("{name} cannot be used"), &error))?;
        let wanted = self.wanted(number);
        if bytes < wanted {
            // A raised limit makes the last file longer, which is no loss.
            let before = wanted_under(&self.head, self.head.disk_limit, number);
            if bytes < before {
                report.losses.push(format!("{name} was {bytes} bytes long, not {before}: its end is lost"));
                self.cut.insert(number, u32::try_from(bytes / EXTENT).unwrap_or(u32::MAX));
            }
            while bytes < wanted {
                let piece = (wanted - bytes).min(EXTENT - bytes % EXTENT);
                if let Err(error) = file.write_at(&ZEROS[..usize::try_from(piece).unwrap_or(EXTENT_BYTES)], bytes) {
                    report.remarks.push(format!("{name} could not be filled up: {error}"));
                    break;
                }
                bytes += piece;
            }
        }
        let extents = u32::try_from(bytes / EXTENT).unwrap_or(u32::MAX).min(self.per_file);
        self.write_open().insert(number, OpenFile { file, extents });
        Ok(())
    }

    /// Bytes that a file should have under the limit.
    fn wanted(&self, number: u32) -> u64 {
        wanted_under(&self.head, self.disk_limit, number)
    }

    /// The head says from now on how long the files are, and which serials are left out at the next start.
    pub(crate) fn write_head(&self, next_serial: u64) -> io::Result<()> {
        let head = StoreHead { disk_limit: self.disk_limit, next_serial, ..self.head };
        let file = self.disk.open(HEAD_NAME)?;
        file.write_at(&head.encode()[..SECTOR_BYTES], 0)?;
        file.sync()
    }

    /// At a start: the catalog says all that was found.
    pub(crate) fn make_catalog(&self, entries: &Entries, complete_below: u64) -> io::Result<()> {
        let file = self.disk.open(HEAD_NAME)?;
        let (bytes, wanted) = (file.bytes()?, head_file_bytes(self.disk_limit));
        self.is_head_long.store(bytes > wanted, Ordering::Relaxed);
        if bytes < wanted {
            file.write_at(&vec![0; usize::try_from(wanted - bytes).unwrap_or(0)], bytes)?;
            file.sync()?;
        }
        if !entries.is_empty() {
            write_entries(file.as_ref(), entries)?;
            file.sync()?;
        }
        // Synced with the rest of the head.
        write_mark(file.as_ref(), self.head.store, complete_below)?;
        *self.catalog.write().unwrap_or_else(PoisonError::into_inner) = Catalog::default();
        Ok(())
    }

    /// Gives back what the catalog of more files took.
    pub(crate) fn shorten_head(&self) -> io::Result<()> {
        if self.is_head_long.swap(false, Ordering::Relaxed) {
            self.disk.open(HEAD_NAME)?.cut(head_file_bytes(self.disk_limit))?;
        }
        Ok(())
    }

    /// Adds to the catalog. `complete_below`: what it said before is durable up to there.
    pub(crate) fn write_catalog(&self, entries: &Entries, complete_below: u64) -> io::Result<()> {
        let file = self.disk.open(HEAD_NAME)?;
        write_entries(file.as_ref(), entries)?;
        write_mark(file.as_ref(), self.head.store, complete_below)?;
        file.sync()
    }

    /// What is not the store's is neither read nor written.
    fn set_strays_aside(&self, opened: &mut Opened, report: &mut Recovered) {
        // Of a head that was lost nobody knows the limit.
        let limit = if self.head.disk_limit == 0 { self.disk_limit } else { self.head.disk_limit };
        let strays = strays(opened, limit, &self.head, &self.catalog.read().unwrap_or_else(PoisonError::into_inner));
        opened.retain(|number, _| !strays.contains(number));
        report.remarks.extend(left_alone(&strays));
    }

    /// What is new and durable stands in the catalog before anybody hears of it, as far as the system keeps it: a process that is killed
    /// leaves no use behind of which the next start does not know. The sync follows with the others ([`Files::write_catalog`]).
    pub(crate) fn note_opened(&self, opened: &[(Position, CatalogEntry)]) {
        let entries = opened.iter().map(|(position, entry)| (*position, Some(*entry))).collect();
        // Where it fails the catalog is a moment behind, as after a power cut.
        let _ = self.head_file.as_ref().map(|file| write_entries(file.as_ref(), &entries));
    }

    fn missing_numbers(&self, opened: &Opened) -> Vec<u32> {
        let catalog = self.catalog.read().unwrap_or_else(PoisonError::into_inner);
        missing_numbers(&opened.keys().copied().collect(), &self.head, &catalog)
    }

    /// Makes the files that are missing, as far as there is space: those that were made, with their extents, and what kept others from
    /// being made.
    pub(crate) fn make_missing(&self) -> (Vec<(u32, u32)>, Option<io::Error>) {
        let (mut made, mut fault) = (Vec::new(), None);
        // All files together stay within the limit, also where files beyond it are left from a higher one.
        for number in (0..).take_while(|number| self.wanted(*number) > 0) {
            let is_there = self.read_open().contains_key(&number);
            let used: u64 = self.read_open().values().map(|file| u64::from(file.extents) * EXTENT).sum();
            if is_there || used + self.wanted(number) + set_apart(self.disk_limit) > self.disk_limit {
                continue;
            }
            match self.make(number) {
                Ok(extents) => made.push((number, extents)),
                Err(error) => {
                    // Something else of that name concerns no other file.
                    let is_in_the_way = error.kind() == io::ErrorKind::AlreadyExists;
                    fault = Some(io::Error::new(error.kind(), format!("{}: {error}", file_name(number))));
                    if !is_in_the_way {
                        break;
                    }
                }
            }
        }
        if !made.is_empty()
            && let Err(error) = self.disk.sync_folder()
        {
            return (Vec::new(), Some(error));
        }
        (made, fault)
    }

    fn make(&self, number: u32) -> io::Result<u32> {
        let (name, wanted) = (file_name(number), self.wanted(number));
        let file = self.disk.create(&name, wanted)?;
        // Its length must outlive a crash before anything is put into it.
        file.sync().or_else(|error| self.disk.remove(&name).and(Err(error)))?;
        let extents = u32::try_from(wanted / EXTENT).unwrap_or(u32::MAX);
        self.write_open().insert(number, OpenFile { file, extents });
        Ok(extents)
    }

    /// A file in use that was removed by somebody else.
    pub(crate) fn removed(&self) -> Option<String> {
        let open: Vec<(u32, Arc<dyn DiskFile>)> = self.read_open().iter().map(|(number, file)| (*number, file.file.clone())).collect();
        // Only what the system says for sure counts.
        let gone = open.into_iter().find(|(_, file)| file.is_there().is_ok_and(|is_there| !is_there));
        let redo = self.redo.as_ref().filter(|redo| redo.is_gone()).map(|_| REDO_NAME.to_owned());
        gone.map(|(number, _)| file_name(number)).or(redo)
    }

    /// Whether a file that should be there is missing.
    pub(crate) fn is_incomplete(&self) -> bool {
        let open = self.read_open();
        (0..).take_while(|number| self.wanted(*number) > 0).any(|number| !open.contains_key(&number))
    }

    /// Files that lie wholly beyond the limit, the last first.
    pub(crate) fn beyond_limit(&self) -> Vec<u32> {
        self.read_open().keys().rev().copied().take_while(|number| self.wanted(*number) == 0).collect()
    }

    /// Makes a file of at most so many extents beyond the limit.
    pub(crate) fn make_spare(&self, extents: u64) -> io::Result<(u32, u32)> {
        let first_beyond = (0..).find(|number| self.wanted(*number) == 0).unwrap_or(0);
        let first = self.read_open().keys().next_back().map_or(0, |last| last + 1).max(first_beyond);
        let extents = u32::try_from(extents).unwrap_or(u32::MAX).min(self.per_file);
        let create = |number: u32| (number, self.disk.create(&file_name(number), u64::from(extents) * EXTENT));
        let is_free = |made: &io::Result<_>| made.as_ref().err().is_none_or(|error| error.kind() != io::ErrorKind::AlreadyExists);
        // What is no file of the store may have the name.
        let tried = (first..first.saturating_add(MOST_IN_THE_WAY)).map(create).find(|(_, made)| is_free(made));
        let (number, made) = tried.ok_or(io::ErrorKind::AlreadyExists)?;
        let file = made?;
        file.sync().and_then(|()| self.disk.sync_folder())?;
        self.write_open().insert(number, OpenFile { file, extents });
        Ok((number, extents))
    }

    /// The last file within the limit, if it is longer than that: its number, and how many extents it should have.
    pub(crate) fn too_long(&self) -> Option<(u32, u32)> {
        let wanted = |number: u32| u32::try_from(self.wanted(number) / EXTENT).unwrap_or(u32::MAX);
        let open = self.read_open();
        let last = open.iter().rev().find(|(number, _)| wanted(**number) > 0)?;
        (last.1.extents > wanted(*last.0)).then(|| (*last.0, wanted(*last.0)))
    }

    /// Cuts a file off behind so many extents, which nothing needs any more.
    pub(crate) fn shorten(&self, number: u32, extents: u32) -> io::Result<()> {
        let mut open = self.write_open();
        let Some(file) = open.get_mut(&number) else { return Ok(()) };
        file.file.cut(u64::from(extents) * EXTENT)?;
        file.extents = extents;
        Ok(())
    }

    /// Removes a file that nothing needs any more.
    pub(crate) fn remove(&self, number: u32) -> io::Result<()> {
        self.write_open().remove(&number);
        self.disk.remove(&file_name(number))?;
        self.disk.sync_folder()
    }

    /// Every extent, free.
    pub(crate) fn extents(&self) -> Extents {
        let mut extents = Extents::new(self.per_file, self.disk_limit.saturating_sub(set_apart(self.disk_limit)) / EXTENT);
        for (number, file) in self.read_open().iter() {
            extents.add_file(*number as usize, file.extents);
        }
        extents
    }
    pub(crate) fn store(&self) -> u64 {
        self.head.store
    }
    pub(crate) fn disk_limit(&self) -> u64 {
        self.disk_limit
    }
    pub(crate) fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }

    fn file(&self, position: Position) -> io::Result<(Arc<dyn DiskFile>, u64)> {
        let number = position / self.per_file;
        let missing = || io::Error::new(io::ErrorKind::NotFound, file_name(number));
        let file = self.read_open().get(&number).map(|file| file.file.clone()).ok_or_else(missing)?;
        Ok((file, u64::from(position % self.per_file) * EXTENT))
    }

    fn read_open(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<u32, OpenFile>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner)
    }
    fn write_open(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<u32, OpenFile>> {
        self.open.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an error says that the volume has no space.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Reads, and again where the system says that it cannot: what is given up here is lost.
pub(crate) fn read_at(file: &dyn DiskFile, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    for _ in 1..READS {
        match file.read_at(buffer, offset) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(error),
            Err(_) => {}
        }
    }
    file.read_at(buffer, offset)
}

impl ReadExtent for Files {
    fn read_extent(&self, position: Position) -> io::Result<Vec<u8>> {
        let (file, at) = self.file(position)?;
        let mut content = vec![0; EXTENT_BYTES];
        read_at(file.as_ref(), &mut content, at)?;
        Ok(content)
    }
}

impl Source for Files {
    fn read_part(&self, position: Position, offset: usize, buffer: &mut [u8]) -> io::Result<()> {
        let (file, at) = self.file(position)?;
        read_at(file.as_ref(), buffer, at + offset as u64)
    }
    fn known(&self, position: Position) -> Known {
        self.catalog.read().unwrap_or_else(PoisonError::into_inner).of(position)
    }
    fn catalogued(&self) -> Position {
        self.catalog.read().unwrap_or_else(PoisonError::into_inner).len()
    }
    fn complete_below(&self) -> u64 {
        self.catalog.read().unwrap_or_else(PoisonError::into_inner).complete_below
    }
    fn is_cut(&self, position: Position) -> bool {
        self.cut.get(&(position / self.per_file)).is_some_and(|from| position % self.per_file >= *from)
    }
    fn missing(&self) -> Vec<Range<Position>> {
        let missing = self.cut.iter().filter(|(_, from)| **from == 0).map(|(number, _)| number * self.per_file);
        missing.map(|first| first..first.saturating_add(self.per_file)).collect()
    }
    fn is_new(&self) -> bool {
        self.is_new
    }
    fn next_serial(&self) -> u64 {
        self.head.next_serial
    }
    fn positions(&self) -> Vec<Position> {
        let open = self.read_open();
        open.iter().flat_map(|(number, file)| (0..file.extents).map(move |index| number * self.per_file + index)).collect()
    }
}
