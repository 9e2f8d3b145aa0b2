//! Replies kept for a while.
//!
//! Invariants
//! 1. All entries together hold at most the server's `cache` bytes; those least asked for go first.
//! 2. A key is the flow's version, the tenant (unless shared), the input and the page: two callers share an entry only where
//!    they would get the same reply.
//! 3. One call fills an entry; others wait for it, each to its own deadline. A filler that leaves hands over.
//! 4. Only replies are kept, never refusals.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use spillgate_model::{Code, Datum};
use spillgate_telemetry::CacheMetrics;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::page::encode;
use crate::{Call, Outcome};

/// What an entry costs beside its content.
const ENTRY_BYTES: u64 = 256;

type Key = Arc<[u8]>;

/// Replies of all flows.
#[derive(Default)]
pub(crate) struct Cache {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    kept: HashMap<Key, Entry>,
    /// Keys in the order in which they are looked at for eviction.
    round: VecDeque<Key>,
    bytes: u64,
    metrics: Arc<CacheMetrics>,
    filling: HashMap<Key, watch::Receiver<Option<Outcome>>>,
}

struct Entry {
    outcome: Outcome,
    made: Instant,
    /// After that it serves nobody, not even as stale.
    ends: Instant,
    bytes: u64,
    /// Asked for since the round last came by.
    asked: AtomicBool,
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
        Arc::new(Cache { state: Mutex::new(State { metrics, ..State::default() }) })
    }
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Bytes that entries hold.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.lock().bytes
    }

    pub(crate) fn claim(self: &Arc<Self>, key: &Key, fresh: Duration) -> Claim {
        let mut state = self.lock();
        if let Some(entry) = state.kept.get(key)
            && entry.made.elapsed() < fresh
        {
            entry.asked.store(true, Ordering::Relaxed);
            state.metrics.hits.increment();
            return Claim::Hit(entry.outcome.clone());
        }
        if let Some(receiver) = state.filling.get(key) {
            return Claim::Wait(receiver.clone());
        }
        let (sender, receiver) = watch::channel(None);
        state.filling.insert(key.clone(), receiver);
        state.metrics.misses.increment();
        Claim::Fill(Filler { cache: self.clone(), key: key.clone(), sender })
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
        // Its own time ran out: others may have more.
        let own_time = matches!(outcome, Outcome::Refused(refusal) if matches!(refusal.code, Code::DeadlineExceeded | Code::WaitTooLong));
        if own_time {
            return;
        }
        {
            let mut state = self.cache.lock();
            state.filling.remove(&self.key);
            if !matches!(outcome, Outcome::Refused(_)) {
                state.keep(self.key.clone(), outcome.clone(), fresh.saturating_add(stale_if_error), limit);
            }
        }
        let _nobody_waits = self.sender.send(Some(outcome.clone()));
    }
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

impl State {
    fn keep(&mut self, key: Key, outcome: Outcome, life: Duration, limit: u64) {
        let bytes = ENTRY_BYTES + 2 * key.len() as u64 + held(&outcome);
        let now = Instant::now();
        let replaced = |state: &State| state.kept.get(&key).map_or(0, |old| old.bytes);
        while self.bytes - replaced(self) + bytes > limit && self.evict_one(now) {}
        if bytes > limit {
            return;
        }
        // Far beyond any life a plan can name where the sum does not fit.
        let ends = now.checked_add(life).unwrap_or(now + Duration::from_secs(86_400));
        self.bytes = self.bytes - replaced(self) + bytes;
        self.metrics.bytes.set(self.bytes);
        let entry = Entry { outcome, made: now, ends, bytes, asked: AtomicBool::new(false) };
        if self.kept.insert(key.clone(), entry).is_none() {
            self.round.push_back(key);
        }
    }

    /// Takes the next entry of the round out, unless it was asked for since the last one.
    fn evict_one(&mut self, now: Instant) -> bool {
        let Some(key) = self.round.pop_front() else { return false };
        let spared = self.kept.get(&key).is_some_and(|entry| entry.asked.swap(false, Ordering::Relaxed) && now < entry.ends);
        if spared {
            self.round.push_back(key);
        } else if let Some(entry) = self.kept.remove(&key) {
            self.bytes -= entry.bytes;
            self.metrics.evictions.increment();
            self.metrics.bytes.set(self.bytes);
        }
        true
    }
}

/// Bytes a reply holds, about.
fn held(outcome: &Outcome) -> u64 {
    match outcome {
        Outcome::Rows { rows, next, .. } => (rows.held_bytes() + next.as_ref().map_or(0, String::len)) as u64,
        Outcome::Value { value, .. } => weight(value),
        Outcome::Job(_) | Outcome::Kept(_) | Outcome::Refused(_) => 0,
    }
}

fn weight(datum: &Datum) -> u64 {
    let inside = match datum {
        Datum::Null | Datum::Boolean(_) | Datum::Integer(_) | Datum::Number(_) => 0,
        Datum::Text(text) => text.len() as u64 + 16,
        Datum::Binary(bytes) => bytes.len() as u64 + 16,
        Datum::List(items) => items.iter().map(weight).sum(),
        Datum::Map(entries) => entries.iter().map(|(key, value)| key.len() as u64 + 32 + weight(value)).sum(),
    };
    inside + size_of::<Datum>() as u64
}
