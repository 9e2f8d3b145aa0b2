//! Every metric's name, kind and meaning. Nothing else in the workspace names a metric.
//!
//! The list is part of the contract: a golden file holds it, and a name that is out is never given another meaning.
//! Labels come from the configuration only; whatever a caller made up is counted under [`UNKNOWN`].

/// The label of tenants and flows that the configuration does not have.
pub const UNKNOWN: &str = "unknown";
/// The label of pairs beyond [`crate::CALL_SERIES`].
pub const OTHER: &str = "other";

/// The flow label of calls about jobs. No flow can have this name.
pub const JOBS: &str = "(jobs)";

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
    SEAT_LIMIT "spillgate_database_seat_limit" Gauge ["database"] "Seats that may be held now: fewer than there are connections while the database is slow.";
    SEATS_IN_USE "spillgate_database_seats_in_use" Gauge ["database"] "Seats that a step holds.";
    SEATS_ENDING "spillgate_database_seats_ending" Gauge ["database"] "Seats that stay taken until the end of a cancelled statement is known.";
    CONNECTIONS_IDLE "spillgate_database_connections_idle" Gauge ["database"] "Open connections that nobody uses.";
    WAITING "spillgate_database_waiting" Gauge ["database"] "Steps that wait for a seat.";
    WAIT_SECONDS "spillgate_database_wait_seconds" Histogram ["database"] "Time a step waited for a seat.";
    TENANT_SEATS "spillgate_database_tenant_seats" Gauge ["database" "tenant"] "Seats that a tenant holds.";
    TENANT_WAITING "spillgate_database_tenant_waiting" Gauge ["database" "tenant"] "Steps of a tenant that wait for a seat.";
    TENANT_WAIT_SECONDS "spillgate_database_tenant_wait_seconds" Histogram ["database" "tenant"] "Time a step of a tenant waited for a seat.";
    SEATS_REFUSED "spillgate_database_seats_refused_total" Counter ["database" "tenant" "why"] "Steps that were refused a seat: the tenant's line was full, the wait would have been too long, the line stood for too long, or the database could not be reached.";
    STATEMENTS "spillgate_database_statements_total" Counter ["database" "outcome"] "Statements that ended, by outcome.";
    STATEMENT_SECONDS "spillgate_database_statement_seconds" Histogram ["database"] "Time from a statement's start to its last row.";
    CONNECTS "spillgate_database_connects_total" Counter ["database"] "Connections made.";
    CONNECT_FAILURES "spillgate_database_connect_failures_total" Counter ["database"] "Connections that could not be made.";
    CANCELS "spillgate_database_cancels_total" Counter ["database"] "Statements ended for a deadline or a hang-up.";
    SEATS_LOST "spillgate_database_seats_lost_total" Counter ["database"] "Connections lost while a statement ran, or given up because its end was never known.";

    BREAKER_STATE "spillgate_breaker_state" Gauge ["database" "flow" "state"] "How a breaker stands: 1 for one of the states, a flow's as for the tenant that fares worst; the database's own has no flow.";
    BREAKER_MOVES "spillgate_breaker_moves_total" Counter ["database" "flow" "to"] "Times a breaker opened, let the first probe pass, or closed; a flow's: for any tenant.";
    BREAKER_SHUT_OUT "spillgate_breaker_shut_out_tenants" Gauge ["database" "flow"] "Tenants for which a flow's breaker is not closed.";
    BREAKER_REFUSED "spillgate_breaker_refused_total" Counter ["database" "flow"] "Steps that a breaker did not let pass, calls refused at the gate among them.";
    RETRIES "spillgate_step_retries_total" Counter ["database" "outcome"] "Steps that were tried again, or were not because the retry budget was spent.";

    QUEUE_WAITING "spillgate_queue_waiting" Gauge ["queue" "tenant"] "Items that wait.";
    QUEUE_SET_ASIDE "spillgate_queue_set_aside" Gauge ["queue" "tenant"] "Items that wait for another attempt.";
    QUEUE_RUNNING "spillgate_queue_running" Gauge ["queue" "tenant"] "Items at work.";
    QUEUE_DEAD "spillgate_queue_dead" Gauge ["queue" "tenant"] "Dead letters kept.";
    QUEUE_BYTES "spillgate_queue_bytes" Gauge ["queue" "tenant"] "Content bytes of items that have not ended.";
    QUEUE_DISK "spillgate_queue_disk_bytes" Gauge ["queue" "tenant"] "Bytes of disk that the lane holds.";
    QUEUE_OLDEST "spillgate_queue_oldest_item_age_seconds" Gauge ["queue" "tenant"] "Age of the oldest item that has not ended; 0 where there is none.";
    QUEUE_PAUSED "spillgate_queue_paused" Gauge ["queue" "tenant"] "Whether an operator stopped dispatch.";
    QUEUE_HEAD_WAIT "spillgate_queue_head_wait_seconds" Gauge ["queue" "tenant" "waits"] "How long the head of the lane has waited, by what it waits for.";
    QUEUE_APPENDED "spillgate_queue_appended_total" Counter ["queue" "tenant"] "Items appended.";
    QUEUE_ENDED "spillgate_queue_ended_total" Counter ["queue" "tenant" "state"] "Items that ended, by final state.";
    QUEUE_UNSERVED "spillgate_queue_unserved" Gauge [] "Items in lanes that wait for a queue, a tenant or a flow that is not configured.";
    QUEUE_WAIT_SECONDS "spillgate_queue_wait_seconds" Histogram ["queue" "tenant"] "Time from an item's append to its first attempt.";
    LANES_PARKED "spillgate_queue_parked_total" Counter [] "Lanes that stopped because their dead letters were full.";
    LEASES_LOST "spillgate_queue_leases_lost_total" Counter [] "Leases that ran out before their work ended.";
    INTERRUPTED "spillgate_interrupted_writes_total" Counter ["by"] "Writes that were cut off, by what decided their end.";
    TICKS "spillgate_schedule_ticks_total" Counter ["flow" "outcome"] "Ticks of schedules, by what became of them.";

    STORE_STATE "spillgate_store_state" Gauge ["state"] "How the store is: 1 for one of the states.";
    STORE_LIMIT "spillgate_store_disk_limit_bytes" Gauge [] "Most bytes of all store files.";
    STORE_USED "spillgate_store_disk_used_bytes" Gauge [] "Bytes of extents that lanes hold.";
    STORE_EXTENTS "spillgate_store_extents" Gauge ["state"] "Extents: used, free, or quarantined because they cannot be read.";
    VOLUME_FREE "spillgate_store_volume_free_bytes" Gauge [] "Free bytes of the volume the store is on.";
    DISK_LOW "spillgate_store_disk_low_total" Counter [] "Times the volume's free space fell below the reserve.";
    STORE_BATCHES "spillgate_store_batches_total" Counter [] "Batches made durable.";
    STORE_SYNCS "spillgate_store_syncs_total" Counter [] "Syncs that took.";
    SYNC_SECONDS "spillgate_store_sync_seconds" Histogram [] "Time of a sync.";
    STORE_MOVED "spillgate_store_moved_total" Counter [] "Items and records moved to free extents.";
    STORE_KEYS "spillgate_store_keys" Gauge [] "Idempotency and business keys kept.";
    RECOVERED_CUT "spillgate_store_recovered_cut_bytes" Gauge [] "Bytes of unfinished records that the last start cut off.";
    RECOVERED_RECORDS "spillgate_store_recovered_cut_records" Gauge [] "Unfinished records that the last start cut off.";
    RECOVERED_MISSING "spillgate_store_recovered_missing_files" Gauge [] "Store files that the last start missed.";

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
    RUNS "spillgate_runs" Gauge ["class"] "Agent runs that are known, by class of their tenants: with calls in flight, or at rest.";
    CONFIG "spillgate_config_info" Gauge ["version"] "The configuration that runs.";
    RELOADS "spillgate_reloads_total" Counter ["outcome"] "Reloads, applied or refused.";
    ADMIN_CHANGES "spillgate_admin_changes_total" Counter ["action" "outcome"] "Changes by operators, done or refused.";
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
