//! `idempotency` and `unique`: what is done once, and how that is told after a crash.

use std::sync::Arc;

use spillgate_model::limits::KEY_BYTES;
use spillgate_model::units::show_duration;

use crate::fault::did_you_mean;
use crate::place::{Located, Place};
use crate::plan::{
    Action, Driver, IdempotencyPlan, Input, KeyNeed, Piece, QueueCut, RecordPlan, SqlStep, SqlText, Step, System, UniquePlan,
};
use crate::raw::printable;
use crate::written::Table;

use super::Checker;
use super::statement::{Binding, prove};
use super::step::Steps;

/// Most bytes of what `verify` finds: that there is a row is all that counts.
const VERIFY_BYTES: usize = 64 << 10;

/// What `idempotency` is checked against.
pub(crate) struct Around<'a> {
    /// The flow's name.
    pub(crate) name: &'a str,
    /// Callers reach it, and could send a key.
    pub(crate) has_endpoint: bool,
    pub(crate) proven: &'a [(Step, &'a Table)],
}

/// `idempotency = {…}`.
pub(crate) fn idempotency(checker: &mut Checker<'_>, flow: &Table, steps: &mut Steps<'_>, around: &Around<'_>) -> Option<IdempotencyPlan> {
    let table = flow.table("idempotency")?;
    needs_effect(checker, flow, steps, "idempotency");
    let need = table.written_text("key").map(|written| match &*written.value {
        "required" => KeyNeed::Required,
        "optional" => KeyNeed::Optional,
        _ => KeyNeed::Derived,
    });
    if need == Some(KeyNeed::Required) && !around.has_endpoint {
        checker.faults.add(&table.place_of("key"), "nobody sends a key to a flow without `http`: \"optional\" or \"derived\"");
    }
    let (keep, derive_within) = (table.time("keep"), table.written_time("derive_within"));
    checker.limit(&steps.subject, "flow.idempotency.keep", &keep, show_duration(keep.value));
    if let Some(within) = &derive_within {
        checker.limit(&steps.subject, "flow.idempotency.derive_within", within, show_duration(within.value));
    }
    if table.has("record") && table.has("verify") {
        checker.faults.add(&table.key_place("verify"), "`record` tells already whether the work was done: one of the two");
    }
    let record = table.located("record").and_then(|written| record(checker, steps, around, &written));
    let verify = table.located("verify").and_then(|written| verify(checker, steps, around, table, &written));
    if table.has("database") && !table.has("verify") {
        checker.faults.add(&table.key_place("database"), "`database` says where `verify` runs, and there is none");
    }
    Some(IdempotencyPlan { need: need?, keep: keep.value, derive_within: derive_within.map(|within| within.value), record, verify })
}

/// Neither means anything where nothing is done.
fn needs_effect(checker: &mut Checker<'_>, flow: &Table, steps: &Steps<'_>, key: &str) {
    if !steps.writes && steps.cut_at.is_none() {
        checker.faults.add(&flow.key_place(key), format!("`{key}` goes with a flow that writes or queues: this one only reads"));
    }
}

fn writing<'a>(proven: &'a [(Step, &Table)]) -> impl Iterator<Item = (&'a Step, &'a SqlStep)> {
    proven.iter().filter_map(|(step, _)| match &step.action {
        Action::Sql(sql) if sql.write => Some((step, sql)),
        _ => None,
    })
}

/// `record = "TABLE"`.
fn record(checker: &mut Checker<'_>, steps: &Steps<'_>, around: &Around<'_>, written: &Located<String>) -> Option<RecordPlan> {
    let Some(table) = table_name(&written.value) else {
        let message =
            format!("expected the name of a table such as \"SPILLGATE_DONE\" or \"FLEET.DONE\", found \"{}\"", printable(&written.value));
        checker.faults.add(&written.place, message);
        return None;
    };
    if steps.uncertain {
        return None;
    }
    let writing: Vec<_> = writing(around.proven).collect();
    let [(step, sql)] = writing[..] else {
        let message = format!("`record` stands in the transaction of the flow's one step that writes: this flow has {}", writing.len());
        checker.faults.add(&written.place, message);
        return None;
    };
    let database = &steps.world.databases[sql.database];
    let ddl = ddl(table, database.driver?);
    checker.notes.push(format!("{}: `record` of the flow {} needs in {}: {ddl}", written.place.short(), around.name, database.name));
    let text = |text: String| Piece::Text(text.into());
    let insert = [
        text(format!("INSERT INTO {table} (TENANT, FLOW, IDEMPOTENCY_KEY, JOB, DONE_AT) VALUES (")),
        Piece::System(System::Tenant),
        text(", ".into()),
        Piece::System(System::Flow),
        text(", ".into()),
        Piece::System(System::Key),
        text(", ".into()),
        Piece::System(System::Job),
        text(", CURRENT_TIMESTAMP)".into()),
    ];
    let find = [
        text(format!("SELECT JOB FROM {table} WHERE TENANT = ")),
        Piece::System(System::Tenant),
        text(" AND FLOW = ".into()),
        Piece::System(System::Flow),
        text(" AND IDEMPOTENCY_KEY = ".into()),
        Piece::System(System::Key),
    ];
    Some(RecordPlan {
        table: table.into(),
        database: sql.database,
        step: steps.index_of(&step.name),
        insert: SqlText { pieces: Arc::from(insert) },
        find: SqlText { pieces: Arc::from(find) },
        ddl,
    })
}

/// Names with dots between: plain words, or in double quotes.
fn table_name(text: &str) -> Option<&str> {
    let text = text.trim();
    let plain = |part: &str| {
        part.starts_with(|letter: char| letter.is_alphabetic() || letter == '_')
            && part.chars().all(|letter| letter.is_alphanumeric() || matches!(letter, '_' | '#' | '@' | '$'))
    };
    let quoted = |part: &str| part.len() > 2 && part.starts_with('"') && part.ends_with('"') && !part[1..part.len() - 1].contains('"');
    text.split('.').all(|part| plain(part) || quoted(part)).then_some(text)
}

fn ddl(table: &str, driver: Driver) -> String {
    let (text, key, moment) = match driver {
        Driver::Odbc => ("VARCHAR(64)", format!("VARCHAR({KEY_BYTES})"), "TIMESTAMP"),
        Driver::Postgres => ("text", "text".into(), "timestamptz"),
        Driver::Sqlite => ("TEXT", "TEXT".into(), "TEXT"),
    };
    format!(
        "CREATE TABLE {table} (TENANT {text} NOT NULL, FLOW {text} NOT NULL, IDEMPOTENCY_KEY {key} NOT NULL, JOB {text} NOT NULL, \
         DONE_AT {moment} NOT NULL, PRIMARY KEY (TENANT, FLOW, IDEMPOTENCY_KEY))"
    )
}

/// `verify = "SELECT …"`.
fn verify(
    checker: &mut Checker<'_>,
    steps: &mut Steps<'_>,
    around: &Around<'_>,
    table: &Table,
    written: &Located<String>,
) -> Option<SqlStep> {
    let written_to = writing(around.proven).map(|(_, sql)| sql.database).collect::<std::collections::BTreeSet<_>>();
    let database = match (table.has("database"), written_to.len()) {
        (false, 1) => written_to.first().copied(),
        _ => steps.database(checker, table, "`verify`"),
    };
    let Some((database, driver)) = database.and_then(|database| Some((database, steps.world.databases[database].driver?))) else {
        steps.uncertain = true;
        return None;
    };
    let system = [("idempotency_key", System::Key), ("job", System::Job)];
    let binding = Binding { inputs: steps.names.inputs, used: &mut steps.used, system: &system };
    let proven = prove(checker, (&written.value, &written.place), driver, binding, None);
    let Some(proven) = proven else {
        steps.uncertain = true;
        return None;
    };
    if let Some(place) = &proven.write {
        checker.faults.add(place, "the statement writes here: `verify` only reads");
    }
    Some(SqlStep {
        database,
        text: proven.text,
        text_after_cursor: None,
        write: false,
        max_affected: None,
        columns: Vec::new(),
        max_rows: 1,
        max_bytes: VERIFY_BYTES,
    })
}

/// `unique = {…}`.
pub(crate) fn unique(checker: &mut Checker<'_>, flow: &Table, steps: &mut Steps<'_>) -> Option<UniquePlan> {
    let table = flow.table("unique")?;
    needs_effect(checker, flow, steps, "unique");
    let mut by: Vec<usize> = Vec::new();
    let inputs: &[Input] = steps.names.inputs;
    for written in table.texts("by") {
        let Some(place) = written.place else { continue };
        match inputs.iter().position(|input| *input.name == *written.value) {
            Some(index) if by.contains(&index) => checker.faults.add(&place, format!("`{}` stands in the key twice", written.value)),
            Some(index) => {
                steps.used[index] = true;
                by.push(index);
            }
            None => {
                let near = did_you_mean(&written.value, inputs.iter().map(|input| &*input.name));
                checker.faults.add(&place, format!("`{}` is no declared input{near}", printable(&written.value)));
                steps.uncertain = true;
            }
        }
    }
    if table.list("by").is_empty() && table.has("by") && !table.is_broken("by") {
        checker.faults.add(&table.place_of("by"), "expected at least one input");
    }
    let within = table.time("within");
    checker.limit(&steps.subject, "flow.unique.within", &within, show_duration(within.value));
    note_unique(checker, &table.place_of("by"), inputs, &by);
    Some(UniquePlan { by, within: within.value })
}

fn note_unique(checker: &mut Checker<'_>, place: &Place, inputs: &[Input], by: &[usize]) {
    let of_identity = |index: &usize| inputs[*index].from_tenant.is_some();
    if !by.is_empty() && by.iter().all(of_identity) {
        let message = "`unique` has only inputs from the identity: a tenant could call once in that time, whatever it sends";
        checker.notes.push(format!("{}: {message}", place.short()));
    }
    for input in by.iter().map(|index| &inputs[*index]).filter(|input| !input.required && input.from_tenant.is_none()) {
        let message = format!("calls that leave out `{}` all have the same key under `unique`", input.name);
        checker.notes.push(format!("{}: {message}", place.short()));
    }
}

/// A flow whose crash in mid-write nobody can tell the end of says so.
pub(crate) fn note_unknown(
    checker: &mut Checker<'_>,
    flow: &Table,
    around: &Around<'_>,
    plan: Option<&IdempotencyPlan>,
    cut: Option<&QueueCut>,
) {
    let told = plan.is_some_and(|plan| plan.record.is_some() || plan.verify.is_some());
    let is_durable = plan.is_some() || cut.is_some() || flow.has("schedule");
    let calls = around.proven.iter().any(|(step, _)| matches!(&step.action, Action::Http(http) if http.method != "GET"));
    if told && calls {
        checker.notes.push(format!(
            "{}: the flow {} calls a service beside its write: after a crash before the write the service is called again",
            flow.place_of("idempotency").short(),
            around.name
        ));
    }
    let hands_on = around.proven.iter().any(|(step, _)| matches!(step.action, Action::Emit(_)));
    if told && hands_on {
        checker.notes.push(format!(
            "{}: a crash of the flow {} between its write and the end that carries what it hands on (`emit`) ends as `unknown`: the write is found, \
             what was to be handed on is not",
            flow.place_of("idempotency").short(),
            around.name
        ));
    }
    if is_durable && !told && (calls || writing(around.proven).next().is_some()) {
        checker.notes.push(format!(
            "{}: a crash in the middle of a write of the flow {} ends as `unknown`: `idempotency` with `record` or `verify` would tell",
            flow.place_of("idempotency").short(),
            around.name
        ));
    }
}
