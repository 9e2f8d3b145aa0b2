//! The last proven configuration, kept in the data folder for `serve --last-good`.
//!
//! It is one file, written whole or not at all, readable by the owner only: the texts that were proven, by path. Keys that
//! are written out in them are in it as well; what stands in `env:` and `file:` is not, and is read anew when it is used.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use spillgate_config::Plan;
use spillgate_config::source::{Disk, Source, SourceError};
use spillgate_model::Secret;

use crate::private_file;

const NAME: &str = "last-good.json";

/// Texts by path; everything else comes from the disk.
struct Snapshot {
    files: BTreeMap<PathBuf, String>,
}

impl Source for Snapshot {
    fn read(&self, path: &Path) -> Result<String, SourceError> {
        self.files.get(path).map_or_else(|| Disk.read(path), |text| Ok(text.clone()))
    }
    fn files(&self, folder: &Path, deep: bool) -> Result<Vec<PathBuf>, SourceError> {
        let within = |path: &&PathBuf| if deep { path.starts_with(folder) } else { path.parent() == Some(folder) };
        Ok(self.files.keys().filter(within).cloned().collect())
    }
    fn environment(&self, name: &str) -> Option<String> {
        Disk.environment(name)
    }
}

/// Keeps the texts `plan` was proven from. A failure is logged: it must not stop a good configuration.
pub(crate) fn save(plan: &Plan) {
    let files: BTreeMap<&PathBuf, &str> = plan.files.iter().zip(plan.texts.iter().map(Secret::expose)).collect();
    let written = serde_json::to_vec(&files).map_err(std::io::Error::from).and_then(|bytes| {
        fs::create_dir_all(&plan.server.data_dir)?;
        private_file::write(&plan.server.data_dir.join(NAME), &bytes)
    });
    if let Err(error) = written {
        tracing::warn!(%error, "the last good configuration could not be kept");
    }
}

/// Proves the kept texts again (keys and connections are read anew).
pub(crate) fn load(config: &Path) -> anyhow::Result<Plan> {
    let path = data_dir(config).join(NAME);
    let bytes = fs::read(&path).with_context(|| format!("no last good configuration: {} cannot be read", path.display()))?;
    let files = serde_json::from_slice(&bytes).with_context(|| format!("{} is damaged", path.display()))?;
    spillgate_config::load_from(&Snapshot { files }, config).map_err(|faults| {
        let shown: Vec<String> = faults.iter().map(ToString::to_string).collect();
        anyhow!("the last good configuration is not good any more:\n{}", shown.join("\n"))
    })
}

/// Where the data is kept according to a server file that may be broken: its `data_dir` line if one can be found.
fn data_dir(config: &Path) -> PathBuf {
    let text = fs::read_to_string(config).unwrap_or_default();
    let written = text.lines().find_map(|line| {
        let value = line.trim().strip_prefix("data_dir")?.trim_start().strip_prefix('=')?.trim_start();
        let quote = value.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
        value[1..].split(quote).next()
    });
    config.parent().unwrap_or(Path::new("")).join(written.unwrap_or("data"))
}
