//! The JSON object of a body, kept as the text of its fields: numbers keep their digits.
//!
//! Nesting is skipped over without recursion, so depth costs nothing; no input takes more than a list of plain values.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use spillgate_config::typed::{self, Problem};
use spillgate_model::{Code, Refusal, limits};

/// Most fields of a body: all inputs of the largest flow, `cursor` and `size`, and as many mistakes.
const FIELDS: usize = 2 * (limits::INPUTS_PER_FLOW + 2);

/// The fields of a JSON object, with the JSON text of each. Nothing but space: no fields.
pub(super) fn entries(body: &[u8]) -> Result<Vec<(Cow<'_, str>, &str)>, Refusal> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Vec::new());
    }
    let mut reader = serde_json::Deserializer::from_slice(body);
    let fields = reader.deserialize_map(Fields).and_then(|fields| reader.end().map(|()| fields)).map_err(|error| malformed(&error))?;
    if fields.len() > FIELDS {
        return Err(Refusal::new(Code::Malformed, format!("The body has more than {FIELDS} fields.")));
    }
    Ok(fields)
}

/// The items of a JSON list, one more than allowed at most.
pub(super) fn items(json: &str) -> Result<Vec<&str>, Problem> {
    if !json.starts_with('[') {
        return Err(Problem::Owned(format!("expected a list, found {}", typed::json_kind(json))));
    }
    let mut reader = serde_json::Deserializer::from_str(json);
    // The text was read once already, so it is a list; past the limit the rest is not looked at.
    reader.deserialize_seq(Items).or(Err(Problem::Owned(format!("expected a list of at most {} items", limits::LIST_ITEMS))))
}

fn malformed(error: &serde_json::Error) -> Refusal {
    let detail = if error.is_data() {
        "The body must be one JSON object.".to_owned()
    } else {
        format!("The body is not JSON (line {}, column {}).", error.line(), error.column())
    };
    Refusal::new(Code::Malformed, detail)
}

struct Fields;

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Visitor<'de> for Fields {
    type Value = Vec<(Cow<'de, str>, &'de str)>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::with_capacity(8);
        while let Some((name, value)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
            // Past the limit fields are only counted by one: the caller is refused.
            if fields.len() <= FIELDS {
                fields.push((name.0, value.get()));
            }
        }
        Ok(fields)
    }
}

struct Items;

impl<'de> Visitor<'de> for Items {
    type Value = Vec<&'de str>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element::<&'de RawValue>()? {
            if items.len() <= limits::LIST_ITEMS {
                items.push(item.get());
            }
        }
        Ok(items)
    }
}
