//! Every metric's name, kind and meaning. Nothing else in the workspace names a metric.
//!
//! The list is part of the contract: a golden file holds it, and a name that is out is never given another meaning.
//! Labels come from the configuration only; whatever a caller made up is counted under [`UNKNOWN`].

/// The label of tenants and flows that the configuration does not have.
pub const UNKNOWN: &str = "unknown";
/// The label of pairs beyond [`crate::CALL_SERIES`].
pub const OTHER: &str = "other";

/// How a metric is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only goes up.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Times by bucket.
    Histogram,
}

/// One metric.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// As scraped.
    pub name: &'static str,
    /// How it is read.
    pub kind: Kind,
    /// What it means.
    pub help: &'static str,
    /// Names of its labels.
    pub labels: &'static [&'static str],
}

macro_rules! metrics {
    ($($constant:ident $name:literal $kind:ident [$($label:literal)*] $help:literal;)*) => {
        $(
            #[doc = $help]
            pub const $constant: &Metric = &Metric { name: $name, kind: Kind::$kind, help: $help, labels: &[$($label),*] };
        )*
        /// All of them, in the order they are rendered.
        pub const ALL: &[&Metric] = &[$($constant,)*];
    };
}

metrics! {
    CALLS "spillgate_calls_total" Counter ["tenant" "flow" "code"] "Calls that ended, by code: ok, hung_up, or a code of the table.";
    CALL_SECONDS "spillgate_call_seconds" Histogram ["tenant" "flow"] "Time from a call's head to its reply.";
    CALLS_IN_FLIGHT "spillgate_calls_in_flight" Gauge ["tenant" "flow"] "Calls running.";
    REPLY_BYTES "spillgate_reply_bytes_total" Counter ["tenant" "flow"] "Bytes of reply bodies.";

    SEATS "spillgate_database_seats" Gauge ["database"] "Most connections this database is given.";
    SEATS_IN_USE "spillgate_database_seats_in_use" Gauge ["database"] "Seats that a step holds.";
    SEATS_ENDING "spillgate_database_seats_ending" Gauge ["database"] "Seats that stay taken until the end of a cancelled statement is known.";
    CONNECTIONS_IDLE "spillgate_database_connections_idle" Gauge ["database"] "Open connections that nobody uses.";
    WAITING "spillgate_database_waiting" Gauge ["database"] "Steps that wait for a seat.";
    WAIT_SECONDS "spillgate_database_wait_seconds" Histogram ["database"] "Time a step waited for a seat.";
    STATEMENTS "spillgate_database_statements_total" Counter ["database" "outcome"] "Statements that ended, by outcome.";
    STATEMENT_SECONDS "spillgate_database_statement_seconds" Histogram ["database"] "Time from a statement's start to its last row.";
    CONNECTS "spillgate_database_connects_total" Counter ["database"] "Connections made.";
    CONNECT_FAILURES "spillgate_database_connect_failures_total" Counter ["database"] "Connections that could not be made.";
    CANCELS "spillgate_database_cancels_total" Counter ["database"] "Statements ended for a deadline or a hang-up.";
    SEATS_LOST "spillgate_database_seats_lost_total" Counter ["database"] "Connections lost while a statement ran, or given up because its end was never known.";

    CACHE_HITS "spillgate_cache_hits_total" Counter [] "Calls answered from a fresh entry.";
    CACHE_MISSES "spillgate_cache_misses_total" Counter [] "Calls that filled an entry.";
    CACHE_STALE "spillgate_cache_stale_total" Counter [] "Calls answered from a stale entry because the work failed.";
    CACHE_EVICTIONS "spillgate_cache_evictions_total" Counter [] "Entries pushed out for room.";
    CACHE_BYTES "spillgate_cache_bytes" Gauge [] "Bytes that all caches hold.";

    MEMORY_RESERVED "spillgate_memory_reserved_bytes" Gauge [] "Bytes reserved for payloads in flight.";
    MEMORY_LIMIT "spillgate_memory_limit_bytes" Gauge [] "Most bytes that may be reserved for payloads in flight.";
    ACCESS_DROPPED "spillgate_access_records_dropped_total" Counter [] "Access records not written: the buffer was full or the write failed.";
    LOG_DROPPED "spillgate_log_lines_dropped_total" Counter [] "Log lines not written: the buffer was full or the write failed.";
    LOG_HELD_BACK "spillgate_log_lines_held_back_total" Counter [] "Log lines left out because their like had just been written.";
    SPANS_DROPPED "spillgate_spans_dropped_total" Counter [] "Spans the collector did not get: the queue was full or it did not take them.";
    CONFIG "spillgate_config_info" Gauge ["version"] "The configuration that runs.";
    RELOADS "spillgate_reloads_total" Counter ["outcome"] "Reloads, applied or refused.";
    BUILD "spillgate_build_info" Gauge ["version"] "The program that runs.";
    UPTIME "spillgate_uptime_seconds" Gauge [] "Time since the start.";
    RESIDENT "spillgate_resident_memory_bytes" Gauge [] "Memory of the process as the system counts it.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rules_of_the_format() {
        let mut seen = std::collections::BTreeSet::new();
        for metric in ALL {
            assert!(seen.insert(metric.name), "{} stands twice", metric.name);
            assert!(metric.name.starts_with("spillgate_"), "{}", metric.name);
            assert_eq!(metric.kind == Kind::Counter, metric.name.ends_with("_total"), "{}", metric.name);
            assert!(metric.kind != Kind::Histogram || metric.name.ends_with("_seconds"), "{}", metric.name);
            assert!(metric.help.ends_with('.') && !metric.help.contains(['\n', '\\']), "{}", metric.help);
        }
    }
}
