//! `[[step]]`: one action each, with what goes with it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use spillgate_model::Type;
use spillgate_model::units::{ByteSize, show_duration};

use crate::fault::did_you_mean;
use crate::place::{Located, Place};
use crate::plan::{Action, HttpStep, OnEmpty, OnError, Piece, QueueCut, RetryPlan, SqlStep, Step, System};
use crate::raw::printable;
use crate::written::{Table, Written};

use super::cut::Emitting;
use super::durable::Shape;
use super::expression::{Names, compile};
use super::statement::{Binding, Paging, prove};
use super::tenant::show_count;
use super::{Checker, World, url};

/// Keys that say what a step does.
const ACTIONS: &[&str] = &["sql", "sql_file", "map", "http", "queue", "emit"];
/// Keys that go with a statement.
const WITH_SQL: &[&str] = &["database", "columns", "max_rows", "max_bytes", "max_affected", "on_empty"];

/// Keys that go with another one.
const WITH_DURABLE: &[(&str, &str)] = &[("expires", "queue"), ("order_by", "queue"), ("each", "emit")];

/// What the steps of one flow are checked against, and what is learned on the way.
pub(crate) struct Steps<'a> {
    pub(crate) world: &'a World<'a>,
    pub(crate) names: Names<'a>,
    /// `flow.NAME`, for `explain`.
    pub(crate) subject: String,
    pub(crate) writes: bool,
    pub(crate) has_stale: bool,
    pub(crate) paging: Option<Paging>,
    /// By input: a statement or an expression reads it.
    pub(crate) used: Vec<bool>,
    /// Something could not be read, so that not all uses are known.
    pub(crate) uncertain: bool,
    /// Texts of statements in files of their own, part of the flow's version.
    pub(crate) statements: Vec<String>,
    /// Databases in use.
    pub(crate) databases: Vec<usize>,
    /// Where the first `queue` step stands.
    pub(crate) cut_at: Option<usize>,
    /// That step as proven.
    pub(crate) cut: Option<QueueCut>,
    pub(crate) emits: Vec<Emitting>,
    /// The flow runs by its schedule only.
    pub(crate) only_scheduled: bool,
    /// It has a `watermark`, and a statement reads it.
    pub(crate) has_watermark: bool,
    pub(crate) reads_watermark: bool,
    pub(crate) has_idempotency: bool,
}

impl<'a> Steps<'a> {
    pub(crate) fn new(
        world: &'a World<'a>,
        names: Names<'a>,
        flow: &str,
        (writes, has_stale): (bool, bool),
        paging: Option<Paging>,
        shape: &Shape,
    ) -> Self {
        Steps {
            world,
            subject: format!("flow.{flow}"),
            writes,
            has_stale,
            paging,
            // An input whose name is taken has its fault already.
            used: names.inputs.iter().map(|input| shape.system_names().contains(&&*input.name)).collect(),
            names,
            uncertain: false,
            statements: Vec::new(),
            databases: Vec::new(),
            cut_at: shape.cut_at,
            cut: None,
            emits: Vec::new(),
            only_scheduled: shape.only_scheduled,
            has_watermark: shape.has_watermark,
            reads_watermark: false,
            has_idempotency: shape.has_idempotency,
        }
    }

    /// All of them that are free of faults, with their tables.
    pub(crate) fn all<'t>(&mut self, checker: &mut Checker<'_>, tables: &'t [Table]) -> Vec<(Step, &'t Table)> {
        let step = |(index, table): (usize, &'t Table)| self.step(checker, index, table).map(|step| (step, table));
        tables.iter().enumerate().filter_map(step).collect()
    }

    /// A step; `None` with a fault where what it does cannot be told.
    fn step(&mut self, checker: &mut Checker<'_>, index: usize, table: &Table) -> Option<Step> {
        let found: Vec<&str> = ACTIONS.iter().copied().filter(|key| table.has(key)).collect();
        let when = self.expression(checker, table, "when", index);
        let action = match found[..] {
            [] if table.has("route") => Some(Action::Route),
            ["sql" | "sql_file"] => self.sql(checker, index, table).map(Action::Sql),
            ["map"] => self.expression(checker, table, "map", index).map(Action::Map),
            ["queue"] => self.queue(checker, index, table),
            ["emit"] => self.emit(checker, index, table),
            ["http"] => table.table("http").and_then(|http| self.http(checker, index, http)).map(Action::Http),
            _ => {
                let found = if found.is_empty() { "none".into() } else { format!("`{}`", found.join("` and `")) };
                checker.faults.add(
                    &table.place,
                    format!("a step has one of `sql`, `sql_file`, `map`, `http`, `queue`, `emit` or `route`, found {found}"),
                );
                self.uncertain = true;
                None
            }
        };
        if !table.has("sql") && !table.has("sql_file") {
            for key in WITH_SQL.iter().filter(|key| table.has(key)) {
                checker.faults.add(&table.key_place(key), format!("`{key}` goes with a statement: this step has none"));
            }
        }
        for (key, with) in WITH_DURABLE.iter().filter(|(key, with)| table.has(key) && !table.has(with)) {
            checker.faults.add(&table.key_place(key), format!("`{key}` goes with `{with}`: this step has none"));
        }
        let tries = table.has("sql") || table.has("sql_file") || table.has("http");
        if table.has("retry") && !tries {
            checker.faults.add(&table.key_place("retry"), "`retry` goes with a statement or a service: nothing else fails in passing");
        }
        let route = self.route(checker, index, table);
        let (retry, on_empty) = (self.retry(checker, index, table), on_empty(table));
        Some(Step {
            name: self.names.steps[index].name.clone(),
            when,
            action: action?,
            route,
            retry,
            on_empty,
            on_error: self.on_error(checker, table),
            line: table.place.line(),
        })
    }

    fn step_subject(&self, index: usize, key: &str) -> String {
        format!("step.{}.{key}", self.names.steps[index].name)
    }

    /// An expression that sees the steps before `visible`.
    pub(crate) fn expression(
        &mut self,
        checker: &mut Checker<'_>,
        table: &Table,
        key: &str,
        visible: usize,
    ) -> Option<spillgate_expression::Expression> {
        let expression = compile(checker, table, key);
        match &expression {
            Some(expression) => self.names.check(checker, expression, &table.place_of(key), visible, &mut self.used),
            None => self.uncertain |= table.has(key),
        }
        expression
    }

    fn sql(&mut self, checker: &mut Checker<'_>, index: usize, table: &Table) -> Option<SqlStep> {
        let (text, place) = self.statement_text(checker, table)?;
        let database = self.database(checker, table, "this step");
        let driver = database.and_then(|database| self.world.databases[database].driver);
        let (Some(database), Some(driver)) = (database, driver) else {
            self.uncertain = true;
            return None;
        };
        self.databases.push(database);
        let paging = self.paging.as_ref().filter(|_| index + 1 == self.names.steps.len());
        let is_paged = paging.is_some();
        let system = self.system(index);
        let binding = Binding { inputs: self.names.inputs, used: &mut self.used, system: &system };
        let proven = prove(checker, (&text, &place), driver, binding, paging);
        let (max_rows, max_bytes) = (table.integer("max_rows"), table.size("max_bytes"));
        if is_paged && table.has("max_rows") {
            checker.faults.add(&table.key_place("max_rows"), "the rows of a paged step are those of `page`");
        }
        let page_rows = paging.map(|paging| paging.max);
        let Some(proven) = proven else {
            self.uncertain = true;
            return None;
        };
        let write = proven.write.is_some();
        self.reads_watermark |= proven.text.pieces.contains(&Piece::System(System::Watermark));
        if let Some(place) = &proven.write {
            self.may_write(checker, (index, is_paged), database, place);
        }
        let max_affected = self.max_affected(checker, index, table, write);
        if !is_paged {
            checker.limit(&self.subject, self.step_subject(index, "max_rows"), &max_rows, max_rows.value.to_string());
        }
        checker.limit(&self.subject, self.step_subject(index, "max_bytes"), &max_bytes, ByteSize(max_bytes.value).to_string());
        Some(SqlStep {
            database,
            text: proven.text,
            text_after_cursor: proven.text_after_cursor,
            write,
            max_affected,
            columns: columns(table),
            max_rows: page_rows.or(usize::try_from(max_rows.value).ok()).unwrap_or(1),
            max_bytes: usize::try_from(max_bytes.value).unwrap_or(usize::MAX),
        })
    }

    /// The statement and where it starts.
    fn statement_text(&mut self, checker: &mut Checker<'_>, table: &Table) -> Option<(String, Place)> {
        if let Some(written) = table.located("sql") {
            return Some((written.value, written.place));
        }
        let file = table.located("sql_file");
        let path = file.as_ref().map(|file| file.place.folder().join(Path::new(&file.value)));
        let read = path.and_then(|path| checker.read(&path, file.as_ref().map(|file| &file.place)));
        let Some(read) = read else {
            self.uncertain = true;
            return None;
        };
        self.statements.push(read.text.clone());
        Some((read.text.clone(), Place::start(&read)))
    }

    /// The database that `what` names, or the only one.
    pub(crate) fn database(&self, checker: &mut Checker<'_>, table: &Table, what: &str) -> Option<usize> {
        let names = || self.world.databases.iter().map(|database| &*database.name);
        match table.located("database") {
            Some(written) => {
                let index = names().position(|name| name == written.value);
                if index.is_none() && !checker.incomplete {
                    let near = did_you_mean(&written.value, names());
                    checker.faults.add(&written.place, format!("there is no database `{}`{near}", printable(&written.value)));
                }
                index
            }
            None if self.world.databases.len() == 1 && !table.has("database") => Some(0),
            None => {
                if !checker.incomplete && !table.has("database") {
                    let all = names().collect::<Vec<_>>().join(", ");
                    let all = if all.is_empty() { "there are none".into() } else { format!("one of {all}") };
                    checker.faults.add(&table.place, format!("{what} lacks `database`: {all}"));
                }
                None
            }
        }
    }

    /// Whether a statement that writes may stand here.
    fn may_write(&self, checker: &mut Checker<'_>, (index, paged): (usize, bool), database: usize, place: &Place) {
        let database = &self.world.databases[database];
        if paged {
            checker.faults.add(place, "the statement writes here: a paged step only reads");
        } else if !self.writes {
            checker.faults.add(place, "the statement writes here: the flow needs `effect = \"write\"`");
        } else if !database.writable {
            let message = format!("the statement writes here: the database `{}` needs `access = \"read-write\"`", database.name);
            checker.faults.add(place, message);
        } else if self.cut_at.is_some_and(|cut| index < cut) {
            let message = "the statement writes here: it stands after the `queue` step, for before it nothing is kept that could tell what became of it";
            checker.faults.add(place, message);
        }
    }

    /// Values of statements that are no inputs, as far as they are known at that step.
    fn system(&self, index: usize) -> Vec<(&'static str, System)> {
        let mark = self.has_watermark.then_some(("watermark", System::Watermark));
        let has_job = self.cut_at.map_or(self.has_idempotency, |cut| index > cut);
        let of_job = [("idempotency_key", System::Key), ("job", System::Job)].into_iter().filter(|_| has_job);
        mark.into_iter().chain(of_job).collect()
    }

    pub(crate) fn index_of(&self, name: &str) -> usize {
        self.names.steps.iter().position(|step| *step.name == *name).unwrap_or(usize::MAX)
    }

    fn max_affected(&self, checker: &mut Checker<'_>, index: usize, table: &Table, write: bool) -> Option<u64> {
        if !write {
            if table.has("max_affected") {
                checker.faults.add(&table.key_place("max_affected"), "`max_affected` goes with a statement that writes");
            }
            return None;
        }
        let limit = table.integer("max_affected");
        checker.limit(&self.subject, self.step_subject(index, "max_affected"), &limit, show_count(limit.value));
        (limit.value != i64::MAX).then_some(limit.value.unsigned_abs())
    }

    fn http(&mut self, checker: &mut Checker<'_>, index: usize, table: &Table) -> Option<HttpStep> {
        let body = self.expression(checker, table, "body", index);
        let (timeout, max_bytes) = (table.time("timeout"), table.size("max_bytes"));
        checker.limit(&self.subject, self.step_subject(index, "http.timeout"), &timeout, show_duration(timeout.value));
        checker.limit(&self.subject, self.step_subject(index, "http.max_bytes"), &max_bytes, ByteSize(max_bytes.value).to_string());
        let address = table.located("url")?;
        match url::read(&address.value) {
            Err(message) => checker.faults.add(&address.place, message),
            Ok(host) if !self.world.http_hosts.contains(&host) && !checker.incomplete => {
                let near = did_you_mean(&host, self.world.http_hosts.iter().map(String::as_str));
                checker.faults.add(&address.place, format!("`{host}` is not in `[server] http_hosts`{near}"));
            }
            Ok(_) => {}
        }
        let mut headers = Vec::new();
        for (name, value) in table.map("headers") {
            if !is_header_name(&name.value) {
                checker.faults.add(&name.place, format!("`{}` is no name of a header", printable(&name.value)));
            }
            let Written::Secret(value) = &value.value else { continue };
            headers.push((name.value.clone(), value.clone()));
        }
        Some(HttpStep {
            method: table.text("method").value,
            url: address.value,
            headers,
            body,
            timeout: timeout.value,
            max_bytes: usize::try_from(max_bytes.value).unwrap_or(usize::MAX),
        })
    }

    /// Jumps go forward; their conditions see this step too.
    fn route(&mut self, checker: &mut Checker<'_>, index: usize, table: &Table) -> Vec<(spillgate_expression::Expression, usize)> {
        let mut route = Vec::new();
        for jump in table.tables("route") {
            let when = if jump.has("when") {
                self.expression(checker, jump, "when", index + 1)
            } else {
                spillgate_expression::Expression::compile("true").ok()
            };
            let Some(goto) = jump.located("goto") else { continue };
            match (self.target(checker, index, &goto), when) {
                (Some(target), Some(when)) => route.push((when, target)),
                _ => continue,
            }
        }
        route
    }

    fn target(&self, checker: &mut Checker<'_>, index: usize, goto: &Located<String>) -> Option<usize> {
        let target = self.names.steps.iter().position(|step| *step.name == *goto.value);
        match target {
            Some(target) if self.jumps_over_cut(index, target) => {
                let message = format!("`{}` stands after the `queue` step, which no jump may leave out", goto.value);
                checker.faults.add(&goto.place, message);
            }
            Some(target) if target > index => return Some(target),
            Some(_) => checker.faults.add(&goto.place, format!("`{}` is no later step: jumps go forward only", goto.value)),
            None => {
                let near = did_you_mean(&goto.value, self.names.steps[index + 1..].iter().map(|step| &*step.name));
                checker.faults.add(&goto.place, format!("there is no step `{}`{near}", printable(&goto.value)));
            }
        }
        None
    }

    fn retry(&self, checker: &mut Checker<'_>, index: usize, table: &Table) -> Option<RetryPlan> {
        let retry = table.table("retry")?;
        let (attempts, backoff) = (retry.integer("attempts"), retry.time("backoff"));
        checker.limit(&self.subject, self.step_subject(index, "retry.attempts"), &attempts, attempts.value.to_string());
        let backoff: Duration = backoff.value;
        Some(RetryPlan { attempts: u32::try_from(attempts.value).unwrap_or(1), backoff })
    }

    fn on_error(&self, checker: &mut Checker<'_>, table: &Table) -> Option<OnError> {
        let on_error = table.table("on_error")?;
        match (on_error.raw("value"), on_error.written_boolean("stale").map(|stale| stale.value)) {
            (Some(value), None) => match value.value.to_datum() {
                Ok(datum) => return Some(OnError::Value(datum)),
                Err(message) => checker.faults.add(&value.place, message),
            },
            (None, Some(true)) if self.has_stale => return Some(OnError::Stale),
            (None, Some(true)) => {
                checker.faults.add(&on_error.place_of("stale"), "`stale` needs the flow's `cache` with `stale_if_error`");
            }
            (None, Some(false)) if !on_error.has("value") => {}
            _ if on_error.is_broken("stale") => {}
            _ => checker.faults.add(&on_error.place, "expected one of `value` and `stale = true`"),
        }
        None
    }
}

fn on_empty(table: &Table) -> Option<OnEmpty> {
    let status = table.table("on_empty")?.integer("status").value;
    Some(OnEmpty { status: u16::try_from(status).unwrap_or(404) })
}

fn columns(table: &Table) -> Vec<(Box<str>, Type)> {
    let column = |(name, written): &(Located<String>, Located<Written>)| match &written.value {
        Written::Text(kind) => Type::parse(kind).map(|kind| (name.value.as_str().into(), kind)),
        _ => None,
    };
    table.map("columns").iter().filter_map(column).collect()
}

fn is_header_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// Names of all steps; the nameless are `step_N`.
pub(crate) fn names(checker: &mut Checker<'_>, tables: &[Table]) -> Vec<super::expression::StepName> {
    let mut seen: std::collections::BTreeMap<String, Place> = Default::default();
    let mut names = Vec::new();
    for (index, table) in tables.iter().enumerate() {
        let written = table.located("name");
        let name = written.as_ref().map_or(format!("step_{}", index + 1), |written| written.value.clone());
        let place = written.map_or(table.place.clone(), |written| written.place);
        super::check_name(checker, "a step", &name, super::Naming::Identifier, &place);
        match seen.get(&name) {
            Some(first) => checker.faults.add(&place, format!("the step `{name}` stands at {} already", first.short())),
            None => drop(seen.insert(name.clone(), place)),
        }
        let has_rows = table.has("sql") || table.has("sql_file");
        let is_map = table.has("map");
        names.push(super::expression::StepName {
            name: Arc::from(name),
            has_rows,
            is_map,
            has_value: has_rows || is_map || table.has("http"),
        });
    }
    names
}
