//! JSON in which every object names each of its keys once: what came twice has no single meaning.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Any JSON, looked at and not kept.
struct OnceEach;

/// Says which key of an object came twice, if one did.
pub(crate) fn check(json: &[u8]) -> Result<(), serde_json::Error> {
    serde_json::from_slice::<OnceEach>(json).map(|_| ())
}

impl<'de> Deserialize<'de> for OnceEach {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Looking)
    }
}

struct Looking;

impl<'de> Visitor<'de> for Looking {
    type Value = OnceEach;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("JSON")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OnceEach, A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if seen.contains(&key) {
                return Err(A::Error::custom(format_args!("the key {key:?} comes twice")));
            }
            seen.insert(key);
            map.next_value::<OnceEach>()?;
        }
        Ok(OnceEach)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<OnceEach, A::Error> {
        while list.next_element::<OnceEach>()?.is_some() {}
        Ok(OnceEach)
    }
    fn visit_bool<E>(self, _: bool) -> Result<OnceEach, E> {
        Ok(OnceEach)
    }
    fn visit_i64<E>(self, _: i64) -> Result<OnceEach, E> {
        Ok(OnceEach)
    }
    fn visit_u64<E>(self, _: u64) -> Result<OnceEach, E> {
        Ok(OnceEach)
    }
    fn visit_f64<E>(self, _: f64) -> Result<OnceEach, E> {
        Ok(OnceEach)
    }
    fn visit_str<E>(self, _: &str) -> Result<OnceEach, E> {
        Ok(OnceEach)
    }
    fn visit_unit<E>(self) -> Result<OnceEach, E> {
        Ok(OnceEach)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_comes_twice_is_named_at_any_depth() {
        let fits = br#"{"a":[{"b":1},{"b":-2.5}],"b":{"a":null,"c":true,"d":"a"}}"#;
        assert!(check(fits).is_ok());
        for (json, key) in [
            (r#"{"in_flight":5,"in_flight":7}"#, "in_flight"),
            (r#"{"run":{"calls":1,"calls":1}}"#, "calls"),
            (r#"[{"a":1},{"a":1,"\u0061":2}]"#, "a"),
        ] {
            let error = check(json.as_bytes()).expect_err(json).to_string();
            assert!(error.starts_with(&format!("the key \"{key}\" comes twice")), "{error}");
        }
        assert!(check(&[b'['; 100_000]).is_err(), "depth is bounded");
    }
}
