//! All records in memory, within their bounds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::record::{Kind, Record, is_known};
use crate::share::AUDIT_ENTRIES;

/// There is no room for a record that is not of the audit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

/// Tells one set of records from another; stands in the notebook and in the export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seal {
    /// Counts changes; the newer of two sets has the higher one.
    pub(crate) generation: u64,
    pub(crate) records: usize,
    /// Of all records together, in any order.
    pub(crate) fingerprint: u32,
}

/// Records by key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records {
    by_key: BTreeMap<String, Record>,
    cost: u64,
    audit_cost: u64,
    audit_entries: usize,
    fingerprint: u32,
    generation: u64,
}

impl Records {
    /// What was read from a disk: `generation` is that of its seal.
    pub(crate) fn restored(records: impl IntoIterator<Item = (String, Record)>, generation: u64) -> Records {
        let mut restored = Records::default();
        for (key, record) in records {
            restored.insert(key, record);
        }
        restored.generation = generation;
        restored
    }
    pub(crate) fn seal(&self) -> Seal {
        Seal { generation: self.generation, records: self.by_key.len(), fingerprint: self.fingerprint }
    }
    /// Lifts the generation, where another set is known to be as new.
    pub(crate) fn outdate(&mut self, generation: u64) {
        self.generation = self.generation.max(generation.saturating_add(1));
    }
    pub(crate) fn get(&self, key: &str) -> Option<&Record> {
        self.by_key.get(key)
    }
    pub(crate) fn all(&self) -> impl Iterator<Item = (&String, &Record)> {
        self.by_key.iter()
    }
    /// Records of a kind in key order, with their names, from the name `from` on.
    pub(crate) fn of<'a>(&'a self, kind: Kind, from: &str) -> impl DoubleEndedIterator<Item = (&'a str, &'a Record)> {
        let prefix = kind.prefix();
        // '0' is the letter after the slash.
        let end = format!("{}0", &prefix[..prefix.len() - 1]);
        self.by_key.range(kind.key(from)..end).map(|(key, record)| (&key[prefix.len()..], record))
    }
    /// How many are of a kind or version that is not known here.
    pub(crate) fn unknown(&self) -> usize {
        self.by_key.iter().filter(|(key, record)| !is_known(key, record)).count()
    }

    /// Puts a record and makes the audit fit into `limit`: the keys that changed.
    pub(crate) fn put(&mut self, key: String, record: Record, limit: u64) -> Result<Vec<String>, NoRoom> {
        let new = record.cost(&key);
        if !key.starts_with(Kind::Audit.prefix()) {
            let old = self.by_key.get(&key).map_or(0, |old| old.cost(&key));
            // Half is for the audit, always.
            if self.cost - self.audit_cost - old + new > limit / 2 {
                return Err(NoRoom);
            }
        }
        self.insert(key.clone(), record);
        self.generation += 1;
        let mut changed = self.trim(limit);
        changed.push(key);
        Ok(changed)
    }
    pub(crate) fn remove(&mut self, key: &str) -> bool {
        let there = self.take(key);
        self.generation += u64::from(there);
        there
    }
    /// Drops the oldest entries of the audit until everything fits: their keys.
    pub(crate) fn trim(&mut self, limit: u64) -> Vec<String> {
        let mut dropped = Vec::new();
        while self.audit_entries > AUDIT_ENTRIES || (self.cost > limit && self.audit_entries > 0) {
            let Some(oldest) = self.of(Kind::Audit, "").next().map(|(name, _)| Kind::Audit.key(name)) else { break };
            self.take(&oldest);
            dropped.push(oldest);
        }
        dropped
    }
    #[cfg(test)]
    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    fn insert(&mut self, key: String, record: Record) {
        self.take(&key);
        self.count(&key, &record, true);
        self.by_key.insert(key, record);
    }
    fn take(&mut self, key: &str) -> bool {
        let Some((key, record)) = self.by_key.remove_entry(key) else { return false };
        self.count(&key, &record, false);
        true
    }
    fn count(&mut self, key: &str, record: &Record, comes: bool) {
        let cost = record.cost(key);
        let audit = key.starts_with(Kind::Audit.prefix());
        self.fingerprint ^= record.checksum(key);
        if comes {
            self.cost += cost;
            self.audit_cost += if audit { cost } else { 0 };
            self.audit_entries += usize::from(audit);
        } else {
            self.cost -= cost;
            self.audit_cost -= if audit { cost } else { 0 };
            self.audit_entries -= usize::from(audit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(bytes: usize) -> Record {
        Record { version: 1, body: vec![b'1'; bytes].into() }
    }

    #[test]
    fn the_audit_gives_way_and_keeps_its_half() {
        let limit = 20_000;
        let mut records = Records::default();
        for number in 0..1_000u64 {
            records.put(Kind::Audit.key(&format!("{number:016x}")), record(200), limit).expect("the audit always fits");
            assert!(records.cost() <= limit);
        }
        let newest = records.of(Kind::Audit, "").next_back().map(|(name, _)| name.to_owned());
        assert_eq!(newest.as_deref(), Some("00000000000003e7"), "the newest is kept");
        let entries = records.of(Kind::Audit, "").count();
        records.put(Kind::Override.key("agent"), record(9_000), limit).expect("half is for the others");
        assert!(records.of(Kind::Audit, "").count() < entries && records.cost() <= limit);
        assert_eq!(records.put(Kind::Override.key("office"), record(2_000), limit), Err(NoRoom));
        records.put(Kind::Override.key("agent"), record(9_100), limit).expect("in place of the old one");
    }

    #[test]
    fn a_seal_tells_any_change() {
        let mut records = Records::default();
        let mut seals = vec![records.seal()];
        records.put("paused/a".into(), record(1), 10_000).expect("room");
        seals.push(records.seal());
        records.put("paused/a".into(), record(2), 10_000).expect("room");
        seals.push(records.seal());
        assert!(records.remove("paused/a") && !records.remove("paused/a"));
        seals.push(records.seal());
        assert_eq!(seals.iter().map(|seal| seal.generation).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert!(seals[1].fingerprint != seals[2].fingerprint && seals[0].fingerprint == seals[3].fingerprint);
    }
}
