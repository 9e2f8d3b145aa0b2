//! The one table of codes a caller can see (contract: HTTP face).
//!
//! Invariants
//! 1. A code's wire name, status, scope, title and retry rule never differ between faces.
//! 2. `advice` is one sentence for a language model: what to do next, and where it helps nothing to split the task or
//!    to switch tools, it says so.
//! 3. It never contradicts `retryable`: a code that is sometimes worth another try and sometimes not has a sentence for each.
//! 4. Nor `scope`: a code that speaks for more than one, to whom not the same can be advised, has a sentence for the other, too.

/// Whose limit or fault spoke.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    Caller,
    Run,
    Tenant,
    Flow,
    Queue,
    Database,
    Server,
}

impl Scope {
    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Scope::Caller => "caller",
            Scope::Run => "run",
            Scope::Tenant => "tenant",
            Scope::Flow => "flow",
            Scope::Queue => "queue",
            Scope::Database => "database",
            Scope::Server => "server",
        }
    }
}

/// Whether the same call may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retryable {
    /// The same call will fail again.
    No,
    /// After `retry_after_ms`.
    After,
    /// Decided where the failure happened (by its class, or by the flow's effect).
    ByCase,
}

macro_rules! codes {
    ($($variant:ident $name:literal $status:literal $scope:ident $retryable:ident $title:literal $advice:literal $(or $final:literal)? $(of $other:ident $others:literal)?;)*) => {
        /// A stable code. The wire name is [`Code::name`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        pub enum Code { $($variant,)* }

        impl Code {
            /// Every code, in the order of the table.
            pub const ALL: &'static [Code] = &[$(Code::$variant,)*];
            /// The name on the wire, in metrics and in logs.
            pub fn name(self) -> &'static str { match self { $(Code::$variant => $name,)* } }
            /// The HTTP status.
            pub fn status(self) -> u16 { match self { $(Code::$variant => $status,)* } }
            /// Whose limit or fault it is unless the refusal says otherwise.
            pub fn scope(self) -> Scope { match self { $(Code::$variant => Scope::$scope,)* } }
            /// Whether the same call may be sent again.
            pub fn retryable(self) -> Retryable { match self { $(Code::$variant => Retryable::$retryable,)* } }
            /// A few words for a person.
            pub fn title(self) -> &'static str { match self { $(Code::$variant => $title,)* } }
            /// One sentence for a language model. Of a code that may be worth another try or not, the one for where it is.
            pub fn advice(self) -> &'static str { match self { $(Code::$variant => $advice,)* } }
            /// The same for where another try is worth nothing, of a code of which both may be.
            pub fn final_advice(self) -> Option<&'static str> { match self { $(Code::$variant => [$($final)?].first().copied(),)* } }
            /// The same for where another scope speaks than the code's own, of a code of which both may.
            pub fn other_advice(self) -> Option<(Scope, &'static str)> {
                match self { $(Code::$variant => [$((Scope::$other, $others))?].first().copied(),)* }
            }
        }
    };
}

codes! {
    InvalidInput "invalid_input" 400 Caller No "The input does not fit" "Correct the named fields and call again; the same input will fail again.";
    Malformed "malformed" 400 Caller No "The request could not be read" "Correct what detail names of the body, the query or the headers; the same request will fail again.";
    MethodNotAllowed "method_not_allowed" 405 Caller No "Another method is needed" "Call again with a method named in the Allow header.";
    TooLarge "too_large" 413 Caller No "The request body is too large" "Send a smaller body; waiting or switching tools will not help.";
    Unauthenticated "unauthenticated" 401 Caller No "No valid key" "Send the key you were given as `Authorization: Bearer KEY`, or ask the operator for one; trying other keys or tools will not help.";
    Forbidden "forbidden" 403 Caller No "Not allowed" "Stop and report that this is not allowed; other keys, tools or ways to the same data are not allowed either.";
    UnknownFlow "unknown_flow" 404 Caller No "No such flow" "Read /openapi.json and call a flow listed there; a flow that is missing there cannot be reached in another way.";
    UnknownPage "unknown_page" 404 Caller No "No such page" "Check the path and the names in it; what a key may call is listed in /openapi.json of the flow listener, tenants and queues on pages of the admin listener.";
    UnknownJob "unknown_job" 404 Caller No "No such job" "Check the job id; a job is visible only to the tenant that started it.";
    Empty "empty" 404 Caller No "Nothing found" "Check the identifiers you sent; nothing matches them, and the same call will find nothing again.";
    ResultGone "result_gone" 410 Caller No "The result is no longer kept" "Read the data with another flow; the job ended and its result was dropped.";
    ConflictRunning "conflict_running" 409 Caller After "The work still runs" "Wait for retry_after_ms, then ask again with the same key or for the same job; a new key would do the work twice.";
    ConflictUnique "conflict_unique" 409 Flow No "The business key is taken" "Read the current state, for the values of the call that came first stand, not yours where they differ; another business key for the same work would do it twice.";
    Expired "expired" 504 Queue No "The item expired before it was done" "Send the work again if it is still wanted; nothing of it was executed.";
    WrongState "wrong_state" 409 Caller No "Its state does not permit this" "Look at its state first; the same request will fail again as long as that is the same.";
    KeyReused "key_reused" 422 Caller No "The key was used with another input" "Send a fresh idempotency key for a different input, or the first input with this key.";
    KeyRequired "key_required" 400 Caller No "An idempotency key is required" "Send an Idempotency-Key header with a value of your own for this piece of work.";
    ItemTooLarge "item_too_large" 413 Caller No "The item could never fit" "Make the item smaller; waiting will not help.";
    RateExceeded "rate_exceeded" 429 Tenant After "Too many calls" "Wait for retry_after_ms, then go on more slowly; splitting the task or switching tools draws on the same limit.";
    InFlightExceeded "in_flight_exceeded" 429 Tenant After "Too many calls at once" "Wait for retry_after_ms, or for your running calls to end, before sending more; splitting the task or switching tools draws on the same limit.";
    QueueFull "queue_full" 429 Tenant After "The queue is full" "Send the work again after retry_after_ms, for it was not accepted; splitting it or switching tools fills the same queue.";
    RunExhausted "run_exhausted" 429 Run No "The run has used up its budget" "Stop calling tools for this task and report what is known so far; splitting the task or switching tools draws on the same budget.";
    RepeatsExhausted "repeats_exhausted" 429 Tenant No "Too many repeats of failing calls" "Stop repeating calls that fail and report what failed; the cause has not changed, and splitting the task or switching tools will not change it.";
    BreakerOpen "breaker_open" 503 Database After "What is asked gets no good answers" "Wait until valid_until before calling again; splitting the task or switching tools asks the same of the same database." of Flow "Wait until valid_until, then rather ask this flow for less (a narrower filter, a smaller page), for your calls of it got no good answer; other flows are not concerned.";
    DatabaseUnreachable "database_unreachable" 503 Database After "The database cannot be reached" "Call again after retry_after_ms; splitting the task or switching tools reaches the same database." or "Report this to the operator, who must mend it first; splitting the task or switching tools reaches the same database.";
    DatabaseError "database_error" 502 Database ByCase "The database refused the statement" "Call again after retry_after_ms, for the cause may pass; splitting the task or switching tools reaches the same database." or "Change the input or report the problem; the same call will fail again.";
    ValueInexact "value_inexact" 502 Flow No "A value cannot be given exactly" "Report the named column to the flow's owner; the same call will fail again.";
    ResultTooLarge "result_too_large" 502 Flow No "One value is larger than the flow allows" "Report the named column to the flow's owner or ask for rows without that value; the same call will fail again.";
    ExpressionFailed "expression_failed" 502 Flow No "The flow does not fit the data it met" "Report this to the flow's owner; the same call will fail again.";
    FlowChanged "flow_changed" 502 Flow No "The flow no longer fits work that waited for it" "Report this to the flow's owner, who can mend the flow and have the job replayed; the same call will get this answer again.";
    Overloaded "overloaded" 503 Database After "Too much work is waiting" "Wait for retry_after_ms; splitting the task or switching tools adds to the same line.";
    WaitTooLong "wait_too_long" 503 Database After "The wait would outlast the deadline" "Call again after retry_after_ms; splitting the task or switching tools waits in the same line.";
    MemoryFull "memory_full" 503 Server After "No memory is free for this call" "Call again after retry_after_ms; splitting the task or switching tools draws on the same memory." or "Report this to the operator, for the call needs more memory than it may ever have; switching tools draws on the same memory.";
    StoreFull "store_full" 503 Server After "The store is full" "Send the work again after retry_after_ms, for it was not accepted; splitting it or switching tools fills the same store.";
    DiskLow "disk_low" 503 Server After "The volume is nearly full" "Send the work again after retry_after_ms, for it was not accepted; splitting it or switching tools needs the same disk.";
    Recovering "recovering" 503 Server After "The store is starting" "Send the work again after retry_after_ms, for it was not accepted; other tools wait for the same start.";
    StoreFailed "store_failed" 503 Server No "The store has stopped" "Report this to the operator; durable work is not accepted until it is mended.";
    Draining "draining" 503 Server After "The server is stopping" "Call again after retry_after_ms; another instance will answer.";
    DeadlineExceeded "deadline_exceeded" 504 Flow ByCase "The deadline passed" "Call again after retry_after_ms, rather for less (a narrower filter, a smaller page) or with a longer deadline, for the same work may take as long again; nothing was changed." or "Allow more time if you set or used up the deadline yourself, or ask for less (a narrower filter, a smaller page); the same call will fail again.";
    OutcomeUnknown "outcome_unknown" 504 Flow No "It is not known whether the write happened" "Read the current state first and report what you find; do not repeat the write, which may have happened.";
    Stopped "stopped" 503 Server No "Stopped by an operator" "Stop calling and report that an operator has switched this off; waiting or switching tools will not help.";
    UpstreamError "upstream_error" 502 Flow ByCase "A service behind the flow failed" "Call again after retry_after_ms, for the cause may pass; switching tools may reach the same service." or "Report the problem to the flow's owner; the same call will fail again.";
    MatchRequired "match_required" 428 Caller No "The version that is changed must be named" "Read the page first and send its ETag as If-Match; without it a change of somebody else could be undone unseen.";
    ChangedMeanwhile "changed_meanwhile" 412 Caller No "It was changed in the meantime" "Read the page again, decide whether the change is still wanted, and send it with the new ETag.";
    ConfigRefused "config_refused" 422 Caller No "The configuration has faults and was not applied" "Correct the named places and reload; what ran before still runs.";
    Internal "internal" 500 Server No "A fault of this server" "Report the request_id to the operator; the same call will probably fail again.";
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_advice() -> impl Iterator<Item = (&'static str, &'static str)> {
        Code::ALL.iter().flat_map(|code| {
            let all = [Some(code.advice()), code.final_advice(), code.other_advice().map(|(_, advice)| advice)];
            all.into_iter().flatten().map(|advice| (code.name(), advice))
        })
    }

    #[test]
    fn advice_is_one_sentence_that_begins_with_what_to_do() {
        for (name, advice) in all_advice() {
            assert!(advice.ends_with('.') && !advice[..advice.len() - 1].contains(". "), "{name}: one sentence, found {advice:?}");
            assert!(advice.len() <= 200, "{name}: short enough to be read, found {} bytes", advice.len());
            assert!(!["The ", "This ", "No ", "It "].iter().any(|start| advice.starts_with(start)), "{name}: what to do comes first");
        }
    }

    #[test]
    fn titles_and_advice_are_true_on_every_face() {
        // An operator's key, a flow's caller and a person who reads a help page are told the same.
        for code in Code::ALL {
            assert!(!code.title().contains("flow") || code.scope() != Scope::Caller || *code == Code::UnknownFlow, "{}", code.name());
        }
    }
}
