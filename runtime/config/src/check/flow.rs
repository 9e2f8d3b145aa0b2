//! One flow file after the other.

use std::path::Path;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use spillgate_model::limits::FLOWS;
use spillgate_model::units::{ByteSize, show_duration};

use crate::keys::flow::ROOT;
use crate::place::FileText;
use crate::plan::{Action, BreakerPlan, CachePlan, Effect, Endpoint, Flow, PageKey, PagePlan, Step};
use crate::raw::printable;
use crate::sql::page::{KeyText, read_key};
use crate::walk::read_file;
use crate::written::Table;

use super::cut::expressions_of;
use super::durable::{Durable, Shape};
use super::emit::{Checked, connect};
use super::endpoint::{Effects, endpoint};
use super::expression::Names;
use super::input::{Surroundings, inputs};
use super::isolation::{BreakerSettings, breaker_limits};
use super::roots::Roots;
use super::routes::Taken;
use super::statement::Paging;
use super::step::{Steps, names};
use super::test::{self, Tested};
use super::{Checker, Naming, World, check_name};

/// Every `*.toml` below the folder, in name order of the flows.
pub(crate) fn flows(checker: &mut Checker<'_>, roots: &Roots, folder: &Path, world: &World<'_>) -> Vec<Flow> {
    let place = roots.section("server").map_or(roots.place.clone(), |table| table.place_of("flows"));
    let files = match checker.source.files(folder, true) {
        Ok(files) => files,
        Err(error) => {
            if !checker.incomplete {
                checker.faults.add(&place, format!("the folder of flows {} {error}", folder.display()));
            }
            return Vec::new();
        }
    };
    let is_flow = |path: &std::path::PathBuf| path.extension().is_some_and(|extension| extension == "toml");
    let files: Vec<_> = files.into_iter().filter(is_flow).collect();
    if files.len() > FLOWS {
        checker.faults.add(&place, format!("{} holds more than {FLOWS} flows", folder.display()));
    }
    let mut taken = Taken::default();
    let mut flows: Vec<Checked> = files.iter().take(FLOWS).filter_map(|path| flow(checker, path, world, &mut taken)).collect();
    if files.is_empty() {
        checker.notes.push(format!("{} holds no flow", folder.display()));
    }
    flows.sort_by(|left, right| left.flow.name.cmp(&right.flow.name));
    connect(checker, world, &taken, flows)
}

fn flow(checker: &mut Checker<'_>, path: &Path, world: &World<'_>, taken: &mut Taken) -> Option<Checked> {
    let read = checker.read(path, None).map(|file| (read_file(&mut checker.walk(&file), &ROOT), file));
    let Some(((table, true), file)) = read else {
        taken.incomplete = true;
        return None;
    };
    let faults = checker.faults.count();
    taken.incomplete |= table.located("name").is_none();
    let checked = checked(checker, &file, &table, world, taken);
    Checked { is_sound: checker.faults.count() == faults, ..checked }.into()
}

fn checked(checker: &mut Checker<'_>, file: &Arc<FileText>, table: &Table, world: &World<'_>, taken: &mut Taken) -> Checked {
    let writes = table.text("effect").value == "write";
    let name = table.located("name");
    if let Some(name) = &name {
        check_name(checker, "a flow", &name.value, Naming::Identifier, &name.place);
    }
    let shape = Shape::of(table);
    let effects = Effects { writes, queues: shape.cut_at.is_some() };
    let endpoint = table.located("http").and_then(|written| endpoint(checker, &written, effects));
    shape.check(checker, table);
    taken.add(checker, name.as_ref(), endpoint.as_ref());
    let flow_name: Arc<str> = name.map_or(Arc::from(""), |name| Arc::from(name.value));
    let callers: Vec<_> = world.tenants.iter().filter(|tenant| tenant.may_call(&flow_name)).collect();
    let path = endpoint.as_ref().map_or(&[][..], |endpoint| &endpoint.parameters);
    let paging = paging(checker, table);
    let around = Surroundings { path, paged: table.has("page"), system: shape.system_names(), callers: callers.clone() };
    let inputs = inputs(checker, &around, table.named("input"));
    let cache = cache(checker, table, writes);
    let has_stale = cache.as_ref().is_some_and(|cache| !cache.stale_if_error.is_zero());
    let step_names = names(checker, table.tables("step"));
    let names = Names { inputs: &inputs, callers: &callers, steps: &step_names };
    let mut steps = Steps::new(world, names, &flow_name, (writes, has_stale), paging, &shape);
    limits(checker, table, &steps.subject);
    let proven = steps.all(checker, table.tables("step"));
    let mut durable = Durable::prove(checker, table, &mut steps, &flow_name, &proven);
    let samples = durable.prove_expressions(checker, table, &steps, &proven);
    unused(checker, table, &steps);
    let memory = memory(&proven, &durable, world);
    check_memory(checker, table, memory, world);
    shared_cache(checker, table, cache.as_ref(), &inputs, &proven);
    let page = page(checker, table, &steps.paging, &proven, step_names.len());
    let tests = test::tests(checker, table, world, &Tested { name: &flow_name, names: &step_names, steps: &proven });
    let version = version(file, &steps, world);
    if endpoint.is_some() && table.text("about").value.is_empty() {
        checker.notes.push(format!("{}: the flow {flow_name} has no `about`, by which callers choose it", file.path.display()));
    }
    let breaker = breaker(checker, table, &steps.subject, &proven, world);
    let emits = std::mem::take(&mut steps.emits);
    let flow = Flow {
        name: flow_name,
        about: table.text("about").value,
        http: endpoint.map(|endpoint| Endpoint { method: endpoint.method, path: endpoint.path }),
        effect: if writes { Effect::Write } else { Effect::Read },
        deadline: table.time("deadline").into_limit(),
        breaker,
        cache,
        page,
        steps: proven.into_iter().map(|(step, _)| step).collect(),
        queue: durable.cut,
        idempotency: durable.idempotency,
        unique: durable.unique,
        schedule: durable.schedule,
        tests,
        version,
        memory,
        file: file.path.clone(),
        inputs: inputs.into(),
    };
    Checked { flow, emits, samples, is_sound: false }
}

/// Inputs that nothing reads.
fn unused(checker: &mut Checker<'_>, table: &Table, steps: &Steps<'_>) {
    for ((name, _), used) in table.named("input").iter().zip(&steps.used) {
        if !used && !steps.uncertain {
            checker.faults.add(&name.place, format!("the input `{}` is used by no statement and no expression", name.value));
        }
    }
}

fn limits(checker: &mut Checker<'_>, table: &Table, subject: &str) {
    let deadline = table.time("deadline");
    checker.limit(subject, "flow.deadline", &deadline, show_duration(deadline.value));
    if let Some(page) = table.table("page") {
        let (size, max) = (page.integer("size"), page.integer("max"));
        checker.limit(subject, "flow.page.size", &size, size.value.to_string());
        checker.limit(subject, "flow.page.max", &max, max.value.to_string());
    }
}

/// As written; what is not written is as for the database of the first `sql` step. A flow without one has none.
fn breaker(checker: &mut Checker<'_>, table: &Table, subject: &str, steps: &[(Step, &Table)], world: &World<'_>) -> Option<BreakerPlan> {
    let database = steps.iter().find_map(|(step, _)| match &step.action {
        Action::Sql(sql) => Some(sql.database),
        _ => None,
    });
    let Some(database) = database else {
        let has_sql = table.tables("step").iter().any(|step| step.has("sql") || step.has("sql_file"));
        if table.has("breaker") && !has_sql {
            checker.faults.add(&table.key_place("breaker"), "a flow without a `sql` step has no `breaker`");
        }
        return None;
    };
    let breaker = BreakerSettings::read(table, world.databases[database].breaker.as_ref());
    breaker_limits(checker, table, breaker.as_ref(), subject, "flow");
    breaker.map(|breaker| breaker.plan())
}

fn cache(checker: &mut Checker<'_>, table: &Table, writes: bool) -> Option<CachePlan> {
    let cache = table.table("cache")?;
    if writes {
        checker.faults.add(&table.key_place("cache"), "a flow that writes has no `cache`");
    }
    Some(CachePlan {
        fresh: cache.written_time("fresh")?.value,
        stale_if_error: cache.time("stale_if_error").value,
        shared: cache.boolean("shared").value,
    })
}

/// `shared = true` only where nothing of the tenant is read.
fn shared_cache(
    checker: &mut Checker<'_>,
    table: &Table,
    cache: Option<&CachePlan>,
    inputs: &[crate::plan::Input],
    steps: &[(Step, &Table)],
) {
    if !cache.is_some_and(|cache| cache.shared) {
        return;
    }
    let place = table.table("cache").map_or(table.place.clone(), |cache| cache.place_of("shared"));
    let input = inputs.iter().find(|input| input.from_tenant.is_some()).map(|input| format!("the input `{}`", input.name));
    let mut expressions = steps.iter().flat_map(|(step, _)| expressions_of(step));
    let expression = expressions.any(|expression| expression.names().paths.iter().any(|path| path.starts_with("tenant.")));
    if let Some(reader) = input.or(expression.then(|| "an expression".to_owned())) {
        checker.faults.add(&place, format!("one reply for all tenants would be wrong: {reader} reads from the tenant"));
    }
}

/// The sum of what the steps may hold, twice where an expression makes a tree of it, and of what a queued item holds.
fn memory(steps: &[(Step, &Table)], durable: &Durable, world: &World<'_>) -> u64 {
    let expressions = || steps.iter().flat_map(|(step, _)| expressions_of(step)).chain(durable.expressions());
    let is_read = |step: &Step| {
        let (rows, value) = (format!("steps.{}.rows", step.name), format!("steps.{}.value", step.name));
        expressions().any(|expression| expression.paths().iter().any(|path| *path == rows || *path == value))
    };
    let of_step = |step: &Step| match &step.action {
        Action::Sql(sql) => sql.max_bytes as u64,
        Action::Http(http) => http.max_bytes as u64,
        Action::Map(_) | Action::Queue | Action::Emit(_) | Action::Route => 0,
    };
    let of_steps: u64 = steps.iter().map(|(step, _)| of_step(step) * if is_read(step) { 2 } else { 1 }).sum();
    let of_item = durable.cut.as_ref().map_or(0, |cut| world.queues[cut.queue].max_item.value);
    let of_verify = durable.idempotency.as_ref().and_then(|plan| plan.verify.as_ref()).map_or(0, |verify| verify.max_bytes as u64);
    of_steps + of_item + of_verify
}

/// A call that can never be let in is a fault.
fn check_memory(checker: &mut Checker<'_>, table: &Table, memory: u64, world: &World<'_>) {
    if memory > world.memory && !checker.incomplete {
        let (needed, given) = (ByteSize(memory), ByteSize(world.memory));
        let place = table.place_of("step");
        checker.faults.add(
            &place,
            format!("a call needs {needed} (the sum of `max_bytes`, twice where expressions read the rows, and `max_item` of its queue), `[server] memory` is {given}"),
        );
    }
}

fn paging(checker: &mut Checker<'_>, table: &Table) -> Option<Paging> {
    let page = table.table("page")?;
    let (size, max) = (page.integer("size"), page.integer("max"));
    if size.value > max.value {
        checker.faults.add(&page.place_of("size"), format!("`size` ({}) is more than `max` ({})", size.value, max.value));
    }
    let mut keys: Vec<KeyText> = Vec::new();
    for written in page.texts("key") {
        let Some(place) = written.place else { continue };
        match read_key(&written.value) {
            Some(key) if keys.iter().any(|known| known.column == key.column) => {
                checker.faults.add(&place, format!("`{}` stands in the key twice", key.column));
            }
            Some(key) => keys.push(key),
            None => {
                checker
                    .faults
                    .add(&place, format!("expected a column such as \"ID\" or \"SEEN desc\", found \"{}\"", printable(&written.value)));
            }
        }
    }
    if keys.is_empty() && page.has("key") && !page.is_broken("key") && page.list("key").is_empty() {
        checker.faults.add(&page.place_of("key"), "expected at least one column");
    }
    (!keys.is_empty()).then(|| Paging { keys, max: usize::try_from(max.value).unwrap_or(1) })
}

/// The paged step is the last one; its key is among its columns.
fn page(checker: &mut Checker<'_>, table: &Table, paging: &Option<Paging>, steps: &[(Step, &Table)], written: usize) -> Option<PagePlan> {
    let (page, paging) = (table.table("page")?, paging.as_ref()?);
    let last = table.tables("step").last()?;
    if !last.has("sql") && !last.has("sql_file") {
        checker.faults.add(&table.key_place("page"), "the last step of a paged flow is a `sql` step");
        return None;
    }
    for key in ["when", "on_error", "on_empty"].iter().filter(|key| last.has(key)) {
        checker.faults.add(&last.key_place(key), format!("a paged step has no `{key}`"));
    }
    let (step, _) = steps.last().filter(|(step, _)| step.line == last.place.line())?;
    if let Action::Sql(sql) = &step.action
        && !sql.columns.is_empty()
    {
        for (key, place) in paging.keys.iter().zip(page.list("key")) {
            if !sql.columns.iter().any(|(name, _)| name.eq_ignore_ascii_case(&key.column)) {
                checker.faults.add(&place.place, format!("`{}` is not among the step's `columns`", key.column));
            }
        }
    }
    Some(PagePlan {
        key: paging.keys.iter().map(PageKey::from).collect(),
        size: usize::try_from(page.integer("size").value).unwrap_or(1),
        max: paging.max,
        step: written - 1,
    })
}

/// Hash of the file, of every file it names, and of the databases it reads.
fn version(file: &FileText, steps: &Steps<'_>, world: &World<'_>) -> u64 {
    let mut digest = Sha256::new();
    for text in std::iter::once(&file.text).chain(&steps.statements) {
        digest.update((text.len() as u64).to_le_bytes());
        digest.update(text.as_bytes());
    }
    for database in &steps.databases {
        digest.update(world.databases[*database].identity);
    }
    let mut first = [0u8; 8];
    first.copy_from_slice(&digest.finalize()[..8]);
    u64::from_le_bytes(first)
}
