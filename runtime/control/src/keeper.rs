//! The one thread that writes operator state: each batch into the notebook, then everything into the export. A change counts as kept once
//! it is in both, or in the one of them that can be written: whichever of the two is whole at the next start has it.
//!
//! It waits for changes, never for a clock alone, unless something stands that may heal: a change that could not be written, a
//! notebook that did not open, a ballast that is missing, a damaged notebook that a person may take away.
//!
//! Invariants
//! 1. One thread, one batch at a time; what changes meanwhile is the next batch.
//! 2. A change is called durable only when the notebook or the export has it; whoever waits is told of a failed try, and it is tried again.
//! 3. The lock is held to take a batch or a copy, never while something is written.
//! 4. A notebook that says it is newer than memory, where neither it nor an export could be read at the start, is not written over.
//! 5. When it ends, whoever asks is told at once.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::export;
use crate::folder::{self, Began, Book, Folder, Found};
use crate::notebook::{Change, Notebook, NotebookError};
use crate::records::{Records, Seal};

/// How long things may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    /// The next try of an export that could not be written.
    pub(crate) export: Duration,
    /// The next try of a change that could not be written.
    pub(crate) retry: Duration,
    /// The next look at what may heal.
    pub(crate) look: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        Waits { export: Duration::from_secs(5), retry: Duration::from_secs(1), look: Duration::from_secs(1) }
    }
}

/// How far the state is on disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    /// Changes up to this generation are durable.
    pub(crate) durable: u64,
    /// Changes up to this one were tried.
    pub(crate) tried: u64,
    /// Why the last try failed, if it did.
    pub(crate) trouble: Option<Arc<str>>,
}

/// What handles and the thread share.
pub(crate) struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    pub(crate) progress: watch::Sender<Progress>,
}

pub(crate) struct State {
    pub(crate) records: Records,
    /// Keys that changed since the last batch.
    dirty: BTreeSet<String>,
    pub(crate) remarks: Vec<String>,
    closing: bool,
}

impl State {
    pub(crate) fn changed(&mut self, keys: Vec<String>) {
        self.dirty.extend(keys);
    }
}

/// One batch.
struct Turn {
    keys: BTreeSet<String>,
    changes: Vec<Change>,
    seal: Seal,
    closing: bool,
}

impl Shared {
    pub(crate) fn new(records: Records) -> Arc<Shared> {
        let durable = records.seal().generation;
        let state = State { records, dirty: BTreeSet::new(), remarks: Vec::new(), closing: false };
        let progress = watch::Sender::new(Progress { durable, tried: durable, trouble: None });
        Arc::new(Shared { state: Mutex::new(state), wake: Condvar::new(), progress })
    }
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// After a change, with the lock given back.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }
    pub(crate) fn close(&self) {
        self.state().closing = true;
        self.wake();
    }

    /// Waits for something new, or until `at`, and takes what there is.
    fn next(&self, at: Option<Instant>) -> Turn {
        let tried = self.progress.borrow().tried;
        let mut state = self.state();
        while !state.closing && state.records.seal().generation <= tried {
            let Some(left) = at.map(|at| at.saturating_duration_since(Instant::now())) else {
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            if left.is_zero() {
                break;
            }
            state = self.wake.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let keys = std::mem::take(&mut state.dirty);
        let changes = keys.iter().map(|key| (key.clone(), state.records.get(key).map(|record| record.to_bytes()))).collect();
        Turn { keys, changes, seal: state.records.seal(), closing: state.closing }
    }

    /// Whoever asks from now on is told at once.
    fn closed(&self) {
        self.progress.send_modify(|progress| {
            progress.tried = u64::MAX;
            progress.trouble.get_or_insert_with(|| "it is closed".into());
        });
    }

    fn settle(&self, turn: &mut Turn, outcome: Result<(), String>) {
        let tried = turn.seal.generation;
        if outcome.is_err() {
            self.state().dirty.append(&mut turn.keys);
        }
        self.progress.send_modify(|progress| {
            progress.tried = tried;
            progress.trouble = outcome.err().map(Arc::from);
            if progress.trouble.is_none() {
                progress.durable = tried;
            }
        });
    }
}

/// The thread's own.
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    folder: Folder,
    book: Book,
    /// Remarks of the start.
    found: Vec<String>,
    began: Began,
    /// Generation of what the notebook holds durably, while it is open.
    noted: u64,
    /// Why the last export could not be written.
    export_trouble: Option<String>,
    waits: Waits,
    /// Generation of the last export.
    exported: u64,
    export_at: Option<Instant>,
    retry_at: Option<Instant>,
}

impl Keeper {
    pub(crate) fn new(folder: Folder, found: Found, waits: Waits) -> Keeper {
        let Found { began, book, records, exported, remarks: found } = found;
        let noted = records.seal().generation;
        let shared = Shared::new(records);
        let (export_trouble, export_at, retry_at) = (None, None, None);
        let mut keeper = Keeper { shared, folder, book, found, began, noted, export_trouble, waits, exported, export_at, retry_at };
        keeper.make_ballast();
        // What a crash left unexported.
        keeper.export_or_later();
        keeper.remark();
        keeper
    }
    pub(crate) fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    pub(crate) fn run(mut self) {
        loop {
            let at = [self.export_at, self.retry_at, self.something_may_heal().then(|| Instant::now() + self.waits.look)];
            let mut turn = self.shared.next(at.into_iter().flatten().min());
            if !turn.keys.is_empty() {
                let outcome = self.write(&mut turn);
                self.retry_at = outcome.is_err().then(|| Instant::now() + self.waits.retry);
                self.shared.settle(&mut turn, outcome);
            } else {
                self.retry_at = None;
            }
            if turn.closing || self.export_at.is_some_and(|at| at <= Instant::now()) {
                self.export_or_later();
            }
            if turn.closing {
                return self.shared.closed();
            }
            self.heal();
            self.remark();
        }
    }

    /// Makes a batch durable, in the notebook and in the export, or in one of them where the other cannot be written.
    fn write(&mut self, turn: &mut Turn) -> Result<(), String> {
        self.book = match std::mem::replace(&mut self.book, Book::Waiting(String::new())) {
            Book::Open(book) if !self.folder.has_space() => Book::Short(book),
            Book::Open(mut book) => match folder::append(&mut *book, std::mem::take(&mut turn.changes), turn.seal) {
                Ok(()) => {
                    self.noted = turn.seal.generation;
                    Book::Open(book)
                }
                Err(error) => {
                    tracing::warn!(%error, "operator state could not be written; its notebook is opened anew");
                    drop(book);
                    Book::after(&error)
                }
            },
            other => other,
        };
        if matches!(self.book, Book::Waiting(_)) {
            self.reopen();
        }
        let noted = matches!(self.book, Book::Open(_));
        if noted {
            self.keep_small();
        }
        match self.export_or_later() {
            Some(trouble) if !noted => Err(trouble),
            _ => Ok(()),
        }
    }

    /// Exports now, or tries again later: why it could not be done now.
    fn export_or_later(&mut self) -> Option<String> {
        let trouble = self.export().err().map(|error| error.to_string());
        self.export_at = trouble.is_some().then(|| Instant::now() + self.waits.export);
        if let Some(error) = trouble.as_ref().filter(|_| self.export_trouble.is_none()) {
            tracing::warn!(error, "operator state could not be exported");
        }
        self.export_trouble.clone_from(&trouble);
        trouble
    }

    /// Tries a notebook that was given up.
    fn reopen(&mut self) {
        match self.folder.open_book() {
            Ok((book, _)) => self.catch_up(book),
            Err(NotebookError::Damaged(detail)) => self.start_afresh(detail),
            Err(error) => self.book = Book::after(&error),
        }
    }

    /// Puts a damaged notebook aside, if that may be.
    fn start_afresh(&mut self, detail: String) {
        match self.folder.set_aside(detail) {
            Book::Open(book) => self.catch_up(book),
            other => self.book = other,
        }
    }

    /// Puts everything into a notebook that is in memory.
    fn catch_up(&mut self, mut book: Box<dyn Notebook>) {
        let records = self.shared.state().records.clone();
        let before = match folder::read_all(&*book) {
            Ok(before) => before,
            Err(error) => return self.book = Book::after(&error),
        };
        if before.seal().generation > records.seal().generation {
            // It could not be read at the start, nor could an export: it is not written over.
            return self.book = Book::Lost("its notebook holds what could not be read at the start; a restart loads it".to_owned());
        }
        let caught_up = folder::write_all(&mut *book, &before, &records);
        self.noted = records.seal().generation;
        self.book = caught_up.map_or_else(|error| Book::after(&error), |()| Book::Open(book));
    }

    /// A notebook over its share is made anew from what is in memory, with an export to fall back on.
    fn keep_small(&mut self) {
        if self.folder.book_bytes() <= self.folder.share.notebook {
            return;
        }
        let grown = std::mem::replace(&mut self.book, Book::Waiting("it is being made anew".into()));
        if let Err(error) = self.export() {
            self.book = grown;
            return tracing::warn!(%error, "the notebook of operator state is over its share and cannot be made anew now");
        }
        drop(grown);
        let records = self.shared.state().records.clone();
        self.noted = records.seal().generation;
        self.book = self.folder.renew(&records).map_or_else(|error| Book::after(&error), Book::Open);
    }

    /// Writes everything as an export, with the ballast given up where nothing else is left.
    fn export(&mut self) -> io::Result<()> {
        let records = self.shared.state().records.clone();
        if self.exported == records.seal().generation {
            return Ok(());
        }
        // A notebook that is made anew has nothing until it is full again.
        let noted = if matches!(self.book, Book::Open(_)) { self.noted } else { 0 };
        let path = self.folder.export_path();
        let written = match export::write(&path, &records, noted) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull && self.folder.ballast.release() => {
                export::write(&path, &records, noted)
            }
            written => written,
        };
        written.inspect(|()| self.exported = records.seal().generation)
    }

    fn something_may_heal(&self) -> bool {
        !matches!(self.book, Book::Open(_)) || !self.folder.ballast.is_there() || self.folder.aside_path().exists()
    }
    fn heal(&mut self) {
        match std::mem::replace(&mut self.book, Book::Waiting(String::new())) {
            Book::Short(book) if self.folder.has_space() => self.catch_up(book),
            Book::Waiting(_) => self.reopen(),
            Book::LeftAlone(detail) if !self.folder.aside_path().exists() => self.start_afresh(detail),
            unchanged => self.book = unchanged,
        }
        self.make_ballast();
    }
    fn make_ballast(&mut self) {
        if let Err(error) = self.folder.ballast.make() {
            tracing::debug!(%error, "no ballast for the operator state");
        }
    }

    /// Says how things stand.
    fn remark(&self) {
        let mut remarks = self.found.clone();
        if self.began == Began::Lost {
            remarks.push(
                "neither the notebook of the operator state nor an export of it could be read: it began empty, nothing is paused"
                    .to_owned(),
            );
        }
        let aside = self.folder.aside_path();
        match &self.book {
            Book::Open(_) if aside.exists() => remarks.push(format!(
                "the notebook of the operator state was damaged{}; the damaged copy is at {}: remove it when it was looked at",
                if self.began == Began::Lost { "" } else { ", and the last export is in force" },
                aside.display()
            )),
            Book::Open(_) => remarks.extend(
                self.export_trouble
                    .iter()
                    .map(|trouble| format!("the operator state is kept in its notebook only, for the export cannot be written: {trouble}")),
            ),
            Book::Short(_) => remarks.push("the operator state is kept in its export only: the volume is full".to_owned()),
            Book::Waiting(detail) | Book::Lost(detail) => remarks.push(format!("the operator state is kept in its export only: {detail}")),
            Book::LeftAlone(detail) => remarks.push(format!(
                "the operator state is kept in its export only: {detail}; as there is an earlier damaged copy at {}, nothing was moved: \
                 remove that one when it was looked at",
                aside.display()
            )),
        }
        if let Some(trouble) = &self.shared.progress.borrow().trouble {
            remarks.push(format!("the last change of the operator state is not on disk yet: {trouble}"));
        }
        let mut state = self.shared.state();
        let unknown = state.records.unknown();
        if unknown > 0 {
            remarks
                .push(format!("{unknown} records of the operator state are of a later version: they are kept as they are, without effect"));
        }
        state.remarks = remarks;
    }
}
