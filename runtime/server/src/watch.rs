//! Says when a file of the configuration may have changed: the folder watch, and SIGHUP.
//!
//! Editors write in bursts (truncate, write, rename): a change counts once nothing has moved for [`QUIET`].

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{RecursiveMode, Watcher as _};
use spillgate_config::Plan;
use tokio::sync::Notify;

/// How long files must rest before they are read.
const QUIET: Duration = Duration::from_millis(150);

/// Watches the folders of a plan. Without a working watcher (no inotify left) it says so once and SIGHUP remains.
pub(crate) struct Watch {
    watcher: Option<notify::RecommendedWatcher>,
    folders: BTreeSet<PathBuf>,
    moved: Arc<Notify>,
}

impl Watch {
    pub(crate) fn new() -> Self {
        let moved = Arc::new(Notify::new());
        let signal = moved.clone();
        let on_event = move |event: notify::Result<notify::Event>| {
            if event.is_ok_and(|event| !event.kind.is_access()) {
                signal.notify_one();
            }
        };
        let watcher = notify::recommended_watcher(on_event)
            .inspect_err(|error| tracing::warn!(%error, "files cannot be watched; send SIGHUP after a change"))
            .ok();
        Watch { watcher, folders: BTreeSet::new(), moved }
    }

    /// Looks at the folders of every file of `plan` from now on.
    pub(crate) fn follow(&mut self, plan: &Plan) {
        let Some(watcher) = &mut self.watcher else { return };
        let wanted = folders(plan);
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
        while tokio::time::timeout(QUIET, self.moved.notified()).await.is_ok() {}
    }
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
