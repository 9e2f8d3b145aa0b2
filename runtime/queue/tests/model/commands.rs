//! Commands: how each is sent to the store, what it must answer, and what it does to the book.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use spillgate_queue::{
    Appended, Appending, Emit, End, Full, Hash, JobId, JobState, Need, NewItem, QueueLimits, Resolution, Room, StoreError, WhichLimit,
};

use crate::book::{Answer, Entry, milliseconds};
use crate::rig::need;
use crate::run::World;

/// Something durable that the store is asked to do.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Append {
        lane: usize,
        items: Vec<NewItem>,
    },
    /// An append before which the lane's oldest waiting items make way, where a limit is reached.
    Shed {
        lane: usize,
        item: NewItem,
    },
    Start {
        id: JobId,
    },
    Finish {
        id: JobId,
        finish: Finish,
    },
    Release {
        id: JobId,
        pause: Duration,
        counts: bool,
    },
    Cancel {
        id: JobId,
    },
    Purge {
        lane: usize,
        dead_too: bool,
    },
    Replay {
        letter: JobId,
    },
    Resolve {
        id: JobId,
        state: JobState,
        outcome: Option<Bytes>,
    },
}

/// How an item ends.
#[derive(Clone, Debug)]
pub(crate) struct Finish {
    pub(crate) state: JobState,
    pub(crate) outcome: Option<Bytes>,
    pub(crate) keep: Duration,
    pub(crate) frees_keys: bool,
    pub(crate) emits: Vec<(usize, Vec<NewItem>)>,
    pub(crate) note: Option<(Hash, Bytes)>,
}

/// What the store said.
#[derive(Debug)]
pub(crate) enum Reply {
    Appended(Result<Vec<Appended>, StoreError>),
    Done(Result<(), StoreError>),
    Purged(Result<u64, StoreError>),
    Replayed(Result<JobId, StoreError>),
}

impl Reply {
    fn error(&self) -> Option<&StoreError> {
        match self {
            Reply::Appended(reply) => reply.as_ref().err(),
            Reply::Done(reply) => reply.as_ref().err(),
            Reply::Purged(reply) => reply.as_ref().err(),
            Reply::Replayed(reply) => reply.as_ref().err(),
        }
    }
    /// The store has stopped before it could say more.
    pub(crate) fn is_cut_off(&self) -> bool {
        matches!(self.error(), Some(StoreError::Failed(_) | StoreError::Closing))
    }
}

pub(crate) type Sent = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// What a lane may hold of a shared queue: seven eighths of what the others leave, or this need.
fn part(limits: &QueueLimits, limit: u64, others: u64, more: u64) -> u64 {
    let left = limit.saturating_sub(others);
    if limits.shared { (left - left.div_ceil(8)).max(more) } else { u64::MAX }
}

impl World {
    /// Asks for room; the answer must be the book's as far as counts go.
    pub(crate) fn reserve(&mut self, lane: usize, items: &[NewItem]) -> Option<Room> {
        self.reserve_or_shed(lane, items, false)
    }

    fn reserve_or_shed(&mut self, lane: usize, items: &[NewItem], shed_oldest: bool) -> Option<Room> {
        let bytes: usize = items.iter().map(|item| item.content.len()).sum();
        let name = self.book.lanes[lane].name.clone();
        let of = |same: &dyn Fn(usize) -> bool| {
            let entries = self.book.jobs.values().filter(|entry| !entry.state.is_end() && same(entry.lane));
            entries.fold((0, 0), |(items, bytes), entry| (items + 1, bytes + entry.content.len() as u64))
        };
        let queue = of(&|other| self.book.lanes[other].name.queue == name.queue);
        let tenant = of(&|other| self.book.lanes[other].name.tenant == name.tenant);
        let own = of(&|other| other == lane);
        let promised = self.promised;
        let limits = self.limits;
        let part = |limit, used, own, more| part(&limits, limit, used - own, more);
        let checks = [
            (WhichLimit::LaneItems, part(limits.queue_items, queue.0, own.0, items.len() as u64), own.0, items.len() as u64),
            (WhichLimit::LaneBytes, part(limits.queue_bytes, queue.1, own.1, bytes as u64), own.1, bytes as u64),
            (WhichLimit::QueueItems, limits.queue_items, queue.0, items.len() as u64),
            (WhichLimit::QueueBytes, limits.queue_bytes, queue.1, bytes as u64),
            (WhichLimit::TenantItems, limits.tenant_items, tenant.0, items.len() as u64),
            (WhichLimit::TenantBytes, limits.tenant_bytes, tenant.1, bytes as u64),
        ];
        let need = Need { shed_oldest, ..need(items.len() as u64, bytes) };
        match self.store().reserve(&name, need, &limits) {
            Ok(room) => {
                let waits = |(_, entry): &(&JobId, &Entry)| entry.state == JobState::Queued && !entry.interrupted;
                let of_lane = self.book.unended(lane).filter(waits);
                let (own, own_bytes) = of_lane.fold((0, 0), |(items, bytes), (_, entry)| (items + 1, bytes + entry.content.len() as u64));
                for (which, limit, used, more) in checks {
                    let is_bytes = matches!(which, WhichLimit::QueueBytes | WhichLimit::TenantBytes);
                    let way = if !shed_oldest {
                        0
                    } else if matches!(which, WhichLimit::LaneItems | WhichLimit::LaneBytes) {
                        // No more gives way than comes: it may hold more than that from before others came.
                        u64::MAX
                    } else if is_bytes {
                        own_bytes
                    } else {
                        own
                    };
                    assert!(used + more <= limit.saturating_add(way), "{which:?} is passed: {used} and {more} of {limit} (promise 1)");
                }
                Some(room)
            }
            Err(Full { which, limit, used, .. }) => {
                if let Some((_, ours, counted, more)) = checks.into_iter().find(|(checked, ..)| *checked == which) {
                    let of_lane = matches!(which, WhichLimit::LaneItems | WhichLimit::LaneBytes);
                    assert!(limit == ours || promised && of_lane, "{which:?}: {limit}, by the book {ours}");
                    assert!(promised || used == counted, "{which:?}: the store counts {used}, the book {counted}");
                    assert!(used + more > limit, "{which:?} refuses {more} more than {used} of {limit}");
                }
                None
            }
        }
    }

    /// Sends an act: `None` if there is no room for it.
    pub(crate) fn send(&mut self, act: &Act) -> Option<Sent> {
        let store = self.store().clone();
        Some(match act.clone() {
            Act::Append { lane, items } => {
                let room = self.reserve(lane, &items)?;
                Box::pin(async move { Reply::Appended(store.append(Appending { room, items }).await) })
            }
            Act::Shed { lane, item } => {
                let room = self.reserve_or_shed(lane, std::slice::from_ref(&item), true)?;
                Box::pin(async move { Reply::Appended(store.append(Appending { room, items: vec![item] }).await) })
            }
            Act::Start { id } => {
                let lease = self.leases.remove(&id).expect("it is at work");
                let back = self.returned.clone();
                Box::pin(async move {
                    let reply = store.start(&lease).await;
                    back.lock().expect("nobody panics with it").push(lease);
                    Reply::Done(reply)
                })
            }
            Act::Finish { id, finish } => {
                // What others on their way were promised stays promised, also when there is no room for all of this.
                let before = self.promised;
                let mut emits = Vec::new();
                for (lane, items) in finish.emits {
                    let room = self.reserve(lane, &items);
                    self.promised = before || room.is_some();
                    emits.push(Emit { room: room?, items });
                }
                self.promised = before;
                let lease = self.leases.remove(&id).expect("it is at work");
                let Finish { state, outcome, keep, frees_keys, note, .. } = finish;
                let end = End { state, outcome, keep, frees_keys, emits, note };
                Box::pin(async move { Reply::Done(store.finish(lease, end).await) })
            }
            Act::Release { id, pause, counts } => {
                let lease = self.leases.remove(&id).expect("it is at work");
                Box::pin(async move { Reply::Done(store.release(lease, pause, counts).await) })
            }
            Act::Cancel { id } => Box::pin(async move { Reply::Done(store.cancel(id).await) }),
            Act::Purge { lane, dead_too } => {
                let name = self.book.lanes[lane].name.clone();
                Box::pin(async move { Reply::Purged(store.purge(&name, dead_too).await) })
            }
            Act::Replay { letter } => {
                let entry = &self.book.jobs[&letter];
                let (lane, item) = (entry.lane, NewItem { content: entry.content.clone(), ..NewItem::default() });
                let room = self.reserve(lane, &[item])?;
                Box::pin(async move { Reply::Replayed(store.replay(letter, room).await) })
            }
            Act::Resolve { id, state, outcome } => {
                Box::pin(async move { Reply::Done(store.resolve(id, Resolution { state, outcome }).await) })
            }
        })
    }

    /// The store has answered: the answer must be right, and the book follows.
    pub(crate) fn answered(&mut self, act: &Act, reply: Reply) {
        match (act, reply) {
            (Act::Append { lane, items }, Reply::Appended(reply)) => {
                let answers = reply.unwrap_or_else(|error| panic!("{act:?} has room and is refused: {error}"));
                assert_eq!(answers.len(), items.len());
                for (item, answer) in items.iter().zip(answers) {
                    self.appended(*lane, item, answer);
                }
            }
            (Act::Shed { lane, item }, Reply::Appended(reply)) => {
                let answer = reply.unwrap_or_else(|error| panic!("{act:?} has room and is refused: {error}")).pop().expect("one item");
                self.shed(*lane, item.content.len() as u64);
                self.appended(*lane, item, answer);
            }
            (Act::Purge { lane, dead_too }, Reply::Purged(reply)) => {
                let ended = reply.expect("a lane can be purged");
                self.follow_all(*lane);
                let before: Vec<String> = self.book.unended(*lane).map(|(id, _)| self.show(*id)).collect();
                assert_eq!(ended, self.purge(*lane, *dead_too), "what a purge ended: {}", before.join("\n"));
            }
            (Act::Replay { letter }, Reply::Replayed(reply)) => {
                if self.is_held_by_another(*letter) {
                    assert_eq!(reply, Err(StoreError::WrongState(JobState::Dead)), "{letter} would be done twice (promise 7)");
                    return;
                }
                let new = reply.expect("a letter can be replayed");
                self.replayed(*letter, new);
            }
            (Act::Start { id } | Act::Finish { id, .. } | Act::Release { id, .. }, Reply::Done(Err(StoreError::LeaseLost))) => {
                let entry = &self.book.jobs[id];
                assert!(entry.lease_until <= self.book.now, "{id}: a lease that still runs was lost");
                self.book.hand_back(*id, 0);
            }
            (act, Reply::Done(reply)) => {
                reply.unwrap_or_else(|error| panic!("{act:?} is refused: {error}"));
                self.apply(act);
            }
            (act, reply) => panic!("{act:?} is answered with {reply:?}"),
        }
    }

    /// What made way: the oldest that waited, and nothing where there was room.
    pub(crate) fn shed(&mut self, lane: usize, more: u64) {
        let limits = self.limits;
        let name = self.book.lanes[lane].name.clone();
        let used = |same: &dyn Fn(usize) -> bool| {
            let entries = self.book.jobs.values().filter(|entry| !entry.state.is_end() && same(entry.lane));
            entries.fold((1, more), |(items, bytes), entry| (items + 1, bytes + entry.content.len() as u64))
        };
        let queue = used(&|other| self.book.lanes[other].name.queue == name.queue);
        let tenant = used(&|other| self.book.lanes[other].name.tenant == name.tenant);
        let own = used(&|other| other == lane);
        let had_room = own.0 <= part(&limits, limits.queue_items, queue.0 - own.0, 1)
            && own.1 <= part(&limits, limits.queue_bytes, queue.1 - own.1, more)
            && queue.0 <= limits.queue_items
            && queue.1 <= limits.queue_bytes
            && tenant.0 <= limits.tenant_items
            && tenant.1 <= limits.tenant_bytes;
        let waiting: Vec<JobId> = self
            .book
            .unended(lane)
            .filter(|(_, entry)| entry.state == JobState::Queued && !entry.interrupted && !entry.vague)
            .map(|(id, _)| *id)
            .collect();
        let shed = self.find_shed(lane);
        assert_eq!(shed, waiting[..shed.len()], "the oldest make way");
        assert!(shed.is_empty() || !had_room, "{shed:?} made way though there was room");
    }

    /// What was shed, whatever else waited then.
    pub(crate) fn find_shed(&mut self, lane: usize) -> Vec<JobId> {
        let waiting: Vec<JobId> = self.book.unended(lane).map(|(id, _)| *id).collect();
        let is_shed = |id: &JobId| self.store().job(*id).is_some_and(|job| job.state == JobState::Shed);
        let shed: Vec<JobId> = waiting.into_iter().filter(is_shed).collect();
        for id in &shed {
            self.book.finish(*id, JobState::Shed, None, STATE_KEEP, true);
        }
        shed
    }

    fn appended(&mut self, lane: usize, item: &NewItem, answer: Appended) {
        let expected = self.book.answer(item);
        let seen = match answer {
            Appended::New { job, lease } => {
                self.check_next(lane, job);
                let mut entry = Entry::new(lane, item, self.book.now);
                assert_eq!(lease.is_some(), item.claimed);
                if let Some(lease) = lease {
                    assert_eq!(lease.job(), job);
                    entry.lease_until = self.book.now + CLAIM_LEASE;
                    self.leases.insert(job, lease);
                }
                self.book.enter(job, entry);
                Answer::New
            }
            Appended::Repeat { job } => Answer::Repeat(job),
            Appended::KeyReused { job } => Answer::KeyReused(job),
            Appended::UniqueTaken { job, tenant } => Answer::UniqueTaken(job, tenant),
        };
        assert_eq!(seen, expected, "for keys {:?} and {:?} (promise 7)", item.keys, item.unique);
    }

    /// Sequences are given out one after the other.
    fn check_next(&mut self, lane: usize, job: JobId) {
        let book = &mut self.book.lanes[lane];
        if book.exact {
            assert_eq!(job.sequence, book.next_sequence, "the next number of {:?}", book.name);
        } else {
            assert!(job.sequence >= book.next_sequence, "{job} was given out before");
        }
        book.exact = true;
    }

    /// Whether something of a letter is held by another job since: then it would be done twice.
    fn is_held_by_another(&self, letter: JobId) -> bool {
        let entry = &self.book.jobs[&letter];
        let keys = entry.keys.iter().filter_map(|key| self.book.key_holder(&key.hash));
        let unique = entry.unique.and_then(|unique| self.book.unique_holder(&unique.hash));
        keys.chain(unique).any(|holder| holder != letter)
    }

    pub(crate) fn replayed(&mut self, letter: JobId, new: JobId) {
        let now = self.book.now;
        self.drop_letter(letter);
        let old = self.entry(letter);
        // Its keys go over.
        old.end.as_mut().expect("it is dead").freed = true;
        old.replayed_as = Some(new);
        let (lane, expires_in) = (old.lane, old.expires_at.map(|at| Duration::from_millis(at - old.appended_at)));
        let (content, keys, unique, order) = (old.content.clone(), old.keys.clone(), old.unique, old.order);
        let item = NewItem { content, keys, unique, order, expires_in, claimed: false };
        self.check_next(lane, new);
        self.book.enter(new, Entry::new(lane, &item, now));
    }

    pub(crate) fn drop_letter(&mut self, id: JobId) {
        let now = self.book.now;
        let end = self.entry(id).end.as_mut().expect("it is dead");
        end.letter = false;
        end.kept_until = end.kept_until.max(now + milliseconds(STATE_KEEP));
    }

    /// Ends what waits: how many.
    pub(crate) fn purge(&mut self, lane: usize, dead_too: bool) -> u64 {
        let waits = |(_, entry): &(&JobId, &Entry)| entry.state == JobState::Queued && !entry.interrupted;
        let mut ids: Vec<JobId> = self.book.unended(lane).filter(waits).map(|(id, _)| *id).collect();
        for id in &ids {
            self.book.finish(*id, JobState::Purged, None, STATE_KEEP, true);
            // One record ends them all: how often each was tried is not in it.
            self.entry(*id).attempts_vague = true;
        }
        if dead_too {
            for id in self.book.letters(lane) {
                self.drop_letter(id);
                ids.push(id);
            }
        }
        ids.len() as u64
    }

    /// What an act does to the book once it is true.
    pub(crate) fn apply(&mut self, act: &Act) {
        let now = self.book.now;
        match act {
            Act::Start { id } => self.entry(*id).started = true,
            Act::Release { id, pause, counts } => {
                let entry = self.entry(*id);
                entry.attempts -= u32::from(!counts);
                // Proven not to have executed.
                (entry.started, entry.interrupted) = (false, false);
                self.book.hand_back(*id, now + milliseconds(*pause));
            }
            Act::Finish { id, finish } => {
                self.book.finish(*id, finish.state, finish.outcome.clone(), finish.keep, finish.frees_keys);
                for (lane, items) in &finish.emits {
                    for item in items {
                        let id = self.book.next_id(*lane).expect("emits go to lanes that exist");
                        self.book.enter(id, Entry::new(*lane, item, now));
                    }
                }
                if let Some((name, content)) = &finish.note {
                    let lane = self.book.jobs[id].lane;
                    self.book.lanes[lane].notes.insert(*name, content.clone());
                }
            }
            Act::Cancel { id } => self.book.finish(*id, JobState::Cancelled, None, STATE_KEEP, true),
            Act::Resolve { id, state, outcome } => {
                let entry = self.entry(*id);
                entry.state = *state;
                let end = entry.end.as_mut().expect("it is unknown");
                end.outcome.clone_from(outcome);
                end.kept_until = end.kept_until.max(now + milliseconds(STATE_KEEP));
                end.freed |= *state == JobState::Failed;
            }
            Act::Append { .. } | Act::Shed { .. } | Act::Purge { .. } | Act::Replay { .. } => {
                unreachable!("they are applied with their answers")
            }
        }
    }

    pub(crate) fn entry(&mut self, id: JobId) -> &mut Entry {
        self.book.jobs.get_mut(&id).expect("the book knows it")
    }
}

/// How long the store keeps the state of what it ended itself.
pub(crate) const STATE_KEEP: Duration = Duration::from_secs(24 * 60 * 60);
/// How long the lease of a claimed item lasts, milliseconds.
pub(crate) const CLAIM_LEASE: u64 = 60_000;
