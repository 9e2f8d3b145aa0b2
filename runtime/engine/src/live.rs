//! What runs now: one plan and everything built for it.

use std::sync::Arc;

use spillgate_admission::{TenantGate, TenantLimits};
use spillgate_config::Plan;
use spillgate_config::plan::TenantPlan;

use crate::database::LiveDatabase;
use crate::steps::PreparedFlow;

/// One plan and everything built for it. Callers hold it for the length of a call; a reload swaps it.
#[derive(Debug)]
pub struct Live {
    /// The proven plan.
    pub plan: Arc<Plan>,
    /// Tenants in the plan's order, with what they have taken.
    pub tenants: Vec<LiveTenant>,
    /// Databases in the plan's order, with their seats.
    pub databases: Vec<Arc<LiveDatabase>>,
    /// Flows in the plan's order, made ready to run.
    pub(crate) flows: Vec<PreparedFlow>,
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
