//! Every limit that applies to a call, and where it comes from.

use crate::plan::{Action, Flow, Origin, Plan, TenantPlan};

/// A limit as the checker recorded it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitLine {
    /// `server`, `database.NAME`, `queue.NAME` or `flow.NAME`. Limits of tenants: [`TenantPlan::limits`].
    pub subject: String,
    /// Such as `server.memory`.
    pub name: String,
    /// As the files write it.
    pub value: String,
    /// Where it stands.
    pub origin: Origin,
}

/// One line of `spillgate explain`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// The limit's name.
    pub name: String,
    /// Its value, as the files write it.
    pub value: String,
    /// Where it stands.
    pub origin: Origin,
}

/// Why nothing can be explained.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum ExplainError {
    #[error("there is no tenant {0}; there are: {1}")]
    UnknownTenant(String, String),
    #[error("there is no flow {0}; there are: {1}")]
    UnknownFlow(String, String),
    #[error("tenant {tenant} may not call {flow}: its `flows` are {allowed}")]
    NotAllowed { tenant: String, flow: String, allowed: String },
}

/// Every limit that applies when `tenant` calls `flow`, the tenant's first, then the flow's, its queues', its
/// databases', the server's.
pub fn explain(plan: &Plan, tenant: &str, flow: &str) -> Result<Vec<Explained>, ExplainError> {
    let tenants = || names(plan.tenants.iter().map(|known| &*known.name));
    let caller = plan.tenants.iter().find(|known| &*known.name == tenant);
    explain_for(plan, caller.ok_or_else(|| ExplainError::UnknownTenant(tenant.into(), tenants()))?, flow)
}

/// The same for a tenant of that plan with the limits in force (see [`crate::in_force`]).
pub fn explain_for(plan: &Plan, caller: &TenantPlan, flow: &str) -> Result<Vec<Explained>, ExplainError> {
    let flows = || names(plan.flows.iter().map(|known| &*known.name));
    let known = plan.flows.iter().find(|known| &*known.name == flow);
    let called = known.ok_or_else(|| ExplainError::UnknownFlow(flow.into(), flows()))?;
    if !caller.may_call(flow) {
        let allowed = caller.flows.join(", ");
        return Err(ExplainError::NotAllowed { tenant: caller.name.to_string(), flow: flow.into(), allowed });
    }
    let read: Vec<usize> = databases(called).collect();
    let of_tenant = caller.limits(&plan.databases, |database| read.contains(&database)).into_iter().map(|limit| Explained {
        name: format!("tenant.{}", limit.name),
        value: limit.amount.to_string(),
        origin: limit.origin.clone(),
    });
    let mut subjects = vec![format!("flow.{flow}")];
    let databases = read.iter().map(|database| format!("database.{}", plan.databases[*database].name));
    for subject in queues(plan, called).chain(databases).chain(["server".into()]) {
        if !subjects.contains(&subject) {
            subjects.push(subject);
        }
    }
    let of = |subject: &String| {
        let lines = plan.limits.iter().filter(move |line| line.subject == *subject);
        lines.map(|line| Explained { name: line.name.clone(), value: line.value.clone(), origin: line.origin.clone() }).collect::<Vec<_>>()
    };
    Ok(of_tenant.chain(subjects.iter().flat_map(of)).collect())
}

/// Its own queue, then those it emits to.
fn queues<'a>(plan: &'a Plan, flow: &'a Flow) -> impl Iterator<Item = String> + 'a {
    let targets = flow.steps.iter().filter_map(|step| match &step.action {
        Action::Emit(emit) => Some(&*plan.flows[emit.target]),
        _ => None,
    });
    let cuts = std::iter::once(flow).chain(targets).filter_map(|flow| flow.queue.as_ref());
    cuts.map(|cut| format!("queue.{}", plan.queues[cut.queue].name))
}

/// Indexes of the databases it asks.
fn databases(flow: &Flow) -> impl Iterator<Item = usize> {
    let verify = flow.idempotency.iter().filter_map(|plan| plan.verify.as_ref());
    let statements = flow.steps.iter().filter_map(|step| match &step.action {
        Action::Sql(sql) => Some(sql),
        _ => None,
    });
    statements.chain(verify).map(|sql| sql.database)
}

fn names<'a>(known: impl Iterator<Item = &'a str>) -> String {
    known.collect::<Vec<_>>().join(", ")
}
