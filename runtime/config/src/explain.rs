//! Every limit that applies to a call, and where it comes from.

use crate::plan::{Action, Origin, Plan};

/// A limit as the checker recorded it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitLine {
    /// `server`, `database.NAME`, `tenant.NAME` or `flow.NAME`.
    pub subject: String,
    /// Such as `tenant.rate`.
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

/// Every limit that applies when `tenant` calls `flow`, the tenant's first, then the flow's, its databases', the server's.
pub fn explain(plan: &Plan, tenant: &str, flow: &str) -> Result<Vec<Explained>, ExplainError> {
    let known = plan.tenants.iter().find(|known| &*known.name == tenant);
    let tenants = || names(plan.tenants.iter().map(|known| &*known.name));
    let caller = known.ok_or_else(|| ExplainError::UnknownTenant(tenant.into(), tenants()))?;
    let flows = || names(plan.flows.iter().map(|known| &*known.name));
    let known = plan.flows.iter().find(|known| &*known.name == flow);
    let called = known.ok_or_else(|| ExplainError::UnknownFlow(flow.into(), flows()))?;
    if !caller.may_call(flow) {
        let allowed = caller.flows.join(", ");
        return Err(ExplainError::NotAllowed { tenant: tenant.into(), flow: flow.into(), allowed });
    }
    let mut subjects = vec![format!("tenant.{tenant}"), format!("flow.{flow}")];
    for step in &called.steps {
        let Action::Sql(sql) = &step.action else { continue };
        let subject = format!("database.{}", plan.databases[sql.database].name);
        if !subjects.contains(&subject) {
            subjects.push(subject);
        }
    }
    subjects.push("server".into());
    let of = |subject: &String| {
        let lines = plan.limits.iter().filter(move |line| line.subject == *subject);
        lines.map(|line| Explained { name: line.name.clone(), value: line.value.clone(), origin: line.origin.clone() }).collect::<Vec<_>>()
    };
    Ok(subjects.iter().flat_map(of).collect())
}

fn names<'a>(known: impl Iterator<Item = &'a str>) -> String {
    known.collect::<Vec<_>>().join(", ")
}
