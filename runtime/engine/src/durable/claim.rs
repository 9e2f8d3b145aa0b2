//! What a run holds of its item in the store while it works on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use spillgate_model::{Code, Refusal, Value};
use spillgate_queue::{JobId, Lease, Store};

use crate::verdict::{Failed, Fallible};

/// The item of a run: a queued one, a direct call's with a key, or a scheduled run's.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) store: Store,
    lease: Lease,
    /// What stands for the work in a record: the caller's key as it was sent, or what was drawn in its place.
    pub(crate) key: Option<Arc<str>>,
    /// A schedule started the run.
    pub(crate) scheduled: bool,
    /// `:watermark` of a schedule.
    pub(crate) watermark: Value,
    /// Nothing that cannot be taken back is sent before the store knows of it.
    started: AtomicBool,
}

impl Claim {
    /// `started`: the store was told already, such as of an item that was born claimed.
    pub(crate) fn new(store: Store, lease: Lease, key: Option<Arc<str>>, started: bool) -> Self {
        Claim { store, lease, key, scheduled: false, watermark: Value::Null, started: AtomicBool::new(started) }
    }
    pub(crate) fn job(&self) -> JobId {
        self.lease.job()
    }
    pub(crate) fn lease(&self) -> &Lease {
        &self.lease
    }
    pub(crate) fn into_lease(self) -> Lease {
        self.lease
    }
    /// Whether a write may have been sent: without an end, what became of it must be found out.
    pub(crate) fn started(&self) -> bool {
        self.started.load(Ordering::Acquire)
    }
    /// Awaited before a write is sent, or a request to a service that cannot be taken back. Durable when it returns.
    pub(crate) async fn start(&self) -> Fallible<()> {
        if self.started() {
            return Ok(());
        }
        self.store.start(&self.lease).await.map_err(|error| {
            let refusal = Refusal::new(Code::StoreFailed, "The start of the write could not be recorded; nothing was written.");
            Failed::refused(refusal.internal(error.to_string()))
        })?;
        self.started.store(true, Ordering::Release);
        Ok(())
    }
}
