//! Expressions: compiled, their names checked, and evaluated on typed samples.
//!
//! A sample has the right type and a value that means nothing. Two scopes are tried: one as things usually are, one
//! with the other side of what expressions ask about (no rows, an error, booleans the other way round). What hangs on
//! values alone is passed over; where a step's columns are not declared only names are checked.

use std::collections::BTreeMap;
use std::sync::Arc;

use spillgate_expression::{Expression, Scope};
use spillgate_model::{Datum, Type, Value};

use crate::fault::did_you_mean;
use crate::place::Place;
use crate::plan::{Action, Input, OnError, Step, TenantPlan};
use crate::raw::printable;
use crate::written::Table;

use super::Checker;
use super::input::check_attribute;

/// Compiles the text of a key; a fault stands where it goes wrong.
pub(crate) fn compile(checker: &mut Checker<'_>, table: &Table, key: &str) -> Option<Expression> {
    let written = table.located(key)?;
    let fault = match Expression::compile(&written.value) {
        Ok(expression) => return Some(expression),
        Err(fault) => fault,
    };
    let place = fault.offset.map_or(written.place.clone(), |offset| written.place.inside(offset));
    checker.faults.add(&place, format!("`{key}`: {}", fault.message));
    None
}

/// A step as far as its name is known.
pub(crate) struct StepName {
    pub(crate) name: Arc<str>,
    /// Runs a statement: `rows` means something.
    pub(crate) has_rows: bool,
    /// Its value is what an expression gives.
    pub(crate) is_map: bool,
    /// It has a value at all.
    pub(crate) has_value: bool,
}

/// What the expressions of a flow may name.
pub(crate) struct Names<'a> {
    pub(crate) inputs: &'a [Input],
    pub(crate) callers: &'a [&'a TenantPlan],
    pub(crate) steps: &'a [StepName],
}

impl Names<'_> {
    /// Checks what an expression names; steps from `visible` on have not run. `used` marks the inputs it reads.
    pub(crate) fn check(&self, checker: &mut Checker<'_>, expression: &Expression, place: &Place, visible: usize, used: &mut [bool]) {
        for path in &expression.names().paths {
            let offset = expression.text().find(path.as_str()).unwrap_or(0);
            let place = place.inside(offset);
            let mut parts = path.splitn(3, '.');
            match (parts.next(), parts.next(), parts.next()) {
                (Some("input"), Some(name), _) => match self.inputs.iter().position(|input| &*input.name == name) {
                    Some(index) => used[index] = true,
                    None => {
                        let near = did_you_mean(name, self.inputs.iter().map(|input| &*input.name));
                        checker.faults.add(&place, format!("`input.{}` is no declared input{near}", printable(name)));
                    }
                },
                (Some("tenant"), Some(name), _) if name != "name" => check_attribute(checker, name, self.callers, &place),
                (Some("steps"), Some(name), part) => self.step(checker, name, part, &place, visible),
                _ => {}
            }
        }
    }

    fn step(&self, checker: &mut Checker<'_>, name: &str, part: Option<&str>, place: &Place, visible: usize) {
        match self.steps.iter().position(|step| &*step.name == name) {
            Some(index) if index >= visible => {
                checker.faults.add(place, format!("the step `{name}` has not run yet: only earlier steps can be read"));
            }
            Some(index) if part == Some("rows") && !self.steps[index].has_rows => {
                checker.faults.add(place, format!("the step `{name}` runs no statement and has no rows: read `steps.{name}.value`"));
            }
            Some(_) => {}
            None => {
                let near = did_you_mean(name, self.steps.iter().take(visible).map(|step| &*step.name));
                checker.faults.add(place, format!("there is no step `{}`{near}", printable(name)));
            }
        }
    }
}

/// Which way the samples lean.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Usual,
    Other,
}

/// A flow's expressions, with what they are evaluated over.
pub(crate) struct Proving<'a> {
    pub(crate) inputs: &'a [Input],
    pub(crate) callers: &'a [&'a TenantPlan],
    pub(crate) steps: &'a [(Step, &'a Table)],
    /// `order_by` of the `queue` step.
    pub(crate) order_by: Option<&'a Expression>,
    /// `watermark`, and the table it stands in.
    pub(crate) watermark: Option<(&'a Expression, &'a Table)>,
}

/// What expressions gave on the usual samples, where that is known.
#[derive(Default)]
pub(crate) struct Gave {
    /// By position of a step that emits: what it hands on.
    pub(crate) handed_on: Vec<(usize, Datum)>,
    /// The type of the column that the watermark is.
    pub(crate) watermark: Option<Type>,
}

/// Evaluates every expression of a flow on samples.
pub(crate) fn prove(checker: &mut Checker<'_>, proving: &Proving<'_>) -> Gave {
    let mut gave = Gave::default();
    for side in [Side::Usual, Side::Other] {
        let mut samples = Samples::new(proving.inputs, proving.callers, side);
        for (index, (step, table)) in proving.steps.iter().enumerate() {
            let emitted = samples.step(checker, step, table, proving.order_by);
            gave.handed_on.extend(emitted.filter(|_| side == Side::Usual).map(|value| (index, value)));
        }
        if let Some((watermark, table)) = proving.watermark {
            let value = samples.scalar(checker, watermark, table, "watermark");
            gave.watermark = gave.watermark.or(value.and_then(|value| type_of_sample(&value)));
        }
    }
    gave
}

/// The scope as it grows from step to step.
struct Samples<'a> {
    scope: Scope<'a>,
    side: Side,
    /// Paths whose type is not known.
    unknown: Vec<String>,
    /// What the last step with a value gave, where it is known.
    last: Option<Datum>,
}

impl<'a> Samples<'a> {
    fn new(inputs: &'a [Input], callers: &[&'a TenantPlan], side: Side) -> Self {
        let mut scope = Scope { input: inputs.iter().map(|input| (&*input.name, of_input(input, side))).collect(), ..Scope::default() };
        if let Some(caller) = callers.first() {
            scope.tenant = caller.attributes.iter().map(|(name, value)| (&**name, Datum::from(value))).collect();
            scope.tenant.push(("name", Datum::Text(caller.name.clone())));
        }
        Samples { scope, side, unknown: Vec::new(), last: None }
    }

    /// Gives what the step hands on, if it emits.
    fn step(&mut self, checker: &mut Checker<'_>, step: &'a Step, table: &Table, order_by: Option<&Expression>) -> Option<Datum> {
        let runs = match step.when.as_ref() {
            Some(when) => self.condition(checker, when, table, "when"),
            None => Some(true),
        };
        let (mut value, mut emitted) = (None, None);
        if runs != Some(false) {
            match &step.action {
                Action::Map(map) => value = self.evaluate(checker, map, table, "map"),
                Action::Http(http) => {
                    if let (Some(body), Some(written)) = (&http.body, table.table("http")) {
                        self.evaluate(checker, body, written, "body");
                    }
                }
                Action::Queue => {
                    if let Some(order_by) = order_by {
                        self.scalar(checker, order_by, table, "order_by");
                    }
                }
                Action::Emit(emit) => emitted = self.emit(checker, emit.each.as_ref(), table),
                Action::Sql(_) | Action::Route => {}
            }
        }
        if matches!(step.action, Action::Sql(_) | Action::Http(_) | Action::Map(_)) {
            self.last = value.clone();
        }
        self.add(step, value);
        for ((when, _), written) in step.route.iter().zip(table.tables("route")) {
            self.condition(checker, when, written, "when");
        }
        emitted
    }

    /// A list of maps, or without `each` the map before.
    fn emit(&self, checker: &mut Checker<'_>, each: Option<&Expression>, table: &Table) -> Option<Datum> {
        let Some(each) = each else {
            let value = self.last.clone()?;
            if !matches!(value, Datum::Map(_) | Datum::Null) {
                let message = format!("the value of the step before is handed on and must be a map, it is {}", kind_of(&value));
                checker.faults.add(&table.place_of("emit"), message);
            }
            return Some(value);
        };
        let value = self.evaluate(checker, each, table, "each")?;
        let wrong = match &value {
            Datum::Null => None,
            Datum::List(items) => {
                items.iter().find(|item| !matches!(item, Datum::Map(_))).map(|item| format!("a list with {}", kind_of(item)))
            }
            other => Some(kind_of(other).into()),
        };
        if let Some(wrong) = wrong {
            checker.faults.add(&table.place_of("each"), format!("`each`: expected a list of maps, each an input, it gives {wrong}"));
        }
        Some(value)
    }

    /// One value that can be compared and bound.
    fn scalar(&self, checker: &mut Checker<'_>, expression: &Expression, table: &Table, key: &str) -> Option<Datum> {
        let value = self.evaluate(checker, expression, table, key)?;
        if matches!(value, Datum::List(_) | Datum::Map(_) | Datum::Binary(_)) {
            checker.faults.add(&table.place_of(key), format!("`{key}`: expected text or a number, it gives {}", kind_of(&value)));
        }
        Some(value)
    }

    /// Adds what later steps see of this one.
    fn add(&mut self, step: &'a Step, value: Option<Datum>) {
        let error = if self.side == Side::Other { Datum::Text(Arc::from("database_error")) } else { Datum::Null };
        let mut parts = BTreeMap::from([(Arc::from("error"), error)]);
        match &step.action {
            Action::Sql(sql) if !sql.columns.is_empty() => {
                let row = sql.columns.iter().map(|(name, kind)| (Arc::from(&**name), of_type(*kind, self.side))).collect();
                let rows = if self.side == Side::Other { Vec::new() } else { vec![Datum::Map(Arc::new(row))] };
                parts.insert(Arc::from("rows"), Datum::List(rows.into()));
            }
            _ => self.unknown.push(format!("steps.{}.rows", step.name)),
        }
        match value {
            Some(value) if !matches!(step.on_error, Some(OnError::Value(_))) => drop(parts.insert(Arc::from("value"), value)),
            _ => self.unknown.push(format!("steps.{}.value", step.name)),
        }
        self.scope.steps.push((&step.name, Datum::Map(Arc::new(parts))));
    }

    /// `None` where the value is not known: a fault stands, or it hangs on what is not known here.
    fn evaluate(&self, checker: &mut Checker<'_>, expression: &Expression, table: &Table, key: &str) -> Option<Datum> {
        let known = |path: &String| match path.split('.').next() {
            Some("tenant") => self.scope.tenant.iter().any(|(name, _)| path[7..] == **name),
            Some("input") => self.scope.input.iter().any(|(name, _)| path[6..] == **name),
            _ => !self.unknown.contains(path) && self.scope.steps.iter().any(|(name, _)| path.split('.').nth(1) == Some(name)),
        };
        if !expression.names().paths.iter().all(known) {
            return None;
        }
        match expression.prove(&self.scope) {
            Ok(value) => value,
            Err(fault) => {
                let place = table.place_of(key);
                let place = fault.offset.map_or(place.clone(), |offset| place.inside(offset));
                checker.faults.add(&place, format!("`{key}`: {}", fault.message));
                None
            }
        }
    }

    fn condition(&self, checker: &mut Checker<'_>, expression: &Expression, table: &Table, key: &str) -> Option<bool> {
        match self.evaluate(checker, expression, table, key)? {
            Datum::Boolean(value) => Some(value),
            other => {
                let message = format!("`{key}`: expected true or false, it gives {}", kind_of(&other));
                checker.faults.add(&table.place_of(key), message);
                None
            }
        }
    }
}

/// As faults name it.
pub(crate) fn kind_of(datum: &Datum) -> &'static str {
    match datum {
        Datum::Null => "null",
        Datum::Boolean(_) => "a boolean",
        Datum::Integer(_) => "an integer",
        Datum::Number(_) => "a number",
        Datum::Text(_) => "text",
        Datum::Binary(_) => "bytes",
        Datum::List(_) => "a list",
        Datum::Map(_) => "a map",
    }
}

fn of_input(input: &Input, side: Side) -> Datum {
    let one = match (input.one_of.first(), &input.min) {
        (Some(value), _) => Datum::from(value),
        (None, Some(least)) => Datum::from(least),
        (None, None) => of_type(input.kind, side),
    };
    match (&input.default, input.list) {
        (Value::Null, true) => Datum::List(Arc::from([one])),
        (Value::Null, false) => one,
        (default, _) => Datum::from(default),
    }
}

/// The type whose sample this is: a text that an expression only handed through.
fn type_of_sample(value: &Datum) -> Option<Type> {
    let texts = [Type::Decimal, Type::Text, Type::Date, Type::Time, Type::Timestamp];
    texts.into_iter().find(|kind| of_type(*kind, Side::Usual) == *value)
}

fn of_type(kind: Type, side: Side) -> Datum {
    let text = |text: &str| Datum::Text(Arc::from(text));
    match kind {
        Type::Integer => Datum::Integer(1),
        Type::Number => Datum::Number(1.5),
        Type::Decimal => text("1.50"),
        Type::Text => text("text"),
        Type::Boolean => Datum::Boolean(side == Side::Usual),
        Type::Date => text("2026-11-01"),
        Type::Time => text("10:00:00"),
        Type::Timestamp => text("2026-11-01T10:00:00"),
        Type::Binary => Datum::Binary(Arc::from([0u8])),
    }
}
