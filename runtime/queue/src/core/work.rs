//! What a worker does with a lease: start, renew, hand back, end, lose.
//!
//! at work -> started (durable) -> ended | handed back
//! at work, lease lost or dropped -> waiting again; if started, interrupted
//!
//! A lease is a job and a token. A token that is not the job's present one has no effect.

use std::time::Duration;

use crate::core::append::milliseconds;
use crate::core::end::Ending;
use crate::core::lane::{JobEntry, Phase};
use crate::core::write::Purpose;
use crate::core::{Core, Refused, Ticket};
use crate::job::{JobId, JobState};
use crate::record::JobRecord;
use crate::store::StoreError;

impl Core {
    /// The lane of a job that is at work under this token.
    pub(crate) fn leased(&self, job: JobId, token: u64) -> Result<usize, StoreError> {
        let lane = self.lane_of(job).ok_or(StoreError::LeaseLost)?;
        let entry = self.lanes[lane].jobs.get(&job.sequence).ok_or(StoreError::LeaseLost)?;
        match entry.phase {
            Phase::AtWork { token: held, .. } if held == token => Ok(lane),
            _ => Err(StoreError::LeaseLost),
        }
    }

    fn entry(&mut self, lane: usize, sequence: u64) -> Result<&mut JobEntry, StoreError> {
        self.lanes[lane].jobs.get_mut(&sequence).ok_or(StoreError::LeaseLost)
    }

    /// A job at work waits again.
    fn put_aside(&mut self, lane: usize, sequence: u64, not_before: u64) {
        if let Some(mut entry) = self.lanes[lane].leave(sequence) {
            entry.phase = Phase::Aside { not_before };
            self.lanes[lane].enter(sequence, entry);
        }
    }

    /// Prolongs a lease.
    pub(crate) fn renew(&mut self, job: JobId, token: u64, lease: Duration) -> Result<(), StoreError> {
        self.check()?;
        let lane = self.leased(job, token)?;
        let until = self.now.saturating_add(milliseconds(lease));
        let of = &mut self.lanes[lane];
        if let Some(mut entry) = of.leave(job.sequence) {
            entry.phase = Phase::AtWork { token, until };
            of.enter(job.sequence, entry);
        }
        Ok(())
    }

    fn record_of(&self, lane: usize, sequence: u64, state: JobState) -> JobRecord {
        let entry = self.lanes[lane].jobs.get(&sequence);
        JobRecord {
            sequence,
            state,
            void: false,
            interrupted: entry.is_some_and(|entry| entry.interrupted),
            letter: false,
            outcome_gone: false,
            attempts: entry.map_or(0, |entry| entry.attempts),
            at: self.now,
            until: self.now,
            emission: 0,
            keys: Vec::new(),
            unique: None,
            outcome: None,
            note: None,
            replayed_as: None,
        }
    }

    /// A write is about to be sent.
    pub(crate) fn start(&mut self, job: JobId, token: u64) -> Result<Ticket, Refused> {
        self.check()?;
        let lane = self.leased(job, token)?;
        let record = self.record_of(lane, job.sequence, JobState::Running);
        self.write_job(lane, record, Purpose::Record)?;
        let entry = self.entry(lane, job.sequence)?;
        (entry.started, entry.recorded) = (true, true);
        self.settle(lane);
        Ok(self.gathering.number)
    }

    /// Hands a job back, proven not to have executed. Where nothing on disk says otherwise, nothing need be written.
    pub(crate) fn release(&mut self, job: JobId, token: u64, pause: Duration, counts: bool) -> Result<Ticket, Refused> {
        self.check()?;
        let lane = self.leased(job, token)?;
        let not_before = self.now.saturating_add(milliseconds(pause));
        let mut record = self.record_of(lane, job.sequence, JobState::Queued);
        record.interrupted = false;
        record.until = not_before;
        record.attempts = if counts { record.attempts } else { record.attempts.saturating_sub(1) };
        let attempts = record.attempts;
        if counts || self.entry(lane, job.sequence)?.recorded {
            self.write_job(lane, record, Purpose::Record)?;
            self.entry(lane, job.sequence)?.recorded = true;
        }
        let entry = self.entry(lane, job.sequence)?;
        (entry.attempts, entry.started, entry.interrupted) = (attempts, false, false);
        self.put_aside(lane, job.sequence, not_before);
        self.settle(lane);
        // What was only changed in memory is true at once, and told of by whoever changed it.
        let of = &mut self.lanes[lane];
        of.pending.work |= of.dirty;
        Ok(if of.dirty { self.gathering.number } else { self.committed })
    }

    /// A lease ended without an end: dropped, or run out. Whether there is work now.
    pub(crate) fn lose(&mut self, job: JobId, token: u64) -> Option<usize> {
        let lane = self.leased(job, token).ok()?;
        let entry = self.entry(lane, job.sequence).ok()?;
        entry.interrupted |= entry.started;
        entry.started = false;
        self.put_aside(lane, job.sequence, self.now);
        Some(lane)
    }

    /// Leases that ran out are lost: the lanes that have work again.
    pub(crate) fn lose_overdue(&mut self) -> Vec<usize> {
        let mut lanes = Vec::new();
        for lane in 0..self.lanes.len() {
            while let Some((_, sequence)) = self.lanes[lane].leases.first().copied().filter(|(until, _)| *until <= self.now) {
                let Some(Phase::AtWork { token, .. }) = self.lanes[lane].jobs.get(&sequence).map(|entry| entry.phase) else { break };
                lanes.extend(self.lose(self.id(lane, sequence), token));
            }
        }
        lanes.dedup();
        lanes
    }

    /// Ends a job at work. Emitted items were appended and are durable: they become visible with the end.
    pub(crate) fn finish(&mut self, job: JobId, token: u64, ending: &Ending, emitted: &[(usize, u64)]) -> Result<Ticket, Refused> {
        self.check()?;
        let lane = self.leased(job, token)?;
        let traits = self.entry(lane, job.sequence)?.traits.clone().ok_or(StoreError::LeaseLost)?;
        self.end(lane, job.sequence, &traits, ending.clone())?;
        for (target, sequence) in emitted {
            self.lanes[*target].pending.revealed.push(*sequence);
            self.lanes[*target].pending.work = true;
            self.touch(*target);
        }
        Ok(self.gathering.number)
    }
}
