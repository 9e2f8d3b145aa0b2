//! Runs flows: intake, seats, steps, verdicts, reload.
pub mod intake;

use std::sync::Arc;
use std::time::Duration;

use spillgate_admission::{Budget, Permit, TenantGate, TenantLimits};
use spillgate_config::{
    Plan,
    plan::{DatabasePlan, Flow, TenantPlan},
};
use spillgate_connector::Database;
use spillgate_model::{Datum, Flowfile, Refusal, Rows};

/// Makes connectors from plans: given by the server, which alone knows the concrete kinds. Touches no network.
pub type MakeDatabase = Arc<dyn Fn(&DatabasePlan) -> Result<Arc<dyn Database>, String> + Send + Sync>;

/// What runs now: one plan and everything built for it. Callers hold it for the length of a call; a reload swaps it.
#[derive(Debug)]
pub struct Live {
    /// The proven plan.
    pub plan: Arc<Plan>,
    /// Tenants in the plan's order, with what they have taken.
    pub tenants: Vec<LiveTenant>,
}

/// A tenant of the live plan.
#[derive(Debug)]
pub struct LiveTenant {
    /// As configured.
    pub plan: TenantPlan,
    /// Limits in force.
    pub limits: TenantLimits,
    /// What it has taken; outlives reloads.
    pub gate: Arc<TenantGate>,
}

/// One call to run.
#[derive(Debug)]
pub struct Call {
    /// The plan it was admitted under.
    pub live: Arc<Live>,
    /// Index into `live.plan.flows`.
    pub flow: usize,
    /// Index into `live.tenants`.
    pub tenant: usize,
    /// Input, deadline, ids.
    pub flowfile: Flowfile,
    /// A page's cursor as the caller sent it, and the size it asked for.
    pub page: PageRequest,
    /// Held until the outcome is made.
    pub permit: Option<Permit>,
    /// `spillgate test`: rows per step instead of the database.
    pub stubs: Option<Arc<std::collections::BTreeMap<Arc<str>, Rows>>>,
}

/// What the caller asked of a paged flow.
#[derive(Clone, Debug, Default)]
pub struct PageRequest {
    /// As it came.
    pub cursor: Option<String>,
    /// Rows wanted; the flow's own size without it.
    pub size: Option<usize>,
}

/// How a call ended. Only the gateway turns it into a reply.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Outcome {
    Rows { rows: Arc<Rows>, next: Option<String>, affected: Option<u64>, stale: Option<Duration> },
    Value { value: Datum, stale: Option<Duration> },
    Refused(Box<Refusal>),
}

/// Cheap handle.
#[derive(Clone)]
pub struct Engine {}

impl Engine {
    /// What runs now.
    pub fn live(&self) -> Arc<Live> {
        unimplemented!("first slice")
    }
    /// Runs a call to its end or its deadline. Dropping it is a hang-up: a read statement is ended, a write goes on.
    pub async fn run(&self, call: Call) -> Outcome {
        let _ = call;
        unimplemented!("first slice")
    }
    /// The server's memory budget and its monotonic clock's start are shared with the gate.
    pub fn memory(&self) -> &Arc<Budget> {
        unimplemented!("first slice")
    }
}
