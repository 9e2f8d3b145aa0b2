//! A notebook in sled: the only module that names it.
//!
//! What was found out about sled 0.34.7 and is answered here
//! * A start that was broken off, by a kill or for want of space, may leave an unfinished snapshot behind, and the next start
//!   takes that for a damaged database. Leftovers are removed before it opens; they hold nothing.
//! * It does not open on a volume without space ([`crate::share::NEEDED`] is enough).
//! * A write that fails for want of space can leave a flush, or the drop of the handle, waiting for ever. Nobody writes without
//!   looking for space first; all calls are made by a thread of its own that may be left behind, and answered for within
//!   [`PATIENCE`].
//! * Damaged files can make it panic: a panic is damage, not the end of the process.
//! * With segments of 16 KiB, 200 KB of small records under churn hold 0.7 MB (64 KiB: 1.6 MB; 8 KiB: 1.0 MB and half the speed).

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use crate::notebook::{Change, Entries, Notebook, NotebookError};

/// Part of the format: a database cannot be opened with another one.
const SEGMENT_BYTES: usize = 16 << 10;
/// The content is in memory already; this is for sled's own pages.
const CACHE_BYTES: u64 = 1 << 20;
/// How long a handle of this process that is being dropped may still hold the file's lock.
const HELD: Duration = Duration::from_secs(1);
/// How long a call may take; opening reads the whole file.
const PATIENCE: Duration = Duration::from_secs(4);

type Answer<T> = Result<T, NotebookError>;

enum Job {
    Scan(SyncSender<Answer<Entries>>),
    Write(Vec<Change>, SyncSender<Answer<()>>),
    Flush(SyncSender<Answer<()>>),
}

/// The side of the caller.
struct SledNotebook {
    /// Taken at the drop.
    jobs: Option<SyncSender<Job>>,
    /// Breaks off when the thread has ended.
    ended: Receiver<()>,
}

/// Opens or makes the database in `folder`.
pub(crate) fn open(folder: &Path) -> Answer<Box<dyn Notebook>> {
    let (jobs, waiting) = sync_channel(1);
    let (answer, opened) = sync_channel(1);
    let (end, ended) = sync_channel(1);
    let folder = folder.to_owned();
    let thread = move || {
        serve(&folder, &answer, &waiting);
        drop(end);
    };
    std::thread::Builder::new().name("control-sled".into()).spawn(thread)?;
    within_patience(&opened)?;
    Ok(Box::new(SledNotebook { jobs: Some(jobs), ended }))
}

/// An answer, or that there is none.
fn within_patience<T>(answer: &Receiver<Answer<T>>) -> Answer<T> {
    answer.recv_timeout(PATIENCE).unwrap_or(Err(NotebookError::Lost))
}

impl SledNotebook {
    fn ask<T>(&self, job: impl FnOnce(SyncSender<Answer<T>>) -> Job) -> Answer<T> {
        let (answer, answered) = sync_channel(1);
        // The one place of the channel is free: the job before was answered, or there is no asking any more.
        self.jobs.as_ref().and_then(|jobs| jobs.try_send(job(answer)).ok()).ok_or(NotebookError::Lost)?;
        within_patience(&answered)
    }
}

impl Drop for SledNotebook {
    fn drop(&mut self) {
        self.jobs = None;
        // Closed when this returns, unless it never ends.
        let _ended_or_stuck = self.ended.recv_timeout(PATIENCE);
    }
}

impl Notebook for SledNotebook {
    fn scan(&self) -> Answer<Entries> {
        self.ask(Job::Scan)
    }
    fn write(&mut self, changes: Vec<Change>) -> Answer<()> {
        self.ask(|answer| Job::Write(changes, answer))
    }
    fn flush(&mut self) -> Answer<()> {
        self.ask(Job::Flush)
    }
}

/// The thread: opens, then does one job after the other until its caller is gone. An answer nobody waits for any more is lost.
fn serve(folder: &Path, opened: &SyncSender<Answer<()>>, jobs: &Receiver<Job>) {
    let database = match open_here(folder) {
        Ok(database) => database,
        Err(error) => return drop(opened.try_send(Err(error))),
    };
    drop(opened.try_send(Ok(())));
    while let Ok(job) = jobs.recv() {
        match job {
            Job::Scan(answer) => drop(answer.try_send(scan(&database))),
            Job::Write(changes, answer) => drop(answer.try_send(write(&database, changes))),
            Job::Flush(answer) => drop(answer.try_send(guarded(|| database.flush()).map(drop))),
        }
    }
}

fn open_here(folder: &Path) -> Answer<sled::Db> {
    remove_unfinished(folder)?;
    let config = sled::Config::new().path(folder).segment_size(SEGMENT_BYTES).cache_capacity(CACHE_BYTES);
    // No thread for flushing: every batch is flushed by whoever wrote it.
    let config = config.mode(sled::Mode::LowSpace).flush_every_ms(None);
    let since = Instant::now();
    loop {
        match guarded(|| config.open()) {
            Err(NotebookError::Refused(detail)) if detail.contains("could not acquire lock") && since.elapsed() < HELD => {
                std::thread::sleep(Duration::from_millis(5));
            }
            opened => return opened,
        }
    }
}

fn remove_unfinished(folder: &Path) -> Answer<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "generating") {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

fn scan(database: &sled::Db) -> Answer<Entries> {
    let entries = guarded(|| database.iter().collect::<Result<Vec<_>, _>>())?;
    let text = |key: &[u8]| String::from_utf8(key.to_vec()).map_err(|_| NotebookError::Damaged("a key is not text".into()));
    entries.into_iter().map(|(key, value)| Ok((text(&key)?, value.to_vec()))).collect()
}

fn write(database: &sled::Db, changes: Vec<Change>) -> Answer<()> {
    let mut batch = sled::Batch::default();
    for (key, value) in changes {
        match value {
            Some(value) => batch.insert(key.into_bytes(), value),
            None => batch.remove(key.into_bytes()),
        }
    }
    guarded(|| database.apply_batch(batch))
}

/// Makes a call of sled's and puts what can come of it into our words.
fn guarded<T>(call: impl FnOnce() -> Result<T, sled::Error>) -> Answer<T> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(sled::Error::Io(error))) => Err(error.into()),
        Ok(Err(error)) => Err(NotebookError::Damaged(error.to_string())),
        Err(_panic) => Err(NotebookError::Damaged("reading it broke off".into())),
    }
}
