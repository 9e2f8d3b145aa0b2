//! JSON schemas of inputs and outputs, as intake reads and replies write them.

use serde_json::{Map, Value as Json, json};
use spillgate_config::plan::Input;
use spillgate_model::json::MAX_SAFE_INTEGER;
use spillgate_model::{Code, Scope, Type, Value, limits};

const DIGITS: &str = "^-?[0-9]+$";
const DECIMAL: &str = "^[+-]?[0-9]+(\\.[0-9]+)?$";
const TIME: &str = "^[0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]{1,12})?$";
const TIMESTAMP: &str = "^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]{1,12})?(Z|[+-][0-9]{2}:[0-9]{2})?$";

/// An input in a path or a query string, where every value is text.
pub(super) fn text_input(input: &Input) -> Json {
    let plain = match input.kind {
        Type::Integer => json!({ "type": "integer", "format": "int64" }),
        Type::Number => json!({ "type": "number", "format": "double" }),
        kind => of_text(kind),
    };
    bounded(input, plain, false)
}

/// An input in a JSON body.
pub(super) fn json_input(input: &Input) -> Json {
    let plain = match input.kind {
        Type::Integer => json!({ "type": ["integer", "string"], "format": "int64", "pattern": DIGITS }),
        Type::Number => json!({ "type": ["number", "string"], "format": "double" }),
        Type::Decimal => json!({ "type": ["string", "number"], "format": "decimal", "pattern": DECIMAL }),
        kind => of_text(kind),
    };
    bounded(input, plain, !input.required)
}

fn of_text(kind: Type) -> Json {
    match kind {
        Type::Decimal => json!({ "type": "string", "format": "decimal", "pattern": DECIMAL }),
        Type::Boolean => json!({ "type": "boolean" }),
        Type::Date => json!({ "type": "string", "format": "date" }),
        Type::Time => json!({ "type": "string", "pattern": TIME }),
        Type::Timestamp => json!({ "type": "string", "pattern": TIMESTAMP }),
        Type::Binary => json!({ "type": "string", "contentEncoding": "base64" }),
        Type::Integer | Type::Number | Type::Text => json!({ "type": "string" }),
    }
}

/// Adds what the flow declares: bounds, the list around it, NULL, the default.
fn bounded(input: &Input, mut schema: Json, nullable: bool) -> Json {
    for (bound, plain, exact) in [(&input.min, "minimum", "x-spillgate-minimum"), (&input.max, "maximum", "x-spillgate-maximum")] {
        match bound {
            // A schema's bounds are for numbers only; decimals and dates are bounded as the flow writes them.
            Some(value @ (Value::Integer(_) | Value::Number(_))) => schema[plain] = literal(value),
            Some(value) => schema[exact] = literal(value),
            None => {}
        }
    }
    let nothing = input.default == Value::Null;
    if !input.one_of.is_empty() {
        let null = (nullable && !input.list).then_some(Json::Null);
        schema["enum"] = input.one_of.iter().map(literal).chain(null).collect();
    }
    if input.list {
        let least = input.min_length.unwrap_or(1).max(1);
        let most = input.max_length.unwrap_or(limits::LIST_ITEMS).min(limits::LIST_ITEMS);
        schema = json!({ "type": "array", "items": schema, "minItems": least, "maxItems": most });
    } else if input.kind == Type::Text {
        let lengths = [("minLength", input.min_length), ("maxLength", input.max_length)];
        for (name, length) in lengths.into_iter().filter_map(|(name, length)| length.map(|length| (name, length))) {
            schema[name] = json!(length);
        }
    }
    if nullable {
        add_null(&mut schema);
    }
    if !nothing {
        schema["default"] = literal(&input.default);
    }
    schema
}

fn add_null(schema: &mut Json) {
    match &mut schema["type"] {
        Json::Array(types) => types.push(json!("null")),
        single => *single = json!([single.take(), "null"]),
    }
}

/// A value as JSON; an integer as a number, whatever its size (documents are text).
fn literal(value: &Value) -> Json {
    match value {
        Value::Null | Value::Binary(_) => Json::Null,
        Value::Integer(value) => json!(value),
        Value::Number(value) => json!(value),
        Value::Boolean(value) => json!(value),
        Value::Decimal(text) | Value::Text(text) | Value::Date(text) | Value::Time(text) | Value::Timestamp(text) => json!(&**text),
        Value::List(items) => items.iter().map(literal).collect(),
    }
}

/// A 64-bit integer in a reply: a number while every reader holds it exactly, its digits beyond.
pub(super) fn integer() -> Json {
    let safe = i64::try_from(MAX_SAFE_INTEGER).unwrap_or(i64::MAX);
    json!({
        "description": "A number while exact in a double, else its digits as text.",
        "oneOf": [
            { "type": "integer", "minimum": -safe, "maximum": safe },
            { "type": "string", "pattern": "^-?[0-9]{16,19}$" },
        ],
    })
}

/// A column of a reply. Every column may be NULL.
pub(super) fn column(kind: Type) -> Json {
    match kind {
        Type::Integer => json!({ "oneOf": [{ "$ref": "#/components/schemas/Integer" }, { "type": "null" }] }),
        Type::Number => {
            let special = ["NaN", "Infinity", "-Infinity"];
            json!({ "oneOf": [{ "type": "number" }, { "type": "string", "enum": special }, { "type": "null" }] })
        }
        kind => {
            let mut schema = of_text(kind);
            add_null(&mut schema);
            schema
        }
    }
}

/// A refusal.
pub(super) fn problem() -> Json {
    let codes: Vec<&str> = Code::ALL.iter().map(|code| code.name()).collect();
    let scopes = [Scope::Caller, Scope::Run, Scope::Tenant, Scope::Flow, Scope::Queue, Scope::Database, Scope::Server].map(Scope::name);
    let mut properties = Map::new();
    let mut add = |name: &str, schema: Json| drop(properties.insert(name.into(), schema));
    add("type", json!({ "type": "string", "format": "uri-reference" }));
    add("title", json!({ "type": "string" }));
    add("status", json!({ "type": "integer" }));
    add("code", json!({ "type": "string", "enum": codes }));
    add("detail", json!({ "type": "string" }));
    add("scope", json!({ "type": "string", "enum": scopes }));
    add("retryable", json!({ "type": "boolean", "description": "Whether the same call may be sent again." }));
    add("retry_after_ms", json!({ "type": ["integer", "null"], "minimum": 0 }));
    add("advice", json!({ "type": "string", "description": "What to do next." }));
    add("request_id", json!({ "type": "string" }));
    let required: Vec<String> = properties.keys().cloned().collect();
    let policy = json!({ "name": { "type": "string" }, "limit": { "type": "integer" }, "used": { "type": "integer" } });
    properties.insert("policy".into(), json!({ "type": "object", "description": "The limit that spoke.", "properties": policy }));
    let valid_until = json!({ "type": "string", "format": "date-time", "description": "When the cause will have ended." });
    properties.insert("valid_until".into(), valid_until);
    let error = json!({ "type": "object", "properties": { "field": { "type": "string" }, "problem": { "type": "string" } } });
    properties.insert("errors".into(), json!({ "type": "array", "description": "All fields that do not fit.", "items": error }));
    properties.insert("job".into(), json!({ "$ref": "#/components/schemas/Job" }));
    json!({ "type": "object", "required": required, "properties": properties })
}
