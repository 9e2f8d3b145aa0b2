//! Time, passed in.
//!
//! Every wait, lease and expiry is counted on the store's own clock: milliseconds that only go forward, continued across restarts
//! from what the records say. The wall clock only labels, and tells at a start how long the process was away.

use std::time::{Duration, Instant, SystemTime};

use spillgate_model::wall;

/// What the store asks of time.
pub trait Clock: Send + Sync + 'static {
    /// Since any fixed moment of this process; never goes back.
    fn monotonic(&self) -> Duration;
    /// Milliseconds since 1970, for labels and for the time between two runs.
    fn wall_milliseconds(&self) -> u64;
}

/// The machine's clocks.
#[derive(Debug)]
pub struct MachineClock {
    started: Instant,
}

impl Default for MachineClock {
    fn default() -> Self {
        MachineClock { started: Instant::now() }
    }
}

impl Clock for MachineClock {
    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }
    fn wall_milliseconds(&self) -> u64 {
        wall::milliseconds(SystemTime::now())
    }
}
