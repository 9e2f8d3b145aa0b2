//! A folder of one scenario, gone with the value.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

/// An empty folder below the system's own for temporary files.
pub(crate) struct Folder {
    /// Where it is.
    pub(crate) path: PathBuf,
}

impl Folder {
    /// Makes it.
    pub(crate) fn new(name: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("spillgate-bench-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Folder { path })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _left_for_the_system = fs::remove_dir_all(&self.path);
    }
}
