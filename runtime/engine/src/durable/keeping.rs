//! Keeping a lease while its work goes on.

use std::time::Duration;

use spillgate_queue::{Lease, Store};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

/// Does the work, and renews the lease at each third of it. `None`: the lease was lost, so that another attempt may be running; the
/// work was dropped, and whatever it would say has no effect.
pub(super) async fn keeping<T>(store: &Store, lease: &Lease, time: Duration, work: impl Future<Output = T>) -> Option<T> {
    let third = (time / 3).max(Duration::from_millis(1));
    let mut beat = interval_at(Instant::now() + third, third);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            biased;
            ended = &mut work => return Some(ended),
            _ = beat.tick() => {
                if store.renew(lease, time).is_err() {
                    return None;
                }
            }
        }
    }
}
