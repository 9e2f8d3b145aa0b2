//! A flow file.

use spillgate_model::limits::{MAX_BYTES, MAX_ROWS};

use super::durable::{IDEMPOTENCY, SCHEDULE, UNIQUE};
use super::isolation::BREAKER;
use super::{Kind, Section, key};

const SECOND: u64 = 1_000;
const HOUR: u64 = 3_600 * SECOND;
const DAY: u64 = 24 * HOUR;

/// Types of columns, in the order of [`spillgate_model::Type::ALL`].
pub(crate) const COLUMN_TYPES: &[&str] = &["integer", "number", "decimal", "text", "boolean", "date", "time", "timestamp", "binary"];
/// Types of inputs: all but `time`.
pub(crate) const INPUT_TYPES: &[&str] = &["integer", "number", "decimal", "text", "boolean", "date", "timestamp", "binary"];

pub(crate) static ROOT: Section = Section {
    title: "a flow file",
    about: "One flow: an endpoint with typed input, ordered steps, limits and tests.",
    keys: &[
        key("name", Kind::Text, "Unique; `spillgate call`, metrics and records name it so.").required(),
        key("about", Kind::Text, "What it gives, in a sentence: people and language models choose by it.").default("\"\""),
        key(
            "http",
            Kind::Text,
            "Method and path below `/api`, such as `GET /trucks/{id}/position`. Flows that read use GET or POST, flows that write or queue POST, PUT, PATCH or DELETE. Without it a flow runs by its schedule, or takes what others emit.",
        ),
        key("effect", Kind::Word(&["read", "write"]), "`write` allows statements that change rows.").default("\"read\""),
        key("deadline", Kind::Time { min: 1, max: HOUR }, "When a call must be over. A caller may shorten it.").default("\"5s\""),
        key(
            "breaker",
            Kind::Table(&BREAKER),
            "When calls of this flow are no longer let through; what is not written is as for the database of its first `sql` step.",
        )
        .or_off(),
        key("cache", Kind::Table(&CACHE), "Replies that are kept, by flow version, tenant and input."),
        key("page", Kind::Table(&PAGE), "Turns the last step into a list read in pages."),
        key("input", Kind::Named(&INPUT), "What a caller sends."),
        key("step", Kind::Tables(&STEP), "What is done, in order.").required(),
        key("test", Kind::Tables(&TEST), "Calls with the reply they must have."),
        key("idempotency", Kind::Table(&IDEMPOTENCY), "Keys under which a call executes once."),
        key("unique", Kind::Table(&UNIQUE), "Business keys that may be used once."),
        key("schedule", Kind::Table(&SCHEDULE), "When the flow runs by itself."),
    ],
};

static CACHE: Section = Section {
    title: "cache",
    about: "In a flow that reads. A cached reply takes no connection. A tenant has a quarter of the server's `cache`, and gives up its own \
            oldest ones; a reply larger than that is not kept. Where all is full, whoever holds most gives up first. A shared reply is of the \
            tenant that filled it first.",
    keys: &[
        key("fresh", Kind::Time { min: 1, max: DAY }, "How long a reply is given again.").required(),
        key("stale_if_error", Kind::Time { min: 0, max: 30 * DAY }, "How long an older reply may stand in for a failure; it is marked.")
            .default("\"0ms\""),
        key("shared", Kind::Boolean, "One reply for all tenants; only where nothing of the tenant is read.").default("false"),
    ],
};

static PAGE: Section = Section {
    title: "page",
    about: "The last step is a `sql` step without ORDER BY or row limit of its own; the reply has `next`, the caller sends it back as `cursor`, and may send `size`.",
    keys: &[
        key(
            "key",
            Kind::List(&Kind::Text),
            "Columns of the result that give the order, together unique and never NULL, such as `[\"SEEN desc\", \"ID\"]`.",
        )
        .required(),
        key("size", Kind::Integer { min: 1, max: 10_000 }, "Rows of a page whose caller does not say.").default("100"),
        key("max", Kind::Integer { min: 1, max: 10_000 }, "Most rows of a page.").default("500"),
    ],
};

static INPUT: Section = Section {
    title: "[input.NAME]",
    about: "Every input is used by a statement or an expression.",
    keys: &[
        key(
            "type",
            Kind::InputType,
            "integer, number, decimal, text, boolean, date, timestamp or binary; in brackets a list of them. Not needed with `from`.",
        ),
        key("about", Kind::Text, "What it is, in a few words.").default("\"\""),
        key("required", Kind::Boolean, "Whether it must be sent: true unless a default is given. An input in the path is always required."),
        key("default", Kind::Value, "What an omitted input is. Without one an input that is not required is NULL."),
        key("min", Kind::Value, "Least value of a number or date."),
        key("max", Kind::Value, "Greatest value of a number or date."),
        key("min_length", Kind::Integer { min: 0, max: i64::MAX }, "Least characters of text, bytes of binary, items of a list."),
        key(
            "max_length",
            Kind::Integer { min: 1, max: i64::MAX },
            "Most characters of text, bytes of binary, items of a list (at most 1000).",
        ),
        key("one_of", Kind::List(&Kind::Value), "The only values allowed."),
        key("from", Kind::Text, "`tenant.ATTRIBUTE`: filled from the caller's identity; a caller can never set it."),
    ],
};

static STEP: Section = Section {
    title: "[[step]]",
    about: "One of `sql`, `sql_file`, `map`, `http`, `queue`, `emit`, or `route` alone.",
    keys: &[
        key(
            "name",
            Kind::Text,
            "How later steps refer to it: `steps.NAME.rows`, `.value`, `.error`. Without one it is `step_N`, counted from 1.",
        ),
        key("when", Kind::Expression, "Where it is false the step is left out and its value is null."),
        key("sql", Kind::Text, "One statement. `:name` is an input, always bound; a list stands in parentheses, as in `IN (:ids)`."),
        key("sql_file", Kind::Path, "The statement in a file of its own."),
        key("database", Kind::Text, "Where the statement runs. Not needed where there is only one."),
        key(
            "columns",
            Kind::Map(&Kind::Word(COLUMN_TYPES)),
            "Names and types of the result, fixed: feeds the schema and lets `check` prove expressions.",
        ),
        key("max_rows", Kind::Integer { min: 1, max: MAX_ROWS as i64 }, "Most rows; more are cut and the reply says `truncated`.")
            .default("1000"),
        key("max_bytes", Kind::Size { min: 1, max: MAX_BYTES }, "Most bytes of the result, held or written as JSON; cut at a row.")
            .default("\"1MiB\""),
        key("max_affected", Kind::Integer { min: 1, max: i64::MAX }, "Most rows a write may change; beyond it is rolled back.")
            .default("100")
            .or_unlimited(),
        key("map", Kind::Expression, "The step's value is what this expression gives."),
        key("http", Kind::Table(&HTTP), "Calls a service; the value is `{status, headers, body}`."),
        key("route", Kind::Tables(&ROUTE), "After the step, the first true one jumps forward."),
        key("retry", Kind::Table(&RETRY), "Tries again what may pass: never a refusal, never a write that may have happened."),
        key("on_empty", Kind::Table(&ON_EMPTY), "What a statement without rows replies."),
        key("on_error", Kind::Table(&ON_ERROR), "What stands in for a failed step."),
        key(
            "queue",
            Kind::Text,
            "Cuts the flow: the caller gets a job, what follows is done from this queue. At most once, always reached.",
        ),
        key(
            "expires",
            Kind::Time { min: SECOND, max: 366 * DAY },
            "With `queue`: when the item is given up. Rules what follows in place of `deadline`; else the queue's.",
        ),
        key("order_by", Kind::Expression, "With `queue`: items of a tenant with the same value complete in order."),
        key(
            "emit",
            Kind::Text,
            "Hands items to another flow, which starts with a `queue` step. They are there if and only if this item ended.",
        ),
        key(
            "each",
            Kind::Expression,
            "With `emit`: a list of maps, each the input of one item. Without it the value of the `map` before is the input of one.",
        ),
    ],
};

static HTTP: Section = Section {
    title: "http",
    about: "In `[[step]]`. The host stands in `[server] http_hosts`; no part of the address comes from a caller.",
    keys: &[
        key("method", Kind::Word(&["GET", "POST", "PUT", "PATCH", "DELETE"]), "HTTP method.").default("\"GET\""),
        key("url", Kind::Text, "Address.").required(),
        key("headers", Kind::Map(&Kind::Secret), "Headers; values may be secrets."),
        key("body", Kind::Expression, "What is sent, as JSON."),
        key("timeout", Kind::Time { min: 1, max: HOUR }, "Longest wait for the whole reply.").default("\"1s\""),
        key("max_bytes", Kind::Size { min: 1, max: MAX_BYTES }, "Largest reply.").default("\"64KiB\""),
    ],
};

static ROUTE: Section = Section {
    title: "route",
    about: "In `[[step]]`.",
    keys: &[
        key("when", Kind::Expression, "Whether to jump.").default("\"true\""),
        key("goto", Kind::Text, "Name of a later step.").required(),
    ],
};

static RETRY: Section = Section {
    title: "retry",
    about: "In `[[step]]`.",
    keys: &[
        key("attempts", Kind::Integer { min: 1, max: 10 }, "All tries together.").default("2"),
        key("backoff", Kind::Time { min: 1, max: 60 * SECOND }, "Wait before the second try, about doubled for each further one.")
            .default("\"100ms\""),
    ],
};

static ON_EMPTY: Section = Section {
    title: "on_empty",
    about: "In a `sql` step.",
    keys: &[key("status", Kind::Integer { min: 400, max: 499 }, "HTTP status of the reply, with code `empty`.").default("404")],
};

static ON_ERROR: Section = Section {
    title: "on_error",
    about: "In `[[step]]`. One of the two.",
    keys: &[
        key("value", Kind::Anything, "The step's value; `steps.NAME.error` holds the code."),
        key("stale", Kind::Boolean, "The cached reply, within the cache's `stale_if_error`."),
    ],
};

static TEST: Section = Section {
    title: "[[test]]",
    about: "Run by `spillgate test`; steps without `rows` ask the database.",
    keys: &[
        key("name", Kind::Text, "Shown when it fails."),
        key("tenant", Kind::Text, "Who calls.").required(),
        key("given", Kind::Map(&Kind::Anything), "The input as a caller sends it."),
        key("rows", Kind::Map(&Kind::Anything), "`rows.STEP`: rows that stand in for the database. A column left out is NULL."),
        key("expect", Kind::Table(&EXPECT), "The reply it must have."),
    ],
};

static EXPECT: Section = Section {
    title: "expect",
    about: "In `[[test]]`.",
    keys: &[
        key("status", Kind::Integer { min: 100, max: 599 }, "HTTP status.").default("200"),
        key("body", Kind::Anything, "What the reply must contain: objects at least these keys, everything else exactly."),
    ],
};

#[cfg(test)]
mod tests {
    use super::*;
    use spillgate_model::Type;
    use spillgate_model::limits::{DEFAULT_MAX_BYTES, DEFAULT_MAX_ROWS};
    use spillgate_model::units::ByteSize;

    #[test]
    fn the_tables_say_what_the_model_says() {
        assert_eq!(COLUMN_TYPES, Type::ALL.map(Type::name));
        assert!(INPUT_TYPES.iter().all(|name| Type::parse(name).is_some_and(|kind| kind != Type::Time)));
        let default = |name: &str| match STEP.find(name).map(|key| key.presence) {
            Some(super::super::Presence::Default(text)) => text.trim_matches('"'),
            _ => "",
        };
        assert_eq!(default("max_rows"), DEFAULT_MAX_ROWS.to_string());
        assert_eq!(default("max_bytes"), ByteSize(DEFAULT_MAX_BYTES).to_string());
    }
}
