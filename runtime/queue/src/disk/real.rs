//! A folder on the machine's own disk.
//!
//! 1. One process at a time: the folder is locked (`flock`) for as long as a value of this type lives, also across a crash of
//!    another one, since the system gives such a lock back by itself.
//! 2. A file's bytes are allocated when it is made, so that writing into it later needs no room: `fallocate`, or zeros where the
//!    volume does not know it. Volumes that copy on write give no such guarantee; a write there may still find no space.
//! 3. Folder and files are readable by their owner only.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::Errno;

use crate::disk::{Disk, DiskFile};

/// Holds the lock; no file of the store.
const LOCK_NAME: &str = "lock";
/// How much is written at a time where a volume cannot allocate.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Another process has it.
    #[error("{folder} is in use by another process{by}")]
    InUse {
        /// Which folder.
        folder: String,
        /// ` (process N)`, if it said so.
        by: String,
    },
    /// The system said no.
    #[error("{folder} cannot be used: {source}")]
    Unusable {
        /// Which folder.
        folder: String,
        /// What it said.
        source: io::Error,
    },
}

/// A folder, locked.
#[derive(Debug)]
pub struct RealDisk {
    folder: PathBuf,
    /// For syncing names.
    handle: File,
    /// Nothing is written.
    to_read: bool,
    /// Unlocked when it is closed.
    _lock: File,
}

impl RealDisk {
    /// Makes the folder if it is missing, and locks it.
    pub fn open(folder: impl Into<PathBuf>) -> Result<RealDisk, FolderError> {
        let folder = folder.into();
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.map_err(|source| unusable(&folder, source))?;
        RealDisk::open_existing(folder)
    }

    /// Locks a folder that must be there.
    pub fn open_existing(folder: impl Into<PathBuf>) -> Result<RealDisk, FolderError> {
        let folder = folder.into();
        let handle = File::open(&folder).map_err(|source| unusable(&folder, source))?;
        let lock = lock(&folder)?;
        Ok(RealDisk { folder, handle, to_read: false, _lock: lock })
    }

    /// The same to look into it, also on a volume that cannot be written to.
    pub fn open_to_read(folder: impl Into<PathBuf>) -> Result<RealDisk, FolderError> {
        let folder = folder.into();
        let handle = File::open(&folder).map_err(|source| unusable(&folder, source))?;
        let lock = match lock(&folder) {
            // Nobody else can write into it either.
            Err(FolderError::Unusable { source, .. }) if source.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                handle.try_clone().map_err(|source| unusable(&folder, source))?
            }
            lock => lock?,
        };
        Ok(RealDisk { folder, handle, to_read: true, _lock: lock })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

fn unusable(folder: &Path, source: io::Error) -> FolderError {
    FolderError::Unusable { folder: folder.display().to_string(), source }
}

fn lock(folder: &Path) -> Result<File, FolderError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let mut file = options.open(folder.join(LOCK_NAME)).map_err(|source| unusable(folder, source))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let mut by = String::new();
            // Who has it is only told to help a person; it may be empty or old.
            let _ = Read::take(&mut file, 20).read_to_string(&mut by);
            let number = by.trim().parse::<u32>();
            let by = number.map(|number| format!(" (process {number})")).unwrap_or_default();
            return Err(FolderError::InUse { folder: folder.display().to_string(), by });
        }
        Err(error) => return Err(unusable(folder, error.into())),
    }
    // On a full volume this fails; the lock holds all the same.
    let _ = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(file)
}

impl Disk for RealDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            // Names that are no text are not ours.
            if let Ok(name) = entry.file_name().into_string()
                && name != LOCK_NAME
                && entry.file_type()?.is_file()
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Arc<dyn DiskFile>> {
        let path = self.path(name);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        match allocate(&file, bytes) {
            Ok(()) => Ok(Arc::new(RealFile { file })),
            Err(error) => {
                // What is left of it would hold space that nobody counts.
                let _ = fs::remove_file(&path);
                Err(error)
            }
        }
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(!self.to_read).open(self.path(name))?;
        Ok(Arc::new(RealFile { file }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name))
    }

    fn sync_folder(&self) -> io::Result<()> {
        self.handle.sync_all()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let volume = rustix::fs::fstatvfs(&self.handle)?;
        Ok(volume.f_bavail.saturating_mul(volume.f_frsize))
    }
}

fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => write_zeros(file, bytes),
        done => Ok(done?),
    }
}

fn write_zeros(file: &File, bytes: u64) -> io::Result<()> {
    let mut offset = 0;
    while offset < bytes {
        let piece = usize::try_from(bytes - offset).unwrap_or(usize::MAX).min(ZEROS.len());
        file.write_all_at(&ZEROS[..piece], offset)?;
        offset += piece as u64;
    }
    Ok(())
}

#[derive(Debug)]
struct RealFile {
    file: File,
}

impl DiskFile for RealFile {
    fn is_there(&self) -> io::Result<bool> {
        Ok(self.file.metadata()?.nlink() > 0)
    }
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }
    fn write_at(&self, content: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(content, offset)
    }
    fn cut(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }
    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
    fn forget_cached(&self) -> io::Result<()> {
        Ok(rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed)?)
    }
}

#[cfg(test)]
mod tests {
    use super::{FolderError, RealDisk, write_zeros};
    use crate::disk::Disk;

    struct Folder(std::path::PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let folder = std::env::temp_dir().join(format!("spillgate-disk-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&folder);
            Folder(folder)
        }
    }
    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_folder_is_open_once_and_free_again_after() {
        let folder = Folder::new("lock");
        let first = RealDisk::open(&folder.0).expect("an empty folder can be used");
        let second = RealDisk::open(&folder.0).expect_err("it is locked");
        assert!(matches!(&second, FolderError::InUse { .. }), "{second}");
        assert!(second.to_string().contains(&std::process::id().to_string()), "{second}");
        drop(first);
        RealDisk::open(&folder.0).expect("the lock is given back");
    }

    #[test]
    fn a_file_is_whole_from_the_start_and_reads_as_written() {
        let folder = Folder::new("file");
        let disk = RealDisk::open(&folder.0).expect("an empty folder can be used");
        let file = disk.create("extents-0000", 1 << 20).expect("there is room");
        assert_eq!(file.bytes().expect("it has a length"), 1 << 20);
        file.write_at(b"content", 65_536).expect("it can be written");
        file.sync().expect("it can be synced");
        let mut read = [1; 9];
        file.read_at(&mut read, 65_535).expect("it can be read");
        assert_eq!(&read, b"\0content\0");
        let beyond = file.read_at(&mut read, (1 << 20) - 4).expect_err("there is no more");
        assert_eq!(beyond.kind(), std::io::ErrorKind::UnexpectedEof);
        assert_eq!(disk.list().expect("it can be listed"), ["extents-0000"]);
        assert!(disk.create("extents-0000", 1).is_err(), "nothing is overwritten");
        disk.remove("extents-0000").expect("it can be removed");
        disk.sync_folder().expect("the folder can be synced");
        assert!(disk.open("extents-0000").is_err());
        assert!(disk.free_bytes().expect("the volume is known") > 0);
    }

    #[test]
    fn a_volume_that_cannot_allocate_gets_zeros() {
        let folder = Folder::new("zeros");
        std::fs::create_dir_all(&folder.0).expect("a temporary folder can be made");
        let path = folder.0.join("zeros");
        let file = std::fs::File::create(&path).expect("it can be made");
        write_zeros(&file, 200_000).expect("there is room");
        let bytes = std::fs::read(&path).expect("it can be read");
        assert!(bytes.len() == 200_000 && bytes.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_file_for_which_there_is_no_room_leaves_nothing_behind() {
        let folder = Folder::new("room");
        let disk = RealDisk::open(&folder.0).expect("an empty folder can be used");
        assert!(disk.create("extents-0000", u64::MAX / 4).is_err(), "no volume is that large");
        assert!(disk.list().expect("it can be listed").is_empty());
    }
}
