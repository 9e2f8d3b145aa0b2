//! Keeping a lease while its work goes on.

use std::time::Duration;

use spillgate_queue::{Lease, Store};
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

/// How work under a lease ended.
#[derive(Debug)]
pub(super) enum Kept<T> {
    Ended(T),
    /// Another attempt may be running: whatever this one would say has no effect. Its work was dropped.
    Lost,
    /// The server stops and its grace is over. The work was dropped.
    CutOff,
}

/// Does the work, and renews the lease at each third of it.
pub(super) async fn keeping<T>(
    store: &Store,
    lease: &Lease,
    time: Duration,
    cut_off: &CancellationToken,
    work: impl Future<Output = T>,
) -> Kept<T> {
    let third = (time / 3).max(Duration::from_millis(1));
    let mut beat = interval_at(Instant::now() + third, third);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            biased;
            ended = &mut work => return Kept::Ended(ended),
            () = cut_off.cancelled() => return Kept::CutOff,
            _ = beat.tick() => {
                if store.renew(lease, time).is_err() {
                    return Kept::Lost;
                }
            }
        }
    }
}
