//! The admin face: its own listener, its own keys.
//!
//! Invariants
//! 1. Every request passes the one ordered stack in [`stack`]: Host and Origin, key, path, body, route.
//! 2. No page shows a secret: connection strings, keys, header values, tenants' attributes and statements are not in [`pages`].
//! 3. A change is carried through though its caller hangs up, and the log and the audit say who asked, from where, what was
//!    before and after, and how it ended.
//! 4. Everything is bounded: connections, heads, bodies, time for a head.
//!
//! It refuses: knowing the server beyond [`Operations`], and state of its own: pages are made from what is live.

mod change;
mod guard;
mod limits;
mod metrics;
mod once_each;
mod operations;
mod pages;
mod query;
mod queues;
mod reply;
mod serve;
mod stack;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use spillgate_engine::Engine;
use spillgate_telemetry::Telemetry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use operations::{AuditEntry, Change, Operations, Standing};

/// The admin face.
pub struct Admin {
    state: Arc<State>,
}

struct State {
    engine: Engine,
    telemetry: Telemetry,
    operations: Arc<dyn Operations>,
    /// The machine's name: a Host that is ours.
    host_name: String,
    requests: AtomicU64,
}

impl Admin {
    /// Binds nothing yet. Keys are those of the live plan, so a reload changes them.
    pub fn new(engine: Engine, telemetry: Telemetry, operations: Arc<dyn Operations>) -> Self {
        let host_name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_ascii_lowercase();
        Admin { state: Arc::new(State { engine, telemetry, operations, host_name, requests: AtomicU64::new(0) }) }
    }

    /// Serves until `stopping`; requests that run end first.
    pub fn serve(self, listener: TcpListener, stopping: CancellationToken) -> impl Future<Output = ()> + Send + 'static {
        serve::serve(stack::router(self.state), listener, stopping)
    }
}
