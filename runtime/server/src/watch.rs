//! Says when a file of the configuration may have changed: the folder watch, and SIGHUP.
//!
//! Editors write in bursts (truncate, write, rename): a change counts once nothing has moved for [`QUIET`], or after
//! [`PATIENCE`] where something moves all the time. An SQLite database in the same folder moves with every write: it and its
//! journals are not listened to.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use notify::{RecursiveMode, Watcher as _};
use spillgate_config::Plan;
use spillgate_config::plan::Driver;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// How long files must rest before they are read.
const QUIET: Duration = Duration::from_millis(150);
/// The longest that files which never rest are waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Watches the folders of a plan. Without a working watcher (no inotify left) it says so once and SIGHUP remains.
pub(crate) struct Watch {
    watcher: Option<notify::RecommendedWatcher>,
    folders: BTreeSet<PathBuf>,
    moved: Arc<Notify>,
    /// Names of files that move without a change of the configuration.
    restless: Arc<Mutex<BTreeSet<OsString>>>,
}

impl Watch {
    pub(crate) fn new() -> Self {
        let (moved, restless) = (Arc::new(Notify::new()), Arc::new(Mutex::new(BTreeSet::new())));
        let (signal, ignored) = (moved.clone(), restless.clone());
        let on_event = move |event: notify::Result<notify::Event>| {
            if event.is_ok_and(|event| !event.kind.is_access() && !all_among(&event.paths, &ignored)) {
                signal.notify_one();
            }
        };
        let watcher = notify::recommended_watcher(on_event)
            .inspect_err(|error| tracing::warn!(%error, "files cannot be watched; send SIGHUP after a change"))
            .ok();
        Watch { watcher, folders: BTreeSet::new(), moved, restless }
    }

    /// Looks at the folders of every file of `plan` from now on.
    pub(crate) fn follow(&mut self, plan: &Plan) {
        let Some(watcher) = &mut self.watcher else { return };
        let wanted = folders(plan);
        *self.restless.lock().unwrap_or_else(PoisonError::into_inner) = databases(plan);
        for gone in self.folders.difference(&wanted) {
            let _already_gone = watcher.unwatch(gone);
        }
        for new in wanted.difference(&self.folders) {
            if let Err(error) = watcher.watch(new, RecursiveMode::NonRecursive) {
                tracing::warn!(folder = %new.display(), %error, "this folder cannot be watched; send SIGHUP after a change in it");
            }
        }
        self.folders = wanted;
    }

    /// Waits until something moved and then rested.
    pub(crate) async fn changed(&self) {
        self.moved.notified().await;
        let latest = Instant::now() + PATIENCE;
        while Instant::now() < latest && timeout_at(latest.min(Instant::now() + QUIET), self.moved.notified()).await.is_ok() {}
    }
}

/// Whether the event is about nothing but these files.
fn all_among(paths: &[PathBuf], names: &Mutex<BTreeSet<OsString>>) -> bool {
    let names = names.lock().unwrap_or_else(PoisonError::into_inner);
    !paths.is_empty() && paths.iter().all(|path| path.file_name().is_some_and(|name| names.contains(name)))
}

/// The files of SQLite databases, by name.
fn databases(plan: &Plan) -> BTreeSet<OsString> {
    let files = plan.databases.iter().filter(|database| database.driver == Driver::Sqlite);
    let names = files.filter_map(|database| Path::new(database.connection.expose()).file_name().map(ToOwned::to_owned));
    let with_journals = |name: OsString| {
        ["", "-journal", "-wal", "-shm"].map(|ending| {
            let mut name = name.clone();
            name.push(ending);
            name
        })
    };
    names.flat_map(with_journals).collect()
}

fn folders(plan: &Plan) -> BTreeSet<PathBuf> {
    let mut folders: BTreeSet<PathBuf> =
        plan.files.iter().chain(&plan.secret_files).filter_map(|file| file.parent()).map(Path::to_owned).collect();
    let mut waiting = vec![plan.server.flows.clone()];
    // Folders below the flows' folder that hold no flow yet are watched too: the first flow in them must be seen.
    while let Some(folder) = waiting.pop() {
        let below = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        waiting.extend(below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()));
        folders.insert(folder);
    }
    folders.into_iter().map(|folder| if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder }).collect()
}
