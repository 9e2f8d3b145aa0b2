//! Whose turn it is: from which lane of a queue the next item is taken. It only decides; others take, run and tell it what came of it.
//!
//! Invariants
//! 1. Lanes that have something are served by the weights of their tenants, those of equal weight in turn, in name order. One that had
//!    nothing for a while gains nothing by that.
//! 2. A lane that is not alone in its queue never has all workers, whatever its weight; while others have something it has its share of
//!    them by weight at the most.
//! 3. A lane that is held back has none, and costs the others nothing.
//! 4. Lanes that are tried again after a pause have half of the workers at the most, together: however many lanes one sick database holds
//!    back, the others go on.
//! 5. What was told of a lane after a turn was given outlives what that turn found: no wake-up is lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// What a lane is held back by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldBy {
    /// A database, or a service, that cannot do the work now.
    Database,
    /// A queue that items are handed on to, or the store, is full.
    Target,
    /// The memory for its work is in use.
    Memory,
    /// The store did not answer.
    Store,
    /// The queue, the tenant or the flow of its work is not in the plan, or the right to call the flow.
    Configuration,
}

impl HeldBy {
    /// The word in pages and metrics.
    pub fn name(self) -> &'static str {
        match self {
            HeldBy::Database => "database",
            HeldBy::Target => "target",
            HeldBy::Memory => "memory",
            HeldBy::Store => "store",
            HeldBy::Configuration => "configuration",
        }
    }
}

/// A turn of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) tenant: Arc<str>,
    /// When it was given.
    round: u64,
}

/// What came of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// An item was worked on.
    Served,
    /// There was nothing to take; time alone may change that.
    Nothing { ready_in: Option<Duration> },
    /// Nothing of the lane can be worked on now, for so long at least.
    Held { by: HeldBy, pause: Duration },
    /// An item waits for another plan, and is tried again after so long. Others of its lane go on.
    Passed { rest: Duration },
}

/// What a turn costs a lane of weight 1: whole numbers for each weight there may be.
const TURN: u64 = 1 << 20;
/// The clock of a queue's turns is never at its end: 10,000 a second for fifty years.
const _: () = assert!(u64::MAX / TURN > 10_000 * 50 * 365 * 24 * 3_600);
/// The first pause of a lane that is held back, and the longest of our own.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
struct Lane {
    at_work: usize,
    /// Items that are believed to wait.
    waiting: u64,
    /// Of its tenant.
    weight: u32,
    /// When its next turn is due, in turns over weights.
    due: u64,
    /// When that was last told.
    told: u64,
    /// Something may be ready then.
    ready_at: Option<Instant>,
    held: Option<Held>,
    passed: Option<Passed>,
}

/// Items of a lane wait for another plan: since when, and for how long that is believed after the last one that was looked at.
#[derive(Debug)]
struct Passed {
    since: Instant,
    until: Instant,
}

/// Why and since when a lane is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) by: HeldBy,
    pub(super) since: Instant,
    /// `None`: the pause is over, and one item at a time is tried until one is served.
    until: Option<Instant>,
    /// Pauses so far.
    pauses: u32,
}

/// The lanes of one queue.
#[derive(Debug, Default)]
pub(super) struct Turns {
    lanes: BTreeMap<Arc<str>, Lane>,
    last: Option<Arc<str>>,
    /// When the last turn that was given was due.
    clock: u64,
    round: u64,
}

impl Turns {
    /// All lanes that are there, with how many items wait in each, and the weights of their tenants.
    pub(super) fn tell(&mut self, lanes: impl IntoIterator<Item = (Arc<str>, u64, u32)>) {
        self.round += 1;
        for (tenant, waiting, weight) in lanes {
            let lane = self.lanes.entry(tenant).or_default();
            (lane.waiting, lane.weight, lane.told) = (waiting, weight, self.round);
        }
        let round = self.round;
        // What was not named is gone, once nothing of it is at work.
        self.lanes.retain(|_, lane| lane.told == round || lane.at_work > 0);
        for lane in self.lanes.values_mut().filter(|lane| lane.told != round) {
            lane.waiting = 0;
        }
    }

    /// The next turn, counted as at work until [`Turns::ended`].
    pub(super) fn next(&mut self, workers: usize, now: Instant) -> Option<Turn> {
        for lane in self.lanes.values_mut() {
            lane.wake(now);
        }
        let may_be_tried = (workers / 2).max(1);
        let shares = self.shares(workers, may_be_tried);
        let trying: usize = self.lanes.values().filter(|lane| lane.held.is_some()).map(|lane| lane.at_work).sum();
        let may = |lane: &Lane| lane.is_ready() && lane.at_work < shares.of(lane) && (lane.held.is_none() || trying < may_be_tried);
        // Of those that are due at the same time, the next in name order.
        let is_before = |tenant: &Arc<str>| self.last.as_ref().is_some_and(|last| tenant <= last);
        let candidates = self.lanes.iter().filter(|(_, lane)| may(lane));
        let (due, _, tenant) = candidates.map(|(tenant, lane)| (lane.due.max(self.clock), is_before(tenant), tenant)).min()?;
        let tenant = tenant.clone();
        if let Some(lane) = self.lanes.get_mut(&tenant) {
            lane.at_work += 1;
            lane.waiting = lane.waiting.saturating_sub(1);
            lane.due = due.saturating_add(TURN / lane.weight());
        }
        self.clock = due;
        self.last = Some(tenant.clone());
        Some(Turn { tenant, round: self.round })
    }

    /// What each lane may have, of the lanes that have something.
    fn shares(&self, workers: usize, may_be_tried: usize) -> Shares {
        let has_something = |lane: &&Lane| lane.at_work > 0 || lane.is_ready();
        let (held, free): (Vec<_>, Vec<_>) = self.lanes.values().filter(has_something).partition(|lane| lane.held.is_some());
        let (can_begin, at_work): (Vec<_>, Vec<_>) = free.into_iter().partition(|lane| lane.waiting > 0);
        let begin_no_more = at_work.into_iter().chain(held.into_iter().take(may_be_tried));
        Shares {
            workers,
            alone: self.lanes.len() <= 1,
            weights: can_begin.into_iter().map(Lane::weight).sum(),
            others: begin_no_more.map(Lane::weight).collect(),
        }
    }

    /// A turn is over.
    pub(super) fn ended(&mut self, turn: &Turn, after: After, now: Instant) {
        let Some(lane) = self.lanes.get_mut(&turn.tenant) else { return };
        lane.at_work = lane.at_work.saturating_sub(1);
        match after {
            After::Served => {
                lane.held = None;
                // There may be another one: one turn finds out.
                lane.waiting = lane.waiting.max(1);
            }
            After::Nothing { ready_in } => {
                if lane.told <= turn.round {
                    lane.waiting = 0;
                }
                // Whatever was held back is gone: done elsewhere, expired, purged.
                if ready_in.is_none() {
                    (lane.held, lane.passed) = (None, None);
                }
                lane.ready_at = ready_in.map(|wait| now + wait);
            }
            After::Held { by, pause } => {
                lane.hold(by, pause, now);
                lane.waiting = lane.waiting.max(1);
            }
            After::Passed { rest } => {
                let since = lane.passed.as_ref().map_or(now, |passed| passed.since);
                lane.passed = Some(Passed { since, until: now + 2 * rest });
                lane.waiting = lane.waiting.max(1);
            }
        }
    }

    /// The pause of all lanes that `by` holds back is over.
    pub(super) fn release(&mut self, by: HeldBy, now: Instant) {
        for held in self.lanes.values_mut().filter_map(|lane| lane.held.as_mut()).filter(|held| held.by == by) {
            held.until = held.until.map(|until| until.min(now));
        }
    }

    /// Whether a lane has a turn to get, had it a worker.
    pub(super) fn has_ready(&self) -> bool {
        self.lanes.values().any(Lane::is_ready)
    }

    /// When time alone may give a lane its turn.
    pub(super) fn wakes_at(&self) -> Option<Instant> {
        self.lanes.values().filter_map(|lane| lane.wakes_at()).min()
    }

    /// Another plan runs: what waited for it is looked at anew.
    pub(super) fn replanned(&mut self) {
        self.lanes.values_mut().for_each(|lane| lane.passed = None);
    }

    /// Lanes that are held back, or have items that are: by what, since when.
    pub(super) fn held(&self, now: Instant) -> impl Iterator<Item = (&Arc<str>, HeldBy, Instant)> {
        let held = move |lane: &Lane| match (&lane.held, &lane.passed) {
            (Some(held), _) => Some((held.by, held.since)),
            (None, Some(passed)) if passed.until > now => Some((HeldBy::Configuration, passed.since)),
            (None, _) => None,
        };
        self.lanes.iter().filter_map(move |(tenant, lane)| held(lane).map(|(by, since)| (tenant, by, since)))
    }
}

/// How many workers a lane may have, beside the others that have something.
struct Shares {
    workers: usize,
    /// There is one lane only.
    alone: bool,
    /// Of lanes that can begin more than they have at work, together.
    weights: u64,
    /// Of each lane that cannot: it counts as much as the one it is compared with at the most, for it leaves what its weight is worth.
    others: Vec<u64>,
}

impl Shares {
    fn of(&self, lane: &Lane) -> usize {
        // What has nothing at work may begin in any case.
        if self.alone || lane.at_work == 0 {
            return self.workers;
        }
        let own = lane.weight();
        let others: u64 = self.others.iter().map(|other| own.min(*other)).sum();
        let share = (self.workers as u64 * own).div_ceil((self.weights + others).max(1));
        usize::try_from(share).unwrap_or(self.workers).min(self.workers - 1).max(1)
    }
}

impl Lane {
    fn weight(&self) -> u64 {
        self.weight.max(1).into()
    }
    fn is_ready(&self) -> bool {
        self.waiting > 0 && self.held.as_ref().is_none_or(|held| held.until.is_none() && self.at_work == 0)
    }
    fn hold(&mut self, by: HeldBy, least: Duration, now: Instant) {
        let before = self.held.take().filter(|held| held.by == by);
        let (since, pauses) = before.as_ref().map_or((now, 0), |held| (held.since, held.pauses));
        // Items of one lane that fail together make one pause.
        let running = before.and_then(|held| held.until);
        let doubled = FIRST_PAUSE.saturating_mul(1 << pauses.min(10)).min(LONGEST_PAUSE);
        let until = running.unwrap_or(now + doubled.max(least.min(LONGEST_PAUSE)));
        self.held = Some(Held { by, since, until: Some(until), pauses: pauses + u32::from(running.is_none()) });
    }
    fn wake(&mut self, now: Instant) {
        if self.ready_at.is_some_and(|at| at <= now) {
            (self.ready_at, self.waiting) = (None, self.waiting.max(1));
        }
        if let Some(held) = &mut self.held {
            held.until = held.until.filter(|until| *until > now);
        }
    }
    fn wakes_at(&self) -> Option<Instant> {
        let pause_ends = self.held.as_ref().filter(|_| self.waiting > 0).and_then(|held| held.until);
        pause_ends.into_iter().chain(self.ready_at).min()
    }
}

#[cfg(test)]
mod tests;
