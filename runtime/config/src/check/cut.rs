//! The `queue` step, which cuts a flow in two, and `emit`, which hands on what a queue holds.

use std::time::Duration;

use crate::fault::did_you_mean;
use crate::place::{Located, Setting};
use crate::plan::{Action, EmitStep, Flow, QueueCut, Step};
use crate::raw::printable;
use crate::written::Table;
use spillgate_model::units::{ByteSize, show_duration};

use super::Checker;
use super::step::Steps;

/// Keys a `queue` step has no use for.
const NOT_WITH_QUEUE: &[&str] = &["when", "route", "on_error"];

/// An `emit` step, until all flows are known.
pub(crate) struct Emitting {
    /// Index of the step.
    pub(crate) step: usize,
    pub(crate) target: Located<String>,
    /// Where `each` stands, else `emit`.
    pub(crate) what: crate::place::Place,
}

impl Steps<'_> {
    /// `queue = "NAME"`.
    pub(crate) fn queue(&mut self, checker: &mut Checker<'_>, index: usize, table: &Table) -> Option<Action> {
        for key in NOT_WITH_QUEUE.iter().filter(|key| table.has(key)) {
            checker.faults.add(&table.key_place(key), format!("a `queue` step has no `{key}`: every call that comes so far is queued"));
        }
        let order_by = self.expression(checker, table, "order_by", index);
        if index + 1 == self.names.steps.len() {
            checker.faults.add(&table.key_place("queue"), "nothing follows this `queue` step: workers would have nothing to do");
        }
        if self.cut_at != Some(index) {
            checker.faults.add(&table.key_place("queue"), "a flow has one `queue` step, and another stands before this one");
            return None;
        }
        let written = table.located("queue")?;
        let queues = self.world.queues;
        let Some(queue) = queues.iter().position(|queue| *queue.name == *written.value) else {
            if !checker.incomplete {
                let near = did_you_mean(&written.value, queues.iter().map(|queue| &*queue.name));
                checker.faults.add(&written.place, format!("there is no queue `{}`{near}", printable(&written.value)));
            }
            return None;
        };
        let own: Option<Setting<Duration>> = table.written_time("expires");
        if let Some(own) = &own {
            checker.limit(&self.subject, "flow.expires", own, show_duration(own.value));
        }
        let expires = own.map_or(queues[queue].expires, |own| own.value);
        self.cut = Some(QueueCut { step: index, queue, expires, order_by, carries: Vec::new() });
        Some(Action::Queue)
    }

    /// `emit = "FLOW"`. The target is looked for when all flows are known.
    pub(crate) fn emit(&mut self, checker: &mut Checker<'_>, index: usize, table: &Table) -> Option<Action> {
        let each = self.expression(checker, table, "each", index);
        if table.has("on_error") {
            checker.faults.add(&table.key_place("on_error"), "`on_error` does not go with `emit`: a full target holds this flow back");
        }
        if self.cut_at.is_none_or(|cut| index < cut) && !self.only_scheduled {
            let message = "`emit` hands on what a queue or a schedule started: it stands after a `queue` step, or in a flow with [schedule] and without `http`";
            checker.faults.add(&table.key_place("emit"), message);
        }
        let target = table.located("emit")?;
        if each.is_none() && !table.has("each") && self.last_value(index).is_none_or(|step| !self.names.steps[step].is_map) {
            let message = "without `each` the value of a `map` step before is handed on, and there is none: write such as `each = \"steps.NAME.rows\"`";
            checker.faults.add(&target.place, message);
        }
        let flow = target.value.as_str().into();
        let what = if table.has("each") { table.place_of("each") } else { target.place.clone() };
        self.emits.push(Emitting { step: index, target, what });
        Some(Action::Emit(EmitStep { flow, target: usize::MAX, each }))
    }

    /// The nearest step before that has a value of its own.
    fn last_value(&self, index: usize) -> Option<usize> {
        (0..index).rev().find(|step| self.names.steps[*step].has_value)
    }

    /// A jump may not leave out the `queue` step.
    pub(crate) fn jumps_over_cut(&self, from: usize, to: usize) -> bool {
        self.cut_at.is_some_and(|cut| from < cut && cut < to)
    }
}

/// Steps before the cut that are read after it, and what that means for an item.
pub(crate) fn carries(checker: &mut Checker<'_>, steps: &Steps<'_>, cut: &QueueCut, proven: &[(Step, &Table)]) -> Vec<usize> {
    let mut carried = Vec::new();
    let (before, after): (Vec<_>, Vec<_>) = proven.iter().partition(|(step, _)| steps.index_of(&step.name) < cut.step);
    for (step, table) in &before {
        let path = format!("steps.{}.", step.name);
        let index = steps.index_of(&step.name);
        let handed_on = |(later, written): &&(Step, &Table)| {
            matches!(&later.action, Action::Emit(emit) if emit.each.is_none() && !written.has("each"))
                && steps.last_value(steps.index_of(&later.name)) == Some(index)
        };
        let reads = |(later, _): &&(Step, &Table)| {
            expressions_of(later).any(|expression| expression.paths().iter().any(|read| read.starts_with(&path)))
        };
        if !after.iter().any(|later| handed_on(later) || reads(later)) {
            continue;
        }
        carried.push(index);
        let most = match &step.action {
            Action::Sql(sql) => sql.max_bytes as u64,
            Action::Http(http) => http.max_bytes as u64,
            _ => 0,
        };
        let queue = &steps.world.queues[cut.queue];
        if most > queue.max_item.value {
            let (most, item) = (ByteSize(most), ByteSize(queue.max_item.value));
            checker.notes.push(format!(
                "{}: the step {} is read after the `queue` step and may give {most}, an item of {} holds {item}: such a call ends as item_too_large",
                table.place.short(),
                step.name,
                queue.name
            ));
        }
    }
    carried
}

/// Every expression of a step.
pub(crate) fn expressions_of(step: &Step) -> impl Iterator<Item = &spillgate_expression::Expression> {
    let of_action = match &step.action {
        Action::Map(map) => Some(map),
        Action::Http(http) => http.body.as_ref(),
        Action::Emit(emit) => emit.each.as_ref(),
        Action::Sql(_) | Action::Queue | Action::Route => None,
    };
    step.when.iter().chain(of_action).chain(step.route.iter().map(|(when, _)| when))
}

/// Whether a flow takes what others emit.
pub(crate) fn takes_items(flow: &Flow) -> bool {
    flow.queue.as_ref().is_some_and(|cut| cut.step == 0)
}
