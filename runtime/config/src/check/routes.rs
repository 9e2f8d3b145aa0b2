//! What must be unique over all flows: names and endpoints.

use std::collections::BTreeMap;

use crate::place::{Located, Place};

use super::Checker;
use super::endpoint::Endpoint;

/// Names and endpoints seen so far.
#[derive(Default)]
pub(crate) struct Taken {
    names: BTreeMap<String, Place>,
    shapes: BTreeMap<String, Place>,
    /// A flow could not be read: its name is not known.
    pub(crate) incomplete: bool,
}

impl Taken {
    /// Whether a flow has that name, with faults or without, or may have.
    pub(crate) fn may_have(&self, name: &str) -> bool {
        self.incomplete || self.names.contains_key(name)
    }
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(String::as_str)
    }

    /// Adds a flow; both places are named where something is taken already.
    pub(crate) fn add(&mut self, checker: &mut Checker<'_>, name: Option<&Located<String>>, endpoint: Option<&Endpoint>) {
        if let Some(name) = name {
            if let Some(first) = self.names.get(&name.value) {
                checker.faults.add(&name.place, format!("the flow `{}` stands at {} already", name.value, first.short()));
            } else {
                self.names.insert(name.value.clone(), name.place.clone());
            }
        }
        if let Some(endpoint) = endpoint {
            let shape = endpoint.shape();
            if let Some(first) = self.shapes.get(&shape) {
                checker.faults.add(&endpoint.place, format!("`{shape}` is served by the flow at {} already", first.short()));
            } else {
                self.shapes.insert(shape, endpoint.place.clone());
            }
        }
    }
}
