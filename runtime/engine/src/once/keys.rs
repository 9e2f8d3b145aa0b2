//! How keys are made: SHA-256 over parts of stated length, so that no two different sets of parts are written alike.

use sha2::{Digest as _, Sha256};
use spillgate_config::plan::{Flow, UniquePlan};
use spillgate_model::{Flowfile, Value};
use spillgate_queue::{Hash, Unique};

use crate::page::encode;

/// What is hashed begins with one of these: a key of one kind is never one of another.
const GIVEN: &str = "spillgate key 1";
const DERIVED: &str = "spillgate derived key 1";
const INPUT: &str = "spillgate input 1";
const UNIQUE: &str = "spillgate unique 1";

/// Of a key that was sent.
pub(super) fn given(tenant: &str, flow: &str, key: &str) -> Hash {
    hash(&[GIVEN, tenant, flow, key].map(str::as_bytes))
}

/// Of what a call is: the same input from the same run of the same tenant; where no run is named, from the tenant.
pub(super) fn derived(flowfile: &Flowfile, flow: &str, input: &Hash) -> Hash {
    let run = flowfile.run.as_deref();
    let named: &[u8] = if run.is_some() { b"run" } else { b"" };
    hash(&[DERIVED.as_bytes(), flowfile.tenant.as_bytes(), flow.as_bytes(), named, run.unwrap_or_default().as_bytes(), input])
}

/// Of the typed input: by name and without what is NULL, so that an optional input that a flow gains changes nothing.
pub(super) fn input(flow: &Flow, values: &[Value]) -> Hash {
    let mut named: Vec<_> = flow.inputs.iter().zip(values).filter(|(_, value)| **value != Value::Null).collect();
    named.sort_unstable_by(|(one, _), (other, _)| one.name.cmp(&other.name));
    let mut parts = vec![INPUT.as_bytes().to_vec()];
    for (input, value) in named {
        parts.push(input.name.as_bytes().to_vec());
        parts.push(encoded(value));
    }
    hash(&parts)
}

/// The business key of a call, across tenants.
pub(super) fn unique(flow: &Flow, plan: &UniquePlan, values: &[Value]) -> Unique {
    let mut parts = vec![UNIQUE.as_bytes().to_vec(), flow.name.as_bytes().to_vec()];
    for (input, value) in plan.by.iter().filter_map(|index| flow.inputs.get(*index).zip(values.get(*index))) {
        parts.push(input.name.as_bytes().to_vec());
        parts.push(encoded(value));
    }
    Unique { hash: hash(&parts), within: plan.within }
}

fn encoded(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    encode(value, &mut out);
    out
}

fn hash(parts: &[impl AsRef<[u8]>]) -> Hash {
    let mut hash = Sha256::new();
    for part in parts {
        let part = part.as_ref();
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let digest = hash.finalize();
    std::array::from_fn(|index| digest[index])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use spillgate_config::plan::{Effect, Input, Limit, Origin};
    use spillgate_model::Type;

    use super::*;

    fn flow(inputs: &[&str]) -> Flow {
        Flow {
            name: "book".into(),
            about: String::new(),
            http: None,
            effect: Effect::Write,
            deadline: Limit { value: Duration::from_secs(1), origin: Origin::Default },
            breaker: None,
            cache: None,
            page: None,
            inputs: inputs.iter().map(|name| Input::new(name, Type::Text)).collect(),
            steps: Vec::new(),
            queue: None,
            idempotency: None,
            unique: None,
            schedule: None,
            tests: Vec::new(),
            version: 0,
            memory: 0,
            file: Arc::default(),
        }
    }

    fn text(text: &str) -> Value {
        Value::Text(text.into())
    }

    #[test]
    fn parts_are_told_apart_by_their_lengths() {
        assert_ne!(given("ab", "c", "k"), given("a", "bc", "k"));
        assert_ne!(given("a", "b", "ck"), given("a", "bc", "k"));
        assert_eq!(given("a", "b", "k"), given("a", "b", "k"));
    }

    #[test]
    fn the_input_is_hashed_by_name_and_without_what_is_null() {
        let before = input(&flow(&["trip", "note"]), &[text("7"), Value::Null]);
        // The flow gained an input and its file is in another order: the same call is the same call.
        let after = input(&flow(&["since", "note", "trip"]), &[Value::Null, Value::Null, text("7")]);
        assert_eq!(before, after);
        assert_ne!(before, input(&flow(&["trip", "note"]), &[text("7"), text("")]));
        assert_ne!(before, input(&flow(&["trip", "note"]), &[Value::Integer(7), Value::Null]), "typed: text is no number");
        assert_ne!(before, input(&flow(&["note", "trip"]), &[text("7"), Value::Null]));
    }

    #[test]
    fn a_derived_key_knows_a_run_from_none() {
        let flowfile = |run: Option<&str>| Flowfile {
            id: "r".into(),
            tenant: "one".into(),
            run: run.map(Arc::from),
            input: Arc::from([]),
            deadline: Instant::now(),
        };
        let derived = |run| derived(&flowfile(run), "book", &[1; 16]);
        assert_eq!(derived(Some("a")), derived(Some("a")));
        assert_ne!(derived(Some("a")), derived(Some("b")));
        assert_ne!(derived(Some("")), derived(None));
    }

    #[test]
    fn a_business_key_is_made_of_its_inputs_alone() {
        let of = |by: &[usize], values: &[Value]| {
            let plan = UniquePlan { by: by.to_vec(), within: Duration::from_secs(1) };
            unique(&flow(&["trip", "note"]), &plan, values).hash
        };
        assert_eq!(of(&[0], &[text("7"), text("a")]), of(&[0], &[text("7"), text("b")]));
        assert_ne!(of(&[0, 1], &[text("7"), text("a")]), of(&[0, 1], &[text("7"), text("b")]));
        assert_ne!(of(&[0], &[text("7"), text("7")]), of(&[1], &[text("7"), text("7")]));
    }
}
