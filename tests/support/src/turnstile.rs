//! A slow statement for SQLite, which has no function that sleeps: writes wait for a lock that another process holds, and one is let
//! through every so often. Readers of the file are not touched (it is in WAL mode).
//!
//! So many writers that wait at once wait that often times so many each on average, some shorter, some longer: SQLite's lock has no
//! order.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;

/// How long it stays open for one write that may not come: longer than a waiting writer sleeps between two looks.
const OPEN: Duration = Duration::from_millis(15);
/// Shorter than any of theirs, so that it is the first behind the one that was let through.
const LOOK: Duration = Duration::from_micros(50);

/// Gone with the value.
pub struct Turnstile {
    /// Told how often it turns; closed to end it.
    pace: Option<SyncSender<Duration>>,
    thread: Option<JoinHandle<()>>,
}

impl Turnstile {
    /// In front of the writes to this file.
    pub fn before(file: &Path, every: Duration) -> Turnstile {
        let mut connection = Connection::open(file).expect("a database");
        connection.busy_handler(Some(look_again)).expect("a wait for the lock");
        connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(())).expect("WAL mode");
        close(&connection);
        let (pace, told) = sync_channel(1);
        let thread = std::thread::spawn(move || {
            let mut every = every;
            loop {
                match told.recv_timeout(every) {
                    Ok(other) => every = other,
                    Err(RecvTimeoutError::Timeout) => {
                        open_for_one(&connection);
                        close(&connection);
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        });
        Turnstile { pace: Some(pace), thread: Some(thread) }
    }
    /// Turns so often from now on.
    pub fn turn_every(&self, every: Duration) {
        self.pace.as_ref().and_then(|pace| pace.send(every).ok()).expect("the turnstile turns");
    }
}

impl Drop for Turnstile {
    fn drop(&mut self) {
        self.pace = None;
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the turnstile turns");
        }
    }
}

fn look_again(_times: i32) -> bool {
    std::thread::sleep(LOOK);
    true
}

fn close(connection: &Connection) {
    connection.execute_batch("BEGIN IMMEDIATE").expect("the lock");
}

fn open_for_one(connection: &Connection) {
    connection.execute_batch("ROLLBACK").expect("the lock is given back");
    let version = || connection.pragma_query_value(None, "data_version", |row| row.get::<_, i64>(0)).expect("its version");
    let (before, opened) = (version(), Instant::now());
    while version() == before && opened.elapsed() < OPEN {
        std::thread::sleep(LOOK);
    }
}
