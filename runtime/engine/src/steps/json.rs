//! JSON of a service as a tree. Integers beyond 64 bits signed become texts of their digits.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use spillgate_model::Datum;

/// Reads one JSON value; what follows it is an error. Nesting is bounded by the parser.
pub(super) fn parse(bytes: &[u8]) -> Result<Datum, String> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let datum = Tree.deserialize(&mut reader).map_err(|error| error.to_string())?;
    reader.end().map_err(|error| error.to_string())?;
    Ok(datum)
}

/// What the tree of a JSON text takes at the most, seen from its outside: every value and key follows one of these.
pub(super) fn most_bytes(text: &[u8]) -> usize {
    /// A datum, its allocation, and its share of a map's node.
    const BYTES_PER_VALUE: usize = 240;
    let values = text.iter().filter(|byte| matches!(byte, b'[' | b'{' | b',' | b':')).count();
    text.len() + values * BYTES_PER_VALUE
}

struct Tree;

impl<'de> DeserializeSeed<'de> for Tree {
    type Value = Datum;
    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Datum, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tree {
    type Value = Datum;
    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("JSON")
    }
    fn visit_unit<E>(self) -> Result<Datum, E> {
        Ok(Datum::Null)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Datum, E> {
        Ok(Datum::Boolean(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Datum, E> {
        Ok(Datum::Integer(value))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Datum, E> {
        Ok(i64::try_from(value).map_or_else(|_| Datum::Text(Arc::from(value.to_string())), Datum::Integer))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Datum, E> {
        Ok(Datum::Number(value))
    }
    fn visit_str<E>(self, value: &str) -> Result<Datum, E> {
        Ok(Datum::Text(Arc::from(value)))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Datum, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Tree)? {
            list.push(item);
        }
        Ok(Datum::List(list.into()))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Datum, A::Error> {
        let mut map = BTreeMap::new();
        while let Some(key) = entries.next_key::<String>()? {
            map.insert(Arc::from(key), entries.next_value_seed(Tree)?);
        }
        Ok(Datum::Map(Arc::new(map)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a tree takes: boxes of shared pointers, and nodes of maps that are half full.
    fn held(datum: &Datum) -> usize {
        const SHARED: usize = 32;
        match datum {
            Datum::Text(text) => SHARED + text.len(),
            Datum::Binary(bytes) => SHARED + bytes.len(),
            Datum::List(items) => SHARED + items.iter().map(|item| size_of::<Datum>() + held(item)).sum::<usize>(),
            Datum::Map(entries) => {
                let nodes = entries.len().div_ceil(5) * (11 * (16 + size_of::<Datum>()) + SHARED);
                SHARED + nodes + entries.iter().map(|(key, value)| SHARED + key.len() + held(value)).sum::<usize>()
            }
            _ => 0,
        }
    }

    #[test]
    fn promise_11_the_memory_reserved_for_an_answer_is_never_less_than_its_tree_takes() {
        let empty_lists = format!("[{}[]]", "[],".repeat(10_000));
        let small_maps = format!("[{}{{}}]", r#"{"a":1},"#.repeat(10_000));
        let wide_map = format!("{{{}\"z\":0}}", (0..10_000).map(|key| format!("\"{key}\":[],")).collect::<String>());
        let texts = format!("[{}\"\"]", r#""","#.repeat(10_000));
        for text in [empty_lists, small_maps, wide_map, texts, "null".into(), r#"{"a":{"b":{"c":[{}]}}}"#.into()] {
            let tree = parse(text.as_bytes()).expect("JSON");
            assert!(held(&tree) <= most_bytes(text.as_bytes()) + 32, "{}…", &text[..text.len().min(20)]);
        }
    }
}
