//! JSON schemas of the files, for editors: JSON Schema 2020-12, made from the tables of keys.

use serde_json::{Map, Value, json};

use crate::keys::{Key, Kind, Presence, Section, flow, server};
use crate::raw::Raw;

/// Schema of a server file and of its includes.
pub fn schema_server() -> Value {
    document("Spillgate server file", &server::ROOT)
}

/// Schema of a flow file.
pub fn schema_flow() -> Value {
    document("Spillgate flow file", &flow::ROOT)
}

fn document(title: &str, root: &Section) -> Value {
    let mut schema = Map::new();
    schema.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
    schema.insert("title".into(), title.into());
    schema.extend(section(root));
    Value::Object(schema)
}

fn section(section: &Section) -> Map<String, Value> {
    let properties: Map<String, Value> = section.current().map(|key| (key.name.to_owned(), property(key))).collect();
    let required: Vec<&str> = section.current().filter(|key| key.presence == Presence::Required).map(|key| key.name).collect();
    let mut schema = Map::new();
    schema.insert("type".into(), "object".into());
    schema.insert("description".into(), section.about.into());
    schema.insert("properties".into(), Value::Object(properties));
    if !required.is_empty() {
        schema.insert("required".into(), required.into());
    }
    schema.insert("additionalProperties".into(), false.into());
    schema
}

fn property(key: &Key) -> Value {
    let mut schema = match form(&key.kind) {
        Value::Object(form) => form,
        _ => Map::new(),
    };
    if let Some(word) = key.lifted_by {
        schema = Map::from_iter([("anyOf".to_owned(), json!([schema, { "const": word }]))]);
    }
    schema.insert("description".into(), key.about.into());
    if let Presence::Default(text) = key.presence
        && let Some(value) = default(text)
    {
        schema.insert("default".into(), value);
    }
    Value::Object(schema)
}

fn default(text: &str) -> Option<Value> {
    let value = toml::de::DeValue::parse(text).ok()?;
    let nowhere = crate::place::FileText::new(Default::default(), 0, String::new());
    serde_json::from_str(&Raw::read(&nowhere, value.get_ref()).to_json()).ok()
}

fn form(kind: &Kind) -> Value {
    match kind {
        Kind::Text | Kind::Address | Kind::Path | Kind::Secret | Kind::Expression => json!({ "type": "string" }),
        Kind::Word(words) => json!({ "enum": words }),
        Kind::Integer { min, max: i64::MAX } => json!({ "type": "integer", "minimum": min }),
        Kind::Integer { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Kind::Share => json!({ "type": "number", "exclusiveMinimum": 0, "maximum": 1 }),
        Kind::Boolean => json!({ "type": "boolean" }),
        Kind::Size { .. } => json!({ "type": "string", "pattern": "^[0-9][0-9_]* *(B|KiB|MiB|GiB)$" }),
        Kind::Time { .. } => json!({ "type": "string", "pattern": "^[0-9][0-9_]* *(ms|s|min|h|d)$" }),
        Kind::Rate => {
            let rate = json!({ "type": "string", "pattern": "^[0-9][0-9_]* */ *(s|min|h)$" });
            let burst = json!({ "type": "integer", "minimum": 1 });
            json!({ "anyOf": [rate, { "type": "object", "properties": { "rate": rate, "burst": burst }, "required": ["rate"], "additionalProperties": false }] })
        }
        Kind::InputType => {
            let one = json!({ "enum": flow::INPUT_TYPES });
            json!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1, "maxItems": 1 }] })
        }
        Kind::Value => json!({ "type": ["string", "number", "boolean", "array"] }),
        Kind::Anything => json!({}),
        Kind::List(item) => json!({ "type": "array", "items": form(item) }),
        Kind::Map(item) => json!({ "type": "object", "additionalProperties": form(item) }),
        Kind::Table(inner) => Value::Object(section(inner)),
        Kind::Tables(inner) => json!({ "type": "array", "items": section(inner) }),
        Kind::Named(inner) => json!({ "type": "object", "additionalProperties": section(inner) }),
    }
}
