//! What runs now: one plan and everything built for it.

use std::sync::Arc;

use spillgate_admission::seats::{Class, Share};
use spillgate_admission::{TenantGate, TenantLimits};
use spillgate_config::plan::{self, DatabasePlan, TenantPlan};
use spillgate_config::{Overrides, Plan};

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
    pub(crate) flows: Arc<[PreparedFlow]>,
    /// Limits that operators set over those of tenants, also of tenants that the plan does not have.
    pub overrides: Arc<Overrides>,
}

/// A tenant of the live plan.
#[derive(Debug)]
pub struct LiveTenant {
    /// As configured, with the limits that operators set over its own.
    pub plan: TenantPlan,
    /// Of those, the ones the gate asks for.
    pub limits: TenantLimits,
    /// What it has taken; outlives reloads.
    pub gate: Arc<TenantGate>,
}

impl LiveTenant {
    /// What it has of the seats of a database, by its index and plan.
    pub(crate) fn share(&self, index: usize, database: &DatabasePlan) -> Share {
        let seats = self.plan.seats_of(index);
        Share {
            weight: self.plan.weight.value,
            reserved: seats.reserved.value,
            limit: seats.limit.value,
            line: u32::try_from(database.line).unwrap_or(u32::MAX),
        }
    }
    /// When its calls go.
    pub fn class(&self) -> Class {
        match self.plan.class {
            plan::Class::Control => Class::Control,
            plan::Class::Interactive => Class::Interactive,
            plan::Class::Agent => Class::Agent,
            plan::Class::Batch => Class::Batch,
        }
    }
}
