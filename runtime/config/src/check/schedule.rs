//! `[schedule]`: when a flow runs by itself, as whom, and its high-water mark.

use spillgate_expression::Expression;

use crate::fault::did_you_mean;
use crate::plan::{Cron, SchedulePlan, When};
use crate::raw::printable;
use crate::written::Table;

use super::Checker;
use super::step::Steps;

/// `[schedule]`; `watermark` was proven by itself.
pub(crate) fn schedule(
    checker: &mut Checker<'_>,
    flow: &Table,
    steps: &Steps<'_>,
    flow_name: &str,
    watermark: Option<Expression>,
) -> Option<SchedulePlan> {
    let table = flow.table("schedule")?;
    let when = when(checker, table);
    let tenant = tenant(checker, table, steps, flow_name);
    for ((name, _), input) in flow.named("input").iter().zip(steps.names.inputs) {
        if input.required && input.from_tenant.is_none() {
            let message = format!("a scheduled run sends no input: `{}` needs a `default`, `required = false` or `from`", name.value);
            checker.faults.add(&name.place, message);
        }
    }
    Some(SchedulePlan { when: when?, tenant: tenant?, watermark, watermark_type: None })
}

fn when(checker: &mut Checker<'_>, table: &Table) -> Option<When> {
    match (table.has("every"), table.has("cron")) {
        (true, false) => table.written_time("every").map(|every| When::Every(every.value)),
        (false, true) => {
            let written = table.located("cron")?;
            let cron = Cron::parse(&written.value).map_err(|fault| {
                checker.faults.add(&written.place.inside(fault.offset), format!("`cron`: {}", fault.message));
            });
            cron.ok().map(When::Cron)
        }
        (both, _) => {
            let found = if both { "both" } else { "neither" };
            checker.faults.add(&table.place, format!("a schedule has one of `every` and `cron`, found {found}"));
            None
        }
    }
}

fn tenant(checker: &mut Checker<'_>, table: &Table, steps: &Steps<'_>, flow_name: &str) -> Option<usize> {
    let written = table.located("tenant")?;
    let tenants = steps.world.tenants;
    let found = tenants.iter().position(|tenant| *tenant.name == *written.value);
    match found {
        None if !checker.incomplete => {
            let near = did_you_mean(&written.value, tenants.iter().map(|tenant| &*tenant.name));
            checker.faults.add(&written.place, format!("there is no tenant `{}`{near}", printable(&written.value)));
        }
        Some(index) if !tenants[index].may_call(flow_name) => {
            checker.faults.add(&written.place, format!("tenant {} may not call {flow_name}", written.value));
        }
        _ => {}
    }
    found
}

/// `watermark` of `[schedule]`, which sees all steps.
pub(crate) fn watermark(checker: &mut Checker<'_>, flow: &Table, steps: &mut Steps<'_>) -> Option<Expression> {
    let table = flow.table("schedule")?;
    let watermark = steps.expression(checker, table, "watermark", steps.names.steps.len())?;
    let place = table.key_place("watermark");
    if flow.has("http") {
        checker.faults.add(&place, "a flow with a `watermark` has no `http`: only its schedule moves the mark");
    }
    if steps.cut_at.is_some() {
        checker
            .faults
            .add(&place, "a flow with a `watermark` has no `queue` step, behind which work may still fail: `emit` to a flow that queues");
    }
    if !steps.reads_watermark && !steps.uncertain {
        checker.faults.add(&place, "no statement reads `:watermark`");
    }
    Some(watermark)
}
