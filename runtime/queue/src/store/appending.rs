//! Appending items.

use std::time::Duration;

use crate::core::append::{How, Outcome};
use crate::item::{Appended, Appending, Lease};
use crate::job::JobId;
use crate::limits::{Full, Room, WhichLimit};
use crate::store::shared::STAGED_KIB;
use crate::store::{Store, StoreError};

/// Lease of an item that its caller works on from the start, until it is renewed.
const CLAIM: Duration = Duration::from_secs(60);

/// Jobs that are shed before looking again.
const SHED_AT_ONCE: usize = 64;

impl Store {
    /// Appends items to the room's lane, in order, all in one batch; answers when they are durable. What it appended stays
    /// appended when the caller goes away.
    pub async fn append(&self, appending: Appending) -> Result<Vec<Appended>, StoreError> {
        let Appending { mut room, items } = appending;
        let shared = self.shared();
        let kib = items.iter().map(|item| item.content.len() / 1024 + 1).sum::<usize>();
        let kib = u32::try_from(kib).unwrap_or(u32::MAX).min(STAGED_KIB);
        let staged = shared.staged.acquire_many(kib).await.map_err(|_| StoreError::Closing)?;
        shared.open()?;
        self.shed(&room).await?;
        let (lane, item_bytes) = (room.index, room.limits.item_bytes);
        let (outcomes, ticket, number) = {
            let mut core = shared.core();
            let how = How { lane, lease: CLAIM, origin: None, from: None };
            let (outcomes, ticket) = core.append(how, (&mut room.items, &mut room.bytes), item_bytes, items)?;
            (outcomes, ticket, core.lanes[lane].number)
        };
        shared.wake_writer();
        // Leases exist before the wait: whoever goes away hands the item back.
        let claimed: Vec<Option<Lease>> = outcomes.iter().map(|outcome| self.claimed(number, outcome)).collect();
        shared.durable(ticket).await?;
        drop(staged);
        let core = shared.core();
        let appended = outcomes.into_iter().zip(claimed).map(|(outcome, lease)| match outcome {
            Outcome::New { sequence, .. } => Appended::New { job: JobId { lane: number, sequence }, lease },
            Outcome::Held { by, same_input } => {
                let job = core.id(by.lane as usize, by.sequence);
                if same_input { Appended::Repeat { job } } else { Appended::KeyReused { job } }
            }
            Outcome::Taken { by } => {
                let tenant = core.lanes[by.lane as usize].name.tenant.clone();
                Appended::UniqueTaken { job: core.id(by.lane as usize, by.sequence), tenant }
            }
        });
        Ok(appended.collect())
    }

    /// Ends the lane's oldest waiting jobs as far as the room goes beyond a limit.
    async fn shed(&self, room: &Room) -> Result<(), StoreError> {
        let shared = self.shared();
        let mut comes = (room.items, room.bytes);
        loop {
            let oldest = {
                let core = shared.core();
                let beyond = core.beyond(room.index, comes, (room.items, room.bytes), &room.limits);
                if !room.shed_oldest || beyond == (0, 0) {
                    return Ok(());
                }
                core.oldest_waiting(room.index, usize::try_from(beyond.0).unwrap_or(SHED_AT_ONCE).clamp(1, SHED_AT_ONCE))
            };
            if oldest.is_empty() {
                // Workers were faster: what was waiting is at work now.
                return Err(StoreError::Full(Full {
                    which: WhichLimit::QueueItems,
                    limit: room.limits.queue_items,
                    used: 0,
                    own_share: true,
                    retry_after: None,
                }));
            }
            let (mut shed, mut last) = (0, 0);
            for id in oldest {
                let Ok(item) = self.waiting_item(id).await else { continue };
                comes = (comes.0.saturating_sub(1), comes.1.saturating_sub(item.content.len() as u64));
                match shared.commanded(|core| core.shed(id, &item)).await {
                    Ok(ticket) => (shed, last) = (shed + 1, ticket),
                    Err(StoreError::WrongState(_) | StoreError::NotFound) => shed += 1,
                    Err(error) => return Err(error),
                }
            }
            if shed == 0 {
                return Err(StoreError::Damaged);
            }
            // They count until their end is durable.
            shared.durable(last).await?;
        }
    }

    fn claimed(&self, number: u64, outcome: &Outcome) -> Option<Lease> {
        let Outcome::New { sequence, token } = outcome else { return None };
        let job = JobId { lane: number, sequence: *sequence };
        token.map(|token| Lease { store: self.clone(), job, token })
    }
}
