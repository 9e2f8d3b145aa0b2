//! What callers and operators decide about single jobs: cancel, resolve, replay.

use bytes::Bytes;

use crate::core::append::{How, Outcome};
use crate::core::end::Ending;
use crate::core::keys::Holder;
use crate::core::lane::{Traits, Until};
use crate::core::write::Purpose;
use crate::core::{Core, Refused, STATE_KEEP_MS, Ticket};
use crate::item::NewItem;
use crate::job::{JobId, JobState};
use crate::record::{ItemOrigin, ItemRecord, JobRecord};
use crate::store::StoreError;

impl Core {
    /// The lane and state of a job.
    pub(crate) fn standing(&self, id: JobId) -> Result<(usize, JobState), StoreError> {
        self.check()?;
        let job = self.job(id).ok_or(StoreError::NotFound)?;
        Ok((self.lane_of(id).ok_or(StoreError::NotFound)?, job.state))
    }

    /// Cancels a waiting job whose item was read.
    pub(crate) fn cancel(&mut self, id: JobId, item: &ItemRecord) -> Result<Ticket, Refused> {
        let (lane, state) = self.standing(id)?;
        if state != JobState::Queued || self.lanes[lane].ending.contains_key(&id.sequence) {
            return Err(StoreError::WrongState(state).into());
        }
        // Started and never told its end: what it did is not known, so it cannot be undone by saying so.
        let entry = self.lanes[lane].jobs.get(&id.sequence);
        if entry.is_some_and(|entry| entry.interrupted) || id.sequence < self.lanes[lane].suspect_below {
            return Err(StoreError::WrongState(JobState::Running).into());
        }
        self.end(lane, id.sequence, &Traits::of(item), Ending::unexecuted(JobState::Cancelled))?;
        Ok(self.gathering.number)
    }

    /// Ends an unknown job as decided; `before` is its record as read. A failure frees its keys: whoever decided it says that
    /// nothing was done, or that it may be done again.
    pub(crate) fn resolve(&mut self, id: JobId, before: &JobRecord, state: JobState, outcome: Option<Bytes>) -> Result<Ticket, Refused> {
        let (lane, standing) = self.standing(id)?;
        if standing != JobState::Unknown || self.lanes[lane].ending.contains_key(&id.sequence) {
            return Err(StoreError::WrongState(standing).into());
        }
        let frees = state != JobState::Succeeded;
        let record = JobRecord {
            state,
            interrupted: false,
            note: None,
            at: self.now,
            until: before.until.max(self.now.saturating_add(STATE_KEEP_MS)),
            outcome,
            outcome_gone: false,
            keys: if frees { Vec::new() } else { before.keys.clone() },
            unique: before.unique.filter(|_| !frees),
            ..before.clone()
        };
        self.write_job(lane, record, Purpose::Record)?;
        if frees {
            let keys = before.keys.iter().map(|key| key.hash);
            self.free_keys(lane, id.sequence, keys, before.unique.map(|(hash, _)| hash));
        }
        self.lanes[lane].ending.insert(id.sequence, Until { state: JobState::Unknown, attempts: before.attempts, bytes: 0 });
        self.lanes[lane].pending.ended.push(id.sequence);
        self.settle(lane);
        Ok(self.gathering.number)
    }

    /// Appends a letter's item again, hidden until the letter is gone. Keys that the letter holds go over to the new item.
    pub(crate) fn replay(
        &mut self,
        letter: JobId,
        item: &ItemRecord,
        room: (usize, &mut u64, &mut u64),
    ) -> Result<(u64, u64, Ticket), StoreError> {
        let lane = self.letter(letter)?;
        if !self.lanes[lane].replaying.insert(letter.sequence) {
            return Err(StoreError::WrongState(JobState::Queued));
        }
        let (target, items, bytes) = room;
        let emission = self.token();
        let from = Holder { lane: u32::try_from(lane).unwrap_or(u32::MAX), sequence: letter.sequence };
        let new = NewItem {
            content: item.content.clone(),
            keys: item.keys.clone(),
            unique: item.unique,
            order: item.order,
            expires_in: item.expires_at.map(|at| std::time::Duration::from_millis(at.saturating_sub(item.appended_at))),
            claimed: false,
        };
        let origin = Some(ItemOrigin { job: letter, emission });
        let how = How { lane: target, lease: std::time::Duration::ZERO, origin, from: Some(from) };
        let appended = self.append(how, (items, bytes), u64::MAX, vec![new]);
        match appended.map(|(mut outcomes, ticket)| (outcomes.pop(), ticket)) {
            Ok((Some(Outcome::New { sequence, .. }), ticket)) => Ok((sequence, emission, ticket)),
            Ok(_) => {
                // Its key is held by another job since: it would be done twice.
                self.lanes[lane].replaying.remove(&letter.sequence);
                Err(StoreError::WrongState(JobState::Dead))
            }
            Err(error) => {
                self.lanes[lane].replaying.remove(&letter.sequence);
                Err(error)
            }
        }
    }

    /// The lane of a dead letter.
    pub(crate) fn letter(&self, id: JobId) -> Result<usize, StoreError> {
        self.check()?;
        let lane = self.lane_of(id).ok_or(StoreError::NotFound)?;
        if self.lanes[lane].letters.contains_key(&id.sequence) { Ok(lane) } else { Err(StoreError::NotFound) }
    }

    /// A letter is forgotten; its job stays dead. `before` is its record as read. `replayed`: the new item, and its emission.
    pub(crate) fn drop_letter(&mut self, id: JobId, before: &JobRecord, replayed: Option<(usize, u64, u64)>) -> Result<Ticket, Refused> {
        let lane = self.letter(id)?;
        let replayed_as = replayed.map(|(target, sequence, _)| self.id(target, sequence));
        let record = JobRecord {
            letter: false,
            note: None,
            replayed_as,
            until: before.until.max(self.now.saturating_add(STATE_KEEP_MS)),
            emission: replayed.map_or(before.emission, |(_, _, emission)| emission),
            keys: if replayed.is_some() { Vec::new() } else { before.keys.clone() },
            unique: before.unique.filter(|_| replayed.is_none()),
            ..before.clone()
        };
        self.write_job(lane, record, Purpose::Record)?;
        if let Some(letter) = self.lanes[lane].letters.remove(&id.sequence) {
            self.drop_content(lane, id.sequence, letter.bytes, letter.kept);
        }
        self.lanes[lane].replaying.remove(&id.sequence);
        self.lanes[lane].pending.replayed.extend(replayed_as.map(|new| (id.sequence, new)));
        self.lanes[lane].pending.work = true;
        if let Some((target, sequence, _)) = replayed {
            self.lanes[target].pending.revealed.push(sequence);
            self.lanes[target].pending.work = true;
            self.touch(target);
        }
        self.settle(lane);
        Ok(self.gathering.number)
    }

    /// A replay did not come true: the letter holds its keys again.
    pub(crate) fn undo_replay(&mut self, letter: JobId, new: (usize, u64), before: &JobRecord) {
        let Some(lane) = self.lane_of(letter) else { return };
        self.lanes[lane].replaying.remove(&letter.sequence);
        self.void(vec![new]);
        let holder = Holder { lane: u32::try_from(lane).unwrap_or(u32::MAX), sequence: letter.sequence };
        for key in &before.keys {
            self.keys.hold(key.hash, &key.input, holder, Some(key.until));
        }
        if let Some((hash, until)) = before.unique {
            self.uniques.hold(hash, &[0; 16], holder, Some(until));
        }
    }

    /// Letters whose time is over are forgotten; so says their record already.
    pub(crate) fn drop_old_letters(&mut self, lane: usize) {
        let now = self.now;
        let of = &self.lanes[lane];
        let old: Vec<u64> = of.letters.iter().filter(|(_, letter)| letter.until <= now).map(|(sequence, _)| *sequence).collect();
        for sequence in old {
            if self.lanes[lane].replaying.contains(&sequence) {
                continue;
            }
            if let Some(letter) = self.lanes[lane].letters.remove(&sequence) {
                self.drop_content(lane, sequence, letter.bytes, letter.kept);
                self.lanes[lane].pending.work = true;
            }
        }
    }
}
