//! What the store asks of a disk. The real one and the simulated one stand behind it.

mod real;
#[doc(hidden)]
pub mod simulated;

use std::io;
use std::sync::Arc;

pub use real::{FolderError, RealDisk};

/// A folder on a volume.
pub trait Disk: Send + Sync + 'static {
    /// Names of the files, in no order. The folder is made if it is missing.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Makes a file with all its bytes allocated and reading as zeros. Left away again where that fails.
    fn create(&self, name: &str, bytes: u64) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens a file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Removes a file; durable after [`Disk::sync_folder`].
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes files that were made or removed durable as such.
    fn sync_folder(&self) -> io::Result<()>;
    /// Bytes of the volume that are free for this process.
    fn free_bytes(&self) -> io::Result<u64>;
}

/// One file. All calls may come from several threads at once.
pub trait DiskFile: Send + Sync + 'static {
    /// Whether it still has a name: what is written into one that has none is gone when it is closed.
    fn is_there(&self) -> io::Result<bool>;
    /// Its length.
    fn bytes(&self) -> io::Result<u64>;
    /// Fills `buffer` from `offset`, or fails with `UnexpectedEof`.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all of `content` at `offset`; after a failure any part of it may be there.
    fn write_at(&self, content: &[u8], offset: u64) -> io::Result<()>;
    /// Gives back what stands behind so many bytes. Whether that outlives a crash is open.
    fn cut(&self, bytes: u64) -> io::Result<()>;
    /// Makes everything written so far durable (`fdatasync`).
    fn sync(&self) -> io::Result<()>;
    /// Lets the system forget what it holds in memory of it beside what is still to be written. After a sync that failed it holds what
    /// the disk does not have and what no later sync will write; what is read from now on is on the disk.
    fn forget_cached(&self) -> io::Result<()>;
}
