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
