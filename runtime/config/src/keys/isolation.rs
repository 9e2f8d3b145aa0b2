//! Isolation: seats, weights, breakers, repeats and runs. The limits of a tenant are declared once, for its section, for its class's, and for
//! what an operator sets while the server runs.

use super::{Key, Kind, Section, key};

const KIB: u64 = 1 << 10;
const TIB: u64 = 1 << 40;
const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// The largest count a limit may be set to.
const MANY: i64 = 1_000_000;
/// The largest weight: what one tenant may count for.
const HEAVIEST: i64 = 1_000;
/// Most seats: of the largest pool.
const SEATS_OF_A_POOL: i64 = 1_000;
/// Runs that are known of one tenant: each holds memory.
const RUNS: i64 = 100_000;
/// However often probes fail: see `plan::BreakerPlan`.
const LONGEST_COOL_DOWN: u64 = 30 * SECOND;

pub(crate) const fn rate() -> Key {
    key("rate", Kind::Rate, "Calls in a period. The burst is a tenth of the calls of a minute unless written.").or_unlimited()
}
pub(crate) const fn in_flight() -> Key {
    key("in_flight", Kind::Integer { min: 1, max: MANY }, "Calls at once.").or_unlimited()
}
pub(crate) const fn memory() -> Key {
    key("memory", Kind::Size { min: KIB, max: TIB }, "Its most of the server's `memory`; without it a quarter.").or_unlimited()
}
pub(crate) const fn weight() -> Key {
    key(
        "weight",
        Kind::Integer { min: 1, max: HEAVIEST },
        "Its share against other tenants that wait: of the seats, and of the workers of a queue.",
    )
}
pub(crate) const fn seats() -> Key {
    key("seats", Kind::Table(&SEATS), "What it has of the connections of each database.")
}
pub(crate) const fn queued() -> Key {
    key("queued", Kind::Table(&super::durable::QUEUED), "Most that may wait in queues, and what it may hold of the disk.")
}
pub(crate) const fn repeat_budget() -> Key {
    key(
        "repeat_budget",
        Kind::Rate,
        "What repeats draw from: calls whose like failed within 10 s with no success since, or that come back before their `retry_after`.",
    )
    .or_unlimited()
}
pub(crate) const fn run() -> Key {
    key("run", Kind::Table(&RUN), "Budget of one agent run, as `Spillgate-Run` names it.")
}
pub(crate) const fn database() -> Key {
    key("database", Kind::Named(&OF_DATABASE), "What differs for one database.")
}

/// What an operator may set over a tenant's limits: as a file writes it, in JSON.
pub(crate) static OVERRIDE: Section = Section {
    title: "an override",
    about: "Limits of a tenant in place of the file's.",
    keys: &[rate(), in_flight(), memory(), weight(), seats(), queued(), repeat_budget(), run(), database()],
};

pub(crate) static SEATS: Section = Section {
    title: "seats",
    about: "In `[class.NAME]`, `[tenant.NAME]` and `[tenant.NAME.database.NAME]`.",
    keys: &[
        key(
            "reserved",
            Kind::Integer { min: 0, max: SEATS_OF_A_POOL },
            "Connections that are there for it whenever it asks; lent while it does not.",
        )
        .default("0"),
        key(
            "limit",
            Kind::Integer { min: 1, max: SEATS_OF_A_POOL },
            "Most connections it holds at once, hard; without it all but two of the pool. So many fewer while a slow database gets fewer.",
        )
        .or_unlimited(),
    ],
};

static OF_DATABASE: Section = Section {
    title: "[tenant.NAME.database.NAME]",
    about: "One database, as this tenant finds it.",
    keys: &[key("seats", Kind::Table(&SEATS), "In place of the tenant's `seats`, each key for itself.")],
};

static RUN: Section = Section {
    title: "run",
    about: "In `[class.NAME]` and `[tenant.NAME]`. Calls that name no run have the tenant's limits only.",
    keys: &[
        key("live", Kind::Integer { min: 1, max: RUNS }, "Runs that are known at once; the one idle for longest gives way.").default("500"),
        key("calls", Kind::Integer { min: 1, max: MANY }, "Calls of a run in its life.").default("200").or_unlimited(),
        key("in_flight", Kind::Integer { min: 1, max: MANY }, "Calls of a run at once.").default("16").or_unlimited(),
        key("retries", Kind::Integer { min: 0, max: MANY }, "Repeats of failed calls of a run in its life.").default("20").or_unlimited(),
        key("depth", Kind::Integer { min: 0, max: MANY }, "Most hops from agent to agent, as `Spillgate-Depth` counts them.")
            .default("4")
            .or_unlimited(),
        key("ttl", Kind::Time { min: SECOND, max: DAY }, "A run without a call for so long is over.").default("\"30min\""),
    ],
};

pub(crate) static BREAKER: Section = Section {
    title: "breaker",
    about: "In `[database.NAME]` and in a flow file. Our own refusals, callers' mistakes and hang-ups never count.",
    keys: &[
        key("window", Kind::Time { min: SECOND, max: 10 * MINUTE }, "Calls that ended so long ago no longer count.").default("\"20s\""),
        key("min_calls", Kind::Integer { min: 1, max: MANY }, "Fewer calls in the window open nothing.").default("20"),
        key("open_below", Kind::Share, "It opens when a smaller share of the window's calls succeeded.").default("0.5"),
        key("probes", Kind::Integer { min: 1, max: SEATS_OF_A_POOL }, "Calls let through at once to find out whether it is over.")
            .default("1"),
        key(
            "probe_limit",
            Kind::Time { min: 10, max: HOUR },
            "A probe that has not ended by then leaves its place to the next call, and is not listened to any more.",
        )
        .default("\"10s\""),
        key(
            "cool_down",
            Kind::Time { min: 10, max: LONGEST_COOL_DOWN },
            "How long it stays open at first: a sixteenth of the outage where that is more, and 30 s at the most.",
        )
        .default("\"1s\""),
    ],
};
