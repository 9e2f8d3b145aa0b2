//! The server file and its includes, read as one.

use std::path::{Path, PathBuf};

use crate::keys::server::ROOT;
use crate::place::{FileText, Located, Place};
use crate::walk::read_file;
use crate::written::Table;

use super::Checker;

/// The server file first, then its includes.
pub(crate) struct Roots {
    tables: Vec<Table>,
    /// For sections nobody wrote.
    pub(crate) place: Place,
}

pub(crate) fn read(checker: &mut Checker<'_>, server_file: &Path) -> Roots {
    let place = Place::start(&FileText::new(server_file.to_path_buf(), 0, String::new()));
    let mut roots = Roots { tables: Vec::new(), place };
    let Some(main) = read_root(checker, server_file, None) else { return roots };
    for include in main.texts("include") {
        let Some(place) = include.place else { continue };
        for path in expand(checker, &include.value, &place) {
            if path.as_path() == server_file {
                continue;
            }
            let Some(table) = read_root(checker, &path, Some(&place)) else { continue };
            if table.has("include") {
                checker.faults.add(&table.key_place("include"), "only the server file itself includes others");
            }
            roots.tables.push(table);
        }
    }
    roots.tables.insert(0, main);
    check_once(checker, &roots);
    roots
}

fn read_root(checker: &mut Checker<'_>, path: &Path, named_at: Option<&Place>) -> Option<Table> {
    let Some(file) = checker.read(path, named_at) else {
        checker.incomplete = true;
        return None;
    };
    let (table, whole) = read_file(&mut checker.walk(&file), &ROOT);
    checker.incomplete |= !whole;
    Some(table)
}

/// The files an entry names. `*` stands for any letters, in the file name only.
fn expand(checker: &mut Checker<'_>, pattern: &str, place: &Place) -> Vec<PathBuf> {
    let path = place.folder().join(pattern);
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let folder = path.parent().unwrap_or(Path::new(""));
    if folder.to_string_lossy().contains('*') {
        checker.faults.add(place, "`*` may stand in the file name only, not in a folder's");
        return Vec::new();
    }
    if !name.contains('*') {
        return vec![path];
    }
    let fits = |path: &PathBuf| path.file_name().is_some_and(|found| crate::plan::matches(&name, &found.to_string_lossy()));
    match checker.source.files(folder, false) {
        Ok(files) => files.into_iter().filter(fits).collect(),
        Err(error) => {
            checker.faults.add(place, format!("the folder {} {error}", folder.display()));
            Vec::new()
        }
    }
}

/// A section or name that stands in two files: both places are named.
fn check_once(checker: &mut Checker<'_>, roots: &Roots) {
    for key in ["server", "store", "telemetry"] {
        let mut places = roots.tables.iter().filter(|table| table.has(key)).map(|table| table.key_place(key));
        let Some(first) = places.next() else { continue };
        for again in places {
            checker.faults.add(&again, format!("[{key}] stands at {} already", first.short()));
        }
    }
    for key in ["admin", "database", "class", "tenant", "queue"] {
        let mut seen: std::collections::BTreeMap<&str, &Place> = Default::default();
        for (name, _) in roots.tables.iter().flat_map(|table| table.named(key)) {
            match seen.get(&*name.value) {
                Some(first) => checker.faults.add(&name.place, format!("[{key}.{}] stands at {} already", name.value, first.short())),
                None => drop(seen.insert(&name.value, &name.place)),
            }
        }
    }
}

impl Roots {
    /// The one section of that name.
    pub(crate) fn section(&self, name: &str) -> Option<&Table> {
        self.tables.iter().find_map(|table| table.table(name))
    }
    /// All of `[key.NAME]`, in name order, each name once.
    pub(crate) fn named(&self, key: &str) -> Vec<&(Located<String>, Table)> {
        let mut all: Vec<_> = self.tables.iter().flat_map(|table| table.named(key)).collect();
        all.sort_by(|(left, _), (right, _)| left.value.cmp(&right.value));
        all.dedup_by(|(left, _), (right, _)| left.value == right.value);
        all
    }
}
