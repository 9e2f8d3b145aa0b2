//! What the checker makes of files without faults.

use std::path::Path;
use std::time::Duration;

use spillgate_config::plan::{Action, Class, Driver, Effect, Flow, Input, OnError, Origin, Piece, SqlStep, SqlText};
use spillgate_config::source::Memory;
use spillgate_config::{Plan, explain, load_from};
use spillgate_model::{Type, Value};

const SERVER: &str = r#"
[server]
memory = "100MiB"
http_hosts = ["geo.example:443"]
[admin.alice]
keys = ["alice-key"]
[database.fleet]
driver = "sqlite"
connection = "fleet.db"
access = "read-write"
[database.hub]
driver = "postgres"
connection = "env:HUB"
pool = { max = 4 }
[class.batch]
rate = "60/min"
in_flight = 2
[tenant.agent]
keys = ["agent-key"]
attributes = { company = "ACME", level = 3, credit = "12.50" }
in_flight = 7
[tenant.night]
keys = ["night-key"]
class = "batch"
memory = "unlimited"
attributes = { company = "ACME", level = 1, credit = "0.10" }
flows = ["fleet_*", "lookup"]
"#;

fn source(flows: &[&str]) -> Memory {
    let source =
        Memory::default().file("conf/server.toml", SERVER).variable("HUB", "postgres://user:pass@h/db").file("conf/flows/x.sql", "");
    flows.iter().enumerate().fold(source, |source, (index, text)| source.file(format!("conf/flows/{index}.toml"), *text))
}

fn load_all(source: &Memory) -> Plan {
    load_from(source, Path::new("conf/server.toml"))
        .unwrap_or_else(|faults| panic!("{}", faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")))
}

fn flow(text: &str) -> Flow {
    let mut plan = load_all(&source(&[text]));
    std::sync::Arc::into_inner(plan.flows.remove(0)).expect("nobody else holds it")
}

fn sql(flow: &Flow, index: usize) -> &SqlStep {
    match &flow.steps[index].action {
        Action::Sql(sql) => sql,
        other => panic!("step {index} is {other:?}"),
    }
}

/// The text with `<n>` for input n and `<<n>>` for part n of the cursor.
fn render(text: &SqlText) -> String {
    let piece = |piece: &Piece| match piece {
        Piece::Text(text) => text.to_string(),
        Piece::Input(index) => format!("<{index}>"),
        Piece::Cursor(index) => format!("<<{index}>>"),
        Piece::System(system) => format!("<{system:?}>"),
    };
    text.pieces.iter().map(piece).collect()
}

const LOOKUP: &str = r#"
name = "lookup"
about = "One."
http = "GET /things/{id}"
[input.id]
type = "integer"
[input.ids]
type = ["integer"]
required = false
[[step]]
name = "one"
database = "hub"
sql = "SELECT a::text, ':id' FROM t WHERE id = :id AND x IN (:ids) OR id=:id -- :id\n;"
"#;

#[test]
fn values_are_bound_where_the_tokenizer_finds_parameters_and_nowhere_else() {
    let flow = flow(LOOKUP);
    let text = &sql(&flow, 0).text;
    assert_eq!(render(text), "SELECT a::text, ':id' FROM t WHERE id = <0> AND x IN (<1>) OR id=<0> -- :id\n");
    assert_eq!(text.pieces.len(), 7, "texts between markers are one piece each: {text:?}");
}

#[test]
fn limits_have_finite_defaults_and_say_where_they_come_from() {
    let plan = load_all(&source(&[LOOKUP]));
    let (agent, night) = (&plan.tenants[0], &plan.tenants[1]);
    assert_eq!((agent.class, night.class), (Class::Agent, Class::Batch));
    assert_eq!((agent.rate.value.calls, agent.rate.value.burst, &agent.rate.origin), (6000, 600, &Origin::Default));
    assert_eq!((agent.in_flight.value, agent.memory.value), (7, 25 << 20), "its own; a quarter of the server's");
    assert_eq!((night.rate.value.calls, night.in_flight.value), (60, 2), "the class's");
    assert!(matches!(&night.rate.origin, Origin::File { line: 16, .. }), "{:?}", night.rate.origin);
    assert_eq!(night.memory.value, u64::MAX);
    assert!(plan.notes.iter().any(|note| note.contains("conf/server.toml:25") && note.contains("unlimited")), "{:?}", plan.notes);
    assert_eq!((plan.server.cache, plan.server.shutdown_grace), (32 << 20, Duration::from_secs(20)));
    assert_eq!(plan.server.data_dir, Path::new("conf/data"));
    let [fleet, hub] = &plan.databases[..] else { panic!("two databases") };
    assert_eq!((fleet.driver, fleet.connection.expose(), fleet.writable), (Driver::Sqlite, "conf/fleet.db", true));
    assert_eq!(
        (hub.driver, hub.connection.expose(), hub.writable, hub.pool_max),
        (Driver::Postgres, "postgres://user:pass@h/db", false, 4)
    );
    let flow = &plan.flows[0];
    assert_eq!((flow.deadline.value, sql(flow, 0).max_rows, sql(flow, 0).max_bytes), (Duration::from_secs(5), 1_000, 1 << 20));
    assert!(agent.may_call("lookup") && night.may_call("fleet_x") && !night.may_call("other"));
}

#[test]
fn explain_names_every_limit_of_a_call_with_its_origin() {
    let plan = load_all(&source(&[LOOKUP]));
    let lines: Vec<String> = explain(&plan, "night", "lookup")
        .expect("it may call it")
        .iter()
        .map(|line| format!("{} = {} ({})", line.name, line.value, line.origin))
        .collect();
    for line in [
        "tenant.rate = 60/min, burst 6 (conf/server.toml:16)",
        "tenant.memory = unlimited (conf/server.toml:25)",
        "flow.deadline = 5s (default)",
        "step.one.max_rows = 1000 (default)",
        "database.hub.pool.max = 4 (conf/server.toml:14)",
        "database.hub.statement_timeout = 5s (default)",
        "server.memory = 100MiB (conf/server.toml:3)",
    ] {
        assert!(lines.iter().any(|found| found == line), "{line} in {lines:#?}");
    }
    assert!(!lines.iter().any(|line| line.contains("database.fleet")), "a database the flow does not use");
    assert!(explain(&plan, "night", "other").is_err() && explain(&plan, "nobody", "lookup").is_err());
}

const PAGED: &str = r#"
name = "fleet_list"
about = "Many."
http = "GET /things"
page = { key = ["SEEN desc", "\"Id\""], size = 2, max = 10 }
[input.state]
type = "text"
required = false
[[step]]
database = "DATABASE"
sql = "SELECT SEEN, \"Id\" FROM T WHERE (:state IS NULL OR S = :state) -- all"
"#;

#[test]
fn a_paged_statement_is_wrapped_ordered_and_cut_by_its_key() {
    let on_sqlite = flow(&PAGED.replace("DATABASE", "fleet"));
    let step = sql(&on_sqlite, 0);
    let inner = "SELECT * FROM (\nSELECT SEEN, \"Id\" FROM T WHERE (<0> IS NULL OR S = <0>) -- all\n) PAGE";
    assert_eq!(render(&step.text), format!("{inner} ORDER BY SEEN DESC, \"Id\" LIMIT 11"));
    let later = step.text_after_cursor.as_ref().expect("a page has a next one");
    let predicate = "WHERE (SEEN < <<0>> OR (SEEN = <<0>> AND \"Id\" > <<1>>))";
    assert_eq!(render(later), format!("{inner} {predicate} ORDER BY SEEN DESC, \"Id\" LIMIT 11"));
    let page = on_sqlite.page.as_ref().expect("it is paged");
    assert_eq!((page.size, page.max, page.step, step.max_rows), (2, 10, 0, 10));
    assert_eq!((&*page.key[1].column, page.key[0].descending), ("Id", true));
    let on_postgres = flow(&PAGED.replace("DATABASE", "hub"));
    assert!(render(&sql(&on_postgres, 0).text).ends_with("FETCH FIRST 11 ROWS ONLY"));
}

fn input<'a>(flow: &'a Flow, name: &str) -> &'a Input {
    flow.inputs.iter().find(|input| &*input.name == name).expect("it is declared")
}

#[test]
fn c2_inputs_have_typed_defaults_or_are_null_where_not_required() {
    let flow = flow(
        r#"
name = "fleet_inputs"
about = "Inputs."
http = "GET /i/{id}"
[input.id]
type = "integer"
[input.zero]
type = "integer"
default = 0
[input.nothing]
type = "text"
required = false
[input.word]
type = "text"
default = "null"
[input.exact]
type = "decimal"
default = 12.50
[input.day]
type = "date"
default = 2026-11-01
[input.many]
type = ["text"]
default = ["a", "b"]
[input.must]
type = "boolean"
[input.company]
from = "tenant.company"
[input.credit]
from = "tenant.credit"
type = "decimal"
[[step]]
database = "fleet"
sql = "SELECT :id, :zero, :nothing, :word, :exact, :day, :must, :company, :credit FROM T WHERE A IN (:many)"
"#,
    );
    let of = |name| (input(&flow, name).required, input(&flow, name).default.clone());
    assert_eq!(of("zero"), (false, Value::Integer(0)));
    assert_eq!(of("nothing"), (false, Value::Null));
    assert_eq!(of("word"), (false, Value::Text("null".into())));
    assert_eq!(of("exact"), (false, Value::Decimal("12.50".into())));
    assert_eq!(of("day"), (false, Value::Date("2026-11-01".into())));
    assert_eq!(of("many"), (false, Value::List([Value::Text("a".into()), Value::Text("b".into())].into())));
    assert_eq!(of("must"), (true, Value::Null));
    assert!(input(&flow, "id").in_path && input(&flow, "id").required);
    assert_eq!(input(&flow, "company").kind, Type::Text);
    assert_eq!(input(&flow, "many").max_length, Some(1_000), "a list is bounded by the markers of a statement");
}

#[test]
fn attributes_take_the_type_their_inputs_read_them_in() {
    let reader = |name: &str, kind: &str| {
        format!(
            "name = \"{name}\"\nabout = \"R.\"\nhttp = \"GET /{name}\"\n[input.credit]\nfrom = \"tenant.credit\"\ntype = \"{kind}\"\n[[step]]\ndatabase = \"fleet\"\nsql = \"SELECT :credit\"\n"
        )
    };
    let plan = load_all(&source(&[&reader("fleet_a", "decimal"), &reader("fleet_b", "decimal")]));
    assert_eq!(plan.tenants[0].attributes["credit"], Value::Decimal("12.50".into()));
    assert_eq!(plan.tenants[0].attributes["company"], Value::Text("ACME".into()));
    assert!(load_from(&source(&[&reader("fleet_a", "decimal"), &reader("fleet_b", "text")]), Path::new("conf/server.toml")).is_err());
}

const STEPS: &str = r#"
name = "fleet_steps"
about = "Steps."
http = "POST /steps"
effect = "write"
deadline = "9s"
[input.id]
type = "integer"
[[step]]
name = "look"
database = "fleet"
sql_file = "x.sql"
columns = { ID = "integer", SEEN = "timestamp" }
max_bytes = "1KiB"
route = [{ when = "size(steps.look.rows) == 0", goto = "end" }]
on_error = { value = { status = "unknown", n = 1 } }
[[step]]
database = "fleet"
sql = "UPDATE T SET A = 1 WHERE ID = :id"
max_affected = 1
max_bytes = "2KiB"
[[step]]
database = "fleet"
sql = "DELETE FROM T WHERE ID = :id"
max_affected = "unlimited"
max_bytes = "4KiB"
[[step]]
name = "geo"
http = { method = "POST", url = "https://geo.example/x", headers = { Authorization = "env:HUB" }, body = "{'id': input.id}" }
retry = { attempts = 3, backoff = "50ms" }
[[step]]
name = "end"
when = "steps.look.error == null"
map = "{'seen': size(steps.look.rows) > 0 ? steps.look.rows[0].SEEN : null}"
[[test]]
tenant = "agent"
given = { id = 9223372036854775807, list = [1, 2.50], day = 2026-11-01 }
rows.look = [{ ID = 1, SEEN = "2026-11-01T10:00:00" }, { ID = 2 }]
expect = { status = 200, body = { seen = "2026-11-01T10:00:00" } }
"#;

#[test]
fn steps_keep_their_order_their_limits_and_their_ways_out() {
    let source = source(&[STEPS]).file("conf/flows/x.sql", "SELECT ID, SEEN FROM T WHERE ID = :id");
    let plan = load_all(&source);
    let flow = &plan.flows[0];
    let endpoint = flow.http.as_ref().expect("it has an endpoint");
    assert_eq!((flow.effect, endpoint.method, &*endpoint.path), (Effect::Write, "POST", "/steps"));
    let names: Vec<&str> = flow.steps.iter().map(|step| &*step.name).collect();
    assert_eq!(names, ["look", "step_2", "step_3", "geo", "end"]);
    assert_eq!(flow.steps[0].route[0].1, 4);
    assert!(matches!(&flow.steps[0].on_error, Some(OnError::Value(_))));
    assert_eq!(flow.steps.iter().filter(|step| matches!(&step.action, Action::Sql(sql) if sql.write)).count(), 2);
    assert_eq!((sql(flow, 1).max_affected, sql(flow, 2).max_affected, sql(flow, 0).max_affected), (Some(1), None, None));
    assert_eq!(flow.memory, 2 * 1024 + 2 * 1024 + 4 * 1024 + 64 * 1024, "twice where an expression reads the rows");
    let test = &flow.tests[0];
    assert_eq!(test.given, r#"{"id":9223372036854775807,"list":[1,2.50],"day":"2026-11-01"}"#);
    assert_eq!(test.rows["look"][1], [("ID".into(), Value::Integer(2)), ("SEEN".into(), Value::Null)]);
    assert_eq!(test.expect_body.as_deref(), Some(r#"{"seen":"2026-11-01T10:00:00"}"#));
}

#[test]
fn versions_change_with_what_they_stand_for_and_with_nothing_else() {
    let texts = source(&[STEPS]).file("conf/flows/x.sql", "SELECT ID, SEEN FROM T WHERE ID = :id");
    let of = |source: &Memory| {
        let plan = load_all(source);
        (plan.version.clone(), plan.flows[0].version)
    };
    let (plan, flow) = of(&texts);
    assert_eq!(of(&texts), (plan.clone(), flow));
    let statement = of(&texts.clone().file("conf/flows/x.sql", "SELECT ID, SEEN FROM T WHERE ID = :id AND 1 = 1"));
    assert!(statement.0 != plan && statement.1 != flow);
    let server = of(&texts.clone().file("conf/server.toml", format!("{SERVER}# a remark\n")));
    assert!(server.0 != plan && server.1 == flow);
    let other_database = of(&texts.clone().file("conf/server.toml", SERVER.replace("fleet.db", "other.db")));
    assert!(other_database.1 != flow, "cached replies of another database are not its own");
    let rotated = of(&texts.clone().variable("HUB", "postgres://user:other@h/db"));
    assert!(rotated.0 != plan, "a rotated secret is taken by a reload");
}

#[test]
fn includes_are_read_as_one_file_and_secrets_from_files() {
    let source = source(&[])
        .file("conf/flows/0.toml", "name = \"a\"\nabout = \"A.\"\nhttp = \"GET /a\"\n[[step]]\nmap = \"tenant.name\"\n")
        .file("conf/server.toml", format!("include = [\"tenants/*.toml\"]\n{SERVER}"))
        .file("conf/tenants/one.toml", "[tenant.one]\nkeys = [\"file:one.key\"]\n")
        .file("conf/tenants/one.key", "one-key\r\n")
        .file("conf/tenants/readme.md", "not read");
    let plan = load_all(&source);
    let names: Vec<&str> = plan.tenants.iter().map(|tenant| &*tenant.name).collect();
    assert_eq!(names, ["agent", "night", "one"]);
    let expected: [u8; 32] = <sha2::Sha256 as sha2::Digest>::digest(b"one-key").into();
    assert_eq!(plan.tenants[2].keys, [expected]);
    let read: Vec<String> = plan.files.iter().map(|path| path.display().to_string()).collect();
    assert_eq!(read, ["conf/server.toml", "conf/tenants/one.toml", "conf/flows/0.toml"]);
    assert_eq!(plan.secret_files, [Path::new("conf/tenants/one.key")]);
}

#[test]
fn c10_a_plan_shows_no_secret() {
    let source = source(&[STEPS]).file("conf/flows/x.sql", "SELECT ID, SEEN FROM T WHERE ID = :id");
    let shown = format!("{:?}", load_all(&source));
    for secret in ["user:pass", "agent-key", "alice-key"] {
        assert!(!shown.contains(secret), "{secret} in {shown}");
    }
}
