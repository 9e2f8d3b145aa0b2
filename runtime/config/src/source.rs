//! Where files and the environment come from: the checker's only way to the outside.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use spillgate_model::limits::FILE_BYTES;

/// Why a file or folder could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// Nothing of that name.
    #[error("does not exist")]
    Missing,
    /// Over the hard limit.
    #[error("is larger than 4MiB")]
    TooLarge,
    /// Not UTF-8.
    #[error("is not UTF-8 text")]
    NotText,
    /// Folders nested too deep, or too many files.
    #[error("holds too many files or folders")]
    TooMany,
    /// A pipe or a device: reading it may never end.
    #[error("is no file")]
    NotAFile,
    /// Anything else the system says, in its words.
    #[error("cannot be read: {0}")]
    System(String),
}

/// Reads files and the environment. The checker is pure over it.
pub trait Source {
    /// The text of a file.
    fn read(&self, path: &Path) -> Result<String, SourceError>;
    /// The files in a folder (with `deep`, below it), sorted, without hidden ones.
    fn files(&self, folder: &Path, deep: bool) -> Result<Vec<PathBuf>, SourceError>;
    /// An environment variable.
    fn environment(&self, name: &str) -> Option<String>;
    /// Bytes that durable work may come to below that folder: the free space of its volume, and what the store in it holds
    /// already. `None`: not known. Only notes hang on it.
    fn available(&self, _data_dir: &Path) -> Option<u64> {
        None
    }
}

/// Folders below `flows` are followed this deep.
const DEPTH: usize = 8;
/// Files and folders looked at in one folder tree.
const FILES: usize = 50_000;

/// The real one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl Source for Disk {
    fn read(&self, path: &Path) -> Result<String, SourceError> {
        // Asked before it is opened: opening a pipe that nobody writes to would wait for ever.
        if !std::fs::metadata(path).map_err(|error| system(&error))?.is_file() {
            return Err(SourceError::NotAFile);
        }
        let file = std::fs::File::open(path).map_err(|error| system(&error))?;
        let mut bytes = Vec::new();
        file.take(FILE_BYTES + 1).read_to_end(&mut bytes).map_err(|error| system(&error))?;
        if bytes.len() as u64 > FILE_BYTES {
            return Err(SourceError::TooLarge);
        }
        String::from_utf8(bytes).map_err(|_| SourceError::NotText)
    }

    fn files(&self, folder: &Path, deep: bool) -> Result<Vec<PathBuf>, SourceError> {
        let mut found = Vec::new();
        collect(folder, if deep { DEPTH } else { 0 }, &mut 0, &mut found)?;
        found.sort();
        Ok(found)
    }

    fn environment(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn available(&self, data_dir: &Path) -> Option<u64> {
        // Before the first start the folder is not there: its volume is most likely that of the nearest one above.
        let folder = data_dir.ancestors().find_map(|folder| {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            folder.is_dir().then_some(folder)
        })?;
        let volume = rustix::fs::statvfs(folder).ok()?;
        let free = volume.f_bavail.saturating_mul(volume.f_frsize);
        let held = ["store", "control"].map(|part| bytes_in(&data_dir.join(part)));
        Some(held.into_iter().fold(free, u64::saturating_add))
    }
}

/// What the files of one folder take up on disk.
fn bytes_in(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    const BLOCK: u64 = 512;
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().take(FILES);
    let held = entries.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.blocks().saturating_mul(BLOCK));
    held.fold(0, u64::saturating_add)
}

fn collect(folder: &Path, depth: usize, seen: &mut usize, found: &mut Vec<PathBuf>) -> Result<(), SourceError> {
    let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    for entry in std::fs::read_dir(here).map_err(|error| system(&error))? {
        let name = entry.map_err(|error| system(&error))?.file_name();
        // Folders count as well: links may make a ring of them.
        *seen += 1;
        if *seen > FILES {
            return Err(SourceError::TooMany);
        }
        if name.to_string_lossy().starts_with('.') {
            continue;
        }
        let path = folder.join(name);
        if !path.is_dir() {
            found.push(path);
        } else if depth > 0 {
            collect(&path, depth - 1, seen, found)?;
        }
    }
    Ok(())
}

fn system(error: &std::io::Error) -> SourceError {
    match error.kind() {
        std::io::ErrorKind::NotFound => SourceError::Missing,
        _ => SourceError::System(error.to_string()),
    }
}

/// Files and environment held in memory: for tests and for editors that check before they save.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Text by path.
    pub files: BTreeMap<PathBuf, String>,
    /// The environment.
    pub environment: BTreeMap<String, String>,
    /// What the volume has for durable work.
    pub available: Option<u64>,
}

impl Memory {
    /// Adds a file.
    pub fn file(mut self, path: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        self.files.insert(path.into(), text.into());
        self
    }
    /// Sets an environment variable.
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.insert(name.into(), value.into());
        self
    }
}

impl Source for Memory {
    fn read(&self, path: &Path) -> Result<String, SourceError> {
        self.files.get(path).cloned().ok_or(SourceError::Missing)
    }
    fn files(&self, folder: &Path, deep: bool) -> Result<Vec<PathBuf>, SourceError> {
        let within = |path: &&PathBuf| if deep { path.starts_with(folder) } else { path.parent() == Some(folder) };
        let found: Vec<PathBuf> = self.files.keys().filter(within).cloned().collect();
        if found.is_empty() { Err(SourceError::Missing) } else { Ok(found) }
    }
    fn environment(&self, name: &str) -> Option<String> {
        self.environment.get(name).cloned()
    }
    fn available(&self, _data_dir: &Path) -> Option<u64> {
        self.available
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d5_what_a_store_holds_already_counts_as_room_of_its_volume() {
        let folder = std::env::temp_dir().join(format!("spillgate-volume-{}", std::process::id()));
        let volume = Disk.available(&folder.join("data")).expect("the volume of the nearest folder that is there");
        assert!(volume > 0 && bytes_in(&folder.join("store")) == 0);
        std::fs::create_dir_all(folder.join("store")).expect("a folder");
        std::fs::write(folder.join("store/extents-0000"), vec![1; 3 << 20]).expect("a file");
        let (held, available) = (bytes_in(&folder.join("store")), Disk.available(&folder));
        std::fs::remove_dir_all(&folder).expect("it is removed");
        assert!((3 << 20..4 << 20).contains(&held), "{held}");
        assert!(available.is_some_and(|available| available >= held), "{available:?}");
    }

    #[test]
    fn c9_what_is_no_file_is_a_fault_and_not_waited_for() {
        assert_eq!(Disk.read(Path::new("/dev/null")), Err(SourceError::NotAFile));
        assert_eq!(Disk.read(&std::env::temp_dir()), Err(SourceError::NotAFile));
    }

    #[test]
    fn what_the_system_says_of_a_file_is_told_in_its_words() {
        const TOO_MANY_OPEN_FILES: i32 = 24;
        let error = std::io::Error::from_raw_os_error(TOO_MANY_OPEN_FILES);
        assert!(system(&error).to_string().starts_with("cannot be read: Too many open files"), "{}", system(&error));
    }
}
