//! The handle: reads from memory, changes written behind, and the one wait for an operator's change to be durable.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::folder::{Began, Folder, Opener};
use crate::keeper::{Keeper, Shared, Waits};
use crate::record::{Kind, Record};
use crate::records::Records;
use crate::share::Share;
use crate::sled_notebook;

/// The longest that an operator's change is waited for: a disk may never answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of one text of an audit entry; what is longer is cut.
const TEXT_BYTES: usize = 512;

/// Where operator state is kept, and how much of it.
#[derive(Clone, Debug)]
pub struct ControlOptions {
    /// `data_dir/control`; made if it is missing.
    pub folder: PathBuf,
    /// Most bytes of all files in it: see `spillgate_model::limits::operator_share`.
    pub share: u64,
}

/// A change is in force but not on disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is in force, but not kept on disk yet: {0}")]
pub struct NotKept(pub String);

/// A lane whose dispatch an operator stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PausedLane {
    /// Name of the queue.
    pub queue: String,
    /// Name of the tenant.
    pub tenant: String,
}

/// A change an operator made, or tried to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// From 1, in order, never used twice. Given by [`Control::record`].
    pub number: u64,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// The admin's name.
    pub who: String,
    /// Where the request came from.
    pub remote: String,
    /// One word.
    pub action: String,
    /// What it was done to.
    pub subject: String,
    /// How it was before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// How it is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// How it ended.
    pub outcome: String,
}

/// Operator state. Cheap handle.
#[derive(Clone)]
pub struct Control {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    share: Share,
    began: Began,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl Control {
    /// Reads what is there and starts the thread that writes. Blocks. Whatever is wrong with the files stops nothing: see
    /// [`Control::remarks`].
    pub fn open(options: &ControlOptions) -> std::io::Result<Control> {
        Self::open_with(options, Box::new(sled_notebook::open), Waits::default())
    }

    pub(crate) fn open_with(options: &ControlOptions, opener: Opener, waits: Waits) -> std::io::Result<Control> {
        let share = Share::of(options.share);
        let folder = Folder::new(&options.folder, share, opener);
        let found = folder.open();
        let began = found.began;
        let keeper = Keeper::new(folder, found, waits);
        let shared = keeper.shared();
        let thread = std::thread::Builder::new().name("control".into()).spawn(move || keeper.run())?;
        Ok(Control { inner: Arc::new(Inner { shared, share, began, thread: Mutex::new(Some(thread)) }) })
    }

    /// Writes and exports what is left, and stops. Blocks, as long as the disk answers at all: the thread waits for nothing else
    /// without a limit.
    pub fn close(&self) {
        self.inner.shared.close();
        let thread = self.inner.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that keeps operator state had panicked");
        }
    }

    /// Where what it began with came from.
    pub fn began(&self) -> Began {
        self.inner.began
    }

    /// Answers when every change made before is durable.
    pub async fn kept(&self) -> Result<(), NotKept> {
        let wanted = self.inner.shared.state().records.seal().generation;
        let mut progress = self.inner.shared.progress.subscribe();
        let settled = progress.wait_for(|progress| progress.durable >= wanted || (progress.tried >= wanted && progress.trouble.is_some()));
        match tokio::time::timeout(PATIENCE, settled).await {
            Ok(Ok(progress)) if progress.durable >= wanted => Ok(()),
            Ok(Ok(progress)) => Err(NotKept(progress.trouble.as_deref().unwrap_or("the disk refused").to_owned())),
            Ok(Err(_)) => Err(NotKept("it is closed".into())),
            Err(_) => Err(NotKept("the disk does not answer".into())),
        }
    }

    /// What a person should know, a sentence each; empty: all is well. Cheap.
    pub fn remarks(&self) -> Vec<String> {
        self.inner.shared.state().remarks.clone()
    }

    /// The lanes that are paused.
    pub fn paused(&self) -> Vec<PausedLane> {
        self.inner.shared.state().records.of(Kind::Paused, "").filter_map(|(_, record)| record.read()).collect()
    }
    /// Notes that a lane is paused, or is not any more.
    pub fn set_paused(&self, lane: &PausedLane, paused: bool) -> Result<(), NotKept> {
        let name = format!("{}/{}", lane.queue, lane.tenant);
        if paused {
            return self.put(Kind::Paused, &name, lane);
        }
        self.forget(Kind::Paused, &name);
        Ok(())
    }

    /// Adds an entry to the audit: its number. The oldest entries make room.
    pub fn record(&self, mut entry: AuditEntry) -> Result<u64, NotKept> {
        let texts = [&mut entry.who, &mut entry.remote, &mut entry.action, &mut entry.subject, &mut entry.outcome];
        texts.into_iter().chain(&mut entry.from).chain(&mut entry.to).for_each(shorten);
        let mut state = self.inner.shared.state();
        entry.number = newest_number(&state.records).saturating_add(1);
        let record = as_record(&entry)?;
        let put = state.records.put(audit_key(entry.number), record, self.inner.share.records);
        state.changed(put.map_err(|_| no_room())?);
        drop(state);
        self.inner.shared.wake();
        Ok(entry.number)
    }
    /// Entries with numbers above `after`, oldest first, at most `most`.
    pub fn audit(&self, after: u64, most: usize) -> Vec<AuditEntry> {
        let from = format!("{:016x}", after.saturating_add(1));
        let state = self.inner.shared.state();
        state.records.of(Kind::Audit, &from).filter_map(|(_, record)| record.read()).take(most).collect()
    }

    /// Puts a record of a kind under a name.
    pub fn put(&self, kind: Kind, name: &str, body: &impl Serialize) -> Result<(), NotKept> {
        let record = as_record(body)?;
        let mut state = self.inner.shared.state();
        let put = state.records.put(kind.key(name), record, self.inner.share.records);
        state.changed(put.map_err(|_| no_room())?);
        drop(state);
        self.inner.shared.wake();
        Ok(())
    }
    /// Forgets a record.
    pub fn forget(&self, kind: Kind, name: &str) {
        let key = kind.key(name);
        let mut state = self.inner.shared.state();
        if state.records.remove(&key) {
            state.changed(vec![key]);
        }
        drop(state);
        self.inner.shared.wake();
    }
    /// Records of a kind by name. Those of a later version are left out.
    pub fn all(&self, kind: Kind) -> Vec<(String, Json)> {
        let state = self.inner.shared.state();
        state.records.of(kind, "").filter_map(|(name, record)| Some((name.to_owned(), record.read()?))).collect()
    }
}

fn audit_key(number: u64) -> String {
    Kind::Audit.key(&format!("{number:016x}"))
}

/// Taken from the key: it counts on even where the newest entry is of a later version.
fn newest_number(records: &Records) -> u64 {
    records.of(Kind::Audit, "").next_back().and_then(|(name, _)| u64::from_str_radix(name, 16).ok()).unwrap_or(0)
}

fn as_record(body: &impl Serialize) -> Result<Record, NotKept> {
    Record::of(body).map_err(|error| NotKept(error.to_string()))
}

fn no_room() -> NotKept {
    NotKept("the share of disk_limit that is for operator state is used up".into())
}

fn shorten(text: &mut String) {
    if text.len() > TEXT_BYTES {
        text.truncate(text.floor_char_boundary(TEXT_BYTES));
        text.push('…');
    }
}

#[cfg(test)]
mod tests;
