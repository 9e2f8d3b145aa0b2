//! The breaker of one database, or of one tenant's calls of a flow on it: whether it is asked at all while it does not answer well.
//!
//! `closed -> open -> half open -> closed | open`. Closed, everything passes and is counted. Open, nothing does, for a cool-down. Then it
//! is half open: a few calls pass as probes, and what they say decides.
//!
//! Invariants
//! 1. What says nothing about the other side never counts: refusals of ours, faults of callers, hang-ups ([`Said::Nothing`]).
//! 2. At most `probes` probes are out at once, and the place of one is free again however it ends: told, or after `probe_limit` (case E2).
//! 3. What began before an opening or a closing tells nothing after it, a probe that lost its place neither. (As long as the breaker is
//!    not forgotten: see [`TenantBreakers`].)
//! 4. Under calls it is never stuck: a good answer to a probe closes it, and there is a probe after each cool-down.
//! 5. A cool-down is at most a sixteenth of the outage so far, where that is more than `cool_down`, and never above [`LONGEST_COOL_DOWN`]:
//!    what was down for half a minute is asked again every two seconds, so that recovery is seen in a fraction of the time that was lost.
//!    The outage is the time from its opening to its last failure: what nobody asks does not go on failing.
//! 6. It comes to rest: where nobody came for a window after a cool-down, it is closed, and what fails then is a first failure.
//!
//! Closed, it costs a load to enter and one exchange to tell; the lock is taken by openings, closings and what comes between.

mod tenants;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::window::{Counts, Window};
pub use tenants::TenantBreakers;

/// The longest time without a probe, unless `cool_down` itself is longer.
pub const LONGEST_COOL_DOWN: Duration = Duration::from_secs(30);
/// Of an outage so far, the part that a cool-down may last.
const PART_OF_OUTAGE: u32 = 16;
/// Moves that are remembered.
const MOVES: usize = 8;

/// When it opens, and how it is probed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BreakerLimits {
    /// How long calls are counted.
    pub window: Duration,
    /// With fewer calls in the window it does not open.
    pub min_calls: u64,
    /// The share of good answers below which it opens.
    pub open_below: f64,
    /// Probes at once, and good ones that close it.
    pub probes: u32,
    /// How long a probe keeps its place at the most.
    pub probe_limit: Duration,
    /// The first cool-down, and the shortest.
    pub cool_down: Duration,
}

/// How a breaker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Everything passes.
    Closed,
    /// Nothing passes.
    Open,
    /// Probes pass.
    HalfOpen,
}

impl BreakerState {
    /// All of them.
    pub const ALL: &'static [BreakerState] = &[BreakerState::Closed, BreakerState::Open, BreakerState::HalfOpen];

    /// The word in pages and metrics.
    pub fn name(self) -> &'static str {
        match self {
            BreakerState::Closed => "closed",
            BreakerState::Open => "open",
            BreakerState::HalfOpen => "half_open",
        }
    }
}

/// What a call says about the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It did the work.
    Well,
    /// It did not, and that is its fault.
    Ill,
    /// Nothing: also where it was not even asked.
    Nothing,
}

/// The right to ask once. Told with [`Breaker::told`]; one that never is costs a probe its place for a while, and nothing else.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "what the call says must be told"]
pub struct Pass {
    turn: u32,
    probe: Option<u64>,
    /// With this call the breaker is half open; or closed, since nobody came for long.
    pub moved: Option<Moved>,
}

impl Pass {
    /// Through a closed breaker.
    fn closed(turn: u32) -> Pass {
        Pass { turn, probe: None, moved: None }
    }
    /// Whether much depends on this call.
    pub fn is_probe(&self) -> bool {
        self.probe.is_some()
    }
}

/// The breaker stands otherwise than before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// How it stands now.
    pub to: BreakerState,
    /// How long the outage has lasted, or had when it closed.
    pub outage: Duration,
    /// Calls counted in the window then, before it is emptied by a closing.
    pub calls: u64,
    /// Of those, the failed ones.
    pub failures: u64,
}

/// Of a breaker's past: when it moved, and to what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// On the clock that is passed in.
    pub at: Duration,
    /// How it stood then.
    pub to: BreakerState,
}

/// It does not let the call pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shut {
    /// When to come again. There is a probe to be made then, if nobody was faster.
    pub retry_after: Duration,
}

/// An outage as it is kept across a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// How long it has lasted.
    pub lasted: Duration,
    /// Of that, the time to its last failure: the next cool-down goes by that.
    pub failing: Duration,
    /// How long nobody may ask still.
    pub cool_down: Duration,
}

/// How a breaker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerStatus {
    /// How it stands.
    pub state: BreakerState,
    /// Of one that is not closed.
    pub outage: Option<Outage>,
    /// Probes that are out.
    pub probes: usize,
    /// Calls counted in the window, and how many of them failed.
    pub calls: u64,
    /// Of those, the failed ones.
    pub failures: u64,
}

/// A breaker. Limits and time are passed in.
#[derive(Debug, Default)]
pub struct Breaker {
    /// Counts openings and closings: closed where it is even.
    turn: AtomicU32,
    window: Window,
    opened: Mutex<Opened>,
}

/// Means something only while the breaker is not closed, but for the moves.
#[derive(Debug, Default)]
struct Opened {
    since: Duration,
    /// How long the outage had lasted then, before a restart.
    before: Duration,
    /// Of the outage, the time to its last failure.
    failing: Duration,
    /// When a probe began or ended last.
    asked: Duration,
    /// Nothing passes before.
    until: Duration,
    probing: bool,
    probes: Vec<Probe>,
    /// Good answers of probes.
    good: u32,
    /// Of the last probe.
    number: u64,
    /// The last ones, oldest first.
    moves: VecDeque<Move>,
}

#[derive(Debug)]
struct Probe {
    number: u64,
    since: Duration,
}

impl Breaker {
    /// Whether a call may ask now. Counted when it is told.
    pub fn enter(&self, limits: &BreakerLimits, now: Duration) -> Result<Pass, Shut> {
        let turn = self.turn.load(Ordering::Acquire);
        if is_closed(turn) {
            return Ok(Pass::closed(turn));
        }
        let mut opened = self.lock();
        let rested = self.rested(&mut opened, limits, now);
        let turn = self.turn.load(Ordering::Acquire);
        if is_closed(turn) {
            return Ok(Pass { moved: rested, ..Pass::closed(turn) });
        }
        if let Some(shut) = opened.shut(limits, now) {
            return Err(shut);
        }
        opened.probes.retain(|probe| probe.is_out(limits, now));
        (opened.number, opened.asked) = (opened.number + 1, now);
        let probe = Probe { number: opened.number, since: now };
        let number = Some(probe.number);
        opened.probes.push(probe);
        let was_probing = std::mem::replace(&mut opened.probing, true);
        let moved = (!was_probing).then(|| self.moved(&mut opened, BreakerState::HalfOpen, limits, now));
        Ok(Pass { turn, probe: number, moved })
    }

    /// Whether a call would be refused now. Takes no place: others may be faster.
    pub fn refuses(&self, limits: &BreakerLimits, now: Duration) -> Option<Shut> {
        if is_closed(self.turn.load(Ordering::Acquire)) {
            return None;
        }
        let opened = self.lock();
        if self.is_closed(&opened, limits, now) { None } else { opened.shut(limits, now) }
    }

    /// Closes it where nobody came for a window after its cool-down. Answers how it stands now, if so.
    pub fn rest(&self, limits: &BreakerLimits, now: Duration) -> Option<Moved> {
        if is_closed(self.turn.load(Ordering::Acquire)) { None } else { self.rested(&mut self.lock(), limits, now) }
    }

    /// What a call said. Answers how the breaker stands now, if that opened or closed it.
    pub fn told(&self, pass: Pass, said: Said, limits: &BreakerLimits, now: Duration) -> Option<Moved> {
        match pass.probe {
            Some(number) => self.probed(pass.turn, number, said, limits, now),
            None if pass.turn != self.turn.load(Ordering::Acquire) => None,
            None => self.counted(said, limits, now),
        }
    }

    /// How it is.
    pub fn status(&self, limits: &BreakerLimits, now: Duration) -> BreakerStatus {
        let opened = self.lock();
        let closed = self.is_closed(&opened, limits, now);
        let counted = self.window.sum(limits.window, now);
        let cool_down = opened.until.saturating_sub(now);
        let outage = Outage { lasted: opened.lasted(now), failing: opened.failing, cool_down };
        BreakerStatus {
            state: match (closed, opened.until > now) {
                (true, _) => BreakerState::Closed,
                (false, true) => BreakerState::Open,
                (false, false) => BreakerState::HalfOpen,
            },
            outage: (!closed).then_some(outage),
            probes: if closed { 0 } else { opened.probes.iter().filter(|probe| probe.is_out(limits, now)).count() },
            calls: counted.all(),
            failures: counted.ill,
        }
    }

    /// Its last moves, oldest first.
    pub fn moves(&self) -> Vec<Move> {
        self.lock().moves.iter().copied().collect()
    }

    /// Whether it is closed, and nothing of the last window speaks against that: forgotten, it is none the worse.
    pub fn is_idle(&self, limits: &BreakerLimits, now: Duration) -> bool {
        let opened = self.lock();
        let quiet = opened.moves.back().is_none_or(|last| last.at + limits.window <= now);
        quiet && self.is_closed(&opened, limits, now) && self.window.sum(limits.window, now).ill == 0
    }

    /// Opens one that was open before a restart, unless it has been told better or worse since.
    pub fn restore(&self, outage: Outage, limits: &BreakerLimits, now: Duration) {
        let mut opened = self.lock();
        let turn = self.turn.load(Ordering::Acquire);
        if turn == 0 && self.window.sum(limits.window, now).well == 0 {
            let until = now + outage.cool_down.min(cool_down(outage.failing, limits));
            (opened.since, opened.before, opened.failing) = (now, outage.lasted, outage.failing);
            opened.shuts(until);
            self.turn.store(turn + 1, Ordering::Release);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Opened> {
        // Every change under the lock is whole before anything can panic.
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_closed(&self, opened: &Opened, limits: &BreakerLimits, now: Duration) -> bool {
        is_closed(self.turn.load(Ordering::Acquire)) || opened.is_over(limits, now)
    }

    fn rested(&self, opened: &mut Opened, limits: &BreakerLimits, now: Duration) -> Option<Moved> {
        let turn = self.turn.load(Ordering::Acquire);
        (!is_closed(turn) && opened.is_over(limits, now)).then(|| self.closed(opened, turn, limits, now))
    }

    fn closed(&self, opened: &mut Opened, turn: u32, limits: &BreakerLimits, now: Duration) -> Moved {
        let moved = self.moved(opened, BreakerState::Closed, limits, now);
        // What was counted before the outage is of another time.
        self.window.clear();
        self.turn.store(turn.wrapping_add(1), Ordering::Release);
        moved
    }

    /// A call of a closed breaker.
    fn counted(&self, said: Said, limits: &BreakerLimits, now: Duration) -> Option<Moved> {
        match said {
            Said::Nothing => return None,
            Said::Well => {
                self.window.add(Counts::WELL, limits.window, now);
                return None;
            }
            Said::Ill => self.window.add(Counts::ILL, limits.window, now),
        };
        if !is_ill(self.window.sum(limits.window, now), limits) {
            return None;
        }
        let mut opened = self.lock();
        let turn = self.turn.load(Ordering::Acquire);
        if !is_closed(turn) {
            return None;
        }
        (opened.since, opened.before, opened.failing) = (now, Duration::ZERO, Duration::ZERO);
        opened.shuts(now + limits.cool_down);
        self.turn.store(turn.wrapping_add(1), Ordering::Release);
        Some(self.moved(&mut opened, BreakerState::Open, limits, now))
    }

    fn probed(&self, turn: u32, number: u64, said: Said, limits: &BreakerLimits, now: Duration) -> Option<Moved> {
        let mut opened = self.lock();
        if turn != self.turn.load(Ordering::Acquire) {
            return None;
        }
        // One that lost its place is not listened to.
        let place = opened.probes.iter().position(|probe| probe.number == number && probe.is_out(limits, now))?;
        opened.probes.swap_remove(place);
        opened.asked = now;
        match said {
            Said::Nothing => None,
            Said::Ill => {
                opened.failing = opened.lasted(now);
                let until = now + cool_down(opened.failing, limits);
                opened.shuts(until);
                Some(self.moved(&mut opened, BreakerState::Open, limits, now))
            }
            Said::Well => {
                opened.good += 1;
                (opened.good >= limits.probes.max(1)).then(|| self.closed(&mut opened, turn, limits, now))
            }
        }
    }

    fn moved(&self, opened: &mut Opened, to: BreakerState, limits: &BreakerLimits, now: Duration) -> Moved {
        if opened.moves.len() == MOVES {
            opened.moves.pop_front();
        }
        opened.moves.push_back(Move { at: now, to });
        let counted = self.window.sum(limits.window, now);
        Moved { to, outage: opened.lasted(now), calls: counted.all(), failures: counted.ill }
    }
}

impl Opened {
    /// Nothing passes before `until`; whoever probes still is not listened to any more.
    fn shuts(&mut self, until: Duration) {
        self.until = until;
        self.probing = false;
        self.probes.clear();
        self.good = 0;
    }
    fn lasted(&self, now: Duration) -> Duration {
        self.before + now.saturating_sub(self.since)
    }
    /// Nobody came for a window after the cool-down, and nobody is out.
    fn is_over(&self, limits: &BreakerLimits, now: Duration) -> bool {
        self.until.max(self.asked) + limits.window <= now && !self.probes.iter().any(|probe| probe.is_out(limits, now))
    }
    fn shut(&self, limits: &BreakerLimits, now: Duration) -> Option<Shut> {
        if self.until > now {
            return Some(Shut { retry_after: self.until - now });
        }
        let out = self.probes.iter().filter(|probe| probe.is_out(limits, now));
        if out.clone().count() < limits.probes.max(1) as usize {
            return None;
        }
        // Most likely the probe ends much sooner than it must.
        let longest = out.map(|probe| probe.since + limits.probe_limit - now).min();
        Some(Shut { retry_after: limits.cool_down.min(longest.unwrap_or(limits.cool_down)) })
    }
}

impl Probe {
    fn is_out(&self, limits: &BreakerLimits, now: Duration) -> bool {
        self.since + limits.probe_limit > now
    }
}

fn is_closed(turn: u32) -> bool {
    turn.is_multiple_of(2)
}

// Counts are far below 2^52.
#[allow(clippy::cast_precision_loss)]
fn is_ill(counted: Counts, limits: &BreakerLimits) -> bool {
    counted.all() >= limits.min_calls.max(1) && (counted.well as f64) < limits.open_below * counted.all() as f64
}

fn cool_down(outage: Duration, limits: &BreakerLimits) -> Duration {
    (outage / PART_OF_OUTAGE).clamp(limits.cool_down, LONGEST_COOL_DOWN.max(limits.cool_down))
}

#[cfg(test)]
mod tests;
