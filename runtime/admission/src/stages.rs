//! The gate's stages, in the one order in which they are asked.
//!
//! The gateway's stack says where each stands ([`Stage::reached`] notices a stage that comes too early), `check` prints the list.

use std::fmt::Write as _;

/// One question of the gate. They are asked in the order in which they stand here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// A server that stops takes no new work.
    Draining,
    /// Whose key it is.
    Tenant,
    /// Which flow of this tenant's it is.
    Flow,
    /// Whether it could ever fit.
    Fit,
    /// The tenant's rate.
    Rate,
    /// The budgets of the run it belongs to.
    Run,
    /// The tenant's calls at once.
    InFlight,
    /// Memory of the tenant and of the server.
    Memory,
    /// Room in the queue, in the tenant's share and in the store.
    Queue,
    /// Whether its key is known.
    Replay,
    /// Whether it repeats what has just failed.
    Repeats,
    /// Its business key.
    Unique,
    /// A reply that is still fresh.
    Cache,
    /// Whether the database, or the flow, has been failing.
    Breaker,
    /// Whether a seat comes before the deadline.
    Wait,
}

/// What is known when a stage is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// The head.
    BeforeBody,
    /// The typed input.
    FromInput,
    /// The same, for flows whose `sql` stands before any `queue` step and has no `on_error`.
    BeforeSeats,
}

impl Stage {
    /// All, in order.
    pub const ALL: [Stage; 15] = [
        Stage::Draining,
        Stage::Tenant,
        Stage::Flow,
        Stage::Fit,
        Stage::Rate,
        Stage::Run,
        Stage::InFlight,
        Stage::Memory,
        Stage::Queue,
        Stage::Replay,
        Stage::Repeats,
        Stage::Unique,
        Stage::Cache,
        Stage::Breaker,
        Stage::Wait,
    ];

    /// What it asks, in a few words.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Draining => "draining or stopped",
            Stage::Tenant => "tenant",
            Stage::Flow => "flow",
            Stage::Fit => "could it ever fit",
            Stage::Rate => "rate",
            Stage::Run => "run",
            Stage::InFlight => "in flight",
            Stage::Memory => "memory",
            Stage::Queue => "queue quota (a known key needs memory only)",
            Stage::Replay => "replay of a known key",
            Stage::Repeats => "repeats",
            Stage::Unique => "unique",
            Stage::Cache => "cache",
            Stage::Breaker => "breaker",
            Stage::Wait => "expected wait",
        }
    }

    /// When it is asked.
    pub fn moment(self) -> Moment {
        match self {
            stage if stage <= Stage::Queue => Moment::BeforeBody,
            stage if stage <= Stage::Cache => Moment::FromInput,
            _ => Moment::BeforeSeats,
        }
    }

    /// `next` is asked now, after this one: a stage may be left out, none may come before an earlier one.
    pub fn reached(&mut self, next: Stage) {
        debug_assert!(*self <= next, "{next:?} is asked after {self:?}");
        *self = next;
    }
}

/// The order in a few lines, as `check` prints it.
pub fn describe() -> String {
    let mut text = String::from("the gate asks, and a refusal gives back everything that was taken\n");
    for (moment, when) in [
        (Moment::BeforeBody, "before the body"),
        (Moment::FromInput, "from the input"),
        (Moment::BeforeSeats, "last (sql before any queue step, without on_error)"),
    ] {
        let names: Vec<_> = Stage::ALL.into_iter().filter(|stage| stage.moment() == moment).map(Stage::name).collect();
        let _infallible = writeln!(text, "  {when}: {}", names.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_the_order_of_the_stages_and_says_when_each_is_asked() {
        assert!(Stage::ALL.is_sorted());
        assert!(Stage::ALL.map(Stage::moment).is_sorted());
        assert_eq!(Stage::ALL.last(), Some(&Stage::Wait), "none is missing at the end");
        let text = describe();
        let places = Stage::ALL.map(|stage| text.find(stage.name()).expect("each is printed"));
        assert!(places.is_sorted(), "{text}");
    }

    #[test]
    #[should_panic(expected = "Rate is asked after Memory")]
    fn a_stage_out_of_order_is_noticed() {
        let mut at = Stage::Memory;
        at.reached(Stage::Queue);
        at = Stage::Memory;
        at.reached(Stage::Rate);
    }
}
