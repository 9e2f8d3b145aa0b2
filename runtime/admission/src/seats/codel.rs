//! Whether a line stands: waits above the target through a whole interval (controlled delay, Nichols and Jacobson 2012, as used for
//! requests: what waited too long is dropped when its turn comes, and newest go first until the line is short again).

use std::time::Duration;

/// A line that was above its target for so long stands.
const INTERVAL: Duration = Duration::from_millis(100);
/// No target is below this.
const LEAST_TARGET: Duration = Duration::from_millis(5);

/// How long a call may wait while its line stands, where seats are held for `hold`: twice as long, or what a full line takes that has
/// all `seats` its tenant may hold now. A line that is long because it was allowed to be does not stand for that alone.
pub(super) fn target(hold: Duration, line: u32, seats: u32) -> Duration {
    hold.saturating_mul((line / seats.max(1)).max(2)).max(LEAST_TARGET)
}

/// One line's state. It begins to stand above the target and stops below half of it, so that it does not flutter.
#[derive(Debug, Default)]
pub(super) struct Standing {
    stands: bool,
    above_since: Option<Duration>,
    empty_since: Option<Duration>,
}

impl Standing {
    pub(super) fn stands(&self) -> bool {
        self.stands
    }
    /// A call joins an empty line.
    pub(super) fn first_joins(&mut self, now: Duration) {
        if self.empty_since.take().is_some_and(|since| now.saturating_sub(since) >= INTERVAL) {
            self.stands = false;
        }
    }
    /// The last call left.
    pub(super) fn emptied(&mut self, now: Duration) {
        self.above_since = None;
        self.empty_since = Some(now);
    }
    /// A call gets its turn while the oldest has waited for so long.
    pub(super) fn turn(&mut self, oldest_wait: Duration, target: Duration, now: Duration) -> bool {
        if oldest_wait > target {
            let since = *self.above_since.get_or_insert(now);
            self.stands |= now.saturating_sub(since) >= INTERVAL;
        } else {
            self.above_since = None;
            self.stands &= oldest_wait > target / 2;
        }
        self.stands
    }
}
