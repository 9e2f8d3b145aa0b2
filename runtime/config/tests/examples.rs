//! The shipped examples load.

use std::path::Path;

use spillgate_config::load_from;
use spillgate_config::source::{Disk, Source, SourceError};

/// The disk, and a value for every variable.
struct WithEnvironment;

impl Source for WithEnvironment {
    fn read(&self, path: &Path) -> Result<String, SourceError> {
        Disk.read(path)
    }
    fn files(&self, folder: &Path, deep: bool) -> Result<Vec<std::path::PathBuf>, SourceError> {
        Disk.files(folder, deep)
    }
    fn environment(&self, name: &str) -> Option<String> {
        Some(format!("a value of {name}"))
    }
}

#[test]
fn every_shipped_example_is_free_of_faults() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../flows");
    let mut loaded = 0;
    for file in Disk.files(&examples, true).expect("the examples are there") {
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if !(name.starts_with("server") && name.ends_with(".toml")) {
            continue;
        }
        match load_from(&WithEnvironment, &file) {
            Ok(plan) => assert!(!plan.flows.is_empty() && !plan.version.is_empty()),
            Err(faults) => panic!("{}", faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")),
        }
        loaded += 1;
    }
    assert!(loaded >= 2, "found {loaded} server files");
}
