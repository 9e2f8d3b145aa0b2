//! The durable queue, a part a file: what it costs beside the same work done by hand, how fast it starts, drains and empties,
//! and whether it keeps its limits.
//!
//! Parts of the store alone drive it in this process; others go through the whole product over HTTP.

mod append;
mod beside;
mod drain;
mod http;
mod limit;
#[cfg(feature = "compare")]
mod others;
mod pile;
mod purge;
mod served;
mod start;

use std::time::Duration;

use anyhow::Result;

use super::Settings;
use crate::figure::Figure;
use crate::report::Report;

pub(crate) use start::open_and_tell;

/// What is measured of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Append,
    Http,
    Others,
    Start,
    Purge,
    Drain,
    Limit,
    Beside,
}

/// How thorough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Small sizes: shows that it runs.
    Trial,
    /// Full sizes, few and short rounds.
    Brief,
    /// Full sizes and rounds.
    Full,
}

/// What follows from the depth.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    /// Rounds of each side.
    rounds: usize,
    /// About the length of a round.
    window: Duration,
    /// Items of a pile of 1 KiB items.
    pile: u64,
    /// Items of a pile of 200-byte items.
    small_pile: u64,
    /// Rounds of what takes seconds to prepare.
    slow_rounds: usize,
    /// Items that are drained over HTTP.
    drained: u64,
    /// Bytes of the store that is filled to its limit.
    limit: u64,
    /// How long items come and go at the limit.
    churn: Duration,
}

impl Sizes {
    /// Those of a depth.
    pub(crate) fn of(depth: Depth) -> Self {
        let millis = Duration::from_millis;
        match depth {
            Depth::Trial => Sizes {
                rounds: 2,
                window: millis(100),
                pile: 24_000,
                small_pile: 50_000,
                slow_rounds: 1,
                drained: 500,
                limit: 32 << 20,
                churn: millis(500),
            },
            Depth::Brief => Sizes {
                rounds: 5,
                window: millis(400),
                pile: 1_200_000,
                small_pile: 5_000_000,
                slow_rounds: 1,
                drained: 10_000,
                limit: 256 << 20,
                churn: millis(3000),
            },
            Depth::Full => Sizes {
                rounds: 9,
                window: millis(1000),
                pile: 1_200_000,
                small_pile: 5_000_000,
                slow_rounds: 3,
                drained: 50_000,
                limit: 256 << 20,
                churn: millis(15_000),
            },
        }
    }

    /// With other rounds where that is asked for.
    pub(crate) fn paced(self, rounds: Option<usize>, window_millis: Option<u64>) -> Self {
        Sizes {
            rounds: rounds.unwrap_or(self.rounds),
            slow_rounds: rounds.map_or(self.slow_rounds, |rounds| rounds.min(self.slow_rounds)),
            window: window_millis.map_or(self.window, Duration::from_millis),
            ..self
        }
    }
}

/// Measures the wanted parts.
pub(crate) fn run(settings: &Settings, wanted: &dyn Fn(Part) -> bool, report: &mut Report) -> Result<()> {
    type Measure = fn(&Settings) -> Result<Vec<Figure>>;
    let parts: [(Part, Measure); 7] = [
        (Part::Append, append::run),
        (Part::Http, http::run),
        (Part::Start, start::run),
        (Part::Purge, purge::run),
        (Part::Drain, drain::run),
        (Part::Limit, limit::run),
        (Part::Beside, beside::run),
    ];
    for (part, measure) in parts {
        if wanted(part) {
            report.figures.extend(measure(settings)?);
        }
    }
    if wanted(Part::Others) {
        #[cfg(feature = "compare")]
        report.figures.extend(others::run(settings)?);
        #[cfg(not(feature = "compare"))]
        report.not_measured.push("sled, fjall and redb beside the queue: built only for `benches/run.sh queue-others`".to_owned());
    }
    Ok(())
}
