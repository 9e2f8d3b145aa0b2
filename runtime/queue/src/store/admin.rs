//! What operators and callers ask: jobs, lanes, dead letters, notes, status.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;

use crate::core::damage::{LOST, told};
use crate::core::find::outcome;
use crate::core::lane::Lane;
use crate::format::EXTENT_BYTES;
use crate::item::Hash;
use crate::job::{Job, JobId, JobState};
use crate::status::{LaneName, LaneStatus, StoreStatus};
use crate::store::{Store, StoreError};

impl Store {
    /// The result or problem object of a job that ended. `None`: it had none, or it was pushed out.
    pub async fn outcome(&self, id: JobId) -> Result<Option<Bytes>, StoreError> {
        let shared = self.shared();
        // Cleaning may have moved it between looking and reading.
        for _ in 0..8 {
            let (plan, lost) = {
                let core = shared.core();
                (core.plan_outcome(id), core.is_lost(id))
            };
            let Some(plan) = plan else { return Ok(lost.then(|| told(id, JobState::Dead, LOST))) };
            let (plan, records) = shared.read(plan).await;
            if let Ok(records) = records
                && let Some(found) = outcome(&records, id.sequence)
            {
                return Ok(Some(found));
            }
            if shared.core().still_has(&plan) {
                return Err(StoreError::Damaged);
            }
        }
        Err(StoreError::Damaged)
    }

    /// Answers when the job has ended (at once if it has). Bounded by the caller's own deadline.
    pub async fn ended(&self, id: JobId) -> Result<Job, StoreError> {
        let shared = self.shared();
        loop {
            let notify = shared.wait_for(id).ok_or(StoreError::Full(crate::limits::Full {
                which: crate::limits::WhichLimit::NotServing,
                limit: 0,
                used: 0,
                own_share: false,
                retry_after: None,
            }))?;
            let told = notify.notified();
            let mut told = std::pin::pin!(told);
            told.as_mut().enable();
            let job = self.job(id).ok_or(StoreError::NotFound)?;
            if job.state.is_end() && shared.core().is_durable_end(id) {
                return Ok(job);
            }
            if let Some(over) = shared.progress.borrow().over.clone() {
                return Err(over);
            }
            told.await;
        }
    }

    /// Stops or resumes dispatch of a lane. Kept in memory only: whoever asks keeps it across restarts.
    pub fn pause(&self, lane: &LaneName, paused: bool) {
        {
            let mut core = self.shared().core();
            let index = core.lane_index(lane);
            core.lanes[index].paused = paused;
        }
        if !paused {
            self.ring(&lane.queue);
        }
    }
    /// How many dead letters each lane of a queue may hold: a lane that has as many is not served.
    pub fn set_dead_letters(&self, queue: &str, most: u64, keep: Duration) {
        let mut core = self.shared().core();
        let queue = core.queue(&Arc::from(queue));
        (queue.letters_most, queue.letters_keep) = (most, u64::try_from(keep.as_millis()).unwrap_or(u64::MAX));
    }

    /// The last note kept under a name in a lane.
    pub async fn note(&self, lane: &LaneName, name: &Hash) -> Result<Option<Bytes>, StoreError> {
        let core = self.shared().core();
        let lane = core.find_lane(lane).map(|index| &core.lanes[index]);
        Ok(lane.and_then(|lane| lane.notes.get(name)).map(|note| note.content.clone()))
    }

    /// The store's numbers.
    pub fn status(&self) -> StoreStatus {
        let shared = self.shared();
        let sync_times = *shared.sync_times.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let core = shared.core();
        StoreStatus {
            health: core.health.clone(),
            disk_limit: shared.files.disk_limit(),
            disk_used: core.extents.held() * EXTENT_BYTES as u64,
            extents_total: core.extents.total(),
            extents_free: core.extents.free(),
            extents_quarantined: core.extents.quarantined(),
            batches: core.counters.batches,
            syncs: core.counters.syncs,
            appended: core.counters.appended,
            ended: core.counters.ended,
            moved: core.counters.moved,
            keys: (core.keys.len() + core.uniques.len()) as u64,
            volume_free: shared.volume_free.load(Ordering::Relaxed),
            sync_times,
            recovered: core.recovered.clone(),
        }
    }
    /// How many findings of lost work there are: see [`crate::Recovered::losses`].
    pub fn losses(&self) -> usize {
        self.shared().core().recovered.losses.len()
    }
    /// Tenants that have a lane in a queue, and how many items wait in each. Costs little: asked for whenever there may be work.
    pub fn waiting(&self, queue: &str) -> Vec<(Arc<str>, u64)> {
        let core = self.shared().core();
        let lanes = core.queues.get(queue).map(|queue| queue.lanes.iter().map(|index| &core.lanes[*index]));
        lanes.into_iter().flatten().map(|lane| (lane.name.tenant.clone(), lane.waiting())).collect()
    }
    /// Lanes in name order, of one queue or of all.
    pub fn lanes(&self, queue: Option<&str>) -> Vec<LaneStatus> {
        let mut core = self.shared().core();
        for index in 0..core.lanes.len() {
            let (waits, _) = core.waits(index);
            let now = core.now;
            core.lanes[index].change_waits(waits, now);
        }
        let wanted = |lane: &&Lane| queue.is_none_or(|queue| *lane.name.queue == *queue);
        let mut lanes: Vec<LaneStatus> = core.lanes.iter().filter(wanted).map(|lane| lane.status(core.now)).collect();
        lanes.sort_by(|one, other| one.name.cmp(&other.name));
        lanes
    }
}
