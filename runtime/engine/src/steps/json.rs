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
