//! Shedding: the oldest waiting jobs of a lane end to make room for new ones of the same lane.
//!
//! Room is given out beyond a limit where as much waits in the lane as it is beyond; before the append, that much is shed. Of a lane
//! that holds its part of a shared queue no more is shed than comes: it does not grow.

use crate::core::end::Ending;
use crate::core::lane::{Phase, Traits};
use crate::core::{Core, Refused, Ticket};
use crate::job::{JobId, JobState};
use crate::limits::QueueLimits;
use crate::record::ItemRecord;
use crate::store::StoreError;

impl Core {
    /// By how many items and bytes the limits are passed with all the room that was given out. `comes`: what the room is for, without
    /// what was shed for it.
    pub(crate) fn beyond(&self, lane: usize, comes: (u64, u64), room: (u64, u64), limits: &QueueLimits) -> (u64, u64) {
        let of = &self.lanes[lane];
        let (queue, tenant) = (&self.queues[&of.name.queue], &self.tenants[&of.name.tenant]);
        let items = queue.items.saturating_sub(limits.queue_items).max(tenant.items.saturating_sub(limits.tenant_items));
        let bytes = queue.bytes.saturating_sub(limits.queue_bytes).max(tenant.bytes.saturating_sub(limits.tenant_bytes));
        let most = self.lane_most(lane, room, limits);
        let own_items = (of.unended + of.promised.items).saturating_sub(most.0).min(comes.0);
        let own_bytes = (of.bytes + of.promised.bytes).saturating_sub(most.1).min(comes.1);
        (items.max(own_items), bytes.max(own_bytes))
    }

    /// Whether as much could be shed.
    pub(crate) fn could_shed(&self, lane: usize, items: u64, bytes: u64) -> bool {
        let of = &self.lanes[lane];
        let busy = of.jobs.values().filter(|entry| !matches!(entry.phase, Phase::Aside { .. }) || entry.interrupted);
        // What was found at a start and not read yet may be any of what the lane holds.
        let is_known = busy.clone().all(|entry| entry.traits.is_some());
        let busy_bytes: u64 = busy.clone().filter_map(|entry| entry.traits.as_ref()).map(|traits| traits.bytes).sum();
        let (waiting, waiting_bytes) = (of.unended.saturating_sub(busy.count() as u64), of.bytes.saturating_sub(busy_bytes));
        of.suspect_below == 0 && waiting >= items && (bytes == 0 || is_known && waiting_bytes >= bytes)
    }

    /// The oldest waiting jobs, at most so many.
    pub(crate) fn oldest_waiting(&self, lane: usize, most: usize) -> Vec<JobId> {
        let of = &self.lanes[lane];
        let aside = of.jobs.iter().filter(|(_, entry)| matches!(entry.phase, Phase::Aside { .. }) && !entry.interrupted);
        let mut oldest: Vec<u64> = aside.map(|(sequence, _)| *sequence).take(most).collect();
        let mut next = of.items.next(of.suspect_below);
        let enough = oldest.len() + most;
        while let Some(sequence) = next.filter(|sequence| *sequence < of.durable_next && oldest.len() < enough) {
            if !of.jobs.contains_key(&sequence) && !of.letters.contains_key(&sequence) {
                oldest.push(sequence);
            }
            next = of.items.next(sequence + 1);
        }
        oldest.sort_unstable();
        oldest.truncate(most);
        oldest.into_iter().map(|sequence| JobId { lane: of.number, sequence }).collect()
    }

    /// Ends a waiting job whose item was read as shed.
    pub(crate) fn shed(&mut self, id: JobId, item: &ItemRecord) -> Result<Ticket, Refused> {
        let (lane, state) = self.standing(id)?;
        let interrupted = self.lanes[lane].jobs.get(&id.sequence).is_some_and(|entry| entry.interrupted);
        if state != JobState::Queued || interrupted || self.lanes[lane].ending.contains_key(&id.sequence) {
            return Err(StoreError::WrongState(state).into());
        }
        self.end(lane, id.sequence, &Traits::of(item), Ending::unexecuted(JobState::Shed))?;
        Ok(self.gathering.number)
    }
}
