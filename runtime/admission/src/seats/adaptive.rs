//! The limit below the pool: a database that is slower than usual for most of its tenants gets less to do at once.
//!
//! A call earns what such calls usually hold, second by second while it runs, and in full once it is answered. What a tenant's calls
//! held over what they earned says how many times slower than usual they are: 1 for a flow that is slow by nature, growing for one
//! that hangs. Not the mean but the lower median of the tenants speaks for the database, so that a tenant whose own statements wait
//! for a lock takes no seats from those who are well.
//!
//! Every tenant for which the database works, or did lately, has a voice: more than half of them have to say that it is slow, and one
//! alone does only while nobody else is there. It takes little to say that it is well and more to say that it is slow: one whose calls
//! take no longer than usual counts however few they are, one whose few calls do is not heard.

use std::collections::VecDeque;
use std::time::Duration;

use super::estimate::Estimate;
use super::running::Running;
use super::status::{LimitReason, Transition};

/// Evidence is looked at this often.
const TICK: Duration = Duration::from_millis(100);
/// Evidence fades with the tenant's usual hold time as the time constant, within these bounds (seconds).
const MEMORY: (f64, f64) = (0.5, 2.0);
/// Less than so much is no evidence (connection-seconds).
const FORGOTTEN: f64 = 1e-4;
/// Who is to say that the database is slow has held so much (connection-seconds, and in times of a call), or half of what one seat can.
const LEAST_HELD: f64 = 0.05;
const CALLS_HELD: f64 = 2.0;
const ONE_SEAT: f64 = 0.5;
/// Who holds no seat is heard for so long after its last one.
const LATELY: Duration = Duration::from_secs(1);
/// So many answers are evidence, too.
const ANSWERS: f64 = 3.0;
/// Calls that are shorter count as so long: what scheduling adds to them is no illness of the database.
const LEAST_USUAL: Duration = Duration::from_millis(5);
/// So many times slower than usual: the limit is lowered; it rises again below the second.
const SLOWED: f64 = 2.0;
const WELL: f64 = 1.5;
/// The least a limit keeps of itself per tick, and what it gains.
const LEAST_KEPT: f64 = 0.6;
const GAIN: f64 = 0.1;
const LEAST_GAIN: f64 = 0.5;
/// Transitions that are kept for pages.
const KEPT: usize = 16;

/// What a tenant's calls held, and earned, in connection-seconds.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    held: f64,
    earned: f64,
    /// What its calls usually hold, smoothed.
    usual: f64,
    /// Calls that were answered.
    answers: f64,
    /// When the database last worked for it.
    worked: Option<Duration>,
}

impl Evidence {
    /// What a call with this estimate earns.
    pub(super) fn usual(estimate: &Estimate) -> Duration {
        estimate.usual.max(LEAST_USUAL)
    }
    /// Counts what a seat was held for since it was last counted.
    pub(super) fn count(&mut self, running: &mut Running, now: Duration) {
        if running.connecting {
            return;
        }
        self.worked = Some(now);
        let Some(usual) = running.usual else { return };
        let earned = |until: Duration| until.saturating_sub(running.began).min(usual).as_secs_f64();
        self.held += now.saturating_sub(running.counted).as_secs_f64();
        self.earned += earned(now) - earned(running.counted);
        running.counted = now;
    }
    /// A counted call was answered: it has earned the rest.
    pub(super) fn answered(&mut self, running: &Running) {
        let Some(usual) = running.usual else { return };
        self.answers += 1.0;
        self.earned += usual.saturating_sub(running.counted.saturating_sub(running.began)).as_secs_f64();
        self.usual += (usual.as_secs_f64() - self.usual) / 8.0;
    }
    /// Evidence fades with this time constant.
    fn memory(&self) -> f64 {
        self.usual.clamp(MEMORY.0, MEMORY.1)
    }
    fn fade(&mut self, elapsed: f64) {
        let kept = (-elapsed / self.memory()).exp();
        (self.held, self.earned) = (self.held * kept, self.earned * kept);
        self.answers *= kept;
        if self.held < FORGOTTEN {
            (self.held, self.earned) = (0.0, 0.0);
        }
    }
    /// How many times slower than usual the database is for it, if it has a voice.
    fn slowdown(&self, now: Duration) -> Option<f64> {
        self.worked.filter(|worked| now.saturating_sub(*worked) < LATELY)?;
        let times = if self.held > 0.0 { self.held / self.earned.max(1e-6) } else { 1.0 };
        // One that has a single seat can show no more than what that holds.
        let enough = (CALLS_HELD * self.usual).min(ONE_SEAT * self.memory()).max(LEAST_HELD);
        // Quick calls hold next to nothing, and are good witnesses.
        (times < WELL || self.held > enough || self.answers > ANSWERS).then_some(times)
    }
}

/// The limit of one database.
#[derive(Debug)]
pub(super) struct Limit {
    current: f64,
    reason: LimitReason,
    looked: Duration,
    slowdowns: Vec<f64>,
    pub(super) transitions: u64,
    pub(super) last: VecDeque<Transition>,
}

impl Limit {
    pub(super) fn new(max: u32) -> Self {
        Limit {
            current: f64::from(max),
            reason: LimitReason::Pool,
            looked: Duration::ZERO,
            slowdowns: Vec::new(),
            transitions: 0,
            last: VecDeque::new(),
        }
    }
    pub(super) fn since(&self, now: Duration) -> Duration {
        now.saturating_sub(self.looked)
    }
    pub(super) fn is_due(&self, now: Duration) -> bool {
        self.since(now) >= TICK
    }
    /// Seats that may be held.
    pub(super) fn seats(&self, max: u32) -> u32 {
        // Between the floor and `max`, so that nothing is cut off but the fraction.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let current = self.current as u32;
        current.min(max)
    }
    pub(super) fn reason(&self) -> LimitReason {
        self.reason
    }

    /// Looks at the evidence. `pressed`: so much is in use that the limit matters.
    pub(super) fn look<'a>(
        &mut self,
        evidence: impl Iterator<Item = &'a mut Evidence>,
        bounds: (u32, u32),
        pressed: impl FnOnce(u32) -> bool,
        now: Duration,
    ) {
        let elapsed = now.saturating_sub(self.looked).as_secs_f64();
        self.looked = now;
        self.slowdowns.clear();
        for tenant in evidence.filter(|tenant| tenant.worked.is_some()) {
            tenant.fade(elapsed);
            self.slowdowns.extend(tenant.slowdown(now));
        }
        self.slowdowns.sort_unstable_by(f64::total_cmp);
        let slowdown = self.slowdowns.get(self.slowdowns.len().saturating_sub(1) / 2).copied().unwrap_or(1.0);
        let (floor, max) = (f64::from(bounds.0), f64::from(bounds.1));
        let before = self.current.min(max);
        if slowdown > SLOWED && pressed(self.seats(bounds.1)) {
            self.current = (before * (SLOWED / slowdown).max(LEAST_KEPT)).max(floor);
            self.speaks(LimitReason::Slowed { times: slowdown }, bounds.1, now);
        } else if slowdown < WELL {
            let ticks = (elapsed / TICK.as_secs_f64()).max(1.0);
            self.current = (before + (before * GAIN).max(LEAST_GAIN) * ticks).min(max);
            let whole = self.current >= max;
            self.speaks(if whole { LimitReason::Pool } else { LimitReason::Recovering }, bounds.1, now);
        }
    }

    /// `shed = "off"`: nothing to look at.
    pub(super) fn pass(&mut self, now: Duration) {
        self.looked = now;
    }
    /// `shed = "off"`, or another pool.
    pub(super) fn reset(&mut self, max: u32) {
        (self.current, self.reason) = (f64::from(max), LimitReason::Pool);
    }

    /// Pool -> Slowed; Slowed -> Slowed, Recovering, Pool; Recovering -> Pool, Slowed.
    fn speaks(&mut self, reason: LimitReason, max: u32, now: Duration) {
        let changed = std::mem::discriminant(&reason) != std::mem::discriminant(&self.reason);
        self.reason = reason;
        let transition = Transition { at: now, limit: self.seats(max), reason };
        if changed {
            self.transitions += 1;
            if self.last.len() == KEPT {
                self.last.pop_front();
            }
            self.last.push_back(transition);
        } else if let Some(last) = self.last.back_mut() {
            // How far it went, and why, as of its last step.
            (last.limit, last.reason) = (transition.limit, reason);
        }
    }
}
