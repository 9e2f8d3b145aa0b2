//! A typed "no" on its way to the caller: a refusal by the gate or a failure of the work.
//!
//! Invariants
//! 1. `detail` is safe for the caller: it never holds host names, users, statements, or values of other callers.
//! 2. `internal` never leaves the process other than into the log, and is redacted where it was made.
//! 3. `retryable` is decided where the refusal is made; nobody downstream guesses.

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
    /// It is what a dead letter ended with: see [`Refusal::letter`].
    pub letter: bool,
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
            letter: false,
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
    /// The same as the end of a dead letter: no repeat of the call does anything, an operator may.
    #[must_use]
    pub fn letter(mut self) -> Self {
        (self.retryable, self.retry_after, self.letter) = (false, None, true);
        self
    }
    /// What to do next, in one sentence.
    pub fn advice(&self) -> &'static str {
        if self.letter { LETTER_ADVICE } else { self.code.advice() }
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
