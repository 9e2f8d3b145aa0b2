//! What workers do: take, renew, start, finish, hand back.

use std::time::Duration;

use tokio::sync::Notify;

use crate::core::append::milliseconds;
use crate::core::end::Ending;
use crate::core::lookup::{Plan, Record};
use crate::core::take::{Step, Taken};
use crate::core::{Core, Refused};
use crate::item::{Lease, Leased, Take, TakeFrom};
use crate::job::{Emit, End, JobState};
use crate::record::ItemOrigin;
use crate::store::shared::{Shared, ring};
use crate::store::{Store, StoreError};

/// How often an extent that the system cannot read is tried again before its items are given up.
const READS: u32 = 3;

impl Store {
    /// Takes items of a lane for work. One item of each `order` value at a time. Items that expired meanwhile are ended here.
    pub async fn take(&self, from: TakeFrom) -> Result<Take, StoreError> {
        let shared = self.shared();
        let mut failures = 0;
        loop {
            let step = shared.commanded(|core| match core.take(&from)? {
                Step::Later => Err(Refused::Later),
                step => Ok(step),
            });
            match step.await? {
                Step::Items(taken) => return Ok(Take::Items(taken.into_iter().map(|taken| self.leased(taken)).collect())),
                Step::Nothing { waits, ready_at, ticket } => {
                    shared.durable(ticket).await?;
                    let now = shared.core().now;
                    let ready_in = ready_at.map(|at| Duration::from_millis(at.saturating_sub(now)));
                    return Ok(Take::Nothing { waits, ready_in });
                }
                Step::Read(plan) => {
                    let (plan, records) = shared.read(plan).await;
                    let records = match records {
                        Ok(records) => records,
                        Err(_) if failures + 1 < READS => {
                            failures += 1;
                            continue;
                        }
                        Err(_) => Vec::new(),
                    };
                    self.take_in(&plan, &records).await?;
                }
                Step::Later => {}
            }
        }
    }

    /// Takes in what was read of an extent; what should be there and is not is told.
    pub(super) async fn take_in(&self, plan: &Plan, records: &[Record]) -> Result<(), StoreError> {
        let untold = self.shared().commanded(|core| core.loaded(plan, records).map(|()| core.take_untold())).await?;
        for loss in untold {
            tracing::error!(loss, "store read: lost");
        }
        Ok(())
    }

    fn leased(&self, taken: Taken) -> Leased {
        Leased {
            lease: Lease { store: self.clone(), job: taken.job, token: taken.token },
            content: taken.content,
            attempt: taken.attempt,
            interrupted: taken.interrupted,
            age: Duration::from_millis(taken.age_ms),
            keys: taken.keys,
        }
    }

    /// Prolongs a lease.
    pub fn renew(&self, lease: &Lease, lease_time: Duration) -> Result<(), StoreError> {
        self.shared().open()?;
        self.shared().core().renew(lease.job, lease.token, lease_time)
    }

    /// A write is about to be sent: durable when it answers. From here on a crash leaves the item `interrupted`.
    pub async fn start(&self, lease: &Lease) -> Result<(), StoreError> {
        self.shared().durably(|core| core.start(lease.job, lease.token).map(|ticket| ((), ticket))).await
    }

    /// Hands an item back for another attempt after `pause`, proven not to have executed. `counts`: the attempt is counted.
    pub async fn release(&self, lease: Lease, pause: Duration, counts: bool) -> Result<(), StoreError> {
        let shared = self.shared();
        shared.durably(|core| core.release(lease.job, lease.token, pause, counts).map(|ticket| ((), ticket))).await?;
        let core = shared.core();
        let work = Shared::work(&core, &core.lane_of(lease.job).into_iter().collect::<Vec<_>>());
        drop(core);
        work.iter().for_each(|notify: &std::sync::Arc<Notify>| ring(notify));
        Ok(())
    }

    /// Ends an item; durable when it answers.
    pub async fn finish(&self, lease: Lease, end: End) -> Result<(), StoreError> {
        let shared = self.shared();
        let End { state, outcome, keep, frees_keys, emits, note } = end;
        if !state.is_end() || matches!(state, JobState::Purged | JobState::Shed) {
            return Err(StoreError::WrongState(state));
        }
        let emission = if emits.is_empty() { 0 } else { lease.token };
        // Voids what was emitted if the end does not come true, whatever the reason.
        let mut emitted = Emitted { store: self, items: Vec::new() };
        if !emits.is_empty() {
            self.emit(&lease, emission, emits, &mut emitted.items).await?;
        }
        let letter = state == JobState::Dead;
        let ending = Ending { state, outcome, keep_ms: milliseconds(keep), frees_keys, emission, void: false, letter, note };
        let items = &mut emitted.items;
        let finishing = shared.commanded(|core: &mut Core| {
            core.leased(lease.job, lease.token)?;
            core.may_note(lease.job, ending.note.as_ref())?;
            let ticket = core.finish(lease.job, lease.token, &ending, items)?;
            items.clear();
            Ok(ticket)
        });
        let ticket = finishing.await?;
        shared.durable(ticket).await
    }

    /// Writes what a job hands on, hidden, and waits until it is durable.
    async fn emit(&self, lease: &Lease, emission: u64, emits: Vec<Emit>, emitted: &mut Vec<(usize, u64)>) -> Result<(), StoreError> {
        let shared = self.shared();
        let mut last = 0;
        for mut emit in emits {
            let origin = ItemOrigin { job: lease.job, emission };
            let mut core = shared.core();
            shared.open()?;
            core.leased(lease.job, lease.token)?;
            let room = &mut emit.room;
            let item_bytes = room.limits.item_bytes;
            let into = (room.index, &mut room.items, &mut room.bytes);
            last = core.emit(origin, into, item_bytes, emit.items, emitted)?;
            drop(core);
        }
        shared.wake_writer();
        shared.durable(last).await
    }
}

/// Items that are hidden until their origin's end is in a batch.
struct Emitted<'a> {
    store: &'a Store,
    items: Vec<(usize, u64)>,
}

impl Drop for Emitted<'_> {
    fn drop(&mut self) {
        if !self.items.is_empty() {
            let items = std::mem::take(&mut self.items);
            self.store.shared().core().void(items);
            self.store.shared().wake_writer();
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let shared = self.store.shared();
        let work = {
            let mut core = shared.core();
            core.lose(self.job, self.token).map(|lane| Shared::work(&core, &[lane]))
        };
        work.into_iter().flatten().for_each(|notify| ring(&notify));
    }
}
