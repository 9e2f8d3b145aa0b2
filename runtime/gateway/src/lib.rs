//! The HTTP face: one ordered stack from bytes to reply.
//!
//! Invariants
//! 1. Every request passes [`stack`], and outcomes become replies only in [`respond`].
//! 2. What was taken for a call (permit, memory, counts) is given back or recorded by drop, on every path: a reply, a
//!    refusal, a caller that hangs up.
//! 3. Nothing a stranger sends makes a series, a cache entry or a log line of its own kind (case E8).
//! 4. What depends on the plan is derived once per plan ([`view`]), never per call.
//!
//! It refuses: knowing databases, running steps, and state that is looked up by type at run time.

mod admitting;
mod alike;
mod callers;
mod connections;
mod consequences;
mod fit;
mod head;
mod job_reply;
mod jobs;
mod lingering;
mod offline;
pub mod openapi;
mod pages;
mod payload;
mod prefer;
mod problem;
mod reply_body;
mod request_id;
mod respond;
mod routes;
mod serve;
mod stack;
mod trail;
mod view;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use spillgate_engine::Engine;
use spillgate_telemetry::{CallMetrics, Telemetry, names};
use tokio::sync::Notify;

use alike::Alike;
pub use offline::offline_reply;
use request_id::RequestIds;
use view::Views;

/// Says why the server is degraded (`/readyz`), databases and store aside; empty: it is not. Called per health check, so it must be
/// cheap.
pub type Readiness = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

/// What a gateway may be told beyond the plan.
#[derive(Clone)]
pub struct GatewayOptions {
    /// Most connections open at once.
    pub connections: usize,
    /// Reasons for `degraded` that only the server knows.
    pub readiness: Readiness,
}

impl Default for GatewayOptions {
    fn default() -> Self {
        GatewayOptions { connections: 10_000, readiness: Arc::new(Vec::new) }
    }
}

/// The HTTP face of one engine. Cheap handle; run it with [`Gateway::serve`].
#[derive(Clone)]
pub struct Gateway {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Engine,
    telemetry: Telemetry,
    strangers: Arc<CallMetrics>,
    views: Views,
    ids: RequestIds,
    alike: Alike,
    /// When the clock that the gates are shown began.
    started: Instant,
    draining: AtomicBool,
    /// Told with `draining`: whoever only waits need not.
    stopping: Notify,
    connections: usize,
    readiness: Readiness,
}

impl Gateway {
    /// A gateway before `engine`.
    pub fn new(engine: Engine, telemetry: Telemetry, options: GatewayOptions) -> Self {
        let strangers = telemetry.call_metrics(names::UNKNOWN, names::UNKNOWN);
        let views = Views::new(engine.live());
        let GatewayOptions { connections, readiness } = options;
        let inner = Inner {
            started: engine.started(),
            engine,
            telemetry,
            strangers,
            views,
            ids: RequestIds::new(),
            alike: Alike::default(),
            draining: AtomicBool::new(false),
            stopping: Notify::new(),
            connections,
            readiness,
        };
        Gateway { inner: Arc::new(inner) }
    }
}
