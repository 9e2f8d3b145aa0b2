//! A store of the bench: opened in this process, without limits but its own size, filled with items that no compressor shrinks.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use futures_util::future::join_all;
use spillgate_queue::clock::MachineClock;
use spillgate_queue::disk::RealDisk;
use spillgate_queue::{
    Appended, Appending, End, Full, JobState, LaneName, Lease, Leased, Need, NewItem, QueueLimits, Store, StoreOptions, Take, TakeFrom,
};
use tokio::runtime::Runtime;

/// Content bytes of an item, where nothing else is said.
pub(super) const ITEM_BYTES: usize = 1024;
/// Longer than any part runs.
const LEASE: Duration = Duration::from_secs(600);
/// About so much goes into one batch while a pile is made.
const FILL_BATCH_BYTES: usize = 8 << 20;

const NO_LIMITS: QueueLimits = QueueLimits {
    queue_items: u64::MAX,
    queue_bytes: u64::MAX,
    tenant_items: u64::MAX,
    tenant_bytes: u64::MAX,
    tenant_disk: u64::MAX,
    shared: false,
    item_bytes: u64::MAX,
    outcome_bytes: 0,
};

/// A store and the runtime that its callers run on.
pub(super) struct Pile {
    pub(super) store: Store,
    pub(super) runtime: Runtime,
}

impl Pile {
    /// Opens or makes it.
    pub(super) fn open(folder: &Path, disk_limit: u64) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        Ok(Pile { store: Store::open(options(folder, disk_limit)?)?, runtime })
    }
    /// Appends so many items, spread evenly over the lanes, a few MiB a batch.
    pub(super) fn fill(&self, lanes: &[LaneName], items: u64, content: &Bytes) -> Result<()> {
        let in_a_batch = (FILL_BATCH_BYTES / content.len() / lanes.len()).max(1) as u64;
        let each = items / lanes.len() as u64;
        let mut done = 0;
        while done < each {
            let now = in_a_batch.min(each - done);
            let appends = lanes.iter().map(|lane| append(&self.store, lane, now, content));
            self.runtime.block_on(join_all(appends)).into_iter().collect::<Result<()>>()?;
            done += now;
        }
        Ok(())
    }
}

impl Drop for Pile {
    fn drop(&mut self) {
        self.store.close();
    }
}

/// On the machine's own disk and clock.
pub(super) fn options(folder: &Path, disk_limit: u64) -> Result<StoreOptions> {
    let (disk, clock) = (Arc::new(RealDisk::open(folder)?), Arc::new(MachineClock::default()));
    Ok(StoreOptions { disk, clock, disk_limit, disk_reserve: 0 })
}

/// Lanes of one queue.
pub(super) fn lanes(count: usize) -> Vec<LaneName> {
    (0..count).map(|number| LaneName { queue: "pile".into(), tenant: format!("tenant-{number:04}").into() }).collect()
}

/// Bytes without any pattern, the same at each start.
pub(super) fn noise(bytes: usize) -> Bytes {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut noise = Vec::with_capacity(bytes + 8);
    while noise.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        noise.extend_from_slice(&state.to_le_bytes());
    }
    noise.truncate(bytes);
    noise.into()
}

/// Appends so many items with this content; they are durable when it answers.
pub(super) async fn append(store: &Store, lane: &LaneName, items: u64, content: &Bytes) -> Result<()> {
    match try_append(store, lane, items, content).await? {
        Ok(()) => Ok(()),
        Err(full) => bail!("no room: {full:?}"),
    }
}

/// The same, where a refusal for want of room is an answer too.
pub(super) async fn try_append(store: &Store, lane: &LaneName, items: u64, content: &Bytes) -> Result<Result<(), Full>> {
    let need = Need { items, bytes: items * content.len() as u64, shed_oldest: false };
    let room = match store.reserve(lane, need, &NO_LIMITS) {
        Ok(room) => room,
        Err(full) => return Ok(Err(full)),
    };
    let items: Vec<_> = (0..items).map(|_| NewItem { content: content.clone(), ..NewItem::default() }).collect();
    let wanted = items.len();
    let appended = store.append(Appending { room, items }).await?;
    ensure!(appended.len() == wanted && appended.iter().all(|one| matches!(one, Appended::New { .. })), "not appended: {appended:?}");
    Ok(Ok(()))
}

/// Takes so many items, or as many as are handed out now. One call may hand out fewer than it is asked for.
pub(super) async fn take(store: &Store, lane: &LaneName, most: usize) -> Result<Vec<Leased>> {
    let mut taken = Vec::with_capacity(most);
    while taken.len() < most {
        match store.take(TakeFrom { lane: lane.clone(), most: most - taken.len(), lease: LEASE }).await? {
            Take::Items(items) => taken.extend(items),
            Take::Nothing { .. } => break,
        }
    }
    Ok(taken)
}

/// Ends an item well; its state is kept so long.
pub(super) async fn finish(store: &Store, lease: Lease, keep: Duration) -> Result<()> {
    let end = End { state: JobState::Succeeded, outcome: None, keep, frees_keys: false, emits: Vec::new(), note: None };
    store.finish(lease, end).await.context("an item would not end")
}

/// A size that holds so many items: record, footer entry and the room for its end come to some 126 bytes beside the content.
pub(super) fn room_for(items: u64, item_bytes: usize, lanes: usize) -> u64 {
    let bytes = items * (item_bytes as u64 + 128) + lanes as u64 * (256 << 10);
    bytes.next_multiple_of(1 << 20) + (32 << 20)
}
