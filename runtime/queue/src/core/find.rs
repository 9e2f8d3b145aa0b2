//! What is known of a job.

use bytes::Bytes;

use crate::core::Core;
use crate::core::journal::{Entry, Sort};
use crate::core::lane::{JobEntry, Phase};
use crate::core::lookup::{Plan, Record};
use crate::format::decode_journal;
use crate::job::{Job, JobId, JobState};
use crate::record::{JobRecord, JournalRecord};

impl Core {
    /// `None`: there never was one, or nothing is kept of it.
    pub(crate) fn job(&self, id: JobId) -> Option<Job> {
        let lane = self.lane_of(id)?;
        let of = &self.lanes[lane];
        if id.sequence == 0 || id.sequence >= of.durable_next {
            return None;
        }
        let job = |state, attempts, entry: Option<Entry>| {
            let (has_outcome, outcome_gone) = entry.map_or((false, false), |entry| (entry.has_outcome(), entry.outcome_gone()));
            let replayed_as = of.replayed.get(&id.sequence).copied();
            Some(Job { id, lane: of.name.clone(), state, attempts, has_outcome, outcome_bytes: 0, outcome_gone, replayed_as })
        };
        if let Some(until) = of.ending.get(&id.sequence) {
            return job(until.state, until.attempts, None);
        }
        match of.jobs.get(&id.sequence) {
            Some(JobEntry { phase: Phase::Hidden, .. }) => return None,
            Some(JobEntry { phase: Phase::AtWork { .. }, attempts, .. }) => return job(JobState::Running, *attempts, None),
            Some(JobEntry { phase: Phase::Aside { .. }, attempts, .. }) => return job(JobState::Queued, *attempts, None),
            None => {}
        }
        if let Some((at, entry)) = of.journal.find(Sort::Job, id.sequence) {
            let is_known = !entry.is_void() && !entry.is_past(self.now);
            let outcome_bytes = if entry.has_outcome() { of.journal.extents[at].outcome_bytes(id.sequence) } else { 0 };
            let known = || job(entry.state(), entry.attempts(), Some(entry)).map(|job| Job { outcome_bytes, ..job });
            return if is_known { known() } else { None };
        }
        if of.items.is_live(id.sequence) {
            return job(JobState::Queued, 0, None);
        }
        let is_in = |(first, last): &(u64, u64)| (*first..=*last).contains(&id.sequence);
        let Some(purge) = of.purges.iter().find(|purge| purge.until > self.now && purge.ranges.iter().any(is_in)) else {
            let lost = job(JobState::Dead, 0, None).map(|job| Job { has_outcome: true, ..job });
            return lost.filter(|_| self.has_lost(lane, id.sequence));
        };
        job(if purge.ticket <= self.committed { JobState::Purged } else { JobState::Queued }, 0, None)
    }

    /// To read the newest record of a job.
    pub(crate) fn plan_record(&self, lane: usize, sequence: u64) -> Option<Plan> {
        let of = &self.lanes[lane];
        let (at, entry) = of.journal.find(Sort::Job, sequence)?;
        let bytes = of.journal.extents[at].outcome_bytes(sequence);
        Some(self.plan_journal(lane, at, Some(usize::from(entry.offset)), bytes))
    }

    /// To read the outcome of a job, if it has one.
    pub(crate) fn plan_outcome(&self, id: JobId) -> Option<Plan> {
        let lane = self.lane_of(id)?;
        let (_, entry) = self.lanes[lane].journal.find(Sort::Job, id.sequence)?;
        if entry.has_outcome() && !entry.is_void() { self.plan_record(lane, id.sequence) } else { None }
    }
}

/// The record of a job, out of what was read.
pub(crate) fn job_record(records: &[Record], sequence: u64) -> Option<JobRecord> {
    records.iter().find_map(|record| match decode_journal(record.kind, &record.bytes) {
        Ok(JournalRecord::Job(job)) if job.sequence == sequence => Some(job),
        _ => None,
    })
}

/// Its outcome.
pub(crate) fn outcome(records: &[Record], sequence: u64) -> Option<Bytes> {
    job_record(records, sequence).and_then(|job| job.outcome)
}
