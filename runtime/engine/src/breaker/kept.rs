//! Outages that outlive a restart.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use spillgate_admission::{Breaker, Outage};
use spillgate_config::Plan;
use spillgate_config::plan::BreakerPlan;

use super::{LiveBreaker, Whose, limits, milliseconds, of_plan, wall_ms};
use crate::Live;

/// Of more breakers that are open at once the oldest are kept: what is not kept begins closed, and a few calls find out.
const MOST_KEPT: usize = 256;
/// What a clock that is read twice may differ by.
const MOMENT_MS: u64 = 100;

/// A breaker that was not closed, on the wall's clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptBreaker {
    /// Name of the database.
    pub database: String,
    /// Name of the flow; none: the database's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<String>,
    /// Of a flow's: the tenant. Earlier ones have none, and stood for all tenants: they are passed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// When it opened first, in milliseconds since 1970.
    pub since_ms: u64,
    /// When it failed last. Earlier ones have none: as if it had not failed again.
    #[serde(default)]
    pub failed_ms: u64,
    /// Before this nobody asks.
    pub until_ms: u64,
}

impl KeptBreaker {
    /// What it is kept under: names have no slashes.
    pub fn name(&self) -> String {
        let parts = [Some(&self.database), self.flow.as_ref(), self.tenant.as_ref()];
        parts.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join("/")
    }

    /// Whether another of the same breaker would restore it the same, to a moment: it need not be written again.
    pub fn is_as(&self, other: &KeptBreaker) -> bool {
        let over = |until: u64| until.saturating_sub(MOMENT_MS) <= wall_ms();
        let same_until = self.until_ms.abs_diff(other.until_ms) <= MOMENT_MS || over(self.until_ms) && over(other.until_ms);
        let same = |one: u64, another: u64| one.abs_diff(another) <= MOMENT_MS;
        same(self.since_ms, other.since_ms) && same(self.failed_ms, other.failed_ms) && same_until
    }
}

/// What is to be kept of all breakers of a plan.
pub(crate) fn kept(live: &Live) -> Vec<KeptBreaker> {
    let mut all: Vec<_> = of_plan(live).flat_map(|(breaker, plan)| breaker.kept(plan)).collect();
    if all.len() > MOST_KEPT {
        all.sort_by_key(|kept| (kept.flow.is_some(), kept.since_ms));
        all.truncate(MOST_KEPT);
    }
    all
}

impl LiveBreaker {
    /// Whether that is this one, or a tenant's of it.
    pub(crate) fn is(&self, kept: &KeptBreaker) -> bool {
        (&*self.database, self.flow.as_deref()) == (&*kept.database, kept.flow.as_deref())
    }

    /// What is to be kept of it; nothing where it is closed, or off.
    fn kept(&self, plan: Option<&BreakerPlan>) -> Vec<KeptBreaker> {
        let Some(plan) = plan else { return Vec::new() };
        let (limits, now, wall) = (limits(plan), self.all.now(), wall_ms());
        let kept = |tenant: Option<&Arc<str>>, breaker: &Breaker| {
            let outage = breaker.status(&limits, now).outage?;
            let since_ms = wall.saturating_sub(milliseconds(outage.lasted));
            Some(KeptBreaker {
                database: self.database.to_string(),
                flow: self.flow.as_deref().map(str::to_owned),
                tenant: tenant.map(ToString::to_string),
                since_ms,
                failed_ms: since_ms.saturating_add(milliseconds(outage.failing)),
                until_ms: wall.saturating_add(milliseconds(outage.cool_down)),
            })
        };
        match &self.breaker {
            Whose::Everybody(breaker) => kept(None, breaker).into_iter().collect(),
            Whose::EachTenant(breakers) => breakers.all().iter().filter_map(|(tenant, breaker)| kept(Some(tenant), breaker)).collect(),
        }
    }

    /// Opens it again as it was before a restart, unless nobody could have come for a window since. How long it was down counts; a clock
    /// that was set meanwhile changes little: the next probe is never further off than it would be now.
    pub(crate) fn restore(&self, kept: &KeptBreaker, breaker_plan: Option<&BreakerPlan>, plan: &Plan) {
        let Some(limits) = breaker_plan.map(limits) else { return };
        let (now, wall) = (self.all.now(), wall_ms());
        let until = |then: u64, other: u64| Duration::from_millis(then.saturating_sub(other));
        if until(wall, kept.until_ms) >= limits.window {
            // Whoever keeps it may forget it.
            return self.all.moved.notify_one();
        }
        let (lasted, failing) = (until(wall, kept.since_ms), until(kept.failed_ms, kept.since_ms));
        let outage = Outage { lasted, failing: failing.min(lasted), cool_down: until(kept.until_ms, wall) };
        match (&self.breaker, &kept.tenant) {
            (Whose::Everybody(breaker), _) => breaker.restore(outage, &limits, now),
            (Whose::EachTenant(breakers), Some(name)) => {
                if let Some(tenant) = plan.tenants.iter().find(|tenant| *tenant.name == **name) {
                    breakers.restore(&tenant.name, outage, &limits, now);
                }
            }
            (Whose::EachTenant(_), None) => {}
        }
        self.publish(&limits);
    }
}
