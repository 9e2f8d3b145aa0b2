//! What becomes of an item after an attempt: it ends, comes back, or its lane waits. Only decided here.
//!
//! `succeeded -> succeeded`; not executed and passing -> again, counted, `dead` at the last attempt; not executed because a database,
//! target or memory is not there, or others hold what it needs -> held, uncounted, until it expires; said no for what an operator can
//! mend -> as passing; said no -> `failed`; a part done -> `failed`, keys kept; not known -> found out.

use std::time::Duration;

use spillgate_model::{Code, Refusal, Scope};
use spillgate_queue::JobState;

use super::turns::HeldBy;
use crate::Outcome;
use crate::steps::Left;
use crate::verdict::Cause;

/// The pause after the first failed attempt, and the longest.
const FIRST_BACKOFF: Duration = Duration::from_millis(500);
const LONGEST_BACKOFF: Duration = Duration::from_secs(60);

/// What to do with an item.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// It ends so. `frees_keys`: proven that nothing was executed.
    End { state: JobState, frees_keys: bool },
    /// Another attempt, after at most so long.
    Again { ceiling: Duration },
    /// It waits for something that is not its own fault. `aside`: others of its lane may not have to, so it does not stand in their way.
    Hold { by: HeldBy, pause: Duration, aside: bool },
    /// A write was sent, and how it ended must be found out.
    FindOut,
}

/// What to do after attempt number `attempt` of `attempts`.
pub(super) fn decide(outcome: &Outcome, left: &Left, cause: Cause, attempt: u32, attempts: u32) -> Decision {
    match (outcome, left) {
        (_, Left::Unknown(_)) => Decision::FindOut,
        (Outcome::Refused(_), Left::Part) => Decision::End { state: JobState::Failed, frees_keys: false },
        (Outcome::Refused(refusal), _) => not_executed(refusal, cause, attempt, attempts),
        _ => Decision::End { state: JobState::Succeeded, frees_keys: false },
    }
}

fn not_executed(refusal: &Refusal, cause: Cause, attempt: u32, attempts: u32) -> Decision {
    // A statement that is slow by itself is never `Busy`: it is ended, which counts.
    let busy = cause == Cause::Busy;
    if let Some(by) = if busy { Some(HeldBy::Database) } else { held_by(refusal) } {
        // What one flow waits for is nothing to the others of its lane.
        let its_own = refusal.code == Code::BreakerOpen && refusal.scope == Scope::Flow;
        let pause = refusal.retry_after.filter(|_| !its_own).unwrap_or_default();
        return Decision::Hold { by, pause, aside: busy || its_own };
    }
    // A fault of this server, such as a panic, may be one of this moment.
    let ours = refusal.code == Code::Internal && refusal.scope == Scope::Server;
    // What an operator can mend must not cost acknowledged work: it comes back, and ends as a letter.
    let mended = cause == Cause::Schema;
    if !(refusal.retryable || ours || mended) {
        return Decision::End { state: JobState::Failed, frees_keys: true };
    }
    if attempt >= attempts {
        // Its keys stay: an operator may replay it.
        return Decision::End { state: JobState::Dead, frees_keys: false };
    }
    Decision::Again { ceiling: backoff(attempt).max(refusal.retry_after.unwrap_or_default()) }
}

/// What an item waits for where no attempt at its own work was made.
fn held_by(refusal: &Refusal) -> Option<HeldBy> {
    match refusal.code {
        Code::DatabaseUnreachable | Code::BreakerOpen | Code::Overloaded | Code::WaitTooLong => Some(HeldBy::Database),
        Code::QueueFull | Code::StoreFull | Code::DiskLow | Code::Recovering => Some(HeldBy::Target),
        Code::StoreFailed => Some(HeldBy::Store),
        Code::MemoryFull => Some(HeldBy::Memory),
        _ => None,
    }
}

/// Doubles with each attempt.
fn backoff(attempt: u32) -> Duration {
    FIRST_BACKOFF.saturating_mul(1 << attempt.saturating_sub(1).min(16)).min(LONGEST_BACKOFF)
}

#[cfg(test)]
mod tests {
    use spillgate_connector::{DatabaseError, Failure};
    use spillgate_model::Datum;

    use super::*;

    fn refused(code: Code) -> Outcome {
        Outcome::Refused(Box::new(Refusal::new(code, "no")))
    }

    fn retryable(code: Code) -> Outcome {
        Outcome::Refused(Box::new(Refusal::new(code, "no").retry_after(Duration::from_millis(1))))
    }

    #[test]
    fn what_is_not_there_uses_up_no_attempt() {
        for code in [Code::DatabaseUnreachable, Code::WaitTooLong, Code::QueueFull, Code::MemoryFull, Code::DiskLow, Code::StoreFailed] {
            assert!(matches!(decide(&refused(code), &Left::Nothing, Cause::Said, 99, 5), Decision::Hold { .. }), "{}", code.name());
        }
    }

    #[test]
    fn an_open_breaker_uses_up_no_attempt_and_that_of_one_flow_holds_back_no_other() {
        let open = refused(Code::BreakerOpen);
        let held = |outcome: &Outcome| decide(outcome, &Left::Nothing, Cause::Said, 99, 5);
        assert!(matches!(held(&open), Decision::Hold { by: HeldBy::Database, aside: false, pause } if !pause.is_zero()));
        let Outcome::Refused(mut refusal) = open else { panic!("refused") };
        refusal.scope = Scope::Flow;
        let pause = Duration::ZERO;
        assert_eq!(held(&Outcome::Refused(refusal)), Decision::Hold { by: HeldBy::Database, aside: true, pause });
    }

    #[test]
    fn what_passes_comes_back_until_its_attempts_are_used_up() {
        let passing = retryable(Code::DatabaseError);
        for attempt in 1..5 {
            assert!(matches!(decide(&passing, &Left::Nothing, Cause::Said, attempt, 5), Decision::Again { .. }), "{attempt}");
        }
        assert_eq!(decide(&passing, &Left::Nothing, Cause::Said, 5, 5), Decision::End { state: JobState::Dead, frees_keys: false });
        let ceiling = |attempt| match decide(&passing, &Left::Nothing, Cause::Said, attempt, 50) {
            Decision::Again { ceiling } => ceiling,
            other => panic!("{other:?}"),
        };
        assert_eq!((ceiling(1), ceiling(2), ceiling(40)), (FIRST_BACKOFF, FIRST_BACKOFF * 2, LONGEST_BACKOFF));
    }

    #[test]
    fn promise_7_keys_are_freed_only_where_nothing_was_executed() {
        let failed = |left: &Left| decide(&refused(Code::DatabaseError), left, Cause::Refused, 1, 5);
        assert_eq!(failed(&Left::Nothing), Decision::End { state: JobState::Failed, frees_keys: true });
        assert_eq!(failed(&Left::Part), Decision::End { state: JobState::Failed, frees_keys: false });
        assert_eq!(
            decide(&retryable(Code::DatabaseError), &Left::Part, Cause::Busy, 1, 5),
            failed(&Left::Part),
            "a part is never done twice"
        );
        assert_eq!(decide(&refused(Code::OutcomeUnknown), &Left::Unknown(None), Cause::Said, 1, 5), Decision::FindOut);
        let value = Outcome::Value { value: Datum::Null, stale: None };
        assert_eq!(decide(&value, &Left::All, Cause::Said, 1, 5), Decision::End { state: JobState::Succeeded, frees_keys: false });
    }

    #[test]
    fn a_panic_is_tried_again_and_a_fault_of_the_flow_is_not() {
        let panic = refused(Code::Internal);
        assert!(matches!(decide(&panic, &Left::Nothing, Cause::Said, 1, 2), Decision::Again { .. }));
        let Outcome::Refused(mut refusal) = panic else { panic!("refused") };
        refusal.scope = Scope::Flow;
        let state = JobState::Failed;
        assert_eq!(decide(&Outcome::Refused(refusal), &Left::Nothing, Cause::Said, 1, 2), Decision::End { state, frees_keys: true });
    }

    #[test]
    fn what_others_hold_uses_up_no_attempt_and_what_can_be_mended_ends_as_a_letter() {
        let held = decide(&retryable(Code::DatabaseError), &Left::Nothing, Cause::Busy, 99, 5);
        assert!(matches!(held, Decision::Hold { by: HeldBy::Database, aside: true, .. }), "{held:?}");
        let ended = crate::verdict::before_commit(DatabaseError::new(Failure::Ended, "ended", "57014"));
        let ended = (Outcome::Refused(Box::new(ended.refusal)), ended.cause);
        for (outcome, cause) in [(refused(Code::DatabaseError), Cause::Schema), ended] {
            let decided = |attempt| decide(&outcome, &Left::Nothing, cause, attempt, 2);
            assert!(matches!(decided(1), Decision::Again { .. }), "{cause:?}");
            assert_eq!(decided(2), Decision::End { state: JobState::Dead, frees_keys: false }, "{cause:?}");
        }
    }
}
