//! Appending: room becomes items.

use std::sync::Arc;
use std::time::Duration;

use crate::core::keys::Holder;
use crate::core::lane::{JobEntry, Phase, Traits};
use crate::core::room::{promise, reserved_for};
use crate::core::stream::extents_for;
use crate::core::write::Purpose;
use crate::core::{Core, Ticket};
use crate::format::{Draft, MOST_KEYS};
use crate::item::{NewItem, Unique};
use crate::job::JobId;
use crate::limits::{Full, WhichLimit};
use crate::record::{ItemOrigin, ItemRecord, Stream};
use crate::store::StoreError;

/// What became of one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is in the batch. With a token if it is claimed.
    New { sequence: u64, token: Option<u64> },
    /// A key of it is held.
    Held { by: Holder, same_input: bool },
    /// Its business key is held.
    Taken { by: Holder },
}

/// How items are appended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    pub(crate) lane: usize,
    /// Lease of claimed items.
    pub(crate) lease: Duration,
    /// Where they come from: they stay hidden until that is true.
    pub(crate) origin: Option<ItemOrigin>,
    /// Keys that this one holds go over to the item.
    pub(crate) from: Option<Holder>,
}

pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Core {
    /// Appends items into room of so many items and bytes; what they do not use of it stays promised. Durable with the ticket.
    pub(crate) fn append(
        &mut self,
        how: How,
        room: (&mut u64, &mut u64),
        item_bytes: u64,
        items: Vec<NewItem>,
    ) -> Result<(Vec<Outcome>, Ticket), StoreError> {
        self.check()?;
        let bytes: u64 = items.iter().map(|item| item.content.len() as u64).sum();
        let largest = items.iter().map(|item| item.content.len() as u64).max().unwrap_or(0);
        let refused = |which, limit, used| Err(StoreError::Full(Full { which, limit, used, own_share: true, retry_after: None }));
        if largest > item_bytes {
            return refused(WhichLimit::ItemBytes, item_bytes, largest);
        }
        if items.len() as u64 > *room.0 || bytes > *room.1 {
            return refused(WhichLimit::ItemBytes, *room.1, bytes);
        }
        if items.iter().any(|item| item.keys.len() > MOST_KEYS) {
            return refused(WhichLimit::ItemBytes, MOST_KEYS as u64, MOST_KEYS as u64 + 1);
        }
        // Cleaning leaves alone what was promised, so this does not come to pass.
        if extents_for(promise(items.len() as u64, bytes).disk, self.lanes[how.lane].items.room()) > self.extents.free() {
            return refused(WhichLimit::StoreDisk, self.extents.usable(), self.extents.held());
        }
        self.largest = self.largest.max(largest);
        let before = promise(*room.0, *room.1);
        let mut outcomes = Vec::with_capacity(items.len());
        for item in items {
            let held = self.holder(&item, how.from);
            outcomes.push(match held {
                Some(held) => held,
                None => {
                    *room.0 -= 1;
                    *room.1 -= item.content.len() as u64;
                    self.append_one(how, item)
                }
            });
        }
        let (after, of) = (promise(*room.0, *room.1), &mut self.lanes[how.lane]);
        // The counts of queue and tenant stay: what was promised is there now.
        of.promised.items -= before.items - after.items;
        of.promised.bytes -= before.bytes - after.bytes;
        of.promised.disk -= before.disk - after.disk;
        of.promised.journal -= before.journal - after.journal;
        of.pending.work = true;
        self.settle(how.lane);
        self.gathering.commands += 1;
        // A repeat is told only when the first call's item is durable: at the latest with this batch, or, where there is nothing to
        // write now, with the one before.
        let number = self.gathering.number;
        Ok((outcomes, if self.has_batch() { number } else { number - 1 }))
    }

    /// Who holds a key of the item already.
    fn holder(&self, item: &NewItem, from: Option<Holder>) -> Option<Outcome> {
        let held = item.keys.iter().filter_map(|key| self.keys.find(&key.hash, &key.input, self.now));
        let held = held.into_iter().find(|(by, _)| Some(*by) != from);
        if let Some((by, same_input)) = held {
            return Some(Outcome::Held { by, same_input });
        }
        let taken = item.unique.and_then(|unique| self.uniques.find(&unique.hash, &[0; 16], self.now));
        taken.filter(|(by, _)| Some(*by) != from).map(|(by, _)| Outcome::Taken { by })
    }

    fn append_one(&mut self, how: How, item: NewItem) -> Outcome {
        let (lane, now) = (how.lane, self.now);
        let bytes = item.content.len() as u64;
        let sequence = self.lanes[lane].next_sequence;
        let record = ItemRecord {
            sequence,
            appended_at: now,
            expires_at: item.expires_in.map(|after| now.saturating_add(milliseconds(after))),
            order: item.order,
            claimed: item.claimed,
            keys: item.keys,
            unique: item.unique,
            origin: how.origin,
            content: item.content,
        };
        let holder = Holder { lane: u32::try_from(lane).unwrap_or(u32::MAX), sequence };
        for key in &record.keys {
            self.keys.hold(key.hash, &key.input, holder, None);
        }
        if let Some(unique) = &record.unique {
            self.uniques.hold(unique.hash, &[0; 16], holder, Some(now.saturating_add(milliseconds(unique.within))));
        }
        let reserved = reserved_for(&record.keys, record.unique.as_ref());
        let (expires_at, traits) = (record.expires_at, Traits::of(&record));
        let draft = Draft::item(record);
        debug_assert!(self.may_write(lane, Stream::Items, draft.disk_bytes() as u64, Purpose::Item), "it was promised");
        if self.lanes[lane].items.extents.back_mut().is_some_and(|extent| !extent.skip_to(sequence)) {
            self.seal(lane, Stream::Items);
        }
        let placed = self.write(lane, Stream::Items, &draft, (sequence, sequence + 1));
        let token = item.claimed.then(|| self.token());
        let of = &mut self.lanes[lane];
        of.next_sequence = sequence + 1;
        if let Some(at) = of.items.by_serial(placed.serial) {
            // After a start numbers may have been given out whose items never became durable.
            of.items.extents[at].skip_to(sequence);
            of.items.extents[at].push(bytes, expires_at);
        }
        of.begin(bytes, reserved);
        of.appended += 1;
        let phase = match (token, how.origin) {
            (Some(token), _) => Some(Phase::AtWork { token, until: now.saturating_add(milliseconds(how.lease)) }),
            (None, Some(_)) => Some(Phase::Hidden),
            (None, None) => None,
        };
        if let Some(phase) = phase {
            let started = token.is_some();
            let attempts = u32::from(started);
            let traits = Some(Box::new(traits));
            of.enter(sequence, JobEntry { phase, attempts, started, interrupted: false, recorded: started, traits, kept: None });
        }
        self.counters.appended += 1;
        Outcome::New { sequence, token }
    }

    /// The job that a key stands for and whether the input is the same, if that is durable.
    pub(crate) fn find_key(&self, key: &crate::item::Key) -> Option<(JobId, bool)> {
        let (holder, same) = self.keys.find(&key.hash, &key.input, self.now)?;
        let lane = holder.lane as usize;
        (holder.sequence < self.lanes[lane].durable_next).then(|| (self.id(lane, holder.sequence), same))
    }

    /// The job that has a business key, and the tenant it is of.
    pub(crate) fn find_unique(&self, unique: &Unique) -> Option<(JobId, Arc<str>)> {
        let (holder, _) = self.uniques.find(&unique.hash, &[0; 16], self.now)?;
        let lane = holder.lane as usize;
        let (durable, tenant) = (self.lanes[lane].durable_next, &self.lanes[lane].name.tenant);
        (holder.sequence < durable).then(|| (self.id(lane, holder.sequence), tenant.clone()))
    }
}
