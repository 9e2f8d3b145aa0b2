//! `[input.NAME]`: types, bounds, defaults, identity.

use std::sync::Arc;

use spillgate_model::limits::{INPUTS_PER_FLOW, LIST_ITEMS};
use spillgate_model::{Type, Value};

use crate::fault::did_you_mean;
use crate::keys::flow::INPUT_TYPES;
use crate::place::{Located, Place};
use crate::plan::{Input, TenantPlan};
use crate::raw::{Raw, printable};
use crate::typed;
use crate::written::{Table, Written};

use super::{Checker, Naming, check_name};

/// Inputs that paged flows have without declaring them.
const OF_PAGES: &[&str] = &["cursor", "size"];
/// Keys that have no meaning beside `from`.
const NOT_WITH_FROM: &[&str] = &["required", "default", "min", "max", "min_length", "max_length", "one_of"];

/// What inputs of one flow are checked against.
pub(crate) struct Surroundings<'a> {
    pub(crate) path: &'a [Located<String>],
    pub(crate) paged: bool,
    /// Values of statements that are no inputs.
    pub(crate) system: Vec<&'static str>,
    /// Tenants that may call the flow.
    pub(crate) callers: Vec<&'a TenantPlan>,
}

/// All inputs in the order of the file.
pub(crate) fn inputs(checker: &mut Checker<'_>, around: &Surroundings<'_>, written: &[(Located<String>, Table)]) -> Vec<Input> {
    for parameter in around.path {
        if !written.iter().any(|(name, _)| name.value == parameter.value) {
            let near = did_you_mean(&parameter.value, written.iter().map(|(name, _)| &*name.value));
            checker.faults.add(&parameter.place, format!("`{{{}}}` is no declared input{near}", printable(&parameter.value)));
        }
    }
    if let Some((name, _)) = written.get(INPUTS_PER_FLOW) {
        checker.faults.add(&name.place, format!("more than {INPUTS_PER_FLOW} inputs"));
    }
    written.iter().map(|(name, table)| input(checker, around, name, table)).collect()
}

fn input(checker: &mut Checker<'_>, around: &Surroundings<'_>, name: &Located<String>, table: &Table) -> Input {
    check_name(checker, "an input", &name.value, Naming::Identifier, &name.place);
    if around.paged && OF_PAGES.contains(&&*name.value) {
        checker.faults.add(&name.place, format!("`{}` is an input of every paged flow: choose another name", name.value));
    }
    if around.system.contains(&&*name.value) {
        checker.faults.add(&name.place, format!("`:{}` has a meaning of its own in this flow: choose another name", name.value));
    }
    let mut input = Input::new(&name.value, Type::Text);
    input.required = true;
    input.about = table.text("about").value;
    input.in_path = around.path.iter().any(|parameter| parameter.value == name.value);
    let known_type = read_type(checker, table, &mut input);
    if table.has("from") {
        from_identity(checker, around, table, &mut input, known_type);
    } else if !known_type {
        if !table.is_broken("type") && !table.has("type") {
            checker.faults.add(&name.place, format!("the input `{}` lacks `type`: one of {}", name.value, INPUT_TYPES.join(", ")));
        }
    } else {
        from_caller(checker, table, &mut input);
    }
    input
}

/// Reads `type`; false where none can be told.
fn read_type(checker: &mut Checker<'_>, table: &Table, input: &mut Input) -> bool {
    let Some(written) = table.raw("type") else { return false };
    let (text, list, place) = match written.value {
        Raw::Text(text) => (text.as_str(), false, &written.place),
        Raw::List(items) => match items.first().map(|item| (&item.value, &item.place)) {
            Some((Raw::Text(text), place)) => (text.as_str(), true, place),
            _ => return false,
        },
        _ => return false,
    };
    let Some(kind) = Type::parse(text).filter(|kind| INPUT_TYPES.contains(&kind.name())) else {
        let near = did_you_mean(text, INPUT_TYPES.iter().copied());
        checker.faults.add(place, format!("expected one of {}, found \"{}\"{near}", INPUT_TYPES.join(", "), printable(text)));
        return false;
    };
    (input.kind, input.list) = (kind, list);
    if list && input.in_path {
        checker.faults.add(place, "an input in the path is one value, not a list");
    }
    true
}

/// An input callers send: bounds, then the default against them.
fn from_caller(checker: &mut Checker<'_>, table: &Table, input: &mut Input) {
    input.min = bound(checker, table, "min", input);
    input.max = bound(checker, table, "max", input);
    if let (Some(least), Some(most)) = (&input.min, &input.max)
        && typed::compare(least, most) == Some(std::cmp::Ordering::Greater)
    {
        checker.faults.add(&table.place_of("max"), "`max` is less than `min`: nothing fits");
    }
    lengths(checker, table, input);
    input.one_of = one_of(checker, table, input);
    let written_default = table.raw("default");
    if let Some(written) = &written_default {
        input.default = default(checker, written, input);
    }
    let required = table.written_boolean("required");
    input.required = required.as_ref().map_or(written_default.is_none() || input.in_path, |required| required.value);
    if input.in_path && (written_default.is_some() || required.is_some_and(|required| !required.value)) {
        let key = if written_default.is_some() { "default" } else { "required" };
        checker.faults.add(&table.key_place(key), "an input in the path is always sent");
        input.required = true;
    } else if input.required && written_default.is_some() {
        checker.faults.add(&table.key_place("default"), "a default is never used where `required = true`");
    }
}

fn bound(checker: &mut Checker<'_>, table: &Table, key: &str, input: &Input) -> Option<Value> {
    let written = table.raw(key)?;
    if !matches!(input.kind, Type::Integer | Type::Number | Type::Decimal | Type::Date | Type::Timestamp) {
        checker.faults.add(&table.key_place(key), format!("`{key}` bounds numbers and dates, not {}", input.kind.name()));
        return None;
    }
    typed_value(checker, input.kind, written.value, &written.place)
}

fn typed_value(checker: &mut Checker<'_>, kind: Type, raw: &Raw, place: &Place) -> Option<Value> {
    typed::from_raw(kind, raw).map_err(|message| checker.faults.add(place, message)).ok()
}

fn lengths(checker: &mut Checker<'_>, table: &Table, input: &mut Input) {
    for key in ["min_length", "max_length"] {
        if table.has(key) && !input.list && !matches!(input.kind, Type::Text | Type::Binary) {
            checker.faults.add(&table.key_place(key), format!("`{key}` bounds text, binary and lists, not {}", input.kind.name()));
        }
    }
    let length = |key| table.written_integer(key).and_then(|setting| usize::try_from(setting.value).ok());
    (input.min_length, input.max_length) = (length("min_length"), length("max_length"));
    if input.list {
        input.min_length = Some(input.min_length.unwrap_or(1).max(1));
        let most = input.max_length.unwrap_or(LIST_ITEMS);
        if most > LIST_ITEMS {
            checker.faults.add(&table.place_of("max_length"), format!("a list has at most {LIST_ITEMS} items"));
        }
        input.max_length = Some(most);
    }
    if let (Some(least), Some(most)) = (input.min_length, input.max_length)
        && least > most
    {
        checker.faults.add(&table.place_of("max_length"), "`max_length` is less than `min_length`: nothing fits");
    }
}

fn one_of(checker: &mut Checker<'_>, table: &Table, input: &Input) -> Vec<Value> {
    let items: Vec<_> = table.list("one_of").iter().collect();
    if items.is_empty() && table.has("one_of") && !table.is_broken("one_of") {
        checker.faults.add(&table.place_of("one_of"), "an empty list allows nothing");
    }
    let read = |item: &Located<Written>| match &item.value {
        Written::Raw(raw) => typed_value(checker, input.kind, raw, &item.place),
        _ => None,
    };
    items.into_iter().filter_map(read).collect()
}

/// Case C2: a default of the wrong type, or one a caller could not send, is refused here.
fn default(checker: &mut Checker<'_>, written: &Located<&Raw>, input: &Input) -> Value {
    let value = match written.value {
        Raw::List(items) if input.list => {
            let read = |item: &Located<Raw>| typed_value(checker, input.kind, &item.value, &item.place);
            let values: Vec<Value> = items.iter().filter_map(read).collect();
            Some(Value::List(values.into()))
        }
        raw if input.list => {
            checker.faults.add(&written.place, format!("expected a list of {}, found {}", input.kind.name(), raw.show()));
            None
        }
        raw => typed_value(checker, input.kind, raw, &written.place),
    };
    let Some(value) = value else { return Value::Null };
    if let Err(message) = input.check(&value) {
        checker.faults.add(&written.place, format!("the default {message}"));
    }
    value
}

/// `from = "tenant.ATTRIBUTE"`: every tenant that may call the flow has it, in one type.
fn from_identity(checker: &mut Checker<'_>, around: &Surroundings<'_>, table: &Table, input: &mut Input, known_type: bool) {
    for key in NOT_WITH_FROM.iter().filter(|key| table.has(key)) {
        checker.faults.add(&table.key_place(key), format!("`{key}` has no meaning beside `from`: no caller sends this input"));
    }
    if input.in_path || input.list {
        checker.faults.add(&table.key_place("from"), "an input from the identity is one value and stands in no path");
    }
    let Some(from) = table.located("from") else { return };
    let Some(attribute) = from.value.strip_prefix("tenant.").filter(|attribute| !attribute.is_empty()) else {
        checker.faults.add(&from.place, format!("expected \"tenant.ATTRIBUTE\", found \"{}\"", printable(&from.value)));
        return;
    };
    input.from_tenant = Some(Arc::from(attribute));
    if attribute == "name" {
        if input.kind != Type::Text {
            checker.faults.add(&table.place_of("type"), "`tenant.name` is text");
        }
        return;
    }
    check_attribute(checker, attribute, &around.callers, &from.place);
    let natural = around.callers.iter().find_map(|tenant| tenant.attributes.get(attribute)).and_then(type_of);
    if !known_type && let Some(kind) = natural {
        input.kind = kind;
    }
    checker.attribute_type(attribute, input.kind, &from.place);
    for tenant in &around.callers {
        let Some(value) = tenant.attributes.get(attribute).filter(|value| **value != Value::Null) else { continue };
        if as_type(value, input.kind).is_none() {
            let message = format!("`{attribute}` of tenant {} is no {}", tenant.name, input.kind.name());
            checker.faults.add(&from.place, message);
        }
    }
}

/// A fault for each tenant that may call the flow but lacks the attribute.
pub(crate) fn check_attribute(checker: &mut Checker<'_>, attribute: &str, callers: &[&TenantPlan], place: &Place) {
    for tenant in callers.iter().filter(|tenant| !tenant.attributes.contains_key(attribute)) {
        let near = did_you_mean(attribute, tenant.attributes.keys().map(|name| &**name));
        let message = format!("tenant {} may call this flow but has no attribute `{}`{near}", tenant.name, printable(attribute));
        checker.faults.add(place, message);
    }
}

/// The type an attribute has by itself.
pub(crate) fn type_of(value: &Value) -> Option<Type> {
    match value {
        Value::Text(_) => Some(Type::Text),
        Value::Integer(_) => Some(Type::Integer),
        Value::Boolean(_) => Some(Type::Boolean),
        Value::Decimal(_) => Some(Type::Decimal),
        _ => None,
    }
}

/// An attribute as an input's type: text that is a decimal, a date and so on; anything else only as it is.
pub(crate) fn as_type(value: &Value, kind: Type) -> Option<Value> {
    match value {
        value if type_of(value) == Some(kind) => Some(value.clone()),
        Value::Text(text) if !matches!(kind, Type::Integer | Type::Number | Type::Boolean) => typed::from_text(kind, text).ok(),
        Value::Integer(number) if kind == Type::Decimal => Some(Value::Decimal(number.to_string().into())),
        _ => None,
    }
}
