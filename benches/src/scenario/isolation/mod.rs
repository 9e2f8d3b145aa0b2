//! Isolation between tenants, a part a file: what a pile-up, an overload, a storm of retries and a crowd of tenants do to others, and
//! what the gate costs that sees to it.
//!
//! Callers are an open loop where a rate is given. Slow statements sleep: what is measured beside them is not a want of CPU.

mod fairness;
mod gate;
mod overload;
mod pile_up;
mod served;
mod storm;

use std::time::Duration;

use anyhow::Result;

use super::Settings;
use crate::figure::Figure;
use crate::report::Report;

/// What is measured of isolation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    PileUp,
    Overload,
    Storm,
    Fairness,
    Gate,
}

/// How long.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    /// Rounds of each side.
    rounds: usize,
    /// What is counted of a round.
    window: Duration,
    /// What goes before it.
    warm_up: Duration,
    /// How long the database is slow before a storm is left to itself.
    brown_out: Duration,
    /// How long a storm without limits must go on after that.
    down: Duration,
    /// Tenants that flood at once.
    tenants: usize,
}

impl Scale {
    /// Short scenes, as long as it takes to see something; or those that give figures.
    pub(crate) fn of(quick: bool) -> Self {
        let seconds = Duration::from_secs;
        if quick {
            Scale {
                rounds: 1,
                window: Duration::from_millis(1500),
                warm_up: Duration::from_millis(500),
                brown_out: seconds(3),
                down: seconds(7),
                tenants: 20,
            }
        } else {
            Scale { rounds: 5, window: seconds(10), warm_up: seconds(1), brown_out: seconds(30), down: seconds(30), tenants: 100 }
        }
    }
}

/// Measures the wanted parts.
pub(crate) fn run(settings: &Settings, wanted: &dyn Fn(Part) -> bool, report: &mut Report) -> Result<()> {
    type Measure = fn(&Settings) -> Result<Vec<Figure>>;
    let parts: [(Part, Measure); 5] = [
        (Part::PileUp, pile_up::run),
        (Part::Overload, overload::run),
        (Part::Storm, storm::run),
        (Part::Fairness, fairness::run),
        (Part::Gate, gate::run),
    ];
    for (part, measure) in parts {
        if wanted(part) {
            report.figures.extend(measure(settings)?);
        }
    }
    Ok(())
}
