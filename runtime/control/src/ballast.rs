//! Space kept back for the moment at which a notebook must open on a full volume.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

/// A file that holds nothing but its place.
pub(crate) struct Ballast {
    path: PathBuf,
    bytes: u64,
}

/// Bytes of the volume below `folder` that this process may use.
pub(crate) fn free_bytes(folder: &Path) -> io::Result<u64> {
    let volume = statvfs(folder)?;
    Ok(volume.f_bavail.saturating_mul(volume.f_frsize))
}

impl Ballast {
    pub(crate) fn new(path: PathBuf, bytes: u64) -> Ballast {
        Ballast { path, bytes }
    }
    pub(crate) fn is_there(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|metadata| metadata.len() == self.bytes)
    }
    /// Gives its space away. Whether there was any.
    pub(crate) fn release(&self) -> bool {
        fs::remove_file(&self.path).is_ok()
    }
    /// Makes it again, if the volume has that much and as much again: the last bytes are for work.
    pub(crate) fn make(&self) -> io::Result<()> {
        if self.is_there() {
            return Ok(());
        }
        let folder = self.path.parent().unwrap_or(Path::new("."));
        if free_bytes(folder)? < self.bytes.saturating_mul(2) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let made = File::create(&self.path).and_then(|file| self.fill(file));
        if made.is_err() {
            self.release();
        }
        made
    }
    fn fill(&self, mut file: File) -> io::Result<()> {
        if fallocate(&file, FallocateFlags::empty(), 0, self.bytes).is_ok() {
            return Ok(());
        }
        // Where nothing can be allocated ahead, written bytes hold the place.
        let block = [0x5a; 16 << 10];
        let mut left = self.bytes;
        while left > 0 {
            let next = usize::try_from(left).map_or(block.len(), |left| left.min(block.len()));
            file.write_all(&block[..next])?;
            left -= u64::try_from(next).unwrap_or(left);
        }
        Ok(())
    }
}
