//! The replies that are kept: whose they are, and which go first.
//!
//! Invariants
//! 1. All entries together hold at most the limit, and those of one owner a [`PART`]th of it; so does a single one.
//! 2. Where its owner's part is full, the owner's own go: the oldest first, but those asked for since they were looked at last.
//! 3. Where all is full, those that serve nobody any more go first, then those of the owner that holds most: however much others ask
//!    for, an owner that holds little keeps it.
//! 4. An entry belongs to the tenant that filled it first, as long as it is kept. So does one that all tenants share: who fills many of
//!    them pushes out its own, and one that somebody else has to fill again is safe from it from then on.
//! 5. Keeping one takes steps in proportion to what it pushes out and spares, and to the logarithm of all.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use spillgate_model::Datum;
use spillgate_telemetry::CacheMetrics;
use tokio::time::Instant;

use super::Key;
use crate::Outcome;

/// An owner has at most this part of the whole, as of the memory for calls.
const PART: u64 = 4;
/// What an entry costs beside its content.
const ENTRY_BYTES: u64 = 384;
/// Beyond any life a plan can name.
const LONGEST: Duration = Duration::from_secs(86_400 * 365);

/// All that is kept.
#[derive(Default)]
pub(super) struct Kept {
    entries: HashMap<Key, Entry>,
    parts: HashMap<Arc<str>, Part>,
    /// Owners by the bytes they hold.
    by_bytes: BTreeSet<(u64, Arc<str>)>,
    /// By when they serve nobody any more, and number.
    by_end: BTreeMap<(Instant, u64), Key>,
    pub(super) bytes: u64,
    /// Of the next entry.
    number: u64,
    metrics: Arc<CacheMetrics>,
}

/// What one owner holds.
#[derive(Default)]
struct Part {
    bytes: u64,
    /// By number: in the order in which they are looked at for eviction.
    round: BTreeMap<u64, Key>,
}

pub(super) struct Entry {
    pub(super) outcome: Outcome,
    pub(super) made: Instant,
    /// After that it serves nobody, not even as stale.
    pub(super) ends: Instant,
    bytes: u64,
    owner: Arc<str>,
    number: u64,
    /// Asked for since the round last came by.
    asked: AtomicBool,
}

impl Entry {
    /// It is spared once.
    pub(super) fn asked(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }
}

impl Kept {
    pub(super) fn new(metrics: Arc<CacheMetrics>) -> Self {
        Kept { metrics, ..Kept::default() }
    }
    pub(super) fn get(&self, key: &Key) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// Keeps a reply that `tenant` came by, if it is not too large. It takes the place of an older one.
    pub(super) fn keep(&mut self, key: Key, tenant: &Arc<str>, outcome: Outcome, life: Duration, limit: u64) {
        let bytes = ENTRY_BYTES + 2 * key.len() as u64 + held(&outcome);
        if bytes > limit / PART {
            return;
        }
        let now = Instant::now();
        let owner = self.take(&key).map_or_else(|| tenant.clone(), |older| older.owner);
        while self.held_by(&owner) + bytes > limit / PART && self.evict_one_of(&owner, now) {}
        while self.bytes + bytes > limit && self.evict_one(now) {}
        let ends = now + life.min(LONGEST);
        self.put(key, Entry { outcome, made: now, ends, bytes, owner, number: 0, asked: AtomicBool::new(false) });
        self.metrics.bytes.set(self.bytes);
    }

    fn held_by(&self, owner: &str) -> u64 {
        self.parts.get(owner).map_or(0, |part| part.bytes)
    }

    fn evict_one(&mut self, now: Instant) -> bool {
        match (self.by_end.first_key_value(), self.by_bytes.last()) {
            (Some(((ends, _), key)), _) if *ends <= now => self.evict(&key.clone()),
            (_, Some((_, largest))) => return self.evict_one_of(&largest.clone(), now),
            _ => return false,
        }
        true
    }

    /// Takes the next entry of an owner's round out, unless it was asked for since the last one. Answers whether there was any.
    fn evict_one_of(&mut self, owner: &Arc<str>, now: Instant) -> bool {
        let Some(part) = self.parts.get_mut(owner) else { return false };
        let Some((_, key)) = part.round.pop_first() else { return false };
        let Some(entry) = self.entries.get_mut(&key) else { return true };
        if entry.asked.swap(false, Ordering::Relaxed) && now < entry.ends {
            self.by_end.remove(&(entry.ends, entry.number));
            (entry.number, self.number) = (self.number, self.number + 1);
            self.by_end.insert((entry.ends, entry.number), key.clone());
            part.round.insert(entry.number, key);
        } else {
            self.evict(&key);
        }
        true
    }

    fn evict(&mut self, key: &Key) {
        self.take(key);
        self.metrics.evictions.increment();
    }

    fn put(&mut self, key: Key, mut entry: Entry) {
        (entry.number, self.number) = (self.number, self.number + 1);
        self.by_end.insert((entry.ends, entry.number), key.clone());
        self.parts.entry(entry.owner.clone()).or_default().round.insert(entry.number, key.clone());
        self.weigh(&entry.owner, |held| held + entry.bytes);
        self.entries.insert(key, entry);
    }

    fn take(&mut self, key: &Key) -> Option<Entry> {
        let entry = self.entries.remove(key)?;
        self.by_end.remove(&(entry.ends, entry.number));
        if let Some(part) = self.parts.get_mut(&entry.owner) {
            part.round.remove(&entry.number);
        }
        self.weigh(&entry.owner, |held| held.saturating_sub(entry.bytes));
        Some(entry)
    }

    /// An owner holds more or less than before. One that holds nothing is forgotten.
    fn weigh(&mut self, owner: &Arc<str>, now: impl FnOnce(u64) -> u64) {
        let Some(part) = self.parts.get_mut(owner) else { return };
        self.by_bytes.remove(&(part.bytes, owner.clone()));
        let bytes = now(part.bytes);
        self.bytes = self.bytes - part.bytes + bytes;
        part.bytes = bytes;
        if part.round.is_empty() {
            self.parts.remove(owner);
        } else {
            self.by_bytes.insert((bytes, owner.clone()));
        }
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

#[cfg(test)]
mod tests;
