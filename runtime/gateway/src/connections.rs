//! The open connections: how many there may be, and how they end when the server stops.
//!
//! Invariants
//! 1. There are never more than the cap; one more is answered with a refusal and closed.
//! 2. Stopping goes forward only: serving -> draining (new calls are refused, running ones go on) -> closing (idle
//!    connections are closed, each other one after its reply) -> dropped (whatever is left).
//! 3. A connection looks at one number when it is woken; it takes no lock for that.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::task::AtomicWaker;
use tokio::sync::Notify;

/// How far stopping has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Stage {
    Serving,
    Closing,
    Dropped,
}

/// All connections of one listener.
#[derive(Debug)]
pub(crate) struct Connections {
    cap: usize,
    stage: AtomicU8,
    open: Mutex<Open>,
    emptied: Notify,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    wakers: BTreeMap<u64, Arc<AtomicWaker>>,
}

impl Connections {
    pub(crate) fn new(cap: usize) -> Arc<Self> {
        Arc::new(Connections { cap, stage: AtomicU8::new(Stage::Serving as u8), open: Mutex::default(), emptied: Notify::new() })
    }

    /// A place for one more connection.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<Seat> {
        let mut open = self.open();
        if open.wakers.len() >= self.cap {
            return None;
        }
        let (number, waker) = (open.next, Arc::new(AtomicWaker::new()));
        open.next += 1;
        open.wakers.insert(number, waker.clone());
        Some(Seat { connections: self.clone(), number, waker })
    }

    /// Goes on to `stage` and wakes every connection to see it.
    pub(crate) fn advance(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::SeqCst);
        for waker in self.open().wakers.values() {
            waker.wake();
        }
    }

    /// Waits until no connection is left.
    pub(crate) async fn wait_empty(&self) {
        loop {
            let emptied = self.emptied.notified();
            if self.open().wakers.is_empty() {
                return;
            }
            emptied.await;
        }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one connection; given back by drop.
#[derive(Debug)]
pub(crate) struct Seat {
    connections: Arc<Connections>,
    number: u64,
    waker: Arc<AtomicWaker>,
}

impl Seat {
    /// Asks to be woken when the stage changes next.
    pub(crate) fn watch(&self, waker: &std::task::Waker) {
        self.waker.register(waker);
    }
    /// The stage, as of now.
    pub(crate) fn stage(&self) -> Stage {
        match self.connections.stage.load(Ordering::SeqCst) {
            0 => Stage::Serving,
            1 => Stage::Closing,
            _ => Stage::Dropped,
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut open = self.connections.open();
        open.wakers.remove(&self.number);
        if open.wakers.is_empty() {
            self.connections.emptied.notify_one();
        }
    }
}
