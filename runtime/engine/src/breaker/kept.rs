//! Outages that outlive a restart.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use spillgate_admission::Outage;
use spillgate_config::plan::BreakerPlan;
use spillgate_telemetry::BreakerLabel;

use super::{LiveBreaker, limits, milliseconds, wall_ms};

/// A breaker that was not closed, on the wall's clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptBreaker {
    /// Name of the database.
    pub database: String,
    /// Name of the flow; none: the database's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<String>,
    /// When it opened first, in milliseconds since 1970.
    pub since_ms: u64,
    /// Before this nobody asks.
    pub until_ms: u64,
}

impl KeptBreaker {
    /// What it is kept under: names have no slashes.
    pub fn name(&self) -> String {
        match &self.flow {
            None => self.database.clone(),
            Some(flow) => format!("{}/{flow}", self.database),
        }
    }
}

impl LiveBreaker {
    /// Whether that is this one.
    pub(crate) fn is(&self, kept: &KeptBreaker) -> bool {
        (&*self.database, self.flow.as_deref()) == (&*kept.database, kept.flow.as_deref())
    }

    /// What is to be kept of it; `None`: it is closed, or off.
    pub(crate) fn kept(&self, plan: Option<&BreakerPlan>) -> Option<KeptBreaker> {
        let outage = self.breaker.status(&limits(plan?), self.all.now()).outage?;
        let now = wall_ms();
        Some(KeptBreaker {
            database: self.database.to_string(),
            flow: self.flow.as_deref().map(str::to_owned),
            since_ms: now.saturating_sub(milliseconds(outage.lasted)),
            until_ms: now.saturating_add(milliseconds(outage.cool_down)),
        })
    }

    /// Opens it again as it was before a restart. How long it was down counts; a clock that was set meanwhile changes little: the next
    /// probe is never further off than it would be now.
    pub(crate) fn restore(&self, kept: &KeptBreaker, plan: Option<&BreakerPlan>) {
        let Some(plan) = plan else { return };
        let now = wall_ms();
        let until = |then: u64, other: u64| Duration::from_millis(then.saturating_sub(other));
        let outage = Outage { lasted: until(now, kept.since_ms), cool_down: until(kept.until_ms, now) };
        self.breaker.restore(outage, &limits(plan), self.all.now());
        if self.breaker.status(&limits(plan), self.all.now()).outage.is_some() {
            self.metrics.stands(BreakerLabel::Open);
        }
    }
}
