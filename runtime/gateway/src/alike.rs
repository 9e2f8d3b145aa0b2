//! What makes two calls alike: the key that was sent, or run, flow and input. See [`spillgate_admission::Repeats`].
//!
//! The input of a flow that takes no body is its path and query as they came, so that it is known before anything is read; else the
//! typed values. Calls that send no key and name no run are like nothing: nobody can tell a repeat from another caller's call.

use std::hash::{BuildHasher as _, Hash as _, Hasher, RandomState};

use spillgate_admission::Likeness;
use spillgate_engine::intake::Intake;
use spillgate_model::Value;

/// Makes the numbers: keyed, so that nobody outside can make two calls the same.
#[derive(Debug, Default)]
pub(crate) struct Alike {
    keyed: RandomState,
}

/// What is known of a call before its body is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<'a> {
    pub(crate) flow: &'a str,
    pub(crate) key: Option<&'a str>,
    pub(crate) run: Option<&'a str>,
    /// Path and query, of a flow that takes no body.
    pub(crate) target: Option<(&'a str, Option<&'a str>)>,
}

impl Known<'_> {
    /// Nothing will ever be like it.
    pub(crate) fn is_like_nothing(&self) -> bool {
        self.key.is_none() && self.run.is_none()
    }
}

impl Alike {
    /// What a call is alike by; `values` as soon as they are known.
    pub(crate) fn likeness(&self, known: &Known<'_>, intake: Option<&Like>) -> Likeness {
        let key = known.key.map(|key| self.keyed.hash_one((known.flow, key)));
        let input = known.run.and_then(|run| match (known.target, intake) {
            (Some(target), _) => Some(self.keyed.hash_one((known.flow, run, target))),
            (None, Some(like)) => Some(self.keyed.hash_one((known.flow, run, like.0))),
            (None, None) => None,
        });
        Likeness { key, input }
    }

    /// A number of the typed input.
    pub(crate) fn of(&self, intake: &Intake) -> Like {
        let mut hasher = self.keyed.build_hasher();
        intake.values.iter().for_each(|value| write(value, &mut hasher));
        (&intake.page.cursor, intake.page.size).hash(&mut hasher);
        Like(hasher.finish())
    }
}

/// Stands for a call's typed input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Like(u64);

fn write(value: &Value, hasher: &mut impl Hasher) {
    std::mem::discriminant(value).hash(hasher);
    match value {
        Value::Null => {}
        Value::Boolean(value) => value.hash(hasher),
        Value::Integer(value) => value.hash(hasher),
        Value::Number(value) => value.to_bits().hash(hasher),
        Value::Decimal(text) | Value::Text(text) | Value::Date(text) | Value::Time(text) | Value::Timestamp(text) => text.hash(hasher),
        Value::Binary(bytes) => bytes.hash(hasher),
        Value::List(items) => {
            items.len().hash(hasher);
            items.iter().for_each(|item| write(item, hasher));
        }
    }
}

#[cfg(test)]
mod tests {
    use spillgate_engine::PageRequest;

    use super::*;

    fn known<'a>(key: Option<&'a str>, run: Option<&'a str>, target: Option<&'a str>) -> Known<'a> {
        Known { flow: "flow", key, run, target: target.map(|path| (path, None)) }
    }

    #[test]
    fn calls_are_alike_by_key_or_by_run_flow_and_input() {
        let alike = Alike::default();
        let of = |known: Known<'_>| alike.likeness(&known, None);
        let one = of(known(Some("k"), Some("r"), Some("/1")));
        assert_eq!(one, of(known(Some("k"), Some("r"), Some("/1"))));
        assert_eq!(one.key, of(known(Some("k"), None, Some("/2"))).key);
        assert_ne!(one.input, of(known(Some("k"), Some("r"), Some("/2"))).input, "another input");
        assert_ne!(one.input, of(known(Some("k"), Some("s"), Some("/1"))).input, "another run");
        assert_ne!(one, of(Known { flow: "other", ..known(Some("k"), Some("r"), Some("/1")) }));
        assert!(of(known(None, None, Some("/1"))).is_empty(), "whoever names no run may be anybody");
        assert!(of(known(None, Some("r"), None)).is_empty(), "a body that was not read");
    }

    #[test]
    fn typed_inputs_are_alike_by_their_values() {
        let alike = Alike::default();
        let of = |values: Vec<Value>, cursor: Option<&str>| {
            let page = PageRequest { cursor: cursor.map(Into::into), size: None };
            alike.of(&Intake { values: values.into(), page })
        };
        let text = |text: &str| Value::Text(text.into());
        assert_eq!(of(vec![text("a"), Value::Integer(1)], None), of(vec![text("a"), Value::Integer(1)], None));
        let different = [
            of(vec![text("1")], None),
            of(vec![Value::Integer(1)], None),
            of(vec![Value::Decimal("1".into())], None),
            of(vec![Value::List([text("1")].into())], None),
            of(vec![Value::List([text("1"), Value::Null].into())], None),
            of(vec![text("1")], Some("next")),
            of(vec![text("1"), Value::Null], None),
        ];
        for (index, one) in different.iter().enumerate() {
            assert!(different[index + 1..].iter().all(|other| one != other), "{index}");
        }
    }
}
