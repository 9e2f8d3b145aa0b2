//! A typed "no" on its way to the caller: a refusal by the gate or a failure of the work.
//!
//! Invariants
//! 1. `detail` is safe for the caller: it never holds host names, users, statements, or values of other callers.
//! 2. `internal` never leaves the process other than into the log, and is redacted where it was made.
//! 3. `retryable` is decided where the refusal is made; nobody downstream guesses.
//! 4. What is retryable says when, and what is not says no time: `retryable`, `retry_after` and `advice` never contradict each other.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::code::{Code, Retryable, Scope};

/// The limit that spoke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Name as in the configuration, such as `rate` or `in_flight`.
    pub name: &'static str,
    /// The limit in force.
    pub limit: u64,
    /// What was used when it spoke.
    pub used: u64,
}

/// One field of the input that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadField {
    /// Name of the input.
    pub name: String,
    /// What was expected and what came, in a sentence without the caller's secrets.
    pub problem: String,
}

/// Why a repeat of a refused call helps, or does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Because {
    /// As its code says.
    #[default]
    Code,
    /// A part of its work was done and stays: the same call would do that part twice.
    PartDone,
    /// It is what a dead letter ended with: no repeat of the call does anything, an operator may.
    Letter,
    /// It is what a job ended with whose stored item was lost before it was done.
    Lost,
}

/// A typed "no".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What happened.
    pub code: Code,
    /// Whose limit or fault.
    pub scope: Scope,
    /// Safe for the caller: one or two sentences.
    pub detail: String,
    /// Whether the same call may be sent again.
    pub retryable: bool,
    /// How long to wait before that.
    pub retry_after: Option<Duration>,
    /// The limit that spoke, if one did.
    pub policy: Option<Policy>,
    /// Where the cause has an end that is known: when, in milliseconds since 1970.
    pub valid_until_ms: Option<NonZeroU64>,
    /// All fields of the input that do not fit, at once.
    pub fields: Box<[BadField]>,
    /// Why no repeat of it helps, where it is not for its code.
    pub because: Because,
    /// A status other than the code's own (`on_empty = { status = … }`).
    pub status: Option<u16>,
    /// For the log only.
    pub internal: Option<Box<str>>,
}

// It is the error of nearly every function on a call's way: larger, it would be worth a box everywhere.
const _: () = assert!(size_of::<Refusal>() < 128);

/// How long a caller waits before it sends a call again when nothing better is known.
pub const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// What can be done about a dead letter, whatever it ended with.
const LETTER_ADVICE: &str = "Report this job to the operator, who can replay it, or send the work under a new key, but not both; \
                             the same key gets this answer again.";

/// What can be done about work that was lost.
const LOST_ADVICE: &str =
    "Report this job to the operator and send the work again if it is still wanted; it was not done, and its key is free.";

/// What can be done about a call of which a part was done.
const PART_DONE_ADVICE: &str =
    "Read the current state and report what you find; do not send the same call again, a part of its work was done.";

impl Refusal {
    /// A refusal with the defaults of its code. `ByCase` codes start as not retryable.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        let after = code.retryable() == Retryable::After;
        Refusal {
            code,
            scope: code.scope(),
            detail: detail.into(),
            retryable: after,
            retry_after: after.then_some(DEFAULT_RETRY_AFTER),
            policy: None,
            valid_until_ms: None,
            fields: Box::default(),
            because: Because::Code,
            status: None,
            internal: None,
        }
    }
    /// Says that the same call may be sent again after `wait`.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retryable = true;
        self.retry_after = Some(wait);
        self
    }
    /// Names the limit that spoke.
    #[must_use]
    pub fn policy(mut self, name: &'static str, limit: u64, used: u64) -> Self {
        self.policy = Some(Policy { name, limit, used });
        self
    }
    /// Says when the cause will have ended, in milliseconds since 1970.
    #[must_use]
    pub fn valid_until(mut self, milliseconds: u64) -> Self {
        self.valid_until_ms = NonZeroU64::new(milliseconds);
        self
    }
    /// Names the input fields that do not fit.
    #[must_use]
    pub fn fields(mut self, fields: Vec<BadField>) -> Self {
        self.fields = fields.into();
        self
    }
    /// Adds what only the log may hold.
    #[must_use]
    pub fn internal(mut self, text: impl Into<Box<str>>) -> Self {
        self.internal = Some(text.into());
        self
    }
    /// Says that the same call will fail again, though its code may be one that passes.
    #[must_use]
    pub fn never(self) -> Self {
        self.never_because(Because::Code)
    }
    /// Says that a part of the work was done and stays, so that the same call must not be sent again.
    #[must_use]
    pub fn part_done(self) -> Self {
        self.never_because(Because::PartDone)
    }
    /// The same as the end of a dead letter: no repeat of the call does anything, an operator may.
    #[must_use]
    pub fn letter(self) -> Self {
        self.never_because(Because::Letter)
    }
    /// The same as the end of a job whose stored item was lost: this job is never done, the work may be sent anew.
    #[must_use]
    pub fn lost(self) -> Self {
        self.never_because(Because::Lost)
    }
    fn never_because(mut self, because: Because) -> Self {
        (self.retryable, self.retry_after, self.because) = (false, None, because);
        self
    }
    /// How long to wait before the same call is sent again, as it is told.
    pub fn retry_after_ms(&self) -> Option<u64> {
        self.retry_after.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
    }
    /// What to do next, in one sentence.
    pub fn advice(&self) -> &'static str {
        let final_advice = self.code.final_advice().filter(|_| !self.retryable);
        let other_advice = self.code.other_advice().filter(|(scope, _)| *scope == self.scope).map(|(_, advice)| advice);
        match self.because {
            Because::Code => final_advice.or(other_advice).unwrap_or_else(|| self.code.advice()),
            Because::PartDone => PART_DONE_ADVICE,
            Because::Letter => LETTER_ADVICE,
            Because::Lost => LOST_ADVICE,
        }
    }
    /// The HTTP status to answer with.
    pub fn status(&self) -> u16 {
        self.status.unwrap_or_else(|| self.code.status())
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}: {}", self.code.name(), self.detail)
    }
}
impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem;

    /// Everything a refusal of this code can be made to say of another try.
    fn forms(code: Code) -> Vec<Refusal> {
        let new = || Refusal::new(code, "detail");
        let mut forms = vec![new(), new().part_done(), new().letter(), new().lost()];
        if code.retryable() != Retryable::No {
            forms.push(new().retry_after(Duration::ZERO));
            forms.push(new().retry_after(Duration::from_secs(3)));
        }
        if code.final_advice().is_some() {
            forms.push(new().never());
        }
        forms.extend(code.other_advice().map(|(scope, _)| Refusal { scope, ..new() }));
        forms
    }

    #[test]
    fn retryable_the_time_to_wait_and_advice_never_contradict_each_other() {
        for refusal in Code::ALL.iter().flat_map(|code| forms(*code)) {
            let body = String::from_utf8(problem::body(&refusal, refusal.retry_after_ms(), "r-1")).expect("JSON is UTF-8");
            let (name, advice) = (refusal.code.name(), refusal.advice());
            let is_retryable = body.contains("\"retryable\":true");
            assert_eq!(is_retryable, !body.contains("\"retry_after_ms\":null"), "{body}");
            assert!(body.contains(&format!("\"advice\":\"{advice}\"")), "{body}");
            let waits = ["retry_after_ms", "valid_until"].iter().any(|words| advice.contains(words));
            assert_eq!(is_retryable, waits, "{name}: {advice}");
            assert!(!is_retryable || !advice.contains("will fail again"), "{name}: {advice}");
            assert!(!advice.contains("If retryable"), "{name} leaves the reader to find out: {advice}");
        }
    }

    #[test]
    fn a_flows_breaker_speaks_of_this_callers_calls_and_the_databases_of_the_database() {
        let database = Refusal::new(Code::BreakerOpen, "detail");
        let flow = Refusal { scope: Scope::Flow, ..database.clone() };
        let says = |refusal: &Refusal, words| {
            let body = problem::body(refusal, refusal.retry_after_ms(), "r-1");
            String::from_utf8(body).expect("JSON is UTF-8").contains(words)
        };
        for words in ["ask this flow for less", "your calls", "other flows are not concerned"] {
            assert!(says(&flow, words) && !says(&database, words), "{words}");
        }
        assert!(says(&database, "the same of the same database") && !says(&flow, "same database"));
        let page = problem::page(Code::BreakerOpen);
        assert!([&database, &flow].iter().all(|refusal| page.contains(refusal.advice())), "one page for both: {page}");
        assert!(page.contains("* Scope: database or flow\n"), "{page}");
    }

    #[test]
    fn a_code_whose_cases_differ_has_advice_for_both() {
        for code in Code::ALL.iter().filter(|code| code.retryable() == Retryable::ByCase) {
            assert!(code.final_advice().is_some_and(|advice| advice != code.advice()), "{}", code.name());
        }
        for code in Code::ALL.iter().filter(|code| code.retryable() == Retryable::No) {
            assert_eq!(code.final_advice(), None, "{}: there is one case", code.name());
        }
    }
}
