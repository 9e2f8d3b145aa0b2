//! What a caller was told of failures that may pass, so that it is told once when they have passed.
//!
//! A cause is a code and where it lies: a database, a flow, or nowhere in particular. Few are kept, the latest; each with the time it
//! was first met at.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use spillgate_model::Code;

/// Most causes that are kept of one run, or of one tenant's calls that name none.
pub(crate) const MOST_CAUSES: usize = 8;

/// A failure that may pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// What the caller was told.
    pub code: Code,
    /// The database or flow that it lies at. `None`: any success shows that it has passed.
    pub place: Option<Arc<str>>,
    /// When it was first met: whatever number the caller of this crate takes for a time.
    pub since: u64,
}

/// What has not passed yet.
#[derive(Debug, Default)]
pub(crate) struct Causes {
    kept: Vec<Cause>,
}

impl Causes {
    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Met once more, or for the first time.
    pub(crate) fn met(&mut self, cause: Cause) {
        let known = self.kept.iter().position(|kept| kept.code == cause.code && kept.place == cause.place);
        let cause = match known {
            Some(index) => self.kept.remove(index),
            None => cause,
        };
        if self.kept.len() == MOST_CAUSES {
            self.kept.remove(0);
        }
        self.kept.push(cause);
    }

    /// A success: takes out what it shows to have passed.
    pub(crate) fn passed(&mut self, shows: impl Fn(&Cause) -> bool) -> Vec<Cause> {
        self.kept.extract_if(.., |cause| shows(cause)).collect()
    }
}

/// The same behind a lock that no success takes where nothing has failed.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    any: AtomicBool,
    causes: Mutex<Causes>,
}

impl Recovery {
    /// Met once more, or for the first time.
    pub(crate) fn met(&self, cause: Cause) {
        let mut causes = self.causes.lock().unwrap_or_else(PoisonError::into_inner);
        causes.met(cause);
        self.any.store(true, Ordering::Relaxed);
    }

    /// A success: what it shows to have passed.
    pub(crate) fn passed(&self, shows: impl Fn(&Cause) -> bool) -> Vec<Cause> {
        if !self.any.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut causes = self.causes.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = causes.passed(shows);
        self.any.store(!causes.is_empty(), Ordering::Relaxed);
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(code: Code, place: Option<&str>, since: u64) -> Cause {
        Cause { code, place: place.map(Into::into), since }
    }

    #[test]
    fn a_cause_is_told_once_with_the_time_it_was_first_met_at() {
        let mut causes = Causes::default();
        causes.met(cause(Code::BreakerOpen, Some("a"), 10));
        causes.met(cause(Code::BreakerOpen, Some("b"), 20));
        causes.met(cause(Code::BreakerOpen, Some("a"), 30));
        assert_eq!(causes.passed(|cause| cause.place.as_deref() == Some("a")), [cause(Code::BreakerOpen, Some("a"), 10)]);
        assert!(causes.passed(|cause| cause.place.as_deref() == Some("a")).is_empty());
        assert_eq!(causes.passed(|_| true), [cause(Code::BreakerOpen, Some("b"), 20)]);
        assert!(causes.is_empty());
    }

    #[test]
    fn few_are_kept_and_they_are_the_latest() {
        let mut causes = Causes::default();
        for number in 0..100 {
            causes.met(cause(Code::Overloaded, Some(&number.to_string()), number));
        }
        let since: Vec<_> = causes.passed(|_| true).iter().map(|cause| cause.since).collect();
        assert_eq!(since, (92..100).collect::<Vec<_>>());
    }
}
