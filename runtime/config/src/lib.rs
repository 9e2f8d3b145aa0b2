//! Configuration: as written -> proven plan, all faults at once.
pub mod plan;

pub use plan::Plan;
use std::path::{Path, PathBuf};

/// One fault, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Fault {
    pub file: PathBuf,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// What was expected, what stood there, and did-you-mean.
    pub message: String,
}

/// Reads the server file, its includes and every flow, and proves them. All faults at once, in file order.
pub fn load(server_file: &Path) -> Result<Plan, Vec<Fault>> {
    let _ = server_file;
    Err(Vec::new())
}
