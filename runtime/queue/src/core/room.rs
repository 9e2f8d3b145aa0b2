//! Room: asked for before content exists, given back by drop.
//!
//! What is reserved for an item: itself, its content bytes, its place in an item extent as if it had all keys there can be, and the
//! largest record its end may need. Appending turns that into what the item really takes.
//!
//! Invariants
//! 1. What is promised counts as used, in items, bytes, extents and journal, from the moment it is given out until it is appended or dropped.
//! 2. A promise covers the largest item it could become, so no append within its room is refused for want of room.
//! 3. A need that could never fit is told so (`ItemBytes`), and not to come back.
//! 4. Being refused changes no count.
//! 5. Of a queue that several tenants use, a lane holds no more than seven eighths of what the others leave it, or one need: whatever one
//!    tenant sends, there is room for a tenant that has less. (Dynamic thresholds, Choudhury and Hahne 1998.)

use crate::core::Core;
use crate::core::lane::{Lane, Promised};
use crate::core::stream::USABLE_BYTES;
use crate::core::write::small_bytes;
use crate::format::{EXTENT_BYTES, MOST_ENTRY_BYTES, MOST_ITEM_HEAD_BYTES, MOST_JOB_HEAD_BYTES, MOST_NAME_BYTES, record_disk_bytes};
use crate::item::{Key, Unique};
use crate::limits::{Full, Need, QueueLimits, WhichLimit};
use crate::status::{Health, LaneName};

/// Bytes of a job's record beside its keys: state, times, attempts, emission.
const PLAIN_JOB_HEAD_BYTES: usize = 38;
/// Of what the other lanes of a shared queue leave, a lane leaves this part: an eighth.
const LEFT_TO_OTHERS: u64 = 8;
const KEPT_KEY_BYTES: usize = 32 + 6;
const KEPT_UNIQUE_BYTES: usize = 16 + 6;

/// Journal bytes that are kept for a job with these ties until it ends.
pub(crate) fn record_bytes(keys: usize, unique: bool) -> u64 {
    small_bytes(PLAIN_JOB_HEAD_BYTES + keys * KEPT_KEY_BYTES + if unique { KEPT_UNIQUE_BYTES } else { 0 })
}

/// As [`record_bytes`], of an item.
pub(crate) fn reserved_for(keys: &[Key], unique: Option<&Unique>) -> u64 {
    record_bytes(keys.len(), unique.is_some())
}

/// What so many items of so many content bytes together may need.
pub(crate) fn promise(items: u64, bytes: u64) -> Promised {
    let each = record_disk_bytes(MOST_ITEM_HEAD_BYTES, 1, MOST_ENTRY_BYTES) as u64;
    let frames = record_disk_bytes(0, USABLE_BYTES, 0) as u64 - USABLE_BYTES as u64;
    let disk = bytes + items * each + (bytes / USABLE_BYTES as u64) * frames;
    Promised { items, bytes, disk, journal: items * small_bytes(MOST_JOB_HEAD_BYTES) }
}

fn full(which: WhichLimit, limit: u64, used: u64) -> Full {
    Full { which, limit, used, own_share: false, retry_after: None }
}

impl Core {
    /// Room in a lane, or which limit speaks: the index of the lane.
    pub(crate) fn reserve(&mut self, name: &LaneName, need: Need, limits: &QueueLimits) -> Result<usize, Full> {
        self.could_ever_fit(name, need, limits)?;
        if self.check().is_err() {
            return Err(full(WhichLimit::NotServing, 0, 0));
        }
        let lane = self.lane_index(name);
        self.tenant(&name.tenant.clone()).disk_limit = limits.tenant_disk;
        self.lanes[lane].outcome_bytes = limits.outcome_bytes;
        self.within_counts(lane, need, limits).map_err(|full| self.timed(full, lane, need))?;
        if self.volume_low {
            let (free, reserve) = if let Health::DiskLow { free, reserve } = self.health { (free, reserve) } else { (0, 0) };
            return Err(full(WhichLimit::VolumeFree, reserve, free));
        }
        if !self.keys.has_room(2) || !self.uniques.has_room(1) {
            return Err(full(WhichLimit::StoreDisk, crate::core::keys::MOST_KEYS as u64, self.keys.len() as u64));
        }
        self.within_disk(lane, need, limits).map_err(|full| self.timed(full, lane, need))?;
        Ok(lane)
    }

    /// Waiting would not help.
    fn could_ever_fit(&self, name: &LaneName, need: Need, limits: &QueueLimits) -> Result<(), Full> {
        let names = name.queue.len().max(name.tenant.len());
        if names > MOST_NAME_BYTES {
            return Err(full(WhichLimit::ItemBytes, MOST_NAME_BYTES as u64, names as u64));
        }
        let share = self.extents.most().saturating_sub(self.cleaning_reserve() + 2) * USABLE_BYTES as u64 / 2;
        let share = share.min((limits.tenant_disk / EXTENT_BYTES as u64).saturating_sub(1) * USABLE_BYTES as u64);
        let most = limits.queue_bytes.min(limits.tenant_bytes).min(share);
        let each = if need.items == 1 { limits.item_bytes.min(most) } else { most };
        if need.bytes > each {
            return Err(full(WhichLimit::ItemBytes, each, need.bytes));
        }
        Ok(())
    }

    fn within_counts(&self, lane: usize, need: Need, limits: &QueueLimits) -> Result<(), Full> {
        let of = &self.lanes[lane];
        let (queue, tenant) = (&self.queues[&of.name.queue], &self.tenants[&of.name.tenant]);
        let own = (of.unended + of.promised.items, of.bytes + of.promised.bytes);
        let lanes = queue.busy.max(1);
        let most = self.lane_most(lane, (need.items, need.bytes), limits);
        let checks = [
            (WhichLimit::LaneItems, most.0, own.0, need.items, u64::MAX),
            (WhichLimit::LaneBytes, most.1, own.1, need.bytes, u64::MAX),
            (WhichLimit::QueueItems, limits.queue_items, queue.items, need.items, own.0),
            (WhichLimit::QueueBytes, limits.queue_bytes, queue.bytes, need.bytes, own.1),
            (WhichLimit::TenantItems, limits.tenant_items, tenant.items, need.items, u64::MAX),
            (WhichLimit::TenantBytes, limits.tenant_bytes, tenant.bytes, need.bytes, u64::MAX),
        ];
        for (which, limit, used, more, own) in checks {
            let beyond = used.saturating_add(more).saturating_sub(limit);
            let to_shed = if which.is_of_lane() { beyond.min(more) } else { beyond };
            let (items, bytes) = if which.is_bytes() { (0, to_shed) } else { (to_shed, 0) };
            if beyond > 0 && !(need.shed_oldest && self.could_shed(lane, items, bytes)) {
                // An equal share of the lanes that have something is nobody else's fault.
                return Err(Full { which, limit, used, own_share: own >= limit / lanes, retry_after: None });
            }
        }
        Ok(())
    }

    /// Items and bytes that a lane may hold: its part of what others leave it, or this need where that is more.
    pub(crate) fn lane_most(&self, lane: usize, need: (u64, u64), limits: &QueueLimits) -> (u64, u64) {
        if !limits.shared {
            return (u64::MAX, u64::MAX);
        }
        let of = &self.lanes[lane];
        let queue = &self.queues[&of.name.queue];
        let part = |limit: u64, used: u64, own: u64, need: u64| {
            let left = limit.saturating_sub(used.saturating_sub(own));
            (left - left.div_ceil(LEFT_TO_OTHERS)).max(need)
        };
        let items = part(limits.queue_items, queue.items, of.unended + of.promised.items, need.0);
        (items, part(limits.queue_bytes, queue.bytes, of.bytes + of.promised.bytes, need.1))
    }

    fn within_disk(&mut self, lane: usize, need: Need, limits: &QueueLimits) -> Result<(), Full> {
        let more = promise(need.items, need.bytes);
        let largest = self.largest;
        self.largest = self.largest.max(need.bytes / need.items.max(1));
        self.promise(lane, more, true);
        let tenant = self.tenants[&self.lanes[lane].name.tenant].claimed.saturating_mul(EXTENT_BYTES as u64);
        let store = self.claimed + self.cleaning_reserve();
        let refused = if tenant > limits.tenant_disk {
            Some(Full { own_share: true, ..full(WhichLimit::TenantDisk, limits.tenant_disk, tenant) })
        } else if store > self.extents.usable() {
            let limit = self.extents.usable() * EXTENT_BYTES as u64;
            Some(full(WhichLimit::StoreDisk, limit, self.extents.held() * EXTENT_BYTES as u64))
        } else {
            None
        };
        let Some(mut refused) = refused else { return Ok(()) };
        self.promise(lane, more, false);
        self.largest = largest;
        self.room_wanted = true;
        if refused.which == WhichLimit::TenantDisk {
            refused.used = self.tenants[&self.lanes[lane].name.tenant].claimed.saturating_mul(EXTENT_BYTES as u64);
        }
        Err(refused)
    }

    /// Promises room, or takes it back.
    pub(crate) fn promise(&mut self, lane: usize, room: Promised, give: bool) {
        let change = |value: &mut u64, by: u64| *value = if give { *value + by } else { value.saturating_sub(by) };
        let promised = &mut self.lanes[lane].promised;
        change(&mut promised.items, room.items);
        change(&mut promised.bytes, room.bytes);
        change(&mut promised.disk, room.disk);
        change(&mut promised.journal, room.journal);
        self.count(lane, room.items, room.bytes, give);
        self.settle(lane);
    }

    /// Counts jobs that have not ended, or promised ones, in queue and tenant.
    pub(crate) fn count(&mut self, lane: usize, items: u64, bytes: u64, more: bool) {
        let change = |value: &mut u64, by: u64| *value = if more { *value + by } else { value.saturating_sub(by) };
        let name = &self.lanes[lane].name;
        if let Some(queue) = self.queues.get_mut(&name.queue) {
            change(&mut queue.items, items);
            change(&mut queue.bytes, bytes);
        }
        if let Some(tenant) = self.tenants.get_mut(&name.tenant) {
            change(&mut tenant.items, items);
            change(&mut tenant.bytes, bytes);
        }
    }

    /// Extents that there must be, whatever the limit is now: all that lanes are charged with and what cleaning needs. Without them
    /// nothing could be ended, and so nothing ever become free.
    fn extents_needed(&self) -> u64 {
        self.claimed + self.cleaning_reserve() + self.extents.quarantined()
    }
    /// How many of these are missing, where the limit was lowered or extents cannot be used.
    pub(crate) fn extents_short(&self) -> u64 {
        if self.extents.quarantined() == 0 && !self.extents.is_beyond_limit() {
            return 0;
        }
        self.extents_needed().saturating_sub(self.extents.total())
    }
    /// Takes away a file beyond the limit that nothing stands in, if all that is needed finds its place without it: whether it did.
    pub(crate) fn give_back_file(&mut self, number: usize) -> bool {
        let extents = self.extents.file_extents(number);
        let gives = self.extents.total() >= self.extents_needed() + extents && self.extents.remove_file(number);
        if gives {
            self.uncatalog(number, 0..extents);
        }
        gives
    }

    /// As [`Core::give_back_file`], of what a file has more than so many extents.
    pub(crate) fn give_back_end(&mut self, number: usize, extents: u32) -> bool {
        let gone = self.extents.file_extents(number).saturating_sub(u64::from(extents));
        let gives = gone > 0 && self.extents.total() >= self.extents_needed() + gone && self.extents.shorten_file(number, extents);
        if gives {
            self.uncatalog(number, u64::from(extents)..u64::from(extents) + gone);
        }
        gives
    }

    /// These extents of a file are no more.
    fn uncatalog(&mut self, number: usize, indices: std::ops::Range<u64>) {
        let first = number as u64 * self.extents.per_file();
        let positions = indices.filter_map(|index| u32::try_from(first + index).ok());
        self.uncatalogued.extend(positions.map(|position| (position, None)));
    }

    /// Brings the charge of a lane up to date.
    pub(crate) fn settle(&mut self, lane: usize) {
        let claim = self.lanes[lane].claim();
        let before = std::mem::replace(&mut self.lanes[lane].claimed, claim);
        self.claimed = self.claimed + claim - before;
        let promised = self.lanes[lane].promised_extents();
        let before_promised = std::mem::replace(&mut self.lanes[lane].promised_extents, promised);
        self.promised_extents = self.promised_extents + promised - before_promised;
        if let Some(tenant) = self.tenants.get_mut(&self.lanes[lane].name.tenant) {
            tenant.claimed = tenant.claimed + claim - before;
        }
        let is_busy = self.lanes[lane].unended > 0;
        if is_busy && !self.lanes[lane].is_busy {
            self.begin_rates(lane);
        }
        if std::mem::replace(&mut self.lanes[lane].is_busy, is_busy) != is_busy
            && let Some(queue) = self.queues.get_mut(&self.lanes[lane].name.queue)
        {
            queue.busy = if is_busy { queue.busy + 1 } else { queue.busy - 1 };
        }
    }
}

impl Lane {
    /// A job has begun: what is kept for it.
    pub(crate) fn begin(&mut self, bytes: u64, reserved: u64) {
        self.unended += 1;
        self.bytes += bytes;
        self.reserved += reserved;
    }
    /// A job has ended.
    pub(crate) fn finish(&mut self, bytes: u64, reserved: u64) {
        self.unended = self.unended.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.reserved = if self.unended == 0 { 0 } else { self.reserved.saturating_sub(reserved) };
    }
}

#[cfg(test)]
mod tests {
    use super::promise;
    use crate::format::Draft;
    use crate::item::{Key, Unique};
    use crate::record::{ItemOrigin, ItemRecord};
    use bytes::Bytes;
    use std::time::Duration;

    #[test]
    fn a_promise_covers_the_item_that_needs_most() {
        let key = Key { hash: [1; 16], input: [2; 16], keep: Duration::MAX };
        for bytes in [0, 1, 1024, 64_000, 65_536, 1 << 20, 5 << 20] {
            let item = ItemRecord {
                sequence: u64::MAX,
                appended_at: u64::MAX / 2,
                expires_at: Some(1),
                order: Some(2),
                claimed: true,
                keys: vec![key, key],
                unique: Some(Unique { hash: [3; 16], within: Duration::MAX }),
                origin: Some(ItemOrigin { job: crate::job::JobId { lane: 1, sequence: 2 }, emission: u64::MAX }),
                content: Bytes::from(vec![0; bytes]),
            };
            assert!(Draft::item(item).disk_bytes() as u64 <= promise(1, bytes as u64).disk, "{bytes}");
        }
    }
}
