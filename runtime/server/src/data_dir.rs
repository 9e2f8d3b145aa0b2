//! The data folder: readable by its owner only, used by one process at a time.
//!
//! The lock is the system's own, given back by a crash as well; `lock` is never removed. What it says only helps a person.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

/// A data folder that is ours for as long as this lives.
pub(crate) struct DataDir {
    path: PathBuf,
    /// `None`: on a volume that nobody can write to, and that has no file to lock.
    _lock: Option<File>,
}

impl DataDir {
    /// Makes it if it is missing.
    pub(crate) fn take(path: &Path) -> anyhow::Result<DataDir> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.with_context(|| format!("data_dir {} cannot be made", path.display()))?;
        lock(path)
    }

    /// Of a stopped server: something must be in it, so that a mistyped name makes nothing.
    pub(crate) fn take_stopped(path: &Path) -> anyhow::Result<DataDir> {
        if !path.join("store").is_dir() && !path.join("control").is_dir() {
            bail!("{} is no data_dir of a server: it has neither store nor control in it", path.display());
        }
        lock(path)
    }

    /// The queue store's folder.
    pub(crate) fn store(&self) -> PathBuf {
        self.path.join("store")
    }
    /// The operator state's folder.
    pub(crate) fn control(&self) -> PathBuf {
        self.path.join("control")
    }
}

fn lock(path: &Path) -> anyhow::Result<DataDir> {
    let shown = path.display();
    let name = path.join("lock");
    let opened = match OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&name) {
        // Direct flows need nothing of it, and commands that only read can look into a copy.
        Err(error) if error.kind() == ErrorKind::ReadOnlyFilesystem => match File::open(&name) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(DataDir { path: path.to_owned(), _lock: None }),
            opened => opened,
        },
        opened => opened,
    };
    let mut file = opened.with_context(|| format!("data_dir {shown} cannot be used"))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let _may_be_unreadable = file.take(20).read_to_string(&mut holder);
            let holder = holder.trim().parse::<u32>().map(|process| format!(" (process {process})")).unwrap_or_default();
            bail!("data_dir {shown} is in use by another spillgate{holder}: stop that one first, or choose another folder");
        }
        Err(TryLockError::Error(error)) => return Err(error).with_context(|| format!("data_dir {shown} cannot be locked")),
    }
    // On a full volume this fails; the lock holds all the same.
    let _said = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(DataDir { path: path.to_owned(), _lock: Some(file) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_data_folder_is_used_once_at_a_time_and_by_its_owner_only() {
        let folder = std::env::temp_dir().join(format!("spillgate-data-dir-{}", std::process::id()));
        assert!(DataDir::take_stopped(&folder).is_err() && !folder.exists(), "a mistyped name makes nothing");
        let first = DataDir::take(&folder).expect("made");
        assert_eq!(std::fs::metadata(&folder).expect("there").permissions().mode() & 0o777, 0o700);
        let second = DataDir::take(&folder).err().expect("in use").to_string();
        assert!(second.contains(&format!("(process {})", std::process::id())), "{second}");
        std::fs::create_dir(first.store()).expect("made");
        assert!(DataDir::take_stopped(&folder).is_err(), "in use");
        drop(first);
        DataDir::take_stopped(&folder).expect("given back");
        std::fs::remove_dir_all(&folder).expect("cleaned");
    }
}
