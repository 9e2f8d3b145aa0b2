//! The breakers of one flow, one for each tenant whose calls of it failed lately.
//!
//! Invariants
//! 1. Only a tenant's own failures open its breaker, and only its own calls are its probes: whatever others ask for, it is let through.
//! 2. Where no tenant has a breaker, a call costs a load to enter and one exchange to tell: no lock, nothing allocated.
//! 3. A tenant gets one with its first failure and loses it ([`TenantBreakers::forget`]) when it was closed, and without a failure, for
//!    a window: there are never more of them than tenants. Of one that is forgotten nothing is known any more: a call that began under
//!    it and lasts until its tenant has another one is taken for a call of that (against invariant 3 of [`Breaker`]; that takes calls
//!    that outlast a whole window after a closing, and then a move of the other one).
//! 4. Good answers before the first failure are counted for all tenants together, and taken for its own then, so that a handful of
//!    failures at once shuts out nobody who is answered well. They are forgotten like its own: an opening comes a window late at the most.
//! 5. A flow that fails for many who call it seldom is noticed, too: while the calls of all tenants together fare so that they would open
//!    a breaker, the first failure opens that of its tenant. There a tenant counts with one failure a window, so that however many one
//!    tenant has, they take nobody else's `min_calls`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Breaker, BreakerLimits, BreakerState, BreakerStatus, Moved, Outage, Pass, Said, Shut, is_ill};
use crate::window::{Counts, Window};

/// The breakers of a flow by tenant. Limits and time are passed in.
#[derive(Debug, Default)]
pub struct TenantBreakers {
    /// How many there are; changed under the lock.
    count: AtomicUsize,
    /// The good answers to all tenants, and a failure a window of each, but for what is of the time before an outage ended.
    together: Window,
    /// Outages that ended.
    ended: AtomicU32,
    by_tenant: Mutex<HashMap<Arc<str>, Own>>,
}

/// A tenant's own.
#[derive(Debug)]
struct Own {
    breaker: Arc<Breaker>,
    /// When a failure of it last counted for all together, and after how many outages.
    counted: Option<(Duration, u32)>,
}

impl TenantBreakers {
    /// Whether a call of this tenant may ask now. Counted when it is told.
    pub fn enter(&self, tenant: &str, limits: &BreakerLimits, now: Duration) -> Result<Pass, Shut> {
        self.of(tenant).map_or(Ok(Pass::closed(0)), |breaker| breaker.enter(limits, now))
    }

    /// Whether a call of this tenant would be refused now. Takes no place: others of its calls may be faster.
    pub fn refuses(&self, tenant: &str, limits: &BreakerLimits, now: Duration) -> Option<Shut> {
        self.of(tenant)?.refuses(limits, now)
    }

    /// What a call of this tenant said. Answers how its breaker stands now, if that opened or closed it.
    pub fn told(&self, tenant: &Arc<str>, pass: Pass, said: Said, limits: &BreakerLimits, now: Duration) -> Option<Moved> {
        let breaker = match said {
            Said::Well => {
                self.together.add(Counts::WELL, limits.window, now);
                self.of(tenant)?
            }
            Said::Ill => self.failed(tenant, limits.window, now),
            Said::Nothing => self.of(tenant)?,
        };
        let all_ill = said == Said::Ill && is_ill(self.together.sum(limits.window, now), limits);
        let min_calls = if all_ill { 1 } else { limits.min_calls };
        let moved = breaker.told(pass, said, &BreakerLimits { min_calls, ..*limits }, now);
        if moved.is_some_and(|moved| moved.to == BreakerState::Closed) {
            self.together.clear();
            self.ended.fetch_add(1, Ordering::Relaxed);
        }
        moved
    }

    /// How it is for every tenant that has no breaker. Counted are the good answers to all tenants, and of failures one a window of each.
    pub fn others(&self, limits: &BreakerLimits, now: Duration) -> BreakerStatus {
        let together = self.together.sum(limits.window, now);
        BreakerStatus { state: BreakerState::Closed, outage: None, probes: 0, calls: together.all(), failures: together.ill }
    }

    /// Every tenant's that has one, by name.
    pub fn all(&self) -> Vec<(Arc<str>, Arc<Breaker>)> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut all: Vec<_> = self.lock().iter().map(|(tenant, own)| (tenant.clone(), own.breaker.clone())).collect();
        all.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        all
    }

    /// Opens a tenant's that was open before a restart, unless the flow has been answered well since.
    pub fn restore(&self, tenant: &Arc<str>, outage: Outage, limits: &BreakerLimits, now: Duration) {
        if self.together.sum(limits.window, now).well == 0 {
            self.own(tenant, |own| own.breaker.clone()).restore(outage, limits, now);
        }
    }

    /// Forgets the breakers that say nothing any more.
    pub fn forget(&self, limits: &BreakerLimits, now: Duration) {
        // One that a call is about to tell something is left for the next time.
        self.retain(|_, breaker| Arc::strong_count(breaker) > 1 || !breaker.is_idle(limits, now));
    }

    /// Forgets the breakers of tenants that are no more.
    pub fn keep(&self, is_known: impl Fn(&str) -> bool) {
        self.retain(|tenant, _| is_known(tenant));
    }

    fn of(&self, tenant: &str) -> Option<Arc<Breaker>> {
        if self.count.load(Ordering::Acquire) == 0 { None } else { self.lock().get(tenant).map(|own| own.breaker.clone()) }
    }

    /// The breaker of a tenant one of whose calls failed; counted for all together if it is the first in a window.
    fn failed(&self, tenant: &Arc<str>, window: Duration, now: Duration) -> Arc<Breaker> {
        let ended = self.ended.load(Ordering::Relaxed);
        let (breaker, is_first) = self.own(tenant, |own| {
            let is_first = own.counted.is_none_or(|(at, before)| at + window <= now || before != ended);
            if is_first {
                own.counted = Some((now, ended));
            }
            (own.breaker.clone(), is_first)
        });
        if is_first {
            self.together.add(Counts::ILL, window, now);
        }
        breaker
    }

    /// With what is a tenant's own, made where it has none yet.
    fn own<T>(&self, tenant: &Arc<str>, with: impl FnOnce(&mut Own) -> T) -> T {
        let mut by_tenant = self.lock();
        let answered_well = || Own { breaker: Arc::new(Breaker { window: self.together.well(), ..Breaker::default() }), counted: None };
        let result = with(by_tenant.entry(tenant.clone()).or_insert_with(answered_well));
        self.count.store(by_tenant.len(), Ordering::Release);
        result
    }

    fn retain(&self, keeps: impl Fn(&str, &Arc<Breaker>) -> bool) {
        if self.count.load(Ordering::Acquire) > 0 {
            let mut by_tenant = self.lock();
            by_tenant.retain(|tenant, own| keeps(tenant, &own.breaker));
            self.count.store(by_tenant.len(), Ordering::Release);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Own>> {
        // Every change under the lock is whole before anything can panic.
        self.by_tenant.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
