//! Durable work: `[queue.NAME]` and `queued` of the server file, keys and schedules of a flow file.

use super::{Kind, Section, key};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;
const SECOND: u64 = 1_000;
const HOUR: u64 = 3_600 * SECOND;
const DAY: u64 = 24 * HOUR;
const YEAR: u64 = 366 * DAY;
/// The largest count of items a limit may be set to.
const ITEMS: i64 = 1_000_000_000;
/// The largest item and the largest result: both are held in memory whole.
pub(crate) const ITEM_BYTES: u64 = 16 * MIB;

pub(crate) static QUEUE: Section = Section {
    title: "[queue.NAME]",
    about: "A durable queue; in it each tenant has a lane of its own.",
    keys: &[
        key("items", Kind::Integer { min: 1, max: ITEMS }, "Most items that have not ended, all lanes.").default("50_000").or_unlimited(),
        key("bytes", Kind::Size { min: KIB, max: TIB }, "Most bytes of their content.").default("\"512MiB\"").or_unlimited(),
        key(
            "max_item",
            Kind::Size { min: KIB, max: ITEM_BYTES },
            "Most bytes of one item: its input, and what it carries of earlier steps.",
        )
        .default("\"1MiB\""),
        key(
            "when_full",
            Kind::Word(&["refuse", "shed_oldest"]),
            "`shed_oldest` ends the oldest waiting items of the lane that asks; no other lane is touched.",
        )
        .default("\"refuse\""),
        key("workers", Kind::Integer { min: 1, max: 256 }, "Items worked on at once.").default("4"),
        key(
            "attempts",
            Kind::Integer { min: 1, max: 100 },
            "Attempts before an item is dead; a try that found its database away or held by others does not count.",
        )
        .default("5"),
        key("lease", Kind::Time { min: SECOND, max: HOUR }, "How long an item stays with a worker that is no longer heard of.")
            .default("\"30s\""),
        key("expires", Kind::Time { min: SECOND, max: YEAR }, "When an item is given up whose flow does not say.").default("\"7d\""),
        key("results", Kind::Table(&RESULTS), "What is kept of work that ended."),
        key(
            "dead_letters",
            Kind::Table(&DEAD_LETTERS),
            "Items that used up their attempts, or no longer fit their flow; they can be replayed.",
        ),
    ],
};

static RESULTS: Section = Section {
    title: "results",
    about: "In `[queue.NAME]`. The final state is always kept for so long; a result goes first where a tenant's share of the disk is full.",
    keys: &[
        key("max_result", Kind::Size { min: 0, max: ITEM_BYTES }, "Largest result that is kept.").default("\"256KiB\""),
        key("keep", Kind::Time { min: SECOND, max: YEAR }, "How long.").default("\"24h\""),
    ],
};

static DEAD_LETTERS: Section = Section {
    title: "dead_letters",
    about: "In `[queue.NAME]`. A lane whose dead letters are full waits.",
    keys: &[
        key("items", Kind::Integer { min: 1, max: 1_000_000 }, "Most of them in a lane.").default("1_000"),
        key("keep", Kind::Time { min: SECOND, max: YEAR }, "How long.").default("\"7d\""),
    ],
};

pub(crate) static QUEUED: Section = Section {
    title: "queued",
    about: "In `[class.NAME]` and `[tenant.NAME]`, over all lanes of a tenant.",
    keys: &[
        key("items", Kind::Integer { min: 1, max: ITEMS }, "Most items that have not ended.").default("10_000").or_unlimited(),
        key("bytes", Kind::Size { min: KIB, max: TIB }, "Most bytes of their content.").default("\"256MiB\"").or_unlimited(),
        key(
            "disk",
            Kind::Size { min: 192 * KIB, max: TIB },
            "Most bytes of disk: waiting items, dead letters, results, keys and final states, in whole extents of 64 KiB.",
        )
        .default("\"512MiB\"")
        .or_unlimited(),
    ],
};

pub(crate) static IDEMPOTENCY: Section = Section {
    title: "idempotency",
    about: "In a flow that writes or queues. Keys count per tenant and flow.",
    keys: &[
        key(
            "key",
            Kind::Word(&["required", "optional", "derived"]),
            "Whether a caller sends `Idempotency-Key`; `derived` makes one of run and input.",
        )
        .required(),
        key("keep", Kind::Time { min: SECOND, max: YEAR }, "How long a key is known after the work ended.").default("\"48h\""),
        key(
            "derive_within",
            Kind::Time { min: SECOND, max: YEAR },
            "The same input from the same run counts as a repeat for so long, even under a new key.",
        ),
        key(
            "record",
            Kind::Text,
            "Table in which the flow's one write step leaves a row in its own transaction; `check` prints what makes it. A crash then ends in the true outcome.",
        ),
        key(
            "verify",
            Kind::Text,
            "One SELECT that finds a row if and only if the work was done. Reads inputs, `:idempotency_key` and `:job`.",
        ),
        key("database", Kind::Text, "Where `verify` runs. Not needed where the flow writes to one database only."),
    ],
};

pub(crate) static UNIQUE: Section = Section {
    title: "unique",
    about: "In a flow that writes or queues: a second, different call with the same values is refused, whoever sends it.",
    keys: &[
        key("by", Kind::List(&Kind::Text), "Inputs that together are the business key.").required(),
        key("within", Kind::Time { min: SECOND, max: YEAR }, "How long it is taken.").default("\"24h\""),
    ],
};

pub(crate) static SCHEDULE: Section = Section {
    title: "[schedule]",
    about: "One of `every` and `cron`. Ticks that were missed, or come while the last run goes on, are skipped.",
    keys: &[
        key("every", Kind::Time { min: SECOND, max: YEAR }, "Time between two starts."),
        key("cron", Kind::Text, "Minute, hour, day of month, month, day of week, in UTC, such as `30 2 * * mon-fri`."),
        key("tenant", Kind::Text, "Who it runs as.").required(),
        key(
            "watermark",
            Kind::Expression,
            "The high-water mark after a run; null leaves it where it is. `:watermark` in SQL is the mark before it, NULL at first.",
        ),
    ],
};
