//! How a running statement is ended: by its caller, or by its time.
//!
//! SQLite asks in three places: between the steps of its virtual machine (the progress handler), while it waits for a lock (the
//! busy handler, a plain function that finds its session through the thread), and on an interrupt from another thread.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rusqlite::Connection;

/// Steps of the virtual machine between two looks: some tens of microseconds.
const STEPS_BETWEEN_LOOKS: i32 = 2_000;
const LONGEST_NAP: Duration = Duration::from_millis(10);

/// Shared by a session and its thread.
#[derive(Debug)]
pub(crate) struct Control {
    ended: AtomicBool,
    /// Microseconds after `origin` at which the running statement has had its time.
    deadline: AtomicU64,
    origin: Instant,
}

impl Control {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Control { ended: AtomicBool::new(false), deadline: AtomicU64::new(u64::MAX), origin: Instant::now() })
    }
    /// The caller of the running statement has gone.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }
    /// Nothing runs any more.
    pub(crate) fn clear(&self) {
        self.ended.store(false, Ordering::SeqCst);
    }
    /// A statement starts and may run this long.
    pub(crate) fn start(&self, limit: Duration) {
        self.deadline.store(self.elapsed_us().saturating_add(micros(limit)), Ordering::Relaxed);
    }
    /// Whether the running statement must stop.
    pub(crate) fn stops(&self) -> bool {
        self.ended.load(Ordering::Relaxed) || self.elapsed_us() >= self.deadline.load(Ordering::Relaxed)
    }
    fn elapsed_us(&self) -> u64 {
        micros(self.origin.elapsed())
    }
    /// Lays this control into the connection of the current thread.
    pub(crate) fn install(self: &Arc<Self>, connection: &mut Connection) -> rusqlite::Result<()> {
        WAITING.with(|waiting| *waiting.borrow_mut() = Some(self.clone()));
        let control = self.clone();
        connection.progress_handler(STEPS_BETWEEN_LOOKS, Some(move || control.stops()))?;
        connection.busy_handler(Some(wait_for_lock))
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

thread_local! {
    static WAITING: RefCell<Option<Arc<Control>>> = const { RefCell::new(None) };
}

/// Called by SQLite for the n-th time because of a lock: whether to try again.
fn wait_for_lock(times: i32) -> bool {
    if WAITING.with(|waiting| waiting.borrow().as_ref().is_none_or(|control| control.stops())) {
        return false;
    }
    std::thread::sleep(Duration::from_micros(200).saturating_mul(u32::try_from(times).unwrap_or(0) + 1).min(LONGEST_NAP));
    true
}
