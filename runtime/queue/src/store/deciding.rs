//! What callers and operators decide: cancel, resolve, purge, dead letters and their replay.
//!
//! Each reads first what it must know (keys, content, the record so far) and then looks again under the lock whether it still holds.

use std::time::Duration;

use crate::core::find::job_record;
use crate::core::lookup::{Plan, Record};
use crate::core::{Core, Refused};
use crate::format::{Kind, decode_item};
use crate::job::{JobId, JobState, Resolution};
use crate::limits::Room;
use crate::record::{ItemRecord, JobRecord};
use crate::status::{DeadLetter, LaneName};
use crate::store::{Store, StoreError};

/// How often something is read again because it was moved meanwhile.
const READS: usize = 8;
/// Dead letters told at once, at most.
const MOST_LETTERS: usize = 10_000;

impl Store {
    /// Reads by a plan that is made again while what it names is moved, until `find` finds.
    async fn read_until<T>(
        &self,
        plan: impl Fn(&Core) -> Result<Option<Plan>, StoreError>,
        find: impl Fn(&[Record]) -> Option<T>,
    ) -> Result<T, StoreError> {
        let shared = self.shared();
        for _ in 0..READS {
            let next = plan(&shared.core())?;
            let Some(next) = next else { return Err(StoreError::NotFound) };
            let (_, records) = shared.read(next).await;
            if let Some(found) = find(&records.unwrap_or_default()) {
                return Ok(found);
            }
        }
        Err(StoreError::Damaged)
    }

    async fn item(&self, id: JobId, may: impl Fn(&Core) -> Result<usize, StoreError>) -> Result<ItemRecord, StoreError> {
        let find = |records: &[Record]| {
            let items = records.iter().filter(|record| record.kind == Kind::Item).filter_map(|record| decode_item(&record.bytes).ok());
            items.into_iter().find(|item| item.sequence == id.sequence)
        };
        self.read_until(|core| Ok(core.plan_job(may(core)?, id.sequence)), find).await
    }

    /// The item of a job that waits.
    pub(super) async fn waiting_item(&self, id: JobId) -> Result<ItemRecord, StoreError> {
        let waiting = |core: &Core| match core.standing(id)? {
            (lane, JobState::Queued) => Ok(lane),
            (_, state) => Err(StoreError::WrongState(state)),
        };
        self.item(id, waiting).await
    }

    async fn record(&self, id: JobId, may: impl Fn(&Core) -> Result<usize, StoreError>) -> Result<JobRecord, StoreError> {
        self.read_until(|core| Ok(core.plan_record(may(core)?, id.sequence)), |records| job_record(records, id.sequence)).await
    }

    /// Ends a waiting job as `cancelled`; a running or ended one is `WrongState`, and so is one that was started and never told its end.
    pub async fn cancel(&self, id: JobId) -> Result<(), StoreError> {
        let item = self.waiting_item(id).await?;
        self.shared().durably(|core| core.cancel(id, &item).map(|ticket| ((), ticket))).await
    }

    /// Ends an `unknown` job as an operator decided. `Failed` frees its keys.
    pub async fn resolve(&self, id: JobId, resolution: Resolution) -> Result<(), StoreError> {
        let Resolution { state, outcome } = resolution;
        if !matches!(state, JobState::Succeeded | JobState::Failed) {
            return Err(StoreError::WrongState(state));
        }
        let unknown = |core: &Core| match core.standing(id)? {
            (lane, JobState::Unknown) => Ok(lane),
            (_, state) => Err(StoreError::WrongState(state)),
        };
        let before = self.record(id, unknown).await?;
        self.shared().durably(|core| core.resolve(id, &before, state, outcome.clone()).map(|ticket| ((), ticket))).await
    }

    /// Ends everything that waits in a lane as `purged`, at once whatever its size: how many. Dead letters too if asked.
    /// What was started and never told its end stays.
    pub async fn purge(&self, lane: &LaneName, dead_too: bool) -> Result<u64, StoreError> {
        let shared = self.shared();
        let index = shared.core().find_lane(lane);
        let Some(index) = index else { return Ok(0) };
        // Jobs found at a start must be known: what they hold is freed.
        loop {
            let plan = shared.core().plan_unread(index);
            let Some(plan) = plan else { break };
            let (plan, records) = shared.read(plan).await;
            let records = records.unwrap_or_default();
            self.take_in(&plan, &records).await?;
        }
        let mut purged = 0;
        shared.durably(|core| core.purge(index, &mut purged).map(|ticket| ((), ticket))).await?;
        if dead_too {
            purged += self.drop_letters(lane).await?;
        }
        Ok(purged)
    }

    async fn drop_letters(&self, lane: &LaneName) -> Result<u64, StoreError> {
        let shared = self.shared();
        let (mut dropped, mut last) = (0, 0);
        for id in self.letters(lane, None, usize::MAX) {
            let Ok(before) = self.record(id, |core| core.letter(id)).await else { continue };
            let done = shared.commanded(|core| core.drop_letter(id, &before, None)).await;
            match done {
                Ok(ticket) => {
                    dropped += 1;
                    last = ticket;
                }
                // It was replayed, or its time was over.
                Err(StoreError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        shared.durable(last).await?;
        Ok(dropped)
    }

    fn letters(&self, lane: &LaneName, after: Option<JobId>, most: usize) -> Vec<JobId> {
        let core = self.shared().core();
        let Some(index) = core.find_lane(lane) else { return Vec::new() };
        let of = &core.lanes[index];
        let from = after.map_or(0, |after| after.sequence.saturating_add(1));
        let letters = of.letters.range(from..).filter(|(sequence, _)| !of.ending.contains_key(sequence));
        letters.take(most).map(|(sequence, _)| JobId { lane: of.number, sequence: *sequence }).collect()
    }

    /// Dead letters of a lane after `after`, oldest first.
    pub async fn dead(&self, lane: &LaneName, after: Option<JobId>, most: usize) -> Result<Vec<DeadLetter>, StoreError> {
        let mut found = Vec::new();
        for id in self.letters(lane, after, most.min(MOST_LETTERS)) {
            let outcome = self.outcome(id).await.unwrap_or_default();
            let core = self.shared().core();
            let letter = core.lane_of(id).and_then(|index| core.lanes[index].letters.get(&id.sequence));
            found.extend(letter.map(|letter| DeadLetter {
                job: id,
                outcome,
                age: Duration::from_millis(core.now.saturating_sub(letter.at)),
                bytes: letter.bytes,
                attempts: letter.attempts,
            }));
        }
        Ok(found)
    }

    /// Appends a dead letter's content as a new item in `room` and forgets the letter: the new job. Keys the letter holds go over to
    /// it; where another job holds one of them since, it is `WrongState`.
    pub async fn replay(&self, letter: JobId, mut room: Room) -> Result<JobId, StoreError> {
        let shared = self.shared();
        let item = self.item(letter, |core| core.letter(letter)).await?;
        let before = self.record(letter, |core| core.letter(letter)).await?;
        shared.open()?;
        let target = room.index;
        let (sequence, emission, ticket) = {
            let into = (target, &mut room.items, &mut room.bytes);
            shared.core().replay(letter, &item, into)?
        };
        let mut undo = Undo { store: self, letter, new: (target, sequence), before: &before, done: false };
        shared.wake_writer();
        shared.durable(ticket).await?;
        let new = Some((target, sequence, emission));
        let ticket = shared
            .commanded(|core: &mut Core| -> Result<u64, Refused> {
                let ticket = core.drop_letter(letter, &before, new)?;
                Ok(ticket)
            })
            .await?;
        undo.done = true;
        shared.durable(ticket).await?;
        let number = shared.core().lanes[target].number;
        Ok(JobId { lane: number, sequence })
    }
}

/// Takes a replay back that did not come true.
struct Undo<'a> {
    store: &'a Store,
    letter: JobId,
    new: (usize, u64),
    before: &'a JobRecord,
    done: bool,
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.store.shared().core().undo_replay(self.letter, self.new, self.before);
            self.store.shared().wake_writer();
        }
    }
}
