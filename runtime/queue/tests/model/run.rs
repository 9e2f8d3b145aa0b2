//! Running a seed: random commands, restarts and crashes, then everything is drained.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use spillgate_queue::disk::simulated::{CallKind, Chance, Failure, SimulatedDisk};
use spillgate_queue::testing::{ByHand, Stepped};
use spillgate_queue::{Hash, Health, JobId, JobState, Lease, NewItem, QueueLimits, Store, WhichLimit};

use crate::book::{Book, LETTER_KEEP};
use crate::commands::{Act, Finish, Reply, Sent};
use crate::rig::{EXTENT, FILE, HandClock, UNLIMITED, need, options};

/// How many there are of each.
pub(crate) const KEYS: u64 = 6;
pub(crate) const NOTES: u64 = 2;
pub(crate) const UNIQUES: u64 = 3;
/// Seeds of a plain run.
const SEEDS: u64 = 2_000;
/// No command takes more steps of the store.
const STEPS: usize = 2_000;
/// Moments of the book and of the store never fall together: every span but the passing of time ends with half a second.
const HALF: u64 = 500;

/// Runs every `parts`-th seed.
pub(crate) fn run_seeds(part: u64, parts: u64) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    if let Some(seed) = number("SPILLGATE_MODEL_SEED") {
        if part == 0 {
            World::new(seed, true).run();
        }
        return;
    }
    for seed in (part..number("SPILLGATE_MODEL_SEEDS").unwrap_or(SEEDS)).step_by(usize::try_from(parts).expect("few")) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| World::new(seed, false).run())) {
            eprintln!("seed {seed} fails; again with: SPILLGATE_MODEL_SEED={seed} cargo test -p spillgate-queue --test model part_1");
            resume_unwind(panic);
        }
    }
}

/// The hash of a name.
pub(crate) fn hash_of(kind: u8, number: u64) -> Hash {
    let mut hash = [kind; 16];
    hash[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    hash
}

/// The store, its book, and chance.
pub(crate) struct World {
    pub(crate) book: Book,
    hand: Option<ByHand>,
    pub(crate) disk: SimulatedDisk,
    clock: Arc<HandClock>,
    pub(crate) disk_limit: u64,
    pub(crate) leases: BTreeMap<JobId, Lease>,
    /// Leases that commands borrowed.
    pub(crate) returned: Arc<Mutex<Vec<Lease>>>,
    pub(crate) chance: Chance,
    pub(crate) limits: QueueLimits,
    /// Rooms are out that the book does not count.
    pub(crate) promised: bool,
    pub(crate) contents: u64,
    tell: bool,
}

impl World {
    fn new(seed: u64, tell: bool) -> World {
        let mut chance = Chance::new(seed ^ 0x5eed);
        let limits = QueueLimits {
            queue_items: 8 + chance.below(30),
            queue_bytes: if chance.one_in(2) { 300_000 } else { u64::MAX },
            tenant_items: 10 + chance.below(40),
            tenant_bytes: if chance.one_in(2) { 500_000 } else { u64::MAX },
            tenant_disk: (8 + chance.below(20)) * EXTENT,
            item_bytes: 200_000,
            shared: seed % 2 == 1,
            ..UNLIMITED
        };
        let disk_limit = (2 + chance.below(2)) * FILE;
        let (disk, clock) = (SimulatedDisk::new(seed), HandClock::new());
        let hand = ByHand::open(options(&disk, &clock, disk_limit)).expect("a store can be made on an empty disk");
        clock.pass(Duration::from_millis(300));
        let (leases, returned) = (BTreeMap::new(), Arc::default());
        let book = Book::new(2 + chance.below(3));
        let world =
            World { book, hand: Some(hand), disk, clock, disk_limit, leases, returned, chance, limits, promised: false, contents: 0, tell };
        world.set_up();
        world
    }

    fn set_up(&self) {
        for queue in ["bookings", "orders", "(direct)"] {
            self.store().set_dead_letters(queue, self.book.most_letters, LETTER_KEEP);
        }
    }

    fn hand(&self) -> &ByHand {
        self.hand.as_ref().expect("there is always one between two steps")
    }
    pub(crate) fn store(&self) -> &Store {
        self.hand().store()
    }
    /// Asks the store, and lets it work until it answers.
    pub(crate) fn ask<T>(&self, call: impl Future<Output = T>) -> T {
        self.hand().run(STEPS, call).expect("it answers within so many steps")
    }
    /// Lets the store do what it does by itself.
    pub(crate) fn settle(&self) {
        assert_ne!(self.hand().settle(STEPS), Stepped::Done, "it comes to an end");
    }
    fn tell(&self, what: impl std::fmt::Display) {
        if self.tell {
            println!("{:>9} {what}", self.book.now);
        }
    }

    fn run(mut self) {
        for _ in 0..30 + self.chance.below(60) {
            self.step();
            self.check();
            if self.chance.one_in(4) {
                self.check_kept();
            }
        }
        self.drain();
    }

    fn step(&mut self) {
        match self.chance.below(100) {
            0..45 => {
                let acts = self.acts();
                self.perform(&acts, false);
            }
            45..58 => self.step_take(),
            58..62 => self.step_renew(),
            62..65 => self.step_drop(),
            65..78 => self.step_time(),
            78..81 => self.step_pause(),
            81..83 => self.step_room(),
            83..87 => self.step_restart(),
            _ => {
                let acts = self.acts();
                self.perform(&acts, true);
            }
        }
    }

    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        let at = usize::try_from(self.chance.below(from.len() as u64)).expect("few");
        from.get(at).cloned()
    }
    pub(crate) fn any_lane(&mut self) -> usize {
        usize::try_from(self.chance.below(self.book.lanes.len() as u64)).expect("few")
    }
    pub(crate) fn span(&mut self, most: u64) -> Duration {
        Duration::from_millis(self.chance.below(most) * 1000 + HALF)
    }

    /// Sends commands together and compares the answers; with `crash`, the machine stops somewhere on the way.
    fn perform(&mut self, acts: &[Act], crash: bool) {
        let sync_fails = crash && self.chance.one_in(6);
        if crash {
            let kind = if sync_fails || self.chance.one_in(3) { CallKind::Sync } else { CallKind::Write };
            let failure = if sync_fails { Failure::Broken } else { Failure::Stop };
            let nth = 1 + self.chance.below(3);
            self.disk.fail(kind, nth, failure);
        }
        let mut sent: Vec<(&Act, Sent)> = Vec::new();
        for act in acts {
            self.tell(format_args!("{act:?}"));
            if let Some(future) = self.send(act) {
                sent.push((act, future));
                // What is on its way counts in the store already, and not in the book.
                self.promised = true;
            }
        }
        self.promised = false;
        let (acts, futures): (Vec<&Act>, Vec<Sent>) = sent.into_iter().unzip();
        let replies = self.together(futures);
        for lease in self.returned.lock().expect("nobody panics with it").drain(..) {
            self.leases.insert(lease.job(), lease);
        }
        self.disk.heal();
        let failed = matches!(self.store().health(), Health::Failed { .. });
        let stopped = self.disk.has_stopped();
        let mut doubts = Vec::new();
        for (act, reply) in acts.into_iter().zip(replies) {
            if (stopped || failed) && reply.is_cut_off() {
                doubts.push(act);
            } else {
                self.answered(act, reply);
            }
        }
        if stopped || failed {
            self.check_poison(failed);
            let lose = stopped || self.chance.one_in(2);
            self.reopen(lose, &doubts);
        }
    }

    /// After a failed sync nothing is taken any more.
    fn check_poison(&self, failed: bool) {
        if failed {
            let full = self.store().reserve(&self.book.lanes[0].name, need(1, 10), &self.limits).expect_err("it has failed");
            assert_eq!(full.which, WhichLimit::NotServing);
        }
    }

    fn reopen(&mut self, power_cut: bool, doubts: &[&Act]) {
        self.tell(format_args!("the machine stops (power cut: {power_cut}), {} commands in doubt", doubts.len()));
        let disk = if power_cut { self.disk.crash() } else { self.disk.kill() };
        self.leases.clear();
        self.hand.take().expect("it is open").store().close();
        self.disk = disk;
        let opened = ByHand::open(options(&self.disk, &self.clock, self.disk_limit));
        self.hand = Some(opened.unwrap_or_else(|error| panic!("the store does not open again: {error}")));
        self.set_up();
        let found = self.store().status().recovered;
        self.tell(format_args!("{found:?}"));
        // Nothing was damaged: whatever is missing was torn.
        assert_eq!(found.quarantined_extents, 0, "{:?}", spillgate_queue::inspect::inspect(&self.disk).map(|found| found.quarantined));
        assert!(found.losses.is_empty() && found.remarks.iter().all(|remark| !remark.contains("interrupted")), "{found:?}");
        self.settle();
        self.forget_work();
        for act in doubts {
            self.find_out(act);
        }
        // Whatever was given out and not durable may be given out again.
        for lane in &mut self.book.lanes {
            lane.exact = false;
        }
        self.check();
        self.learn_next();
    }

    /// An item of nothing in each lane tells which number comes next.
    fn learn_next(&mut self) {
        let known = self.store().lanes(None);
        for lane in 0..self.book.lanes.len() {
            let is_there = known.iter().any(|status| status.name == self.book.lanes[lane].name && status.number > 0);
            if is_there {
                self.perform(&[Act::Append { lane, items: vec![NewItem::default()] }], false);
            } else {
                self.book.lanes[lane].exact = true;
            }
        }
    }

    /// All are on their way before the store takes a step; some may be done in the middle of it.
    fn together(&mut self, futures: Vec<Sent>) -> Vec<Reply> {
        let mut replies: Vec<Option<Reply>> = futures.iter().map(|_| None).collect();
        let mut running: Vec<(usize, Sent)> = futures.into_iter().enumerate().collect();
        for _ in 0..STEPS {
            running.retain_mut(|(at, future)| match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(reply) => {
                    replies[*at] = Some(reply);
                    false
                }
                Poll::Pending => true,
            });
            if running.is_empty() {
                self.settle();
                return replies.into_iter().map(|reply| reply.expect("all have answered")).collect();
            }
            self.hand().step();
        }
        panic!("a command is never answered");
    }

    fn step_take(&mut self) {
        let (lane, most, lease) = (self.any_lane(), 1 + self.chance.below(4), self.span(60));
        self.tell(format_args!("take {most} of lane {lane}, lease {lease:?}"));
        self.take(lane, usize::try_from(most).expect("few"), lease);
    }

    fn step_renew(&mut self) {
        let running: Vec<JobId> = self.leases.keys().copied().collect();
        let Some(id) = self.pick(&running) else { return };
        let (lease, now) = (self.span(60), self.book.now);
        self.tell(format_args!("renew {id}, {lease:?}"));
        let renewed = self.store().renew(&self.leases[&id], lease);
        if renewed.is_ok() {
            self.entry(id).lease_until = now + crate::book::milliseconds(lease);
        } else {
            assert!(self.book.jobs[&id].lease_until <= now, "{id}: a lease that still runs was lost");
        }
    }

    fn step_drop(&mut self) {
        let running: Vec<JobId> = self.leases.keys().copied().collect();
        let Some(id) = self.pick(&running) else { return };
        self.tell(format_args!("drop the lease of {id}"));
        self.leases.remove(&id);
        self.settle();
        self.book.hand_back(id, 0);
    }

    fn step_time(&mut self) {
        let seconds = if self.chance.one_in(5) { self.chance.below(400) } else { 1 + self.chance.below(20) };
        self.tell(format_args!("{seconds} seconds pass"));
        self.pass(seconds);
    }
    fn pass(&mut self, seconds: u64) {
        self.clock.pass(Duration::from_secs(seconds));
        self.book.now += seconds * 1000;
        self.settle();
        // As a thread does otherwise, at some moment.
        if self.chance.one_in(2) {
            self.hand().look_at_volume();
        }
    }

    fn step_pause(&mut self) {
        let lane = self.any_lane();
        let paused = !self.book.lanes[lane].paused;
        self.tell(format_args!("lane {lane} paused: {paused}"));
        self.store().pause(&self.book.lanes[lane].name.clone(), paused);
        self.book.lanes[lane].paused = paused;
    }

    /// Room that is not used.
    fn step_room(&mut self) {
        let lane = self.any_lane();
        let item = self.item();
        self.tell(format_args!("room in lane {lane} for {} bytes", item.content.len()));
        let room = self.reserve(lane, &[item]);
        drop(room);
    }

    fn step_restart(&mut self) {
        match self.chance.below(3) {
            0 => {
                self.tell("close");
                self.store().close();
                self.reopen(false, &[]);
            }
            other => self.reopen(other == 1, &[]),
        }
    }

    /// Everything that waits is worked on to its end, after one more restart.
    fn drain(mut self) {
        self.reopen(true, &[]);
        self.pass(500);
        for _ in 0..200 {
            for lane in 0..self.book.lanes.len() {
                let letters = self.book.letters(lane);
                if letters.len() as u64 >= self.book.most_letters {
                    self.perform(&[Act::Purge { lane, dead_too: true }], false);
                }
                self.take(lane, 8, Duration::from_millis(60_000 + HALF));
            }
            self.check();
            let running: Vec<JobId> = self.leases.keys().copied().collect();
            if running.is_empty() && self.book.jobs.values().all(|entry| entry.state.is_end()) {
                self.store().close();
                return;
            }
            for id in running {
                let finish = Finish {
                    state: JobState::Succeeded,
                    outcome: None,
                    keep: Duration::from_secs(9),
                    frees_keys: false,
                    emits: Vec::new(),
                    note: None,
                };
                self.perform(&[Act::Finish { id, finish }], false);
            }
        }
        panic!("what waits is never handed out");
    }
}
