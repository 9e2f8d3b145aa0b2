//! Another try: bounded, jittered, never past the deadline.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

use spillgate_config::plan::Step;
use tokio::time::Instant;

use crate::verdict::Failed;

/// Longest wait before another try.
const LONGEST: Duration = Duration::from_secs(30);

/// The tries of one step.
pub(super) struct Tries {
    left: u32,
    ceiling: Duration,
    deadline: Instant,
}

impl Tries {
    pub(super) fn of(step: &Step, deadline: Instant) -> Self {
        let (attempts, backoff) = step.retry.map_or((1, Duration::ZERO), |retry| (retry.attempts, retry.backoff));
        Tries { left: attempts.saturating_sub(1), ceiling: backoff, deadline }
    }

    /// Waits for the next try; false where there is none: the failure will not pass, all tries are used, or the deadline is too near.
    pub(super) async fn again(&mut self, failed: &Failed) -> bool {
        if !failed.again || self.left == 0 {
            return false;
        }
        let wait = jittered(self.ceiling);
        if Instant::now() + wait >= self.deadline {
            return false;
        }
        self.left -= 1;
        self.ceiling = self.ceiling.saturating_mul(2).min(LONGEST);
        tokio::time::sleep(wait).await;
        true
    }
}

/// Anything up to `ceiling`: callers that failed together do not come back together.
pub(crate) fn jittered(ceiling: Duration) -> Duration {
    // Each `RandomState` has keys of its own: one hash of nothing is a random number.
    let random = RandomState::new().build_hasher().finish();
    let microseconds = u64::try_from(ceiling.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(random % microseconds.saturating_add(1).max(1))
}
