//! The server file.

use spillgate_model::limits::LEAST_DISK_LIMIT;

use super::durable::QUEUE;
use super::isolation::{self, BREAKER};
use super::{Kind, Section, Stage, key};

const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;
const SECOND: u64 = 1_000;
const HOUR: u64 = 3_600 * SECOND;
const DAY: u64 = 24 * HOUR;

pub(crate) const CLASSES: &[&str] = &["control", "interactive", "agent", "batch"];
/// A tenant that does not say is an agent: of the classes with people behind them the least urgent.
const DEFAULT_CLASS: &str = "\"agent\"";

pub(crate) static ROOT: Section = Section {
    title: "the server file",
    about: "One file, split with `include` where that reads better.",
    keys: &[
        key(
            "include",
            Kind::List(&Kind::Path),
            "More files of this form. `*` may stand in the file name; each file that matches is read, in name order.",
        )
        .default("[]"),
        key("server", Kind::Table(&SERVER), "Listeners, folders and the server's own limits."),
        key("admin", Kind::Named(&ADMIN), "Who may use the admin listener; the audit names them."),
        key("store", Kind::Table(&STORE), "Limits of what is kept on disk."),
        key("telemetry", Kind::Table(&TELEMETRY), "Where traces go."),
        key("database", Kind::Named(&DATABASE), "Where statements run."),
        key("class", Kind::Named(&CLASS), "Limits of the tenants of a class that do not set their own."),
        key("tenant", Kind::Named(&TENANT), "Who may call flows."),
        key("queue", Kind::Named(&QUEUE), "Durable queues: work that waits on disk."),
    ],
};

static SERVER: Section = Section {
    title: "[server]",
    about: "Changes of `listen`, `admin_listen`, `data_dir` and `[store]` need a restart; everything else is taken while running.",
    keys: &[
        key("listen", Kind::Address, "Where callers connect.").default("\"127.0.0.1:8080\""),
        key("admin_listen", Kind::Address, "Where operators connect: metrics, state, reload.").default("\"127.0.0.1:8081\""),
        key("data_dir", Kind::Path, "Folder for what is kept on disk.").default("\"data\""),
        key("flows", Kind::Path, "Folder of flows; each `*.toml` below it is one.").default("\"flows\""),
        key("memory", Kind::Size { min: MIB, max: TIB }, "Hard budget for payloads in flight, reserved per call.").default("\"256MiB\""),
        key("cache", Kind::Size { min: 0, max: TIB }, "What all cached replies together may hold; those of one tenant a quarter of it.")
            .default("\"32MiB\""),
        key("http_hosts", Kind::List(&Kind::Text), "`host:port` of the only hosts `http` steps may call.").default("[]"),
        key("shutdown_grace", Kind::Time { min: 0, max: HOUR }, "How long accepted calls may go on after a stop.").default("\"20s\""),
        key("tls", Kind::Anything, "Certificate, key and client authority of the listener.").later(Stage::Edge),
    ],
};

static ADMIN: Section = Section {
    title: "[admin.NAME]",
    about: "One operator.",
    keys: &[key("keys", Kind::List(&Kind::Secret), "Keys of this operator.").required()],
};

static STORE: Section = Section {
    title: "[store]",
    about: "What durable work may hold of the volume.",
    keys: &[
        key(
            "disk_limit",
            Kind::Size { min: LEAST_DISK_LIMIT, max: TIB },
            "Most that is kept on disk, hard: queues and operators' settings together.",
        )
        .default("\"2GiB\""),
        key("disk_reserve", Kind::Size { min: 0, max: TIB }, "Free space on the volume below which new durable work is refused.")
            .default("\"256MiB\""),
    ],
};

static TELEMETRY: Section = Section {
    title: "[telemetry]",
    about: "Logs and metrics need no key; traces are sent only where this says.",
    keys: &[key("otlp", Kind::Text, "Base URL of an OTLP/HTTP collector, such as `http://127.0.0.1:4318`.")],
};

static DATABASE: Section = Section {
    title: "[database.NAME]",
    about: "One database. The process starts and serves while it is down.",
    keys: &[
        key("driver", Kind::Word(&["odbc", "postgres", "sqlite"]), "How it is reached.").required(),
        key("connection", Kind::Secret, "Connection string or URL; for SQLite the path of the file.").required(),
        key("access", Kind::Word(&["read-only", "read-write"]), "`read-write` allows write steps.").default("\"read-only\""),
        key("on_connect", Kind::List(&Kind::Text), "Statements run on every new connection.").default("[]"),
        key("pool", Kind::Table(&POOL), "Connections and the line before them."),
        key("statement_timeout", Kind::Time { min: 1, max: HOUR }, "Longest time for one statement, whatever the flow's deadline.")
            .default("\"5s\""),
        key("breaker", Kind::Table(&BREAKER), "When calls are no longer let through, and for how long.").or_off(),
        key("cancel_sql", Kind::Anything, "Statement that ends another connection's statement.").later(Stage::Edge),
    ],
};

static POOL: Section = Section {
    title: "pool",
    about: "In `[database.NAME]`.",
    keys: &[
        key("max", Kind::Integer { min: 1, max: 1_000 }, "Most connections, for reads and writes together.").default("16"),
        key("line", Kind::Integer { min: 0, max: 100_000 }, "Most calls of one tenant that wait for a connection.").default("16"),
        key("idle", Kind::Time { min: SECOND, max: DAY }, "A connection unused for so long is closed.").default("\"5min\""),
        key(
            "fast_only",
            Kind::Integer { min: 0, max: 999 },
            "Connections that flows never hold which take over 250 ms by estimate, or are not yet measured; without it an eighth.",
        ),
        key(
            "shed",
            Kind::Word(&["adaptive", "off"]),
            "`adaptive`: while the database is slower than it used to be, fewer connections are used and the line is shortened.",
        )
        .default("\"adaptive\""),
    ],
};

static CLASS: Section = Section {
    title: "[class.NAME]",
    about: "NAME is control, interactive, agent or batch.",
    keys: &[
        isolation::rate(),
        isolation::in_flight(),
        isolation::memory(),
        isolation::weight(),
        isolation::seats(),
        isolation::queued(),
        isolation::repeat_budget(),
        isolation::run(),
    ],
};

static TENANT: Section = Section {
    title: "[tenant.NAME]",
    about: "One caller. A limit not written here is its class's, and without one there the default. Operators may set others while the server runs.",
    keys: &[
        key("keys", Kind::List(&Kind::Secret), "Keys of this tenant, kept as hashes.").default("[]"),
        key("class", Kind::Word(CLASSES), "Which class it belongs to: who goes first where calls wait.").default(DEFAULT_CLASS),
        key(
            "attributes",
            Kind::Map(&Kind::Value),
            "What identity-bound inputs read. Text, whole numbers, booleans; exact decimals as text.",
        ),
        key(
            "flows",
            Kind::List(&Kind::Text),
            "Names of the flows it may call; `*` stands for any letters. Other flows do not exist for it.",
        )
        .default("[\"*\"]"),
        isolation::rate().default("\"6000/min\""),
        isolation::in_flight().default("64"),
        isolation::memory(),
        isolation::weight().default("1"),
        isolation::seats(),
        isolation::queued(),
        isolation::repeat_budget().default("{ rate = \"1/s\", burst = 20 }"),
        isolation::run(),
        isolation::database(),
    ],
};
