//! What makes a flow durable, put together: its cut, its keys, its schedule.

use std::collections::BTreeMap;

use spillgate_expression::Expression;
use spillgate_model::Datum;
use spillgate_model::limits::STEPS_PER_FLOW;

use crate::plan::{IdempotencyPlan, QueueCut, SchedulePlan, Step, UniquePlan};
use crate::written::Table;

use super::Checker;
use super::cut::carries;
use super::expression::{self, Proving};
use super::once;
use super::schedule::{schedule, watermark};
use super::step::Steps;

/// What of a flow shows before its steps are read.
pub(crate) struct Shape {
    /// Where the first `queue` step stands.
    pub(crate) cut_at: Option<usize>,
    /// It has a [schedule] and no `http`: every run is one of the schedule's.
    pub(crate) only_scheduled: bool,
    pub(crate) has_watermark: bool,
    pub(crate) has_idempotency: bool,
}

impl Shape {
    pub(crate) fn of(flow: &Table) -> Shape {
        Shape {
            cut_at: flow.tables("step").iter().position(|step| step.has("queue")),
            only_scheduled: flow.has("schedule") && !flow.has("http"),
            has_watermark: flow.table("schedule").is_some_and(|schedule| schedule.has("watermark")),
            has_idempotency: flow.has("idempotency"),
        }
    }

    /// How it starts, how many steps it has, and what does not go together.
    pub(crate) fn check(&self, checker: &mut Checker<'_>, flow: &Table) {
        if !flow.has("http") && !self.only_scheduled && self.cut_at != Some(0) && !flow.is_broken("step") {
            let message = "the flow lacks `http`: without it a flow runs by its [schedule], or takes what others emit (its first step is a `queue` step)";
            checker.faults.add(&flow.place, message);
        }
        let steps = flow.tables("step").len();
        if steps == 0 && flow.has("step") && !flow.is_broken("step") || steps > STEPS_PER_FLOW {
            checker.faults.add(&flow.place_of("step"), format!("a flow has from 1 to {STEPS_PER_FLOW} steps, found {steps}"));
        }
        for key in ["cache", "page"].iter().filter(|key| self.cut_at.is_some() && flow.has(key)) {
            let message = format!("`{key}` belongs to a reply, and a flow with a `queue` step answers with a job");
            checker.faults.add(&flow.key_place(key), message);
        }
    }

    /// Parameters with a meaning of their own, which inputs may not take.
    pub(crate) fn system_names(&self) -> Vec<&'static str> {
        let mark = self.has_watermark.then_some("watermark");
        let of_job = ["idempotency_key", "job"].into_iter().filter(|_| self.cut_at.is_some() || self.has_idempotency);
        mark.into_iter().chain(of_job).collect()
    }
}

/// The durable part of a flow as proven.
pub(crate) struct Durable {
    pub(crate) cut: Option<QueueCut>,
    pub(crate) idempotency: Option<IdempotencyPlan>,
    pub(crate) unique: Option<UniquePlan>,
    pub(crate) schedule: Option<SchedulePlan>,
    /// Of the schedule, also where something else is wrong with it.
    watermark: Option<Expression>,
}

impl Durable {
    pub(crate) fn prove(checker: &mut Checker<'_>, flow: &Table, steps: &mut Steps<'_>, name: &str, proven: &[(Step, &Table)]) -> Durable {
        let mut cut = steps.cut.take();
        if let Some(cut) = &mut cut {
            cut.carries = carries(checker, steps, cut, proven);
        }
        let around = once::Around { name, has_endpoint: flow.has("http"), proven };
        let idempotency = once::idempotency(checker, flow, steps, &around);
        let unique = once::unique(checker, flow, steps);
        once::note_unknown(checker, flow, &around, idempotency.as_ref(), cut.as_ref());
        let watermark = watermark(checker, flow, steps);
        let schedule = schedule(checker, flow, steps, name, watermark.clone());
        Durable { cut, idempotency, unique, schedule, watermark }
    }

    /// Expressions that stand in no step of their own.
    pub(crate) fn expressions(&self) -> impl Iterator<Item = &Expression> {
        let order_by = self.cut.as_ref().and_then(|cut| cut.order_by.as_ref());
        order_by.into_iter().chain(&self.watermark)
    }

    /// Evaluates all expressions of the flow on samples. By step that emits: what it hands on, where that is known.
    pub(crate) fn prove_expressions(
        &mut self,
        checker: &mut Checker<'_>,
        flow: &Table,
        steps: &Steps<'_>,
        proven: &[(Step, &Table)],
    ) -> BTreeMap<usize, Datum> {
        let watermark = self.watermark.as_ref().zip(flow.table("schedule"));
        let order_by = self.cut.as_ref().and_then(|cut| cut.order_by.as_ref());
        let proving = Proving { inputs: steps.names.inputs, callers: steps.names.callers, steps: proven, order_by, watermark };
        let gave = expression::prove(checker, &proving);
        if let Some(schedule) = &mut self.schedule {
            schedule.watermark_type = gave.watermark;
        }
        gave.handed_on.into_iter().map(|(position, value)| (steps.index_of(&proven[position].0.name), value)).collect()
    }
}
