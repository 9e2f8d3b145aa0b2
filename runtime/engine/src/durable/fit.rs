//! An item meets the plan that is live when it runs: what it was made under may be gone.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use spillgate_config::plan::{Flow, Input};
use spillgate_model::{Flowfile, Value};
use tokio::time::Instant;

use super::content::{Begins, Content, GivenInput, Origin};
use crate::{Call, Live};

/// Why an item cannot be run.
#[derive(Debug)]
pub(crate) struct Misfit {
    /// As a clause.
    pub(super) why: Cow<'static, str>,
    /// What it needs is not in the plan, and may be again: it waits.
    pub(super) missing: bool,
}

impl Misfit {
    fn missing(why: String) -> Self {
        Misfit { why: why.into(), missing: true }
    }
}

impl From<String> for Misfit {
    fn from(why: String) -> Self {
        Misfit { why: why.into(), missing: false }
    }
}

impl std::fmt::Display for Misfit {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.why)
    }
}

/// The call that an item stands for, under this plan. Its deadline begins now.
pub(crate) fn call_of(content: &Content, live: &Arc<Live>) -> Result<Call, Misfit> {
    let plan = &live.plan;
    // Both stand in name order.
    let flow_index = plan.flows.binary_search_by(|flow| flow.name.cmp(&content.flow));
    let flow_index = flow_index.map_err(|_| Misfit::missing(format!("there is no flow {} any more", content.flow)))?;
    let tenant_index = live.tenants.binary_search_by(|tenant| tenant.plan.name.cmp(&content.tenant));
    let tenant_index = tenant_index.map_err(|_| Misfit::missing(format!("there is no tenant {} any more", content.tenant)))?;
    let flow = &plan.flows[flow_index];
    if content.origin != Origin::Emitted && !live.tenants[tenant_index].plan.may_call(&flow.name) {
        return Err(Misfit::missing(format!("tenant {} may no longer call {}", content.tenant, flow.name)));
    }
    if content.begins == Begins::BehindCut {
        check_carried(content, flow, live, flow_index)?;
    }
    let input = flow.inputs.iter().map(|input| value_of(input, content)).collect::<Result<Arc<[Value]>, Misfit>>()?;
    let flowfile = Flowfile {
        id: content.id.clone(),
        tenant: content.tenant.clone(),
        run: content.run.clone(),
        input,
        deadline: (Instant::now() + flow.deadline.value.min(LONGEST)).into_std(),
    };
    let call = Call::new(live.clone(), flow_index, tenant_index, flowfile);
    Ok(Call { key: content.key.clone(), depth: content.depth, trace: content.trace, ..call })
}

/// An unlimited deadline still has an end.
pub(super) const LONGEST: Duration = Duration::from_secs(365 * 24 * 3_600);

fn check_carried(content: &Content, flow: &Flow, live: &Live, flow_index: usize) -> Result<(), Misfit> {
    if flow.queue.is_none() {
        return Err(format!("the flow {} has no `queue` step any more", flow.name).into());
    }
    for index in &live.flows[flow_index].needed.steps {
        let step = &flow.steps[*index].name;
        if !content.carried.iter().any(|carried| carried.step == *step) {
            return Err(format!("what follows the `queue` step now reads the step {step}, which the item does not hold").into());
        }
    }
    Ok(())
}

fn value_of(input: &Input, content: &Content) -> Result<Value, Misfit> {
    let Some(given) = content.inputs.iter().find(|given| *given.name == *input.name) else {
        return if input.required {
            Err(format!("the flow now requires the input {}", input.name).into())
        } else if input.from_tenant.is_some() {
            Err(format!("the flow now sets the input {} from the caller's identity", input.name).into())
        } else {
            Ok(input.default.clone())
        };
    };
    // What the caller once set may not stand for an identity.
    if input.from_tenant.as_deref() != given.from_tenant.as_deref() {
        return Err(format!("the input {} comes from elsewhere now", input.name).into());
    }
    if (input.kind, input.list) != (given.kind, given.list) {
        return Err(
            format!("the input {} is {} now, and the item has {}", input.name, shown(input.kind.name(), input.list), of(given)).into()
        );
    }
    if given.value == Value::Null && input.required {
        return Err(format!("the flow now requires the input {}", input.name).into());
    }
    // Its bounds were checked at the append and may be narrower now: they tell what a caller may send.
    Ok(given.value.clone())
}

fn of(given: &GivenInput) -> String {
    shown(given.kind.name(), given.list)
}

fn shown(kind: &str, list: bool) -> String {
    if list { format!("a list of {kind}") } else { kind.to_owned() }
}

/// The inputs of a call as an item keeps them.
pub(super) fn inputs_of(flow: &Flow, values: &[Value]) -> Vec<GivenInput> {
    let one = |(input, value): (&Input, &Value)| GivenInput {
        name: Box::from(&*input.name),
        kind: input.kind,
        list: input.list,
        from_tenant: input.from_tenant.as_deref().map(Box::from),
        value: value.clone(),
    };
    flow.inputs.iter().zip(values).map(one).collect()
}
