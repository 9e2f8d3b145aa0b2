//! What flows hand to one another, looked at when all of them are known.
//!
//! Invariants
//! 1. Queues do not wait for each other in a ring: a full one holds back those that emit into it, so in a ring each would wait
//!    for room that only the others can make. (A flow that reaches itself is such a ring.)
//! 2. Every tenant that may start a flow may call what it emits to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spillgate_model::{Datum, Type};

use crate::fault::did_you_mean;
use crate::place::Place;
use crate::plan::{Action, Effect, Flow, Input, KeyNeed};
use crate::raw::printable;

use super::cut::{Emitting, takes_items};
use super::routes::Taken;
use super::{Checker, World};

/// A flow as checked by itself.
pub(crate) struct Checked {
    pub(crate) flow: Flow,
    pub(crate) emits: Vec<Emitting>,
    /// By step that emits: a sample of what is handed on, where it is known.
    pub(crate) samples: BTreeMap<usize, Datum>,
    /// It has no fault of its own.
    pub(crate) is_sound: bool,
}

/// Finds the targets of all `emit` steps. The flows stand in name order; those without faults come back.
pub(crate) fn connect(checker: &mut Checker<'_>, world: &World<'_>, taken: &Taken, mut all: Vec<Checked>) -> Vec<Flow> {
    let mut edges: Vec<(usize, usize, Place)> = Vec::new();
    let mut targets = BTreeSet::new();
    for source in 0..all.len() {
        for emitting in std::mem::take(&mut all[source].emits) {
            let Some(target) = target(checker, taken, &all, &emitting) else { continue };
            targets.insert(target);
            if all[target].is_sound {
                check_target(checker, world, &all[source], &all[target].flow, &emitting);
            }
            if let (Some(from), Some(to)) = (&all[source].flow.queue, &all[target].flow.queue) {
                edges.push((from.queue, to.queue, emitting.target.place.clone()));
            }
            if let Some(Action::Emit(emit)) = all[source].flow.steps.get_mut(emitting.step).map(|step| &mut step.action) {
                emit.target = target;
            }
        }
    }
    rings(checker, world, &edges);
    for (index, Checked { flow, .. }) in all.iter().enumerate().filter(|(_, checked)| checked.is_sound) {
        if flow.http.is_none() && flow.schedule.is_none() && !targets.contains(&index) {
            checker.notes.push(format!(
                "{}: nothing starts the flow {}: it has no `http` and no [schedule], and no flow emits to it",
                flow.file.display(),
                flow.name
            ));
        }
    }
    // Without faults nothing is left out, and the targets' positions are those of the plan.
    all.into_iter().filter(|checked| checked.is_sound).map(|checked| checked.flow).collect()
}

fn target(checker: &mut Checker<'_>, taken: &Taken, all: &[Checked], emitting: &Emitting) -> Option<usize> {
    let name = &emitting.target.value;
    let found = all.iter().position(|checked| *checked.flow.name == **name);
    if found.is_none() && !taken.may_have(name) {
        let near = did_you_mean(name, taken.names());
        checker.faults.add(&emitting.target.place, format!("there is no flow `{}`{near}", printable(name)));
    }
    found
}

fn check_target(checker: &mut Checker<'_>, world: &World<'_>, source: &Checked, target: &Flow, emitting: &Emitting) {
    let place = &emitting.target.place;
    if !takes_items(target) {
        checker.faults.add(place, format!("the flow {} takes no items: its first step must be a `queue` step", target.name));
    }
    // Callers are told by it whether a flow changes anything.
    if target.effect == Effect::Write && source.flow.effect == Effect::Read && source.flow.http.is_some() {
        checker.faults.add(place, format!("the flow {} writes, so this one needs `effect = \"write\"`", target.name));
    }
    if target.idempotency.as_ref().is_some_and(|plan| plan.need == KeyNeed::Required) {
        let message = format!("the flow {} requires a key, which emitted items do not have: \"optional\" there", target.name);
        checker.faults.add(place, message);
    }
    for tenant in world.tenants.iter().filter(|tenant| tenant.may_call(&source.flow.name) && !tenant.may_call(&target.name)) {
        let message = format!("tenant {} may call this flow but not {}, to which it emits", tenant.name, target.name);
        checker.faults.add(place, message);
    }
    let items = match source.samples.get(&emitting.step) {
        Some(Datum::List(items)) => &items[..],
        Some(item) => std::slice::from_ref(item),
        None => &[],
    };
    for item in items {
        if let Datum::Map(fields) = item {
            check_fields(checker, target, fields, &emitting.what);
        }
    }
}

/// What is handed on is the input of the target, as a caller would send it.
fn check_fields(checker: &mut Checker<'_>, target: &Flow, fields: &BTreeMap<Arc<str>, Datum>, place: &Place) {
    let sent = || target.inputs.iter().filter(|input| input.from_tenant.is_none());
    for (name, value) in fields {
        let Some(input) = sent().find(|input| input.name == *name) else {
            let near = did_you_mean(name, sent().map(|input| &*input.name));
            checker.faults.add(place, format!("the flow {} takes no `{}`{near}", target.name, printable(name)));
            continue;
        };
        if !fits(input, value) {
            let kind = if input.list { format!("list of {}", input.kind.name()) } else { input.kind.name().into() };
            checker.faults.add(
                place,
                format!("`{name}` of the flow {} has the type {kind}, {} is handed on", target.name, super::expression::kind_of(value)),
            );
        }
    }
    for input in sent().filter(|input| input.required && !fields.contains_key(&input.name)) {
        checker.faults.add(place, format!("the flow {} requires `{}`, which is not handed on", target.name, input.name));
    }
}

/// Whether a value of that kind could be that input. Samples have types, their values mean nothing.
fn fits(input: &Input, value: &Datum) -> bool {
    let one = |value: &Datum| match value {
        Datum::Null => !input.required,
        Datum::Boolean(_) => input.kind == Type::Boolean,
        Datum::Integer(_) => matches!(input.kind, Type::Integer | Type::Number | Type::Decimal),
        Datum::Number(_) => matches!(input.kind, Type::Number | Type::Decimal),
        Datum::Text(_) => input.kind != Type::Boolean,
        Datum::Binary(_) => input.kind == Type::Binary,
        Datum::List(_) | Datum::Map(_) => false,
    };
    match value {
        Datum::List(items) if input.list => items.iter().all(one),
        value => !input.list && one(value),
    }
}

/// Each ring of queues once, where the step stands that closes it.
fn rings(checker: &mut Checker<'_>, world: &World<'_>, edges: &[(usize, usize, Place)]) {
    let mut closed: Vec<(usize, usize)> = Vec::new();
    for (index, (from, to, place)) in edges.iter().enumerate() {
        // With the edges before this one, without those that closed a ring already.
        let open: Vec<(usize, usize)> =
            edges[..index].iter().map(|(from, to, _)| (*from, *to)).filter(|edge| !closed.contains(edge)).collect();
        let Some(path) = path(&open, *to, *from) else { continue };
        closed.push((*from, *to));
        let names: Vec<&str> = std::iter::once(from).chain(&path).map(|queue| &*world.queues[*queue].name).collect();
        let message = format!(
            "this closes a ring of queues ({}): when they are full, each waits for room that only another can make; give the target a queue of its own",
            names.join(" -> ")
        );
        checker.faults.add(place, message);
    }
}

/// Queues from one to another along the edges, both ends included.
fn path(edges: &[(usize, usize)], from: usize, to: usize) -> Option<Vec<usize>> {
    let mut came_from: BTreeMap<usize, usize> = BTreeMap::new();
    let mut next = vec![from];
    while let Some(queue) = next.pop() {
        if queue == to {
            let mut path = vec![queue];
            while let Some(before) = path.last().filter(|queue| **queue != from).and_then(|queue| came_from.get(queue)) {
                path.push(*before);
            }
            path.reverse();
            return Some(path);
        }
        for (_, onward) in edges.iter().filter(|(start, _)| *start == queue) {
            if *onward != from && !came_from.contains_key(onward) {
                came_from.insert(*onward, queue);
                next.push(*onward);
            }
        }
    }
    None
}
