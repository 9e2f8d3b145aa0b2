//! Data into and out of the interpreter, exactly.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use cel::common::types::{CelBool, CelBytes, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString};
use cel::common::value::Val;
use cel::objects::Key;
use cel::{Context, ExecutionError, Value};
use spillgate_model::Datum;

use crate::{ExpressionError, MAX_RESULT_BYTES, Scope};

type Entries<'v> = HashMap<CelMapKey<'v>, Box<dyn Val + 'v>>;

/// Binds what `paths` mention; texts and bytes are borrowed from the scope.
pub(crate) fn bind<'v>(context: &mut Context<'_, 'v>, paths: &'v [String], scope: &'v Scope<'v>) {
    for root in ["input", "tenant"] {
        let mut entries = Entries::new();
        for name in paths.iter().filter_map(|path| path.strip_prefix(root)?.strip_prefix('.')) {
            if let Some(value) = find(scope, root, name) {
                entries.insert(CelMapKey::from(name), to_value(value));
            }
        }
        context.add_variable_as_val(root, Box::new(CelMap::from(entries)));
    }
    let mut steps: BTreeMap<&str, Entries<'v>> = BTreeMap::new();
    for path in paths.iter().filter_map(|path| path.strip_prefix("steps.")) {
        let Some((step, part)) = path.rsplit_once('.') else { continue };
        let Some(Datum::Map(parts)) = find(scope, "steps", step) else { continue };
        let entries = steps.entry(step).or_default();
        if let Some(value) = parts.get(part) {
            entries.insert(CelMapKey::from(part), to_value(value));
        }
    }
    let steps = steps.into_iter().map(|(step, parts)| (CelMapKey::from(step), Box::new(CelMap::from(parts)) as Box<dyn Val + 'v>));
    context.add_variable_as_val("steps", Box::new(CelMap::from(steps.collect::<Entries<'v>>())));
}

fn find<'v>(scope: &'v Scope<'v>, root: &str, name: &str) -> Option<&'v Datum> {
    scope.root(root)?.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
}

fn to_value(datum: &Datum) -> Box<dyn Val + '_> {
    match datum {
        Datum::Null => Box::new(CelNull),
        Datum::Boolean(value) => Box::new(CelBool::from(*value)),
        Datum::Integer(value) => Box::new(CelInt::from(*value)),
        Datum::Number(value) => Box::new(CelDouble::from(*value)),
        Datum::Text(text) => Box::new(CelString::from(&**text)),
        Datum::Binary(bytes) => Box::new(CelBytes::from(&**bytes)),
        Datum::List(items) => Box::new(CelList::from(items.iter().map(to_value).collect::<Vec<_>>())),
        Datum::Map(entries) => {
            let entries = entries.iter().map(|(key, value)| (CelMapKey::from(&**key), to_value(value)));
            Box::new(CelMap::from(entries.collect::<HashMap<_, _>>()))
        }
    }
}

/// A result as data.
pub(crate) fn to_datum(value: &Value) -> Result<Datum, ExpressionError> {
    let mut room = MAX_RESULT_BYTES;
    from_value(value, &mut room)
}

fn from_value(value: &Value, room: &mut usize) -> Result<Datum, ExpressionError> {
    let bytes = match value {
        Value::String(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        _ => 0,
    };
    *room = room
        .checked_sub(bytes + size_of::<Datum>())
        .ok_or_else(|| ExpressionError::new(format!("the result is larger than {MAX_RESULT_BYTES} bytes")))?;
    Ok(match value {
        Value::Null => Datum::Null,
        Value::Bool(value) => Datum::Boolean(*value),
        Value::Int(value) => Datum::Integer(*value),
        Value::UInt(value) => Datum::Integer(
            i64::try_from(*value).map_err(|_| ExpressionError::new(format!("{value} is beyond the integers (64 bits, signed)")))?,
        ),
        Value::Float(value) => Datum::Number(*value),
        Value::String(text) => Datum::Text(Arc::from(text.as_str())),
        Value::Bytes(bytes) => Datum::Binary(Arc::from(bytes.as_slice())),
        Value::List(items) => Datum::List(items.iter().map(|item| from_value(item, room)).collect::<Result<_, _>>()?),
        Value::Map(map) => {
            let mut entries = BTreeMap::new();
            for (key, value) in map.map.iter() {
                let Key::String(key) = key else {
                    return Err(ExpressionError::new("the keys of a map in the result are texts"));
                };
                *room = room.saturating_sub(key.len());
                entries.insert(Arc::from(key.as_str()), from_value(value, room)?);
            }
            Datum::Map(Arc::new(entries))
        }
        Value::Function(..) | Value::Opaque(_) | Value::Struct(_) => {
            return Err(ExpressionError::new("the result is neither null, boolean, number, text, bytes, list nor map"));
        }
    })
}

/// What went wrong, without any value: the text may reach a caller.
pub(crate) fn describe(error: &ExecutionError) -> String {
    let kind = |value: &Value| value.type_of().to_string();
    match error {
        ExecutionError::NoSuchKey(key) => format!("there is no `{key}`"),
        ExecutionError::UndeclaredReference(name) => format!("unknown name `{name}`"),
        ExecutionError::NoSuchOverload(overload) => {
            let operator = cel_operator(overload.function());
            format!("`{operator}` does not take ({})", overload.argument_types().join(", "))
        }
        ExecutionError::UnexpectedType { got, want } => format!("expected {want}, found {got}"),
        ExecutionError::ValuesNotComparable(left, right) => format!("{} and {} cannot be compared", kind(left), kind(right)),
        ExecutionError::UnsupportedBinaryOperator(operator, left, right) => {
            format!("`{operator}` does not take ({}, {})", kind(left), kind(right))
        }
        ExecutionError::UnsupportedIndex(index, of) => format!("{} is no index of {}", kind(index), kind(of)),
        ExecutionError::UnsupportedKeyType(key) => format!("{} cannot be a key", kind(key)),
        ExecutionError::UnsupportedTargetType { target } => format!("not possible on {}", kind(target)),
        ExecutionError::NotSupportedAsMethod { method, target } => format!("`{method}` is not possible on {}", kind(target)),
        ExecutionError::IndexOutOfBounds(_) => "the index is beyond the list".into(),
        ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => "division by zero".into(),
        ExecutionError::Overflow(..) => "the result is beyond 64 bits".into(),
        ExecutionError::DuplicateKey(_) => "a map has a key twice".into(),
        ExecutionError::InvalidArgumentCount { expected, actual } => format!("expected {expected} arguments, found {actual}"),
        ExecutionError::MissingArgumentOrTarget => "an argument is missing".into(),
        ExecutionError::FunctionError { function, .. } => format!("`{function}` could not use its arguments"),
        _ => "the expression could not be evaluated".into(),
    }
}

/// Whether other values of the same types might not have failed.
pub(crate) fn is_of_values(error: &ExecutionError) -> bool {
    matches!(
        error,
        ExecutionError::IndexOutOfBounds(_)
            | ExecutionError::DivisionByZero(_)
            | ExecutionError::RemainderByZero(_)
            | ExecutionError::Overflow(..)
            | ExecutionError::DuplicateKey(_)
            | ExecutionError::FunctionError { .. }
    )
}

/// `_+_` as it is written.
fn cel_operator(name: &str) -> &str {
    match name.trim_matches('_') {
        "[" | "[_]" => "[]",
        "." => ".",
        other => other,
    }
}
