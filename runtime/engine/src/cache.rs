//! Replies kept for a while.
//!
//! Invariants
//! 1. All entries together hold at most the server's `cache` bytes, and those of one tenant a part of it ([`kept`]).
//! 2. A key is the flow's version, the tenant (unless shared), the input and the page: two callers share an entry only where
//!    they would get the same reply.
//! 3. One call fills an entry; others wait for it, each to its own deadline. A filler that leaves, or is refused what is its tenant's
//!    own, hands over.
//! 4. Only replies are kept, never refusals.

mod kept;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use spillgate_model::Code;
use spillgate_telemetry::CacheMetrics;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::page::encode;
use crate::{Call, Outcome};
use kept::Kept;

type Key = Arc<[u8]>;

/// Replies of all flows.
#[derive(Default)]
pub(crate) struct Cache {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    kept: Kept,
    metrics: Arc<CacheMetrics>,
    filling: HashMap<Key, watch::Receiver<Option<Outcome>>>,
}

/// What a call does about its entry.
pub(crate) enum Claim {
    /// It is there and fresh.
    Hit(Outcome),
    /// It is this call's to fill.
    Fill(Filler),
    /// Another call fills it.
    Wait(watch::Receiver<Option<Outcome>>),
}

/// The right to fill an entry. Dropping it hands over to one that waits.
pub(crate) struct Filler {
    cache: Arc<Cache>,
    key: Key,
    tenant: Arc<str>,
    sender: watch::Sender<Option<Outcome>>,
}

/// The key of a call.
pub(crate) fn key(call: &Call, shared: bool) -> Key {
    let flow = &call.live.plan.flows[call.flow];
    let mut key = Vec::with_capacity(64);
    key.extend_from_slice(&flow.version.to_be_bytes());
    for text in [&*flow.name, if shared { "" } else { &*call.flowfile.tenant }, call.page.cursor.as_deref().unwrap_or_default()] {
        key.extend_from_slice(&(text.len() as u64).to_be_bytes());
        key.extend_from_slice(text.as_bytes());
    }
    key.extend_from_slice(&(call.page.size.unwrap_or(0) as u64).to_be_bytes());
    call.flowfile.input.iter().for_each(|value| encode(value, &mut key));
    key.into()
}

impl Cache {
    /// An empty one that counts in `metrics`.
    pub(crate) fn new(metrics: Arc<CacheMetrics>) -> Arc<Self> {
        Arc::new(Cache { state: Mutex::new(State { kept: Kept::new(metrics.clone()), metrics, filling: HashMap::new() }) })
    }
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Bytes that entries hold.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.lock().kept.bytes
    }

    pub(crate) fn claim(self: &Arc<Self>, key: &Key, tenant: &Arc<str>, fresh: Duration) -> Claim {
        let mut state = self.lock();
        if let Some(entry) = state.kept.get(key)
            && entry.made.elapsed() < fresh
        {
            entry.asked();
            state.metrics.hits.increment();
            return Claim::Hit(entry.outcome.clone());
        }
        if let Some(receiver) = state.filling.get(key) {
            return Claim::Wait(receiver.clone());
        }
        let (sender, receiver) = watch::channel(None);
        state.filling.insert(key.clone(), receiver);
        state.metrics.misses.increment();
        Claim::Fill(Filler { cache: self.clone(), key: key.clone(), tenant: tenant.clone(), sender })
    }

    /// The entry as it is, marked with its age, if it may still stand in for a reply.
    pub(crate) fn stale(&self, key: &Key) -> Option<Outcome> {
        let state = self.lock();
        let entry = state.kept.get(key).filter(|entry| Instant::now() < entry.ends)?;
        let age = Some(entry.made.elapsed());
        state.metrics.stale.increment();
        match &entry.outcome {
            Outcome::Rows { rows, next, affected, .. } => {
                Some(Outcome::Rows { rows: rows.clone(), next: next.clone(), affected: *affected, stale: age })
            }
            Outcome::Value { value, .. } => Some(Outcome::Value { value: value.clone(), stale: age }),
            Outcome::Job(_) | Outcome::Kept(_) | Outcome::Refused(_) => None,
        }
    }
}

impl Filler {
    /// Ends the filling: a reply is kept, and those that wait get what came.
    pub(crate) fn fill(self, outcome: &Outcome, fresh: Duration, stale_if_error: Duration, limit: u64) {
        if is_its_own(outcome) {
            return;
        }
        {
            let mut state = self.cache.lock();
            state.filling.remove(&self.key);
            if !matches!(outcome, Outcome::Refused(_)) {
                state.kept.keep(self.key.clone(), &self.tenant, outcome.clone(), fresh.saturating_add(stale_if_error), limit);
            }
        }
        let _nobody_waits = self.sender.send(Some(outcome.clone()));
    }
}

/// What befell the filler alone: its time ran out, or its tenant has no seat, no memory, or a breaker of its own that is open. Others may
/// have more.
fn is_its_own(outcome: &Outcome) -> bool {
    let Outcome::Refused(refusal) = outcome else { return false };
    matches!(refusal.code, Code::DeadlineExceeded | Code::WaitTooLong | Code::Overloaded | Code::MemoryFull | Code::BreakerOpen)
}

impl Drop for Filler {
    fn drop(&mut self) {
        let mut state = self.cache.lock();
        // Another call may fill it by now.
        if state.filling.get(&self.key).is_some_and(|receiver| receiver.same_channel(&self.sender.subscribe())) {
            state.filling.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use spillgate_model::{Code, Refusal};

    use super::{Cache, Claim, Key};
    use crate::Outcome;

    /// What somebody who waited for another tenant's filling gets when it ends in this.
    fn waited_for(code: Code) -> Option<Code> {
        let (cache, key) = (Cache::new(Arc::default()), Key::from(*b"shared"));
        let Claim::Fill(filler) = cache.claim(&key, &"one".into(), Duration::ZERO) else { panic!("nobody fills it") };
        let Claim::Wait(filling) = cache.claim(&key, &"two".into(), Duration::ZERO) else { panic!("somebody fills it") };
        filler.fill(&Outcome::Refused(Box::new(Refusal::new(code, "A test."))), Duration::ZERO, Duration::ZERO, 1 << 20);
        let is_free = matches!(cache.claim(&key, &"two".into(), Duration::ZERO), Claim::Fill(_));
        assert!(is_free, "a refusal is kept for nobody");
        let told = filling.borrow();
        told.as_ref().map(|outcome| match outcome {
            Outcome::Refused(refusal) => refusal.code,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn what_is_refused_to_a_filler_alone_is_told_to_nobody_who_waits_for_it() {
        for own in [Code::DeadlineExceeded, Code::WaitTooLong, Code::Overloaded, Code::MemoryFull, Code::BreakerOpen] {
            assert_eq!(waited_for(own), None, "{own:?}");
        }
        for common in [Code::DatabaseError, Code::DatabaseUnreachable] {
            assert_eq!(waited_for(common), Some(common));
        }
    }
}
