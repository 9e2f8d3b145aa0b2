//! Taking items for work: first in, first out, but for those that wait for another attempt or behind their like.
//!
//! A lane hands out items of the extent that was read last; when those are used up it says what to read next.

use bytes::Bytes;

use crate::core::append::milliseconds;
use crate::core::end::Ending;
use crate::core::lane::{JobEntry, Loaded, MOST_SET_ASIDE, Phase, Traits};
use crate::core::lookup::{Plan, Record};
use crate::core::write::place;
use crate::core::{Core, Refused, Ticket};
use crate::format::{Kind, decode_item};
use crate::item::{Key, TakeFrom, Waits};
use crate::job::{JobId, JobState};
use crate::record::{ItemRecord, Stream};
use crate::store::StoreError;

/// Lanes whose read items are kept in memory.
const MOST_LOADED: usize = 64;

/// An item that was handed out.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) job: JobId,
    pub(crate) token: u64,
    pub(crate) content: Bytes,
    pub(crate) attempt: u32,
    pub(crate) interrupted: bool,
    pub(crate) age_ms: u64,
    pub(crate) keys: Vec<Key>,
}

/// What comes next.
#[derive(Debug)]
pub(crate) enum Step {
    Items(Vec<Taken>),
    Read(Plan),
    Nothing {
        waits: Waits,
        ready_at: Option<u64>,
        ticket: Ticket,
    },
    /// The journal must be cleaned before expired items can be ended.
    Later,
}

/// What one look at a candidate comes to.
enum Look {
    Taken(Taken),
    Read(Plan),
    /// It was ended, or set aside: look on.
    Next,
}

impl Core {
    /// Takes what can be taken now.
    pub(crate) fn take(&mut self, from: &TakeFrom) -> Result<Step, StoreError> {
        self.check()?;
        let committed = self.committed;
        let nothing = |waits, ready_at| Ok(Step::Nothing { waits, ready_at, ticket: committed });
        let Some(lane) = self.find_lane(&from.lane) else { return nothing(Waits::Empty, None) };
        if let Some(waits) = self.stopped(lane) {
            self.lanes[lane].change_waits(waits, self.now);
            return nothing(waits, None);
        }
        if let Some(plan) = self.plan_unread(lane) {
            return Ok(Step::Read(plan));
        }
        let mut taken = Vec::new();
        let most = from.most.min(self.places_for_letters(lane));
        while taken.len() < most {
            let Some(sequence) = self.candidate(lane) else { break };
            match self.look(lane, sequence, milliseconds(from.lease)) {
                Ok(Look::Taken(item)) => taken.push(item),
                Ok(Look::Next) => {}
                Ok(Look::Read(plan)) if taken.is_empty() => return Ok(Step::Read(plan)),
                Err(Refused::Later) if taken.is_empty() => return Ok(Step::Later),
                Err(Refused::Error(error)) if taken.is_empty() => return Err(error),
                Ok(Look::Read(_)) | Err(_) => break,
            }
        }
        let (waits, ready_at) = self.waits(lane);
        self.lanes[lane].change_waits(waits, self.now);
        // Items that expired are ended when it is said that there is nothing, whoever ended them.
        let ticket = self.lanes[lane].expired_in;
        Ok(if taken.is_empty() { Step::Nothing { waits, ready_at, ticket } } else { Step::Items(taken) })
    }

    /// Why nothing at all is handed out.
    fn stopped(&self, lane: usize) -> Option<Waits> {
        let of = &self.lanes[lane];
        if of.paused {
            return Some(Waits::Paused);
        }
        let most = self.queues[&of.name.queue].letters_most;
        (of.letters.len() as u64 >= most.max(1)).then_some(Waits::DeadLetters)
    }

    /// How many more may be at work so that, if all of them die, the lane's letters stay within their limit.
    fn places_for_letters(&self, lane: usize) -> usize {
        let of = &self.lanes[lane];
        match self.queues[&of.name.queue].letters_most {
            // None are kept.
            0 => usize::MAX,
            most => usize::try_from(most.saturating_sub(of.letters.len() as u64 + of.running)).unwrap_or(usize::MAX),
        }
    }

    pub(crate) fn plan_unread(&self, lane: usize) -> Option<Plan> {
        let sequence = self.lanes[lane].unread.first()?;
        self.plan_job(lane, *sequence)
    }

    /// The first job that could be taken: set aside and due, or next in the line.
    fn candidate(&mut self, lane: usize) -> Option<u64> {
        let of = &self.lanes[lane];
        let is_due = |entry: &JobEntry| matches!(entry.phase, Phase::Aside { not_before } if not_before <= self.now);
        let order = |entry: &JobEntry| entry.traits.as_ref().and_then(|traits| traits.order);
        let aside =
            if of.aside() == 0 { None } else { of.jobs.iter().find(|(at, entry)| is_due(entry) && !of.is_behind(**at, order(entry))) };
        let aside = aside.map(|(sequence, _)| *sequence);
        let next = if of.aside() < MOST_SET_ASIDE { self.next_in_line(lane) } else { None };
        [aside, next].into_iter().flatten().min()
    }

    /// The first durable item from the cursor on that is just waiting.
    pub(crate) fn next_in_line(&mut self, lane: usize) -> Option<u64> {
        let of = &mut self.lanes[lane];
        loop {
            let sequence = of.items.next(of.cursor).filter(|sequence| *sequence < of.durable_next)?;
            of.cursor = sequence;
            if !of.jobs.contains_key(&sequence) && !of.letters.contains_key(&sequence) {
                return Some(sequence);
            }
            of.cursor += 1;
        }
    }

    fn look(&mut self, lane: usize, sequence: u64, lease_ms: u64) -> Result<Look, Refused> {
        let of = &mut self.lanes[lane];
        let aside = of.jobs.contains_key(&sequence);
        let Some(item) = of.loaded.iter_mut().find_map(|loaded| loaded.items.remove(&sequence)) else {
            return Ok(self.plan_job(lane, sequence).map_or(Look::Next, Look::Read));
        };
        let interrupted = of.jobs.get(&sequence).is_some_and(|entry| entry.interrupted) || sequence < of.suspect_below;
        // A write that may have been done is not forgotten because time is up: a worker must tell its end.
        if item.expires_at.is_some_and(|at| at <= self.now) && !interrupted {
            let ended = self.end(lane, sequence, &Traits::of(&item), Ending::unexecuted(JobState::Expired));
            if ended.is_err() {
                self.lanes[lane].loaded[0].items.insert(sequence, item);
            }
            return ended.map(|()| Look::Next);
        }
        if !aside && of.is_behind(sequence, item.order) {
            let traits = Some(Box::new(Traits::of(&item)));
            let phase = Phase::Aside { not_before: 0 };
            of.enter(sequence, JobEntry { phase, attempts: 0, started: false, interrupted: false, recorded: false, traits, kept: None });
            return Ok(Look::Next);
        }
        Ok(Look::Taken(self.hand_out(lane, item, lease_ms)))
    }

    fn hand_out(&mut self, lane: usize, item: ItemRecord, lease_ms: u64) -> Taken {
        let (token, until) = (self.token(), self.now.saturating_add(lease_ms));
        let of = &mut self.lanes[lane];
        let traits = Some(Box::new(Traits::of(&item)));
        let phase = Phase::AtWork { token, until };
        let mut entry = of.leave(item.sequence).unwrap_or(JobEntry {
            phase,
            attempts: 0,
            started: false,
            interrupted: false,
            recorded: false,
            traits: None,
            kept: None,
        });
        (entry.phase, entry.traits) = (phase, traits);
        entry.attempts += 1;
        entry.interrupted |= item.sequence < of.suspect_below;
        let (attempt, interrupted) = (entry.attempts, entry.interrupted);
        of.enter(item.sequence, entry);
        let job = self.id(lane, item.sequence);
        let age_ms = self.now.saturating_sub(item.appended_at);
        Taken { job, token, content: item.content, attempt, interrupted, age_ms, keys: item.keys }
    }

    /// What the head of a lane waits for, and when time alone may change that.
    pub(crate) fn waits(&mut self, lane: usize) -> (Waits, Option<u64>) {
        if let Some(waits) = self.stopped(lane) {
            return (waits, None);
        }
        if self.candidate(lane).is_some() {
            return (Waits::Worker, None);
        }
        let of = &self.lanes[lane];
        let due = of.jobs.values().filter_map(|entry| match entry.phase {
            Phase::Aside { not_before } if not_before > self.now => Some(not_before),
            Phase::AtWork { until, .. } => Some(until),
            _ => None,
        });
        let ready_at = due.min();
        let head = of.jobs.iter().find(|(_, entry)| matches!(entry.phase, Phase::Aside { .. }));
        let waits = match head {
            None => Waits::Empty,
            Some(_) if of.aside() >= MOST_SET_ASIDE => Waits::SetAside,
            Some((_, JobEntry { phase: Phase::Aside { not_before }, .. })) if *not_before > self.now => Waits::Backoff,
            Some(_) => Waits::Order,
        };
        (waits, ready_at)
    }

    /// Takes in what was read: items can be handed out, jobs found at a start are known, what cannot be read ends.
    pub(crate) fn loaded(&mut self, plan: &Plan, records: &[Record]) -> Result<(), Refused> {
        if !self.still_has(plan) {
            return Ok(());
        }
        let lane = plan.lane;
        let mut items: Loaded = Loaded::default();
        for record in records.iter().filter(|record| record.kind == Kind::Item) {
            let Ok(item) = decode_item(&record.bytes) else { continue };
            if item.sequence < plan.below {
                items.items.insert(item.sequence, item);
            }
        }
        let missing = self.missing(plan, &items);
        for (sequence, item) in &items.items {
            self.learn(lane, *sequence, item);
        }
        let of = &self.lanes[lane];
        let is_wanted = |sequence: &u64| match of.jobs.get(sequence) {
            Some(entry) => matches!(entry.phase, Phase::Aside { .. }),
            None => plan.stream == Stream::Items && of.items.is_live(*sequence) && !of.letters.contains_key(sequence),
        };
        items.items.retain(|sequence, _| is_wanted(sequence));
        let in_line = plan.stream == Stream::Items && items.items.keys().any(|sequence| *sequence >= of.cursor);
        self.lanes[lane].loaded[usize::from(!in_line)] = items;
        self.loaded_lanes.retain(|index| *index != lane);
        self.loaded_lanes.push_back(lane);
        if self.loaded_lanes.len() > MOST_LOADED
            && let Some(oldest) = self.loaded_lanes.pop_front()
        {
            self.lanes[oldest].loaded = Default::default();
        }
        for sequence in missing {
            self.end_damaged(lane, sequence)?;
        }
        Ok(())
    }

    /// A job found at a start is known now.
    fn learn(&mut self, lane: usize, sequence: u64, item: &ItemRecord) {
        if self.lanes[lane].unread.contains(&sequence)
            && let Some(mut entry) = self.lanes[lane].leave(sequence)
        {
            entry.traits = Some(Box::new(Traits::of(item)));
            self.lanes[lane].enter(sequence, entry);
        }
    }

    /// Jobs whose content should have been among what was read.
    fn missing(&self, plan: &Plan, items: &Loaded) -> Vec<u64> {
        let (of, extent) = (&self.lanes[plan.lane], plan.extents[0]);
        let is_missing = |sequence: &u64| *sequence < plan.below && !items.items.contains_key(sequence);
        match plan.stream {
            Stream::Items => {
                let Some(at) = of.items.by_serial(extent.serial) else { return Vec::new() };
                let extent = &of.items.extents[at];
                let at_work = |sequence: &u64| of.jobs.get(sequence).is_some_and(|entry| !matches!(entry.phase, Phase::Aside { .. }));
                let live = (extent.first..extent.end()).filter(|sequence| !extent.is_over(*sequence) && !at_work(sequence));
                live.filter(is_missing).filter(|sequence| !of.letters.contains_key(sequence)).collect()
            }
            Stream::Kept => {
                let wanted = plan.offset.map(place);
                let Some(at) = of.kept.by_serial(extent.serial) else { return Vec::new() };
                let copies = of.kept.extents[at].items.iter().filter(|(_, offset)| wanted.is_none_or(|wanted| wanted == *offset));
                let current = copies.filter(|(of_job, _)| of.jobs.get(of_job).is_some_and(|entry| entry.kept == Some(extent.serial)));
                current.map(|(sequence, _)| *sequence).filter(is_missing).collect()
            }
            Stream::Journal => Vec::new(),
        }
    }
}
