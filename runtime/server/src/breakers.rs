//! Breakers that are not closed, kept across restarts: written behind what moves them, never waited for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use spillgate_control::{Control, Kind};
use spillgate_engine::{Engine, KeptBreaker};
use tokio_util::sync::CancellationToken;

use crate::keeping::Keeping;

/// Moves within so long are written together.
const TOGETHER: Duration = Duration::from_millis(250);

/// Opens what was open before. What cannot be read is as if it were closed: the first calls find out.
pub(crate) fn restore(engine: &Engine, control: &Control) {
    let read = |(name, body): (String, serde_json::Value)| match serde_json::from_value::<KeptBreaker>(body) {
        Ok(kept) => Some(kept),
        Err(error) => {
            tracing::warn!(name, %error, "a breaker that was kept cannot be read");
            None
        }
    };
    let kept: Vec<_> = control.all(Kind::Breaker).into_iter().filter_map(read).collect();
    engine.restore_breakers(&kept);
}

/// Keeps breakers as they move, until the server stops.
pub(crate) async fn follow(engine: Engine, keeping: Arc<Keeping>, stopping: CancellationToken) {
    let moved = engine.breaker_moved();
    loop {
        tokio::select! {
            () = moved.notified() => {}
            () = stopping.cancelled() => return,
        }
        // Without operator state there is nothing to keep them in, and the log has said so.
        if let Ok(control) = keeping.control().await {
            keep(&engine, &control);
        }
        tokio::time::sleep(TOGETHER).await;
    }
}

/// Keeps what is open now, and forgets what is not any more.
pub(crate) fn keep(engine: &Engine, control: &Control) {
    let mut open: BTreeMap<String, KeptBreaker> = engine.kept_breakers().into_iter().map(|kept| (kept.name(), kept)).collect();
    for (name, before) in control.all(Kind::Breaker) {
        match open.get(&name) {
            None => control.forget(Kind::Breaker, &name),
            Some(now) if serde_json::from_value(before).is_ok_and(|before| now.is_as(&before)) => drop(open.remove(&name)),
            Some(_) => {}
        }
    }
    for (name, kept) in open {
        if let Err(error) = control.put(Kind::Breaker, &name, &kept) {
            tracing::warn!(name, %error, "an open breaker is not kept across a restart");
        }
    }
}
