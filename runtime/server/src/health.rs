//! Tells when the store's health changes. The store itself writes no log, and while no work comes nobody else would notice.

use std::time::Duration;

use spillgate_engine::{Durable, Engine};
use spillgate_queue::Health;
use spillgate_telemetry::{Telemetry, happened};
use tokio_util::sync::CancellationToken;

/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Follows the store of `engine` until the server stops.
pub(crate) async fn follow(engine: Engine, telemetry: Telemetry, stopping: CancellationToken) {
    let mut look = tokio::time::interval(LOOK);
    let mut seen = Health::Serving;
    while stopping.run_until_cancelled(look.tick()).await.is_some() {
        let Durable::Serving(store) = engine.store() else { continue };
        let now = store.health();
        match (&seen, &now) {
            // Only the number of free bytes differs.
            (Health::DiskLow { .. }, Health::DiskLow { .. }) => {}
            (_, Health::DiskLow { free, reserve }) => happened::disk_low(&telemetry, *free, *reserve),
            (Health::DiskLow { .. }, Health::Serving) => happened::disk_back(&telemetry, store.status().volume_free),
            (Health::Serving | Health::DiskLow { .. }, Health::Failed { detail }) => happened::store_failed(detail),
            _ => {}
        }
        seen = now;
    }
}
