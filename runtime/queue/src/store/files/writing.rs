//! Making things durable: batches, in their places or through `redo`, and what a start finds.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::core::stream::Write;
use crate::disk::DiskFile;
use crate::format::{REDO_NAME, head_file_bytes};
use crate::status::Recovered;
use crate::store::StoreError;
use crate::store::files::{EXTENT, FAILED_NAME, Files, ZEROS, is_full, unusable};
use crate::store::redo::{Redo, Said, Way, redo_file_bytes};

/// Files synced at the same time.
const MOST_TOGETHER: usize = 8;

/// Why a batch is not written.
#[derive(Debug)]
pub(crate) enum WriteError {
    Write(io::Error),
    /// What it left behind is unknown.
    Sync(io::Error),
}

impl WriteError {
    fn into_inner(self) -> io::Error {
        match self {
            WriteError::Write(error) | WriteError::Sync(error) => error,
        }
    }
}

impl Files {
    /// Writes a batch and makes it durable: how many syncs that took, and how long. `together`: files are synced at the same time.
    pub(crate) fn write_durably(&self, writes: &[Write], together: bool) -> Result<(u64, Duration), WriteError> {
        let way = self.redo.as_ref().map_or(Way::Past, |redo| redo.way(writes));
        let mut syncs = match (&self.redo, way) {
            (None, _) | (_, Way::Through) => 0,
            (Some(redo), Way::Anew) => self.checkpoint(redo, together)?,
            (Some(_), Way::Past) => self.empty_redo(together)?,
        };
        self.write(writes).map_err(WriteError::Write)?;
        let before = Instant::now();
        let numbers: BTreeSet<u32> = writes.iter().map(|write| write.position / self.per_file).collect();
        syncs += match &self.redo {
            Some(redo) if way != Way::Past => redo.put(writes, numbers).map(|()| 1)?,
            _ => self.sync_files(&numbers, together).map_err(WriteError::Sync)?,
        };
        Ok((syncs, before.elapsed()))
    }

    /// Makes everything durable in its place: how many syncs that took.
    fn checkpoint(&self, redo: &Redo, together: bool) -> Result<u64, WriteError> {
        let syncs = self.sync_files(&redo.unsynced(), together).map_err(WriteError::Sync)?;
        redo.begin_anew();
        Ok(syncs)
    }

    /// The same; `redo` says nothing any more.
    pub(crate) fn empty_redo(&self, together: bool) -> Result<u64, WriteError> {
        let Some(redo) = self.redo.as_ref().filter(|redo| redo.is_used()) else { return Ok(0) };
        let syncs = self.checkpoint(redo, together)?;
        redo.empty()?;
        Ok(syncs + 1)
    }

    fn write(&self, writes: &[Write]) -> io::Result<()> {
        writes.iter().try_for_each(|write| {
            let (file, at) = self.file(write.position)?;
            file.write_at(&write.bytes, at + write.offset as u64)
        })
    }

    /// Writes again what the last run had only put into `redo`, and makes it durable; finds or makes an empty one.
    pub(super) fn open_redo(&self, names: &[String], report: &mut Recovered) -> Result<Option<Redo>, StoreError> {
        let unusable = |error: io::Error| unusable("the file redo cannot be used", &error);
        let wanted = redo_file_bytes(self.disk_limit);
        let mut before = 0;
        if names.iter().any(|name| name == REDO_NAME) {
            let file = self.disk.open(REDO_NAME).map_err(unusable)?;
            if names.iter().any(|name| name == FAILED_NAME) {
                file.forget_cached().map_err(unusable)?;
            }
            let said = Said::read(file.as_ref(), self.head.store).map_err(unusable)?;
            if said.is_damaged {
                report.remarks.push("part of the file redo is damaged: what it said may be missing in its place".to_owned());
            }
            self.write_again(&said).map_err(unusable)?;
            let bytes = file.bytes().map_err(unusable)?;
            let redo = Redo::new(file, bytes, self.head.store);
            if said.is_used {
                redo.empty().map_err(|error| unusable(error.into_inner()))?;
            }
            if bytes == wanted {
                return Ok(Some(redo));
            }
            self.disk.remove(REDO_NAME).map_err(unusable)?;
            before = bytes;
        }
        // Where files are left from a higher limit, a smaller one takes the place of a larger one all the same.
        let used: u64 = self.read_open().values().map(|file| u64::from(file.extents) * EXTENT).sum();
        if wanted == 0 || (wanted > before && used + wanted + head_file_bytes(self.disk_limit) > self.disk_limit) {
            return Ok(None);
        }
        match Redo::create(self.disk.as_ref(), wanted, self.head.store) {
            Ok(redo) => Ok(Some(redo)),
            Err(error) if is_full(&error) => {
                report.remarks.push(format!("the file redo could not be made: {error}; batches for many lanes take longer"));
                Ok(None)
            }
            Err(error) => Err(unusable(error)),
        }
    }

    fn write_again(&self, said: &Said) -> io::Result<()> {
        let mut numbers = BTreeSet::new();
        for write in said.writes() {
            // A file that is missing is told of elsewhere.
            let Ok((file, at)) = self.file(write.position) else { continue };
            file.write_at(write.content, at + write.offset as u64)?;
            file.write_at(&ZEROS[..write.zeros], at + (write.offset + write.content.len()) as u64)?;
            numbers.insert(write.position / self.per_file);
        }
        self.sync_files(&numbers, false).map(|_| ())
    }

    /// At a start: writes what mends it, and makes everything that was read durable.
    pub(crate) fn settle(&self, mends: &[Write], together: bool) -> Result<(), StoreError> {
        let unsettled = |error: io::Error| unusable("what was found cannot be made durable", &error);
        self.write(mends).map_err(unsettled)?;
        let numbers = self.read_open().keys().copied().collect();
        self.sync_files(&numbers, together).map_err(unsettled)?;
        match self.disk.remove(FAILED_NAME) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(unsettled(error)),
            _ => {}
        }
        self.disk.sync_folder().map_err(unsettled)
    }

    /// A sync failed. Whether this can be written down does not matter beyond the life of what the system holds in memory.
    pub(crate) fn note_failure(&self) {
        let _ = self.disk.create(FAILED_NAME, 0);
    }

    /// Syncs files: how many that were. `together`: at the same time, as a volume makes several durable in little more time than one.
    fn sync_files(&self, numbers: &BTreeSet<u32>, together: bool) -> io::Result<u64> {
        let files: Vec<_> = numbers.iter().filter_map(|number| self.read_open().get(number).map(|file| file.file.clone())).collect();
        for files in files.chunks(if together { MOST_TOGETHER } else { 1 }) {
            sync_together(files)?;
        }
        Ok(files.len() as u64)
    }
}

/// Syncs files at the same time; the first error.
fn sync_together(files: &[Arc<dyn DiskFile>]) -> io::Result<()> {
    let Some((first, others)) = files.split_first() else { return Ok(()) };
    std::thread::scope(|scope| {
        let syncing: Vec<_> = others.iter().map(|file| scope.spawn(|| file.sync())).collect();
        let results = syncing.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(io::Error::other("a sync panicked"))));
        // All have ended before anybody is told of one.
        let others: Vec<io::Result<()>> = std::iter::once(first.sync()).chain(results).collect();
        others.into_iter().collect()
    })
}
