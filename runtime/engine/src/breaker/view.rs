//! How breakers are, for the admin face and the metrics.

use std::sync::Arc;
use std::time::Duration;

use spillgate_admission::{Breaker, BreakerLimits, BreakerState, BreakerStatus};
use spillgate_config::plan::BreakerPlan;

use super::{LiveBreaker, Whose, label, limits, milliseconds, wall_ms};

/// How a breaker moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerMove {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// How it stood then.
    pub to: BreakerState,
}

/// How a breaker is.
#[derive(Clone, Debug)]
pub struct BreakerView {
    /// Name of the database.
    pub database: Arc<str>,
    /// Name of the flow; `None`: the database's own.
    pub flow: Option<Arc<str>>,
    /// Of a flow: the tenant whose calls failed lately; `None`: everybody else.
    pub tenant: Option<Arc<str>>,
    /// As configured; `None`: it is off.
    pub plan: Option<BreakerPlan>,
    /// Of a database's own: whether the last try to open a session succeeded. While none does, calls are refused between two tries,
    /// however it stands.
    pub reachable: Option<bool>,
    /// How it stands, by those settings or the defaults.
    pub status: BreakerStatus,
    /// The last ones, oldest first.
    pub moves: Vec<BreakerMove>,
}

impl LiveBreaker {
    /// Of a database, one; of a flow, the one that stands for all tenants without a failure, and after it those of the others.
    pub(crate) fn views(&self, plan: Option<&BreakerPlan>) -> Vec<BreakerView> {
        let (limits, now) = (limits(plan.unwrap_or(&BreakerPlan::default())), self.all.now());
        let view = |tenant, status, moves| {
            let (database, flow) = (self.database.clone(), self.flow.clone());
            BreakerView { database, flow, tenant, plan: plan.copied(), reachable: None, status, moves }
        };
        match &self.breaker {
            Whose::Everybody(breaker) => vec![view(None, breaker.status(&limits, now), moves(breaker, now))],
            Whose::EachTenant(breakers) => {
                let others = view(None, breakers.others(&limits, now), Vec::new());
                let of_tenants = breakers.all().into_iter();
                let of_tenants = of_tenants.map(|(tenant, breaker)| view(Some(tenant), breaker.status(&limits, now), moves(&breaker, now)));
                std::iter::once(others).chain(of_tenants).collect()
            }
        }
    }

    /// Tells the metrics how it stands. Of a flow: as for the tenant that fares worst, and how many are not simply let through.
    pub(super) fn publish(&self, limits: &BreakerLimits) {
        let now = self.all.now();
        let state = |breaker: &Breaker| breaker.status(limits, now).state;
        let states = match &self.breaker {
            Whose::Everybody(breaker) => vec![state(breaker)],
            Whose::EachTenant(breakers) => breakers.all().iter().map(|(_, breaker)| state(breaker)).collect(),
        };
        let worst = [BreakerState::Open, BreakerState::HalfOpen].into_iter().find(|worst| states.contains(worst));
        self.metrics.stands(label(worst.unwrap_or(BreakerState::Closed)));
        self.metrics.shut_out.set(states.iter().filter(|state| **state != BreakerState::Closed).count() as u64);
    }

    /// The same at any time: what time changes is no move.
    pub(crate) fn refresh(&self, plan: Option<&BreakerPlan>) {
        if let Some(plan) = plan {
            self.publish(&limits(plan));
        }
    }
}

fn moves(breaker: &Breaker, now: Duration) -> Vec<BreakerMove> {
    let wall = wall_ms();
    let at_ms = |at: Duration| wall.saturating_sub(milliseconds(now.saturating_sub(at)));
    breaker.moves().into_iter().map(|moved| BreakerMove { at_ms: at_ms(moved.at), to: moved.to }).collect()
}
