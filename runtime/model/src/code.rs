//! The one table of codes a caller can see (contract: HTTP face).
//!
//! Invariants
//! 1. A code's wire name, status, scope, title and retry rule never differ between faces.
//! 2. `advice` is one sentence for a language model: what to do next, and where it helps nothing to split the task or
//!    to switch tools, it says so.

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
    ($($variant:ident $name:literal $status:literal $scope:ident $retryable:ident $title:literal $advice:literal;)*) => {
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
            /// One sentence for a language model.
            pub fn advice(self) -> &'static str { match self { $(Code::$variant => $advice,)* } }
        }
    };
}

codes! {
    InvalidInput "invalid_input" 400 Caller No "The input does not fit the flow" "Correct the named fields and call again; the same input will fail again.";
    Malformed "malformed" 400 Caller No "The request could not be read" "Send well-formed JSON (or query parameters) as the flow's schema describes.";
    MethodNotAllowed "method_not_allowed" 405 Caller No "Another method is needed" "Use the method named in the Allow header.";
    TooLarge "too_large" 413 Caller No "The request body is too large" "Send a smaller body; the limit is in this reply.";
    Unauthenticated "unauthenticated" 401 Caller No "No valid key" "Ask the operator for a key; trying other keys or tools will not help.";
    Forbidden "forbidden" 403 Caller No "Not allowed" "This caller may not do this; do not try other ways to reach the same data.";
    UnknownFlow "unknown_flow" 404 Caller No "No such flow" "Read /openapi.json for the flows this key may call.";
    UnknownPage "unknown_page" 404 Caller No "No such page" "Check the path against the documentation of this listener.";
    UnknownJob "unknown_job" 404 Caller No "No such job" "Check the job id; a job is visible only to the tenant that started it.";
    Empty "empty" 404 Caller No "Nothing found" "No row matches this input; check the identifiers instead of calling again.";
    ResultGone "result_gone" 410 Caller No "The result is no longer kept" "The job ended; its result was dropped, so read the data with another flow.";
    ConflictRunning "conflict_running" 409 Caller After "The first call with this key still runs" "Wait and repeat with the same key; a new key would do the work twice.";
    ConflictUnique "conflict_unique" 409 Flow No "This was already done for the same business key" "Do not repeat it under another key; read the current state instead.";
    KeyReused "key_reused" 422 Caller No "The key was used with another input" "Use a fresh idempotency key for a different input.";
    KeyRequired "key_required" 400 Caller No "An idempotency key is required" "Send an Idempotency-Key header with a value of your own for this piece of work.";
    ItemTooLarge "item_too_large" 413 Caller No "The item could never fit" "Make the item smaller; waiting will not help.";
    RateExceeded "rate_exceeded" 429 Tenant After "Too many calls" "Wait for retry_after_ms, then go on more slowly; splitting the task or switching tools draws on the same limit.";
    InFlightExceeded "in_flight_exceeded" 429 Tenant After "Too many calls at once" "Wait for running calls to end before sending more; other tools draw on the same limit.";
    QueueFull "queue_full" 429 Tenant After "The queue is full" "Wait for retry_after_ms; the work was not accepted.";
    RunExhausted "run_exhausted" 429 Run No "The run has used up its budget" "Stop calling tools for this task and report what is known so far.";
    RepeatsExhausted "repeats_exhausted" 429 Tenant No "Too many repeats of failing calls" "Stop repeating; the cause has not changed and other tools reach the same limit.";
    BreakerOpen "breaker_open" 503 Database After "The database is not answering well" "Wait until valid_until; splitting the task or switching tools reaches the same database.";
    DatabaseUnreachable "database_unreachable" 503 Database After "The database cannot be reached" "Wait for retry_after_ms; splitting the task or switching tools reaches the same database.";
    DatabaseError "database_error" 502 Database ByCase "The database refused the statement" "If retryable is false, change the input or report the problem; calling again as is will fail again.";
    ValueInexact "value_inexact" 502 Flow No "A value cannot be given exactly" "Report the named column to the flow's owner; calling again will fail again.";
    ResultTooLarge "result_too_large" 502 Flow No "One value is larger than the flow allows" "Ask for less, or report the named column to the flow's owner.";
    Overloaded "overloaded" 503 Database After "Too much work is waiting for this database" "Wait for retry_after_ms; splitting the task or switching tools adds to the same line.";
    WaitTooLong "wait_too_long" 503 Database After "The wait would outlast the deadline" "Wait for retry_after_ms, or allow a longer deadline.";
    MemoryFull "memory_full" 503 Server After "No memory is free for this call" "Wait for retry_after_ms, or ask for fewer rows.";
    StoreFull "store_full" 503 Server After "The store is full" "Wait for retry_after_ms; the work was not accepted.";
    DiskLow "disk_low" 503 Server After "The volume is nearly full" "Wait for retry_after_ms; the work was not accepted.";
    Recovering "recovering" 503 Server After "The store is starting" "Wait for retry_after_ms; the work was not accepted.";
    StoreFailed "store_failed" 503 Server No "The store has stopped" "Report this to the operator; durable work is not accepted until it is mended.";
    Draining "draining" 503 Server After "The server is stopping" "Call again after retry_after_ms; another instance will answer.";
    DeadlineExceeded "deadline_exceeded" 504 Flow ByCase "The deadline passed" "Ask for less or allow more time; calling again at once makes the same work run again.";
    OutcomeUnknown "outcome_unknown" 504 Flow No "It is not known whether the write happened" "Do not repeat it; read the current state first and report what you find.";
    Stopped "stopped" 503 Server No "Stopped by an operator" "Stop calling; an operator has switched this off.";
    UpstreamError "upstream_error" 502 Flow ByCase "A service behind the flow failed" "If retryable is false, report the problem; calling again will fail again.";
    ConfigRefused "config_refused" 422 Caller No "The configuration has faults and was not applied" "Correct the named places and reload; what ran before still runs.";
    Internal "internal" 500 Server No "A fault of this server" "Report the request_id to the operator; calling again will probably fail again.";
}
