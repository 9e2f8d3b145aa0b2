//! What the end of a call means for the next ones: what it gives back, whether its like is a repeat, what has passed.
//!
//! Invariants
//! 1. A refusal costs nothing, whoever made it: rate and a call of its run are given back (case E1).
//! 2. A success of a call that sent no key and named no run takes no lock where nothing failed lately.
//! 3. Nothing is said to have passed that this success does not show: a stale reply shows nothing of a database.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use spillgate_admission::{Cause, FAILED_FOR};
use spillgate_config::Plan;
use spillgate_config::plan::{Action, Flow};
use spillgate_engine::Outcome;
use spillgate_model::{Code, Refusal, Scope, wall};
use spillgate_queue::JobState;

/// What a code says of the call it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// A limit spoke, and no work was done.
    Refused,
    /// Work was tried, and failed.
    Failed,
    /// About the call itself, or an answer: nothing that a later call could meet changed.
    Answered,
}

pub(crate) fn said(refusal: &Refusal) -> Said {
    match refusal.code {
        // By its caller's own doing: it left no time to do anything.
        Code::DeadlineExceeded if refusal.scope == Scope::Caller => Said::Answered,
        Code::RateExceeded
        | Code::InFlightExceeded
        | Code::QueueFull
        | Code::RunExhausted
        | Code::RepeatsExhausted
        | Code::BreakerOpen
        | Code::Overloaded
        | Code::WaitTooLong
        | Code::MemoryFull
        | Code::StoreFull
        | Code::DiskLow
        | Code::Recovering
        | Code::StoreFailed
        | Code::Draining
        | Code::Stopped => Said::Refused,
        Code::DatabaseUnreachable
        | Code::DatabaseError
        | Code::ValueInexact
        | Code::ResultTooLarge
        | Code::ExpressionFailed
        | Code::FlowChanged
        | Code::DeadlineExceeded
        | Code::OutcomeUnknown
        | Code::UpstreamError
        | Code::Internal => Said::Failed,
        Code::InvalidInput
        | Code::Malformed
        | Code::MethodNotAllowed
        | Code::TooLarge
        | Code::Unauthenticated
        | Code::Forbidden
        | Code::UnknownFlow
        | Code::UnknownPage
        | Code::UnknownJob
        | Code::Empty
        | Code::ResultGone
        | Code::ConflictRunning
        | Code::ConflictUnique
        | Code::Expired
        | Code::WrongState
        | Code::KeyReused
        | Code::KeyRequired
        | Code::ItemTooLarge
        | Code::MatchRequired
        | Code::ChangedMeanwhile
        | Code::ConfigRefused => Said::Answered,
    }
}

/// For how long the like of a refused call is a repeat.
pub(crate) fn repeats_for(refusal: &Refusal) -> Option<Duration> {
    match said(refusal) {
        Said::Failed => Some(FAILED_FOR),
        Said::Refused => refusal.retry_after,
        Said::Answered => None,
    }
}

/// What a flow's success shows. Made once per plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shows {
    flow: Arc<str>,
    /// The one database of the flow.
    database: Option<Arc<str>>,
    /// No step's failure is passed over.
    whole: bool,
}

/// What kind of success it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Success {
    /// The flow ran.
    Ran,
    /// The work is kept; whether it can be done is not known yet.
    Kept,
    /// An older reply stood in.
    Stale,
}

impl Success {
    /// How a call that was not refused ended. `None`: its job ended badly.
    pub(crate) fn of(outcome: &Outcome) -> Option<Success> {
        match outcome {
            Outcome::Rows { stale: None, .. } | Outcome::Value { stale: None, .. } => Some(Success::Ran),
            Outcome::Rows { .. } | Outcome::Value { .. } | Outcome::Kept(_) => Some(Success::Stale),
            Outcome::Job(job) => match job.state {
                JobState::Queued | JobState::Running => Some(Success::Kept),
                JobState::Succeeded => Some(Success::Ran),
                JobState::Cancelled => Some(Success::Stale),
                JobState::Failed | JobState::Dead | JobState::Expired | JobState::Shed | JobState::Purged | JobState::Unknown => None,
            },
            Outcome::Refused(_) => None,
        }
    }
}

impl Shows {
    pub(crate) fn of(flow: &Flow, plan: &Plan) -> Shows {
        let mut databases =
            flow.steps.iter().filter_map(|step| if let Action::Sql(sql) = &step.action { Some(sql.database) } else { None });
        let first = databases.next();
        let database = first.filter(|first| databases.all(|other| other == *first)).map(|index| plan.databases[index].name.clone());
        Shows { flow: flow.name.clone(), database, whole: flow.steps.iter().all(|step| step.on_error.is_none()) }
    }

    /// Whether a success of this flow shows that a cause has passed.
    pub(crate) fn passed(&self, success: Success, cause: &Cause) -> bool {
        match cause.code {
            Code::QueueFull | Code::StoreFull | Code::DiskLow | Code::Recovering | Code::StoreFailed => {
                success == Success::Kept && cause.place.as_deref().is_none_or(|place| *place == *self.flow)
            }
            _ => match &cause.place {
                None => true,
                Some(_) if success != Success::Ran => false,
                Some(place) if *place == self.flow => true,
                place => self.whole && self.database.is_some() && *place == self.database,
            },
        }
    }

    /// The cause of a refusal of this flow, where it may pass.
    pub(crate) fn cause(&self, refusal: &Refusal) -> Option<Cause> {
        let code = refusal.code;
        let may_pass = match said(refusal) {
            Said::Answered => false,
            Said::Refused => {
                !matches!(code, Code::RunExhausted | Code::RepeatsExhausted) && (refusal.retryable || refusal.scope == Scope::Server)
            }
            Said::Failed => refusal.retryable || matches!(code, Code::DeadlineExceeded | Code::UpstreamError),
        };
        let place = match refusal.scope {
            Scope::Database => Some(self.database.as_ref().unwrap_or(&self.flow)),
            Scope::Flow | Scope::Queue => Some(&self.flow),
            _ if code == Code::QueueFull => Some(&self.flow),
            _ => None,
        };
        may_pass.then(|| Cause { code, place: place.cloned(), since: wall::milliseconds(SystemTime::now()) })
    }
}

/// `Spillgate-Recovered`: `CODE; since=TIME`, the time that its like was first met at. More than one are separated by commas.
pub(crate) fn recovered(causes: &[Cause]) -> String {
    let one = |cause: &Cause| format!("{}; since={}", cause.code.name(), wall::timestamp(cause.since));
    causes.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shows(flow: &str, database: Option<&str>, whole: bool) -> Shows {
        Shows { flow: flow.into(), database: database.map(Into::into), whole }
    }

    #[test]
    fn what_lies_at_a_database_has_passed_when_a_flow_of_it_ran() {
        let failed = shows("a", Some("main"), true);
        let cause = failed.cause(&Refusal::new(Code::BreakerOpen, "")).expect("it may pass");
        assert_eq!((cause.code, cause.place.as_deref()), (Code::BreakerOpen, Some("main")));
        assert!(failed.passed(Success::Ran, &cause));
        assert!(shows("b", Some("main"), true).passed(Success::Ran, &cause), "another flow of the same database");
        assert!(!shows("b", Some("main"), false).passed(Success::Ran, &cause), "`on_error` may have stood in");
        assert!(!shows("b", Some("other"), true).passed(Success::Ran, &cause) && !shows("b", None, true).passed(Success::Ran, &cause));
        assert!(!failed.passed(Success::Stale, &cause) && !failed.passed(Success::Kept, &cause));
        let of_two = shows("c", None, true).cause(&Refusal::new(Code::DatabaseUnreachable, "")).expect("it may pass");
        assert!(shows("c", None, true).passed(Success::Ran, &of_two) && !failed.passed(Success::Ran, &of_two));
    }

    #[test]
    fn what_lies_at_a_queue_or_the_store_has_passed_when_work_was_kept() {
        let flow = shows("book", Some("main"), true);
        let full = flow.cause(&Refusal::new(Code::QueueFull, "")).expect("it may pass");
        assert!(
            flow.passed(Success::Kept, &full) && !flow.passed(Success::Ran, &full) && !shows("b", None, true).passed(Success::Kept, &full)
        );
        let low = flow.cause(&Refusal::new(Code::DiskLow, "")).expect("it may pass");
        assert!(shows("b", None, true).passed(Success::Kept, &low) && !flow.passed(Success::Ran, &low));
    }

    #[test]
    fn a_limit_of_the_tenant_has_passed_with_any_success_and_a_spent_budget_never() {
        let flow = shows("a", Some("main"), true);
        for code in [Code::RateExceeded, Code::InFlightExceeded, Code::MemoryFull] {
            let cause = flow.cause(&Refusal::new(code, "")).expect("it may pass");
            assert!(shows("b", None, false).passed(Success::Kept, &cause), "{}", code.name());
        }
        for code in [Code::RunExhausted, Code::RepeatsExhausted, Code::InvalidInput, Code::Empty, Code::ValueInexact, Code::DatabaseError] {
            assert_eq!(flow.cause(&Refusal::new(code, "")), None, "{}", code.name());
        }
    }

    #[test]
    fn a_refusal_makes_repeats_until_it_is_over_and_a_failure_for_ten_seconds() {
        let wait = Duration::from_millis(300);
        assert_eq!(repeats_for(&Refusal::new(Code::Overloaded, "").retry_after(wait)), Some(wait));
        assert_eq!(repeats_for(&Refusal::new(Code::DatabaseError, "").retry_after(wait)), Some(FAILED_FOR));
        assert_eq!(repeats_for(&Refusal::new(Code::RepeatsExhausted, "")), None);
        for code in [Code::Empty, Code::InvalidInput, Code::ConflictRunning] {
            assert_eq!(repeats_for(&Refusal::new(code, "")), None, "{}", code.name());
        }
        let late = Refusal { scope: Scope::Caller, ..Refusal::new(Code::DeadlineExceeded, "") };
        assert_eq!((repeats_for(&late), shows("a", Some("main"), true).cause(&late)), (None, None), "its caller left it no time");
    }

    #[test]
    fn the_header_names_code_and_time() {
        let cause = |code, since| Cause { code, place: None, since };
        let text = recovered(&[cause(Code::BreakerOpen, 1_764_487_574_000), cause(Code::Overloaded, 0)]);
        assert_eq!(text, "breaker_open; since=2025-11-30T07:26:14.000Z, overloaded; since=1970-01-01T00:00:00.000Z");
    }
}
