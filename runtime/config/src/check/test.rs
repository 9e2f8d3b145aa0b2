//! `[[test]]`: who calls with what, rows that stand in for the database, and the reply.

use std::collections::BTreeMap;
use std::sync::Arc;

use spillgate_model::{Type, Value};

use crate::fault::did_you_mean;
use crate::place::{Located, Place};
use crate::plan::{Action, FlowTest, SqlStep, Step, StubRow};
use crate::raw::{Raw, printable};
use crate::typed::{self, Problem};
use crate::written::{Table, Written};

use super::expression::StepName;
use super::{Checker, World};

/// The flow that tests are of.
pub(crate) struct Tested<'a> {
    pub(crate) name: &'a str,
    /// All steps by name, those with faults too.
    pub(crate) names: &'a [StepName],
    pub(crate) steps: &'a [(Step, &'a Table)],
}

pub(crate) fn tests(checker: &mut Checker<'_>, flow: &Table, world: &World<'_>, tested: &Tested<'_>) -> Vec<FlowTest> {
    let written = flow.tables("test").iter().enumerate();
    written.map(|(index, table)| test(checker, table, index, world, tested)).collect()
}

fn test(checker: &mut Checker<'_>, table: &Table, index: usize, world: &World<'_>, tested: &Tested<'_>) -> FlowTest {
    let tenant = table.located("tenant");
    if let Some(written) = &tenant
        && !checker.incomplete
    {
        match world.tenants.iter().find(|tenant| *tenant.name == *written.value) {
            None => {
                let near = did_you_mean(&written.value, world.tenants.iter().map(|tenant| &*tenant.name));
                checker.faults.add(&written.place, format!("there is no tenant `{}`{near}", printable(&written.value)));
            }
            Some(tenant) if !tenant.may_call(tested.name) => {
                checker.faults.add(&written.place, format!("tenant {} may not call {}", tenant.name, tested.name));
            }
            Some(_) => {}
        }
    }
    let mut rows = BTreeMap::new();
    for (step, written) in table.map("rows") {
        if !tested.names.iter().any(|known| *known.name == *step.value) {
            let near = did_you_mean(&step.value, tested.names.iter().map(|known| &*known.name));
            checker.faults.add(&step.place, format!("there is no step `{}`{near}", printable(&step.value)));
        }
        let proven = tested.steps.iter().find(|(known, _)| *known.name == *step.value).map(|(step, _)| &step.action);
        match (proven, &written.value) {
            (Some(Action::Sql(sql)), Written::Raw(raw)) => {
                rows.insert(Arc::from(&*step.value), stub(checker, sql, raw, &written.place));
            }
            (Some(_), _) => checker.faults.add(&step.place, format!("the step `{}` runs no statement and has no rows", step.value)),
            (None, _) => {}
        }
    }
    let given: Vec<String> = table.map("given").iter().map(|(name, value)| member(name, &value.value)).collect();
    let expect = table.table("expect");
    FlowTest {
        name: table.written_text("name").map_or_else(|| format!("test {}", index + 1), |name| name.value),
        tenant: tenant.map_or(Arc::from(""), |tenant| Arc::from(tenant.value)),
        given: format!("{{{}}}", given.join(",")),
        rows,
        expect_status: expect.map_or(200, |expect| u16::try_from(expect.integer("status").value).unwrap_or(200)),
        expect_body: expect.and_then(|expect| expect.raw("body")).map(|body| body.value.to_json()),
        line: table.place.line(),
    }
}

fn member(name: &Located<String>, value: &Written) -> String {
    let value = if let Written::Raw(raw) = value { raw.to_json() } else { "null".into() };
    format!("{}:{value}", serde_json::Value::from(name.value.as_str()))
}

/// Rows that all have the same columns: the declared ones, else all that are mentioned; one left out is NULL.
fn stub(checker: &mut Checker<'_>, sql: &SqlStep, raw: &Raw, place: &Place) -> Vec<StubRow> {
    let Raw::List(rows) = raw else {
        checker.faults.add(place, format!("expected a list of rows, found {}", raw.show()));
        return Vec::new();
    };
    let mut tables = Vec::new();
    for row in rows {
        match &row.value {
            Raw::Table(cells) => tables.push(cells),
            other => checker.faults.add(&row.place, format!("expected a row such as {{ ID = 1 }}, found {}", other.show())),
        }
    }
    let mut columns: Vec<(Box<str>, Option<Type>)> = sql.columns.iter().map(|(name, kind)| (name.clone(), Some(*kind))).collect();
    for (name, _) in tables.iter().flat_map(|cells| cells.iter()) {
        if columns.iter().any(|(known, _)| **known == *name.value) {
            continue;
        }
        if sql.columns.is_empty() {
            columns.push((name.value.as_str().into(), None));
        } else {
            let near = did_you_mean(&name.value, sql.columns.iter().map(|(name, _)| &**name));
            checker.faults.add(&name.place, format!("`{}` is not among the step's `columns`{near}", printable(&name.value)));
        }
    }
    let cell = |checker: &mut Checker<'_>, cells: &[(Located<String>, Located<Raw>)], column: &(Box<str>, Option<Type>)| {
        let written = cells.iter().find(|(name, _)| *name.value == *column.0).map(|(_, value)| value);
        let value = written.map_or(Ok(Value::Null), |written| read(column.1, &written.value));
        let value = value.unwrap_or_else(|message| {
            checker.faults.add(written.map_or(place, |written| &written.place), message);
            Value::Null
        });
        (column.0.clone(), value)
    };
    tables.into_iter().map(|cells| columns.iter().map(|column| cell(checker, cells, column)).collect()).collect()
}

/// A cell of the declared type, or of the type TOML gives it.
fn read(kind: Option<Type>, raw: &Raw) -> Result<Value, Problem> {
    let kind = kind.unwrap_or(match raw {
        Raw::Integer(_) => Type::Integer,
        Raw::Float(_) => Type::Number,
        Raw::Boolean(_) => Type::Boolean,
        Raw::Datetime(text) if text.len() == 10 => Type::Date,
        Raw::Datetime(text) if text.get(2..3) == Some(":") => Type::Time,
        Raw::Datetime(_) => Type::Timestamp,
        Raw::Text(_) | Raw::List(_) | Raw::Table(_) => Type::Text,
    });
    typed::from_raw(kind, raw)
}
