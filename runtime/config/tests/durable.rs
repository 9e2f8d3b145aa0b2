//! What the checker makes of durable work: queues, cuts, keys, schedules, and what it says without failing.

use std::path::Path;
use std::time::Duration;

use spillgate_config::plan::{Action, Flow, KeyNeed, Origin, Piece, QueuePlan, SqlText, When, WhenFull};
use spillgate_config::source::{Memory, Source};
use spillgate_config::{Plan, explain, load_from};
use spillgate_model::Type;

const SERVER: &str = r#"
[store]
disk_limit = "64MiB"
[database.fleet]
driver = "sqlite"
connection = "fleet.db"
access = "read-write"
[database.hub]
driver = "postgres"
connection = "postgres://h/db"
access = "read-write"
[database.as400]
driver = "odbc"
connection = "DSN=X"
access = "read-write"
[queue.bookings]
items = 50
bytes = "2MiB"
max_item = "64KiB"
when_full = "shed_oldest"
workers = 2
attempts = 3
lease = "10s"
expires = "2h"
results = { max_result = "1KiB", keep = "1h" }
dead_letters = { items = 7, keep = "3d" }
[queue.trips]
[class.batch]
queued = { items = 5, bytes = "1MiB" }
[tenant.agent]
keys = ["agent-key"]
attributes = { company = "ACME" }
queued = { disk = "8MiB", items = "unlimited" }
[tenant.night]
keys = ["night-key"]
class = "batch"
attributes = { company = "ACME" }
queued = { bytes = "4MiB" }
"#;

fn source(flows: &[&str]) -> Memory {
    let source = Memory::default().file("conf/server.toml", SERVER).file("conf/flows/readme.md", "");
    flows.iter().enumerate().fold(source, |source, (index, text)| source.file(format!("conf/flows/{index}.toml"), *text))
}

fn load(source: &dyn Source) -> Plan {
    load_from(source, Path::new("conf/server.toml"))
        .unwrap_or_else(|faults| panic!("{}", faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")))
}

fn plan(flows: &[&str]) -> Plan {
    load(&source(flows))
}

fn flow<'a>(plan: &'a Plan, name: &str) -> &'a Flow {
    plan.flows.iter().find(|flow| &*flow.name == name).expect("it is there")
}

fn queue<'a>(plan: &'a Plan, name: &str) -> &'a QueuePlan {
    plan.queues.iter().find(|queue| &*queue.name == name).expect("it is there")
}

fn has_note(plan: &Plan, parts: &[&str]) -> bool {
    plan.notes.iter().any(|note| parts.iter().all(|part| note.contains(part)))
}

/// The text with `<Job>` for a value that is no input and `<n>` for input n.
fn render(text: &SqlText) -> String {
    let piece = |piece: &Piece| match piece {
        Piece::Text(text) => text.to_string(),
        Piece::Input(index) => format!("<{index}>"),
        Piece::Cursor(index) => format!("<<{index}>>"),
        Piece::System(system) => format!("<{system:?}>"),
    };
    text.pieces.iter().map(piece).collect()
}

#[test]
fn queues_have_finite_defaults_and_what_is_written() {
    let plan = plan(&[]);
    let written = queue(&plan, "bookings");
    assert_eq!((written.items.value, written.bytes.value, written.max_item.value), (50, 2 << 20, 64 << 10));
    assert_eq!((written.when_full, written.workers, written.attempts), (WhenFull::ShedOldest, 2, 3));
    assert_eq!((written.lease, written.expires), (Duration::from_secs(10), Duration::from_secs(7_200)));
    assert_eq!((written.max_result, written.result_keep), (1 << 10, Duration::from_secs(3_600)));
    assert_eq!((written.dead_items, written.dead_keep), (7, Duration::from_secs(3 * 86_400)));
    assert!(matches!(written.items.origin, Origin::File { line: 17, .. }), "{:?}", written.items.origin);
    let default = queue(&plan, "trips");
    assert_eq!((default.items.value, default.bytes.value, default.max_item.value), (50_000, 512 << 20, 1 << 20));
    assert_eq!((default.when_full, default.workers, default.attempts), (WhenFull::Refuse, 4, 5));
    assert_eq!((default.lease, default.expires), (Duration::from_secs(30), Duration::from_secs(7 * 86_400)));
    assert_eq!((default.max_result, default.result_keep), (256 << 10, Duration::from_secs(86_400)));
    assert_eq!((default.dead_items, default.dead_keep), (1_000, Duration::from_secs(7 * 86_400)));
    assert_eq!(default.items.origin, Origin::Default);
}

#[test]
fn each_share_of_a_tenant_is_its_own_its_class_s_or_the_default() {
    let plan = plan(&[]);
    let [agent, night] = &plan.tenants[..] else { panic!("two tenants") };
    assert_eq!((agent.queued.items.value, agent.queued.bytes.value, agent.queued.disk.value), (u64::MAX, 256 << 20, 8 << 20));
    assert_eq!((night.queued.items.value, night.queued.bytes.value, night.queued.disk.value), (5, 4 << 20, 512 << 20));
    assert!(matches!(night.queued.items.origin, Origin::File { line: 29, .. }), "{:?}", night.queued.items.origin);
    assert!(matches!(night.queued.bytes.origin, Origin::File { line: 38, .. }), "{:?}", night.queued.bytes.origin);
    assert!(has_note(&plan, &["conf/server.toml:33", "`items` is unlimited"]), "{:?}", plan.notes);
}

const BOOK: &str = r#"
name = "book"
about = "Books."
http = "POST /book"
effect = "write"
idempotency = { key = "optional", keep = "1h", derive_within = "5min", record = "FLEET.DONE" }
unique = { by = ["reference"], within = "2d" }
[input.trip]
type = "integer"
[input.reference]
type = "text"
[input.company]
from = "tenant.company"
[[step]]
name = "trip"
database = "hub"
sql = "SELECT ID, ROUTE FROM TRIP WHERE ID = :trip AND COMPANY = :company"
columns = { ID = "integer", ROUTE = "text" }
max_bytes = "2KiB"
[[step]]
name = "unread"
database = "hub"
sql = "SELECT 1"
max_bytes = "2KiB"
[[step]]
name = "label"
map = "'route ' + (size(steps.trip.rows) > 0 ? steps.trip.rows[0].ROUTE : '')"
[[step]]
queue = "bookings"
expires = "90min"
order_by = "input.trip"
[[step]]
name = "write"
database = "hub"
sql = "INSERT INTO BOOKING (TRIP, JOB, K) VALUES (:trip, :job, :idempotency_key)"
max_bytes = "1KiB"
[[step]]
when = "steps.trip.error == null"
map = "{'label': steps.label.value, 'written': steps.write.error == null}"
[[test]]
tenant = "agent"
given = { trip = 1, reference = "a" }
rows.write = []
"#;

#[test]
fn a_queue_step_cuts_a_flow_and_says_what_is_carried() {
    let plan = plan(&[BOOK]);
    let flow = flow(&plan, "book");
    let cut = flow.queue.as_ref().expect("it has a queue step");
    assert_eq!((cut.step, &*plan.queues[cut.queue].name), (3, "bookings"));
    assert!(matches!(flow.steps[cut.step].action, Action::Queue));
    assert_eq!(cut.expires, Duration::from_secs(5_400));
    assert_eq!(cut.order_by.as_ref().map(|order| order.text()), Some("input.trip"));
    assert_eq!(cut.carries, [0, 2], "what is read after the cut, and nothing else");
    assert_eq!(flow.memory, 2 * 2_048 + 2_048 + 1_024 + (64 << 10), "the item is held beside what steps hold");
}

#[test]
fn without_expires_an_item_takes_its_queues() {
    let plan = plan(&[&BOOK.replace("expires = \"90min\"\n", "")]);
    assert_eq!(flow(&plan, "book").queue.as_ref().map(|cut| cut.expires), Some(Duration::from_secs(7_200)));
}

#[test]
fn e6_a_record_is_a_row_beside_the_write_in_each_database() {
    for (database, key, moment) in [("hub", "text", "timestamptz"), ("as400", "VARCHAR(255)", "TIMESTAMP"), ("fleet", "TEXT", "TEXT")] {
        let plan = plan(&[&BOOK.replace("database = \"hub\"", &format!("database = \"{database}\""))]);
        let book = flow(&plan, "book");
        let once = book.idempotency.as_ref().expect("it has keys");
        assert_eq!((once.need, once.keep), (KeyNeed::Optional, Duration::from_secs(3_600)));
        assert_eq!(once.derive_within, Some(Duration::from_secs(300)));
        let record = once.record.as_ref().expect("it has a record");
        assert_eq!((&*record.table, &*plan.databases[record.database].name, record.step), ("FLEET.DONE", database, 4));
        let insert = "INSERT INTO FLEET.DONE (TENANT, FLOW, IDEMPOTENCY_KEY, JOB, DONE_AT) VALUES (<Tenant>, <Flow>, <Key>, <Job>, CURRENT_TIMESTAMP)";
        assert_eq!(render(&record.insert), insert);
        let find = "SELECT JOB FROM FLEET.DONE WHERE TENANT = <Tenant> AND FLOW = <Flow> AND IDEMPOTENCY_KEY = <Key>";
        assert_eq!(render(&record.find), find);
        for part in [format!("IDEMPOTENCY_KEY {key} NOT NULL"), format!("DONE_AT {moment} NOT NULL")] {
            assert!(record.ddl.contains(&part), "{part} in {}", record.ddl);
        }
        assert!(record.ddl.ends_with("PRIMARY KEY (TENANT, FLOW, IDEMPOTENCY_KEY))"), "{}", record.ddl);
        assert!(has_note(&plan, &["conf/flows/0.toml:6", "the flow book", database, &record.ddl]), "{:?}", plan.notes);
        assert!(!has_note(&plan, &["unknown"]), "{:?}", plan.notes);
        let unique = book.unique.as_ref().expect("it has a business key");
        assert_eq!((&unique.by[..], unique.within), (&[1][..], Duration::from_secs(2 * 86_400)));
    }
}

#[test]
fn e6_the_record_made_by_the_printed_statement_holds_each_key_once() {
    let plan = plan(&[&BOOK.replace("database = \"hub\"", "database = \"fleet\"").replace("FLEET.DONE", "DONE")]);
    let record = flow(&plan, "book").idempotency.as_ref().and_then(|once| once.record.as_ref()).expect("it has a record");
    let marked = |text: &SqlText| render(text).replace("<Tenant>", "?").replace("<Flow>", "?").replace("<Key>", "?").replace("<Job>", "?");
    let connection = rusqlite::Connection::open_in_memory().expect("a database");
    connection.execute(&record.ddl, []).expect("the table is made");
    assert_eq!(connection.execute(&marked(&record.insert), ["agent", "book", "key", "job"]).ok(), Some(1));
    assert!(connection.execute(&marked(&record.insert), ["agent", "book", "key", "other"]).is_err(), "the key is taken");
    assert_eq!(connection.execute(&marked(&record.insert), ["night", "book", "key", "third"]).ok(), Some(1), "another tenant's is its own");
    let found: String = connection.query_row(&marked(&record.find), ["agent", "book", "key"], |row| row.get(0)).expect("it is found");
    assert_eq!(found, "job");
}

const DIRECT: &str = r#"
name = "direct"
about = "Writes."
http = "POST /direct"
effect = "write"
idempotency = { key = "derived", verify = "SELECT 1 FROM B WHERE T = :trip AND (K = :idempotency_key OR J = :job);" }
[input.trip]
type = "integer"
[[step]]
database = "fleet"
sql = "INSERT INTO B (T, K, J) VALUES (:trip, :idempotency_key, :job)"
"#;

#[test]
fn verify_reads_where_the_flow_writes() {
    let plan = plan(&[DIRECT]);
    let direct = flow(&plan, "direct");
    let once = direct.idempotency.as_ref().expect("it has keys");
    assert_eq!((once.need, once.keep, once.derive_within), (KeyNeed::Derived, Duration::from_secs(48 * 3_600), None));
    let verify = once.verify.as_ref().expect("it has one");
    assert_eq!(&*plan.databases[verify.database].name, "fleet");
    assert_eq!(render(&verify.text), "SELECT 1 FROM B WHERE T = <0> AND (K = <Key> OR J = <Job>)");
    assert!(!verify.write && verify.max_rows == 1);
    assert!(!has_note(&plan, &["unknown"]), "{:?}", plan.notes);
    let elsewhere = self::plan(&[&DIRECT.replace("verify =", "database = \"hub\", verify =")]);
    let verify = flow(&elsewhere, "direct").idempotency.as_ref().and_then(|once| once.verify.as_ref()).expect("it has one");
    assert_eq!(&*elsewhere.databases[verify.database].name, "hub");
}

#[test]
fn a_write_whose_end_nobody_could_tell_is_noted() {
    let without =
        |text: &str, from: &str, to: &str| text.replace(&text[text.find(from).expect("it starts")..text.find(to).expect("it ends")], "");
    let direct = plan(&[&DIRECT.replace(DIRECT.lines().nth(5).expect("a line"), "idempotency = { key = \"required\" }")]);
    assert!(has_note(&direct, &["0.toml:6", "the flow direct ends as `unknown`"]), "{:?}", direct.notes);
    let queued = plan(&[&without(BOOK, "idempotency =", "unique =")]);
    assert!(has_note(&queued, &["the flow book ends as `unknown`"]), "{:?}", queued.notes);
    let emitting =
        format!("{}[[step]]\nemit = \"take\"\neach = \"[{{'trip': 1}}]\"\n", &BOOK[..BOOK.find("[[test]]").expect("it has one")]);
    let emitting = plan(&[&emitting, TAKE]);
    assert!(has_note(&emitting, &["0.toml:6", "the flow book", "`emit`", "ends as `unknown`"]), "{:?}", emitting.notes);
    let plain = plan(&[
        "name = \"plain\"\nabout = \"P.\"\nhttp = \"POST /plain\"\neffect = \"write\"\n[[step]]\ndatabase = \"fleet\"\nsql = \"DELETE FROM T\"\n",
    ]);
    assert!(!has_note(&plain, &["unknown"]), "a direct flow without keys promises nothing: {:?}", plain.notes);
}

#[test]
fn a_business_key_that_holds_less_than_it_seems_is_noted() {
    let of = |by: &str, input: &str| {
        plan(&[&format!(
            "name = \"u\"\nabout = \"U.\"\nhttp = \"POST /u\"\nunique = {{ by = [\"{by}\"] }}\n[input.{by}]\n{input}\n[[step]]\nqueue = \"trips\"\n[[step]]\nmap = \"1\"\n"
        )])
    };
    let identity = of("company", "from = \"tenant.company\"");
    assert!(has_note(&identity, &["0.toml:4", "only inputs from the identity"]), "{:?}", identity.notes);
    let optional = of("reference", "type = \"text\"\nrequired = false");
    assert!(has_note(&optional, &["0.toml:4", "leave out `reference`"]), "{:?}", optional.notes);
    let whole = of("reference", "type = \"text\"");
    assert!(!has_note(&whole, &["unique"]), "an input that only `unique` reads is used: {:?}", whole.notes);
}

const SYNC: &str = r#"
name = "sync"
effect = "write"
[schedule]
every = "5min"
tenant = "night"
watermark = "steps.new.rows[-1].SEEN"
[input.company]
from = "tenant.company"
[input.most]
type = "integer"
default = 10
[[step]]
name = "new"
database = "fleet"
sql = "SELECT ID, SEEN FROM T WHERE (:watermark IS NULL OR SEEN > :watermark) AND C = :company AND N < :most ORDER BY SEEN"
columns = { ID = "integer", SEEN = "timestamp" }
[[step]]
emit = "take"
each = "steps.new.rows.map(row, {'trip': row.ID})"
[[step]]
map = "{'trip': 1}"
[[step]]
name = "last"
emit = "take"
when = "size(steps.new.rows) > 0"
"#;

const TAKE: &str = r#"
name = "take"
[input.trip]
type = "integer"
[input.company]
from = "tenant.company"
[[step]]
queue = "trips"
[[step]]
map = "string(input.trip) + input.company"
"#;

#[test]
fn a_schedule_runs_a_flow_without_a_caller_and_hands_on_what_it_finds() {
    let plan = plan(&[SYNC, TAKE]);
    let (sync, take) = (flow(&plan, "sync"), flow(&plan, "take"));
    assert!(sync.http.is_none() && take.http.is_none() && sync.takes_body());
    let schedule = sync.schedule.as_ref().expect("it has one");
    assert!(matches!(schedule.when, When::Every(every) if every == Duration::from_secs(300)));
    assert_eq!(&*plan.tenants[schedule.tenant].name, "night");
    assert_eq!(schedule.watermark.as_ref().map(|mark| mark.text()), Some("steps.new.rows[-1].SEEN"));
    assert_eq!(schedule.watermark_type, Some(Type::Timestamp), "its text is bound as what it is");
    let Action::Sql(sql) = &sync.steps[0].action else { panic!("a statement") };
    let text = "SELECT ID, SEEN FROM T WHERE (<Watermark> IS NULL OR SEEN > <Watermark>) AND C = <0> AND N < <1> ORDER BY SEEN";
    assert_eq!(render(&sql.text), text);
    for (step, each) in [(1, true), (3, false)] {
        let Action::Emit(emit) = &sync.steps[step].action else { panic!("it emits") };
        assert_eq!((&*emit.flow, &*plan.flows[emit.target].name, emit.each.is_some()), ("take", "take", each));
    }
    assert!(!has_note(&plan, &["nothing starts"]), "{:?}", plan.notes);
    let alone = self::plan(&[TAKE]);
    assert!(has_note(&alone, &["nothing starts the flow take"]), "{:?}", alone.notes);
    let cron = self::plan(&[&SYNC.replace("every = \"5min\"", "cron = \"0 2 * * mon\""), TAKE]);
    let Some(When::Cron(cron)) = flow(&cron, "sync").schedule.as_ref().map(|schedule| &schedule.when) else { panic!("a cron") };
    assert_eq!(cron.written(), "0 2 * * mon");
    // 1970 began on a Thursday.
    assert_eq!(cron.next_after(0), Some((4 * 24 + 2) * 3_600));
}

#[test]
fn emit_without_each_carries_the_map_before_the_cut() {
    let text = "name = \"a\"\nabout = \"A.\"\nhttp = \"POST /a\"\n[[step]]\nmap = \"{'trip': 1}\"\n[[step]]\nqueue = \"bookings\"\n[[step]]\nemit = \"take\"\n";
    let plan = plan(&[text, TAKE]);
    assert_eq!(flow(&plan, "a").queue.as_ref().map(|cut| &cut.carries[..]), Some(&[0][..]));
}

#[test]
fn explain_names_every_limit_of_a_durable_call() {
    let plan = plan(&[BOOK, SYNC, TAKE]);
    let lines = |flow: &str| -> Vec<String> {
        let explained = explain(&plan, "night", flow).expect("it may call it");
        explained.iter().map(|line| format!("{} = {} ({})", line.name, line.value, line.origin)).collect()
    };
    let book = lines("book");
    for line in [
        "tenant.queued.items = 5 (conf/server.toml:29)",
        "tenant.queued.bytes = 4MiB (conf/server.toml:38)",
        "tenant.queued.disk = 512MiB (default)",
        "flow.expires = 90min (conf/flows/0.toml:30)",
        "flow.idempotency.keep = 1h (conf/flows/0.toml:6)",
        "flow.idempotency.derive_within = 5min (conf/flows/0.toml:6)",
        "flow.unique.within = 2d (conf/flows/0.toml:7)",
        "queue.bookings.items = 50 (conf/server.toml:17)",
        "queue.bookings.bytes = 2MiB (conf/server.toml:18)",
        "queue.bookings.max_item = 64KiB (conf/server.toml:19)",
        "queue.bookings.workers = 2 (conf/server.toml:21)",
        "queue.bookings.attempts = 3 (conf/server.toml:22)",
        "queue.bookings.lease = 10s (conf/server.toml:23)",
        "queue.bookings.expires = 2h (conf/server.toml:24)",
        "queue.bookings.results.max_result = 1KiB (conf/server.toml:25)",
        "queue.bookings.results.keep = 1h (conf/server.toml:25)",
        "queue.bookings.dead_letters.items = 7 (conf/server.toml:26)",
        "queue.bookings.dead_letters.keep = 3d (conf/server.toml:26)",
        "store.disk_limit = 64MiB (conf/server.toml:3)",
        "store.disk_reserve = 256MiB (default)",
    ] {
        assert!(book.iter().any(|found| found == line), "{line} in {book:#?}");
    }
    assert!(!book.iter().any(|line| line.contains("queue.trips")), "a queue it does not use");
    assert!(lines("sync").iter().any(|line| line == "queue.trips.items = 50000 (default)"), "the queue it emits to");
}

#[test]
fn d5_shares_that_exceed_the_store_or_the_volume_are_named_with_their_numbers() {
    let flows = source(&[TAKE, SYNC]);
    let plan = load(&flows);
    assert!(has_note(&plan, &["`queued.disk` of tenants (2)", "520MiB", "`[store] disk_limit` leaves 56MiB"]), "{:?}", plan.notes);
    assert!(has_note(&plan, &["`bytes` of queues (2)", "514MiB", "56MiB"]), "{:?}", plan.notes);
    assert!(!has_note(&plan, &["volume"]), "nothing is known of it: {:?}", plan.notes);
    let mut small = flows.clone();
    small.available = Some(100 << 20);
    let plan = load(&small);
    let parts = ["the volume of conf/data has 100MiB", "64MiB and 256MiB", "disk_low"];
    assert!(has_note(&plan, &parts), "{:?}", plan.notes);
    small.available = Some(320 << 20);
    assert!(!has_note(&load(&small), &["volume"]));
    let direct = self::plan(&["name = \"d\"\nabout = \"D.\"\nhttp = \"GET /d\"\n[[step]]\nmap = \"1\"\n"]);
    assert!(!has_note(&direct, &["add up"]), "nothing is kept on disk: {:?}", direct.notes);
}

#[test]
fn d5_a_queue_of_several_whose_largest_item_may_not_fit_beside_a_full_lane_is_noted() {
    let with = |agent: &str, trips: &str| {
        let server = SERVER.replace("items = \"unlimited\"", agent).replace("[queue.trips]\n", &format!("[queue.trips]\n{trips}\n"));
        load(&source(&[TAKE]).file("conf/server.toml", server)).notes
    };
    let said =
        |notes: &[String]| notes.iter().any(|note| note.contains("of the queue trips one tenant (agent for one) may leave no more than"));
    for (agent, trips, too_small) in [
        ("items = \"unlimited\"", "", false),
        ("items = 40", "bytes = \"2MiB\"\nmax_item = \"256KiB\"", false),
        ("items = 40", "bytes = \"2MiB\"\nmax_item = \"512KiB\"", true),
        // 3 items of 512KiB at the most leave as much.
        ("items = 3", "bytes = \"2MiB\"\nmax_item = \"512KiB\"", false),
        ("items = \"unlimited\"", "items = \"unlimited\"\nbytes = \"unlimited\"", false),
    ] {
        let notes = with(agent, trips);
        assert_eq!(said(&notes), too_small, "{agent}, {trips}: {notes:?}");
    }
}

#[test]
fn a_queue_is_shared_where_several_tenants_may_call_into_it() {
    let of = |night: &str| {
        let server = SERVER.replace("[tenant.night]\n", &format!("[tenant.night]\n{night}\n"));
        let plan = load(&source(&[TAKE]).file("conf/server.toml", server));
        (queue(&plan, "trips").shared, queue(&plan, "bookings").shared)
    };
    assert_eq!(of(""), (true, false), "no flow uses the other one");
    assert_eq!(of("flows = []"), (false, false), "one tenant has it for itself");
}

#[test]
fn d5_items_that_a_tenant_or_an_item_has_no_room_for_are_noted() {
    let plan = plan(&[TAKE, &SYNC.replace("default = 10", "default = 10\nmax = 20")]);
    assert!(has_note(&plan, &["no flow uses the queue bookings"]), "{:?}", plan.notes);
    let tight =
        source(&[TAKE]).file("conf/server.toml", SERVER.replace("queued = { bytes = \"4MiB\" }", "queued = { bytes = \"512KiB\" }"));
    let plan = load(&tight);
    assert!(has_note(&plan, &["conf/server.toml:38", "tenant night", "512KiB", "trips", "1MiB"]), "{:?}", plan.notes);
    let large = self::plan(&[&BOOK.replacen("max_bytes = \"2KiB\"", "max_bytes = \"65KiB\"", 1)]);
    assert!(has_note(&large, &["conf/flows/0.toml:14", "the step trip", "65KiB", "bookings holds 64KiB"]), "{:?}", large.notes);
}
