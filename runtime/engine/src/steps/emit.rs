//! `emit` steps: each item is made as its target's caller would have sent it, and room is taken for it before anything is committed.

use spillgate_config::plan::{EmitStep, Step};
use spillgate_model::json::datum_bytes;
use spillgate_model::{Code, Datum, Refusal};

use super::{Context, Progress, Writing};
use crate::durable;
use crate::verdict::{Failed, Fallible};

/// An item takes this beside its input, while it is made.
const ITEM_BYTES: usize = 1024;

/// Makes the items of a step. They exist once the run's own end does.
pub(super) async fn emit(context: &Context<'_>, writing: &mut Writing, step: &Step, plan: &EmitStep, progress: &Progress) -> Fallible<()> {
    let inputs = inputs(context, step, plan, progress).await?;
    let bytes: usize = inputs.iter().map(|input| datum_bytes(input) * 2 + ITEM_BYTES).sum();
    let memory = context.reserve_tree(bytes)?;
    let mut emission = durable::Emission::new(context, step, plan)?;
    for input in &inputs {
        emission.add(input).await?;
    }
    if context.call.stubs.is_some() || inputs.is_empty() {
        return Ok(());
    }
    let emit = if writing.must_go_on() { emission.into_room_in_time().await? } else { emission.into_room()? };
    writing.hand_on(emit, memory);
    Ok(())
}

async fn inputs(context: &Context<'_>, step: &Step, plan: &EmitStep, progress: &Progress) -> Fallible<Vec<Datum>> {
    let Some(each) = &plan.each else {
        return Ok(vec![progress.last.map_or(Datum::Null, |last| progress.done[last].value_tree())]);
    };
    match context.value_of(each, step, progress).await? {
        Datum::List(items) => Ok(items.to_vec()),
        Datum::Null => Ok(Vec::new()),
        _ => Err(Failed::refused(Refusal::new(Code::ExpressionFailed, format!("What step {} emits each of is no list.", step.name)))),
    }
}
