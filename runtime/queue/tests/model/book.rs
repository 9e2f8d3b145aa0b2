//! The model: what a store should hold, in maps and lists. It decides nothing about disks, extents or batches.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use spillgate_queue::{Hash, JobId, JobState, Key, LaneName, NewItem, Unique};

use crate::rig::lane;

/// How long dead letters are kept.
pub(crate) const LETTER_KEEP: Duration = Duration::from_secs(1 << 30);

/// Milliseconds on the model's own clock.
pub(crate) type Time = u64;

/// One job.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) lane: usize,
    pub(crate) content: Bytes,
    pub(crate) keys: Vec<Key>,
    pub(crate) unique: Option<Unique>,
    pub(crate) order: Option<u64>,
    pub(crate) appended_at: Time,
    pub(crate) expires_at: Option<Time>,
    pub(crate) state: JobState,
    /// Counted; after a restart the store may remember fewer.
    pub(crate) attempts: u32,
    /// A write was started in this attempt.
    pub(crate) started: bool,
    /// A write was started whose end was never told.
    pub(crate) interrupted: bool,
    /// A crash left open whether the last word about it was heard, and so whether it was interrupted.
    pub(crate) vague: bool,
    /// A restart may have forgotten its pause.
    pub(crate) pause_vague: bool,
    /// A restart may have forgotten attempts that were never recorded.
    pub(crate) attempts_vague: bool,
    /// Nothing is kept of it any more.
    pub(crate) forgotten: bool,
    pub(crate) not_before: Time,
    pub(crate) lease_until: Time,
    /// A letter that was replayed: the new job.
    pub(crate) replayed_as: Option<JobId>,
    pub(crate) end: Option<Ended>,
}

/// How a job ended.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) kept_until: Time,
    pub(crate) keys_until: Vec<Time>,
    pub(crate) outcome: Option<Bytes>,
    /// Its keys and its business key may be used again.
    pub(crate) freed: bool,
    /// Its content is kept for a replay.
    pub(crate) letter: bool,
}

impl Entry {
    pub(crate) fn new(lane: usize, item: &NewItem, now: Time) -> Entry {
        Entry {
            lane,
            content: item.content.clone(),
            keys: item.keys.clone(),
            unique: item.unique,
            order: item.order,
            appended_at: now,
            expires_at: item.expires_in.map(|time| now + milliseconds(time)),
            state: if item.claimed { JobState::Running } else { JobState::Queued },
            attempts: u32::from(item.claimed),
            started: item.claimed,
            interrupted: false,
            vague: false,
            pause_vague: false,
            attempts_vague: false,
            forgotten: false,
            not_before: 0,
            lease_until: Time::MAX,
            replayed_as: None,
            end: None,
        }
    }
    /// Time is up. A write that may have been done is not forgotten for that: a worker must tell its end.
    pub(crate) fn is_expired(&self, now: Time) -> bool {
        !self.interrupted && self.expires_at.is_some_and(|at| at <= now)
    }
}

pub(crate) fn milliseconds(time: Duration) -> Time {
    Time::try_from(time.as_millis()).expect("not that long")
}

/// One lane.
#[derive(Clone, Debug)]
pub(crate) struct LaneBook {
    pub(crate) name: LaneName,
    /// Known from its first job on.
    pub(crate) number: Option<u64>,
    pub(crate) next_sequence: u64,
    /// Whether that is certain: after a crash it is not, until the next append.
    pub(crate) exact: bool,
    pub(crate) paused: bool,
    pub(crate) notes: HashMap<Hash, Bytes>,
}

/// Everything.
#[derive(Clone, Debug)]
pub(crate) struct Book {
    pub(crate) now: Time,
    pub(crate) lanes: Vec<LaneBook>,
    pub(crate) jobs: BTreeMap<JobId, Entry>,
    pub(crate) keys: HashMap<Hash, JobId>,
    pub(crate) uniques: HashMap<Hash, JobId>,
    /// Most dead letters a lane of this model's queues may hold.
    pub(crate) most_letters: u64,
}

/// What an append should answer for one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    New,
    Repeat(JobId),
    KeyReused(JobId),
    UniqueTaken(JobId, Arc<str>),
}

impl Book {
    pub(crate) fn new(most_letters: u64) -> Book {
        let names = [lane("bookings", "anna"), lane("bookings", "ben"), lane("orders", "anna"), lane("(direct)", "ben")];
        let lanes = names.map(|name| LaneBook { name, number: None, next_sequence: 1, exact: true, paused: false, notes: HashMap::new() });
        Book { now: 0, lanes: lanes.into(), jobs: BTreeMap::new(), keys: HashMap::new(), uniques: HashMap::new(), most_letters }
    }

    pub(crate) fn in_lane(&self, lane: usize) -> impl DoubleEndedIterator<Item = (&JobId, &Entry)> {
        self.jobs.iter().filter(move |(_, entry)| entry.lane == lane)
    }
    pub(crate) fn unended(&self, lane: usize) -> impl DoubleEndedIterator<Item = (&JobId, &Entry)> {
        self.in_lane(lane).filter(|(_, entry)| !entry.state.is_end())
    }
    pub(crate) fn letters(&self, lane: usize) -> Vec<JobId> {
        self.in_lane(lane).filter(|(_, entry)| entry.end.as_ref().is_some_and(|end| end.letter)).map(|(id, _)| *id).collect()
    }

    /// Who holds a key now.
    pub(crate) fn key_holder(&self, hash: &Hash) -> Option<JobId> {
        let id = *self.keys.get(hash)?;
        let entry = self.jobs.get(&id)?;
        let held = match &entry.end {
            None => true,
            Some(end) => {
                let at = entry.keys.iter().position(|key| key.hash == *hash)?;
                !end.freed && end.keys_until[at] > self.now
            }
        };
        held.then_some(id)
    }
    pub(crate) fn unique_holder(&self, hash: &Hash) -> Option<JobId> {
        let id = *self.uniques.get(hash)?;
        let entry = self.jobs.get(&id)?;
        let until = entry.appended_at + milliseconds(entry.unique?.within);
        let freed = entry.end.as_ref().is_some_and(|end| end.freed);
        (!freed && until > self.now).then_some(id)
    }

    /// What an append of this item should answer now.
    pub(crate) fn answer(&self, item: &NewItem) -> Answer {
        for key in &item.keys {
            if let Some(holder) = self.key_holder(&key.hash) {
                let same = self.jobs[&holder].keys.iter().any(|held| held.hash == key.hash && held.input == key.input);
                return if same { Answer::Repeat(holder) } else { Answer::KeyReused(holder) };
            }
        }
        match item.unique.and_then(|unique| self.unique_holder(&unique.hash)) {
            Some(holder) => Answer::UniqueTaken(holder, Arc::clone(&self.lanes[self.jobs[&holder].lane].name.tenant)),
            None => Answer::New,
        }
    }

    /// Puts a new job where it belongs.
    pub(crate) fn enter(&mut self, id: JobId, entry: Entry) {
        for key in &entry.keys {
            self.keys.insert(key.hash, id);
        }
        if let Some(unique) = entry.unique {
            self.uniques.insert(unique.hash, id);
        }
        let lane = &mut self.lanes[entry.lane];
        assert!(lane.number.is_none_or(|number| number == id.lane), "a lane keeps its number");
        lane.number = Some(id.lane);
        lane.next_sequence = lane.next_sequence.max(id.sequence + 1);
        assert!(self.jobs.insert(id, entry).is_none(), "{id} was given out twice");
    }

    /// The next job of a lane that exists already.
    pub(crate) fn next_id(&self, lane: usize) -> Option<JobId> {
        let lane = &self.lanes[lane];
        lane.number.map(|number| JobId { lane: number, sequence: lane.next_sequence })
    }

    /// A job is not at work any more, and not ended.
    pub(crate) fn hand_back(&mut self, id: JobId, not_before: Time) {
        let entry = self.jobs.get_mut(&id).expect("the model knows it");
        entry.state = JobState::Queued;
        entry.interrupted |= entry.started;
        entry.started = false;
        entry.not_before = not_before;
    }

    pub(crate) fn finish(&mut self, id: JobId, state: JobState, outcome: Option<Bytes>, keep: Duration, freed: bool) {
        let now = self.now;
        let entry = self.jobs.get_mut(&id).expect("the model knows it");
        assert!(!entry.state.is_end() || entry.state == JobState::Unknown, "{id} ends twice");
        entry.state = state;
        let keys_until = entry.keys.iter().map(|key| now + milliseconds(key.keep)).collect();
        let letter = state == JobState::Dead;
        let keep = if letter { keep.max(LETTER_KEEP) } else { keep };
        entry.end = Some(Ended { kept_until: now + milliseconds(keep), keys_until, outcome, freed, letter });
    }

    /// How many more may be at work and all die.
    pub(crate) fn places_for_letters(&self, lane: usize) -> usize {
        let running = self.unended(lane).filter(|(_, entry)| entry.state == JobState::Running).count();
        usize::try_from(self.most_letters).expect("few").saturating_sub(self.letters(lane).len() + running)
    }

    /// What a lane may hand out now, in order.
    pub(crate) fn eligible(&self, lane: usize) -> Vec<JobId> {
        if self.lanes[lane].paused || self.places_for_letters(lane) == 0 {
            return Vec::new();
        }
        let mut orders = Vec::new();
        let mut eligible = Vec::new();
        for (id, entry) in self.unended(lane) {
            let waits = entry.state == JobState::Queued && !entry.is_expired(self.now);
            let turn = entry.order.is_none_or(|order| !orders.contains(&order));
            if waits && turn && entry.not_before <= self.now {
                eligible.push(*id);
            }
            // What expired is ended when it is met, and then holds nobody up.
            if entry.state == JobState::Running || !entry.is_expired(self.now) {
                orders.extend(entry.order);
            }
        }
        eligible
    }
}
