//! Another try: bounded, jittered, never past the deadline, and never more of them than a quarter of the tenant's calls.
//!
//! One layer only: what a queue will try again is not tried again within the attempt.

use std::time::Duration;

use spillgate_admission::{RetryBudget, RetryLimits};
use spillgate_config::plan::Step;
use spillgate_model::chance;
use spillgate_telemetry::DatabaseMetrics;
use tokio::time::Instant;

use super::{Context, Writing};
use crate::verdict::{Failed, Fallible};

/// Longest wait before another try.
const LONGEST: Duration = Duration::from_secs(30);
/// What a tenant may retry at one target: a quarter of its calls that may be, or one a second where they are few. All that have few are
/// bounded together: by a tenth of all calls, or five a second.
const LIMITS: RetryLimits = RetryLimits { share: 0.25, floor: 10, floors_share: 0.1, floors: 50, window: Duration::from_secs(10) };

/// Which try of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    First,
    Again,
}

/// What is asked, and what each tenant that asks it may retry.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    budget: &'a RetryBudget,
    metrics: Option<&'a DatabaseMetrics>,
}

impl<'a> Target<'a> {
    pub(super) fn database(context: &Context<'a>, database: usize) -> Self {
        let live = &context.call.live.databases[database];
        Target { budget: &live.retries, metrics: Some(&live.seats.metrics) }
    }
    pub(super) fn service(budget: &'a RetryBudget) -> Self {
        Target { budget, metrics: None }
    }
}

/// The tries of one step.
pub(super) struct Tries<'a> {
    context: &'a Context<'a>,
    target: Target<'a>,
    left: u32,
    ceiling: Duration,
    attempt: Attempt,
}

impl<'a> Tries<'a> {
    /// Counts a call that may be tried again.
    pub(super) fn of(context: &'a Context<'a>, writing: &Writing, step: &Step, target: Target<'a>) -> Self {
        let scheduled = context.claim.is_some_and(|claim| claim.scheduled);
        let by_queue = context.unattended && !scheduled && !writing.must_go_on();
        let (attempts, backoff) = step.retry.filter(|_| !by_queue).map_or((1, Duration::ZERO), |retry| (retry.attempts, retry.backoff));
        if attempts > 1 {
            target.budget.called(context.call.tenant, &LIMITS, context.inner.breakers.now());
        }
        Tries { context, target, left: attempts.saturating_sub(1), ceiling: backoff, attempt: Attempt::First }
    }

    /// Which one is next, or runs.
    pub(super) fn attempt(&self) -> Attempt {
        self.attempt
    }

    /// Waits for the next try. The failure itself where there is none: it will not pass, all tries are used, the deadline is too near, or
    /// the tenant has spent what it may retry. Those that wait are counted with those that run (case E3).
    pub(super) async fn again(&mut self, mut failed: Box<Failed>) -> Fallible<()> {
        let wait = jittered(self.ceiling);
        if !failed.again || self.left == 0 || Instant::now() + wait >= self.context.deadline {
            return Err(failed);
        }
        if !self.target.budget.take(self.context.call.tenant, &LIMITS, self.context.inner.breakers.now()) {
            if let Some(metrics) = self.target.metrics {
                metrics.retries_refused.increment();
            }
            failed.refusal.detail.push_str(" It was not tried again: the budget for retries is spent.");
            return Err(failed);
        }
        if let Some(metrics) = self.target.metrics {
            metrics.retries.increment();
        }
        self.left -= 1;
        self.attempt = Attempt::Again;
        self.ceiling = self.ceiling.saturating_mul(2).min(LONGEST);
        tokio::time::sleep(wait).await;
        Ok(())
    }
}

/// Anything up to `ceiling`: callers that failed together do not come back together.
pub(crate) fn jittered(ceiling: Duration) -> Duration {
    let microseconds = u64::try_from(ceiling.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(chance::drawn() % microseconds.saturating_add(1).max(1))
}
