//! The store by hand, on a simulated disk.

mod basics;
mod limits;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;

use crate::clock::Clock;
use crate::disk::simulated::SimulatedDisk;
use crate::item::{Appended, Appending, Leased, NewItem, Take, TakeFrom};
use crate::job::{End, JobId, JobState};
use crate::limits::{Full, Need, QueueLimits, Room};
use crate::status::LaneName;
use crate::store::testing::ByHand;
use crate::store::{StoreError, StoreOptions};

/// Steps any call may need.
const STEPS: usize = 200;
const MIB: u64 = 1 << 20;

#[derive(Debug, Default)]
struct HandClock {
    monotonic: AtomicU64,
    wall: AtomicU64,
}

impl Clock for HandClock {
    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.monotonic.load(Ordering::Relaxed))
    }
    fn wall_milliseconds(&self) -> u64 {
        self.wall.load(Ordering::Relaxed)
    }
}

const UNLIMITED: QueueLimits = QueueLimits {
    queue_items: u64::MAX,
    queue_bytes: u64::MAX,
    tenant_items: u64::MAX,
    tenant_bytes: u64::MAX,
    tenant_disk: u64::MAX,
    shared: false,
    item_bytes: u64::MAX,
    outcome_bytes: u64::MAX,
};

fn lane(tenant: &str) -> LaneName {
    LaneName { queue: "bookings".into(), tenant: tenant.into() }
}

fn item(content: impl Into<Vec<u8>>) -> NewItem {
    NewItem { content: Bytes::from(content.into()), ..NewItem::default() }
}

fn end(state: JobState) -> End {
    End { state, outcome: None, keep: Duration::from_secs(3600), frees_keys: false, emits: Vec::new(), note: None }
}

/// A store on a simulated disk, its clock, and what it was opened with.
struct Rig {
    disk: SimulatedDisk,
    clock: Arc<HandClock>,
    limit: u64,
    hand: ByHand,
}

impl Rig {
    fn new(limit: u64) -> Rig {
        let clock = Arc::new(HandClock::default());
        clock.wall.store(1_700_000_000_000, Ordering::Relaxed);
        Rig::on(SimulatedDisk::new(7), clock, limit)
    }
    fn on(disk: SimulatedDisk, clock: Arc<HandClock>, limit: u64) -> Rig {
        let options = StoreOptions { disk: Arc::new(disk.clone()), clock: clock.clone(), disk_limit: limit, disk_reserve: 0 };
        let hand = ByHand::open(options).expect("the store opens");
        Rig { disk, clock, limit, hand }
    }
    /// Stops without a word and starts again on what the disk kept.
    fn crash(self) -> Rig {
        let disk = self.disk.crash();
        drop(self.hand);
        Rig::on(disk, self.clock, self.limit)
    }
    fn pass(&self, time: Duration) {
        let milliseconds = u64::try_from(time.as_millis()).expect("a short time");
        self.clock.monotonic.fetch_add(milliseconds, Ordering::Relaxed);
        self.clock.wall.fetch_add(milliseconds, Ordering::Relaxed);
        self.hand.settle(STEPS);
    }
    fn run<F: Future>(&self, call: F) -> F::Output {
        self.hand.run(STEPS, call).expect("it answers")
    }
    fn room(&self, tenant: &str, items: u64, bytes: u64) -> Result<Room, Full> {
        self.hand.store().reserve(&lane(tenant), Need { items, bytes, shed_oldest: false }, &UNLIMITED)
    }
    fn append(&self, tenant: &str, items: Vec<NewItem>) -> Result<Vec<Appended>, StoreError> {
        let bytes = items.iter().map(|item| item.content.len() as u64).sum();
        let room = self.room(tenant, items.len() as u64, bytes).map_err(StoreError::Full)?;
        self.run(self.hand.store().append(Appending { room, items }))
    }
    fn append_one(&self, tenant: &str, item: NewItem) -> JobId {
        match self.append(tenant, vec![item]).expect("there is room").pop() {
            Some(Appended::New { job, .. }) => job,
            other => panic!("not new: {other:?}"),
        }
    }
    fn take(&self, tenant: &str, most: usize) -> Vec<Leased> {
        let from = TakeFrom { lane: lane(tenant), most, lease: Duration::from_secs(30) };
        match self.run(self.hand.store().take(from)).expect("it can be asked") {
            Take::Items(items) => items,
            Take::Nothing { .. } => Vec::new(),
        }
    }
    fn finish(&self, leased: Leased, state: JobState) {
        self.run(self.hand.store().finish(leased.lease, end(state))).expect("the lease is held");
    }
    fn state(&self, job: JobId) -> Option<JobState> {
        self.hand.store().job(job).map(|job| job.state)
    }
}
