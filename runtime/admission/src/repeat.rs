//! Repeats of calls that have just failed, and the budget they draw on.
//!
//! A call repeats another when they are alike (the same key, or the same run, flow and input: whoever asks makes a number of that) and
//! that one failed within [`FAILED_FOR`] with no success since, or was refused and its `retry_after` is not over.
//!
//! Invariants
//! 1. Where nothing failed lately, nothing is locked and nothing is looked up: one load of an atomic.
//! 2. At most [`MOST_LIKES`] are remembered of a tenant; the oldest give way.
//!
//! Two calls of the same number that are not alike would be taken for repeats: numbers are 64 bits of a keyed hash.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use spillgate_model::units::Rate;
use spillgate_model::{Code, Refusal};

use crate::rate::RateLimiter;

/// How long a failure makes a repeat of its like.
pub const FAILED_FOR: Duration = Duration::from_secs(10);
/// Most failures that are remembered of a tenant.
pub(crate) const MOST_LIKES: usize = 4_096;
/// No refusal is remembered for longer, whatever it told its caller.
const LONGEST: Duration = Duration::from_secs(60);

/// What calls are alike by. Up to two numbers: of the key, and of run, flow and input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Likeness {
    /// Of the key, if one was sent.
    pub key: Option<u64>,
    /// Of run, flow and input, if a run was named.
    pub input: Option<u64>,
}

impl Likeness {
    fn numbers(self) -> impl Iterator<Item = u64> {
        self.key.into_iter().chain(self.input)
    }
    /// Whether it is like nothing.
    pub fn is_empty(self) -> bool {
        self.key.is_none() && self.input.is_none()
    }
}

/// What failed lately of one tenant's calls, and its budget of repeats.
#[derive(Debug, Default)]
pub struct Repeats {
    /// From then on nothing is remembered: nanoseconds since the clock's start.
    quiet_from: AtomicU64,
    likes: Mutex<Likes>,
    budget: RateLimiter,
}

#[derive(Debug, Default)]
struct Likes {
    /// Until when a call of that number is a repeat.
    until: HashMap<u64, Duration>,
    /// As they were remembered. A number stands here more than once when it failed again.
    order: VecDeque<(u64, Duration)>,
}

impl Repeats {
    /// Whether nothing failed lately: then no call is a repeat, and no success has anything to tell.
    pub fn is_quiet(&self, now: Duration) -> bool {
        nanoseconds(now) >= self.quiet_from.load(Ordering::Relaxed)
    }

    /// Whether a call like this failed lately.
    pub fn is_repeat(&self, likeness: Likeness, now: Duration) -> bool {
        if likeness.is_empty() || self.is_quiet(now) {
            return false;
        }
        let likes = self.lock();
        likeness.numbers().any(|number| likes.until.get(&number).is_some_and(|until| now < *until))
    }

    /// Draws one repeat on the budget.
    pub fn draw(&self, budget: Rate, now: Duration) -> Result<(), Refusal> {
        self.budget.take(budget, now).map_err(|_| {
            let detail = format!("This repeats a call that has just failed; more than {budget} repeats are not let through.");
            Refusal::new(Code::RepeatsExhausted, detail).policy("repeat_budget", budget.burst, budget.burst)
        })
    }

    /// Repeats that would be let through at once.
    pub fn left(&self, budget: Rate, now: Duration) -> u64 {
        self.budget.remaining(budget, now)
    }

    /// A call like this failed, or was refused with `wait` to go: its like is a repeat for so long.
    pub fn failed(&self, likeness: Likeness, wait: Duration, now: Duration) {
        if likeness.is_empty() {
            return;
        }
        let until = now.saturating_add(wait.min(LONGEST));
        let mut likes = self.lock();
        for number in likeness.numbers() {
            likes.remember(number, until, now);
        }
        self.quiet_from.fetch_max(nanoseconds(until), Ordering::Relaxed);
    }

    /// A call like this succeeded: what is like it repeats nothing.
    pub fn succeeded(&self, likeness: Likeness, now: Duration) {
        if likeness.is_empty() || self.is_quiet(now) {
            return;
        }
        let mut likes = self.lock();
        for number in likeness.numbers() {
            likes.until.remove(&number);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Likes> {
        self.likes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Likes {
    fn remember(&mut self, number: u64, until: Duration, now: Duration) {
        // A refusal for a moment does not shorten what a failure said.
        let until = self.until.get(&number).map_or(until, |known| until.max(*known));
        self.until.insert(number, until);
        self.order.push_back((number, until));
        while let Some((oldest, its_end)) = self.order.front().copied() {
            if its_end > now && self.order.len() <= MOST_LIKES {
                break;
            }
            self.order.pop_front();
            // What failed again since has a later place in the order.
            if self.until.get(&oldest) == Some(&its_end) {
                self.until.remove(&oldest);
            }
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_000);
    const MOMENT: Duration = Duration::from_millis(1);

    fn like(number: u64) -> Likeness {
        Likeness { key: None, input: Some(number) }
    }

    #[test]
    fn a_call_repeats_its_like_that_failed_within_ten_seconds_with_no_success_since() {
        let repeats = Repeats::default();
        assert!(!repeats.is_repeat(like(1), NOW));
        repeats.failed(like(1), FAILED_FOR, NOW);
        assert!(repeats.is_repeat(like(1), NOW + FAILED_FOR - MOMENT) && !repeats.is_repeat(like(1), NOW + FAILED_FOR));
        assert!(!repeats.is_repeat(like(2), NOW), "another input");
        repeats.succeeded(like(2), NOW);
        assert!(repeats.is_repeat(like(1), NOW), "another call's success says nothing");
        repeats.succeeded(like(1), NOW);
        assert!(!repeats.is_repeat(like(1), NOW));
    }

    #[test]
    fn either_the_key_or_run_flow_and_input_make_a_repeat() {
        let repeats = Repeats::default();
        repeats.failed(Likeness { key: Some(10), input: Some(20) }, FAILED_FOR, NOW);
        assert!(repeats.is_repeat(Likeness { key: Some(10), input: Some(21) }, NOW));
        assert!(repeats.is_repeat(Likeness { key: Some(11), input: Some(20) }, NOW));
        assert!(!repeats.is_repeat(Likeness { key: Some(11), input: Some(21) }, NOW));
        assert!(!repeats.is_repeat(Likeness::default(), NOW), "what names neither is like nothing");
    }

    #[test]
    fn who_comes_back_when_it_was_told_to_repeats_nothing() {
        let (repeats, told) = (Repeats::default(), Duration::from_millis(300));
        repeats.failed(like(1), told, NOW);
        assert!(repeats.is_repeat(like(1), NOW + told - MOMENT) && !repeats.is_repeat(like(1), NOW + told));
        repeats.failed(like(1), FAILED_FOR, NOW);
        repeats.failed(like(1), told, NOW);
        assert!(repeats.is_repeat(like(1), NOW + told), "the failure still counts");
        repeats.failed(like(2), Duration::MAX, NOW);
        assert!(!repeats.is_repeat(like(2), NOW + LONGEST));
    }

    #[test]
    fn repeats_draw_on_a_budget_and_an_empty_one_ends_them() {
        let (repeats, budget) = (Repeats::default(), Rate { calls: 1, period: Duration::from_secs(1), burst: 3 });
        assert_eq!(repeats.left(budget, NOW), 3);
        for _ in 0..3 {
            repeats.draw(budget, NOW).expect("within the burst");
        }
        let refusal = repeats.draw(budget, NOW).expect_err("empty");
        assert_eq!((refusal.code, refusal.retryable, refusal.retry_after), (Code::RepeatsExhausted, false, None));
        assert!(repeats.draw(budget, NOW + Duration::from_secs(1)).is_ok());
    }

    #[test]
    fn where_nothing_failed_lately_nothing_is_locked() {
        let repeats = Repeats::default();
        let held = repeats.lock();
        assert!(repeats.is_quiet(NOW) && !repeats.is_repeat(like(1), NOW));
        repeats.succeeded(like(1), NOW);
        drop(held);
        repeats.failed(like(1), FAILED_FOR, NOW);
        assert!(!repeats.is_quiet(NOW));
        let held = repeats.lock();
        assert!(!repeats.is_repeat(like(1), NOW + FAILED_FOR), "it is quiet again");
        repeats.succeeded(like(1), NOW + FAILED_FOR);
        drop(held);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_the_oldest_give_way() {
        let (repeats, many) = (Repeats::default(), 10 * MOST_LIKES as u64);
        for number in 0..many {
            repeats.failed(like(number), FAILED_FOR, NOW);
            repeats.failed(like(7), FAILED_FOR, NOW + MOMENT * u32::try_from(number % 100).expect("small"));
        }
        let likes = repeats.lock();
        assert!(likes.until.len() <= MOST_LIKES && likes.order.len() <= MOST_LIKES, "{} {}", likes.until.len(), likes.order.len());
        drop(likes);
        assert!(repeats.is_repeat(like(many - 1), NOW) && !repeats.is_repeat(like(8), NOW));
        assert!(repeats.is_repeat(like(7), NOW), "what fails again and again is remembered");
        repeats.failed(like(1), FAILED_FOR, NOW + FAILED_FOR * 2);
        let likes = repeats.lock();
        assert_eq!((likes.until.len(), likes.order.len()), (1, 1), "what is over is forgotten");
    }
}
