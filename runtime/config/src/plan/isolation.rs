//! Isolation as proven: how the seats of a database are shared, when a database is left alone, what an agent's run may use.

use std::time::Duration;

use spillgate_model::units::Rate;

use super::{Limit, Origin};

/// `breaker = {…}` of a database or a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct BreakerPlan {
    /// Calls that ended so long ago no longer count.
    pub window: Duration,
    /// Fewer calls than this in the window open nothing.
    pub min_calls: u64,
    /// It opens when a smaller share of the window's calls succeeded: above 0, at most 1.
    pub open_below: f64,
    /// Calls let through at once to find out whether it is over.
    pub probes: u32,
    /// A probe that has not ended by then leaves its place to the next call.
    pub probe_limit: Duration,
    /// How long it stays open at first; longer outages are probed more rarely, up to [`BreakerPlan::LONGEST_COOL_DOWN`].
    pub cool_down: Duration,
}

impl BreakerPlan {
    /// However long the outage.
    pub const LONGEST_COOL_DOWN: Duration = Duration::from_secs(30);
}

impl Default for BreakerPlan {
    fn default() -> Self {
        BreakerPlan {
            window: Duration::from_secs(20),
            min_calls: 20,
            open_below: 0.5,
            probes: 1,
            probe_limit: Duration::from_secs(10),
            cool_down: Duration::from_secs(1),
        }
    }
}

/// `pool.shed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Shed {
    /// The limit goes below the pool and the line is shortened while the database is slower than it is used to be.
    #[default]
    Adaptive,
    /// The pool and the line are what they are.
    Off,
}

/// `seats` of a tenant, resolved for one database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeatShare {
    /// Seats that are this tenant's whenever it asks.
    pub reserved: Limit<u32>,
    /// Most seats it holds at once; `u32::MAX`: unlimited.
    pub limit: Limit<u32>,
}

impl SeatShare {
    /// What a tenant has of a pool of so many where nothing is written: none reserved, all but two.
    pub fn of_pool(max: usize) -> Self {
        let limit = u32::try_from(max.saturating_sub(2).max(1)).unwrap_or(u32::MAX);
        SeatShare { reserved: unwritten(0), limit: unwritten(limit) }
    }
}

/// `run = {…}` of a tenant: what one agent run may use. Calls that name no run have the tenant's limits only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunPlan {
    /// Runs of a tenant that are known at once; the one idle for longest gives way. Never unlimited.
    pub live: Limit<u64>,
    /// Calls of one run in its life.
    pub calls: Limit<u64>,
    /// Calls of one run at once.
    pub in_flight: Limit<u64>,
    /// Repeats of failed calls of one run in its life.
    pub retries: Limit<u64>,
    /// Most `Spillgate-Depth`: hops from agent to agent.
    pub depth: Limit<u64>,
    /// A run that made no call for so long is over. Never unlimited.
    pub ttl: Limit<Duration>,
}

impl Default for RunPlan {
    fn default() -> Self {
        RunPlan {
            live: unwritten(500),
            calls: unwritten(200),
            in_flight: unwritten(16),
            retries: unwritten(20),
            depth: unwritten(4),
            ttl: unwritten(Duration::from_secs(30 * 60)),
        }
    }
}

/// `repeat_budget` where nothing is written.
pub const DEFAULT_REPEAT_BUDGET: Rate = Rate { calls: 1, period: Duration::from_secs(1), burst: 20 };

pub(crate) fn unwritten<T>(value: T) -> Limit<T> {
    Limit { value, origin: Origin::Default }
}
