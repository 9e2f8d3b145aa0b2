//! Faults: what is wrong, where, and what was probably meant.
//!
//! Invariants
//! 1. Faults come in the order of the files as read, and within a file by place.
//! 2. No fault shows a secret: texts of secret keys are never handed in here.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

use serde::{Serialize, Serializer};

use crate::place::Place;

/// One fault, with its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// As given, relative paths resolved.
    #[serde(serialize_with = "lossy")]
    pub file: PathBuf,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// What was expected, what stood there, and did-you-mean.
    pub message: String,
}

fn lossy<S: Serializer>(path: &std::path::Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}:{}: {}", self.file.display(), self.line, self.column, self.message)
    }
}

/// Collects faults of all files.
#[derive(Default)]
pub(crate) struct Faults {
    found: Vec<(usize, Fault)>,
    /// Files that are not TOML: what else is found in them may follow from that, and is left out.
    broken: BTreeSet<usize>,
}

impl Faults {
    pub(crate) fn add(&mut self, place: &Place, message: impl Into<String>) {
        if !self.broken.contains(&place.order()) {
            self.push(place, message.into());
        }
    }
    /// A file is not TOML here.
    pub(crate) fn add_broken(&mut self, place: &Place, message: String) {
        if self.broken.insert(place.order()) {
            self.found.retain(|(file, _)| *file != place.order());
        }
        self.push(place, message);
    }
    fn push(&mut self, place: &Place, message: String) {
        let (line, column) = place.line_column();
        self.found.push((place.order(), Fault { file: place.path().to_path_buf(), line, column, message }));
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }
    pub(crate) fn count(&self) -> usize {
        self.found.len()
    }
    /// All of them, in file order.
    pub(crate) fn sorted(mut self) -> Vec<Fault> {
        self.found.sort_by(|(left, a), (right, b)| (left, a.line, a.column).cmp(&(right, b.line, b.column)));
        self.found.dedup();
        self.found.into_iter().map(|(_, fault)| fault).collect()
    }
}

/// `; did you mean "x"?` for the nearest of the known names, or nothing.
pub(crate) fn did_you_mean<'a>(found: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let distance = |name: &str| strsim::damerau_levenshtein(&found.to_lowercase(), &name.to_lowercase());
    let near = known.into_iter().map(|name| (distance(name), name)).min();
    match near {
        Some((steps, name)) if name.len() > 2 && steps <= (name.chars().count() / 3).max(1) => format!("; did you mean `{name}`?"),
        _ => String::new(),
    }
}
