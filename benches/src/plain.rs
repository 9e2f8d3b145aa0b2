//! The floor of durable appends: one file, one write and one `fdatasync` a batch, nothing else.
//!
//! What it does not do: records, checksums, lanes, limits, acknowledging anybody.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::fs::{FallocateFlags, fallocate};

/// A file that is written from its begin to its end.
pub(crate) struct PlainFile {
    file: File,
    end: u64,
}

impl PlainFile {
    /// A file whose blocks are allocated beforehand.
    pub(crate) fn allocated(path: &Path, bytes: u64) -> Result<Self> {
        let plain = PlainFile::growing(path)?;
        fallocate(&plain.file, FallocateFlags::empty(), 0, bytes).context("no room for the plain file")?;
        plain.file.sync_all()?;
        Ok(plain)
    }
    /// A file that grows with each write.
    pub(crate) fn growing(path: &Path) -> Result<Self> {
        let open = File::options().read(true).write(true).create(true).truncate(true).open(path);
        Ok(PlainFile { file: open.with_context(|| format!("cannot create {}", path.display()))?, end: 0 })
    }
    /// Writes and syncs.
    pub(crate) fn append(&mut self, content: &[u8]) -> Result<()> {
        self.file.write_all_at(content, self.end)?;
        self.end += content.len() as u64;
        Ok(self.file.sync_data()?)
    }
    /// So many batches, one after the other: how long they took.
    pub(crate) fn append_batches(&mut self, content: &[u8], batches: u64) -> Result<Duration> {
        let started = Instant::now();
        for _ in 0..batches {
            self.append(content)?;
        }
        Ok(started.elapsed())
    }
    /// Fills `content` from a place that was written.
    pub(crate) fn read(&self, content: &mut [u8], offset: u64) -> Result<()> {
        Ok(self.file.read_exact_at(content, offset)?)
    }
}
