//! A simulated database with its callers: plays hours in milliseconds, the same way for the same seed.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::seats::{Asked, Asking, Class, FairSeats, Held, HoldTimes, Next, Pool, RefusalKind, Share, Ticket};

pub(super) const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}
pub(super) const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Every limit as the contract's defaults have it.
pub(super) fn pool(max: u32) -> Pool {
    Pool { max, fast_only: max / 8, floor: 4, adaptive: true }
}
pub(super) fn share(pool: &Pool) -> Share {
    Share { weight: 1, reserved: 0, limit: pool.max - 2, line: 16 }
}

/// What callers of one kind do.
#[derive(Clone)]
pub(super) struct Callers {
    pub(super) tenant: &'static str,
    /// So many tenants of that name, each with these callers.
    pub(super) tenants: usize,
    pub(super) share: Share,
    pub(super) class: Class,
    /// How long a statement takes on a healthy day.
    pub(super) hold: Duration,
    /// Statements last between a half and one and a half of `hold`.
    pub(super) varies: bool,
    pub(super) deadline: Duration,
    /// When they hang up.
    pub(super) patience: Duration,
    pub(super) pace: Pace,
    /// Attempts at one task, and the pause between them, unless they obey the advice to wait.
    pub(super) attempts: u32,
    pub(super) pause: Duration,
    pub(super) obeys: bool,
    pub(super) from: Duration,
    pub(super) until: Duration,
}

#[derive(Clone, Copy)]
pub(super) enum Pace {
    /// A new task every so often, whatever became of the others.
    Every(Duration),
    /// So many callers, each with one task at a time.
    Callers(usize),
}

/// What became of the calls of one kind.
#[derive(Default, Debug)]
pub(super) struct Told {
    /// For each call that was answered: when it had asked, its wait and its whole time.
    pub(super) answered: Vec<(Duration, Duration, Duration)>,
    pub(super) refused: HashMap<RefusalKind, u64>,
    /// At their deadline, or out of patience.
    pub(super) timed_out: u64,
    pub(super) attempts: u64,
    /// For each call that waited and was served: its wait as foreseen, and as it was.
    pub(super) foreseen: Vec<(Duration, Duration)>,
    /// Connection-seconds by tenant.
    pub(super) used: HashMap<Arc<str>, f64>,
}

impl Told {
    pub(super) fn refusals(&self) -> u64 {
        self.refused.values().sum()
    }
    /// Answers per second to calls that were answered in that time.
    pub(super) fn goodput(&self, from: Duration, until: Duration) -> f64 {
        let count = self.answered.iter().filter(|(asked, _, whole)| (from..until).contains(&(*asked + *whole))).count();
        f64::from(u32::try_from(count).expect("few")) / (until - from).as_secs_f64()
    }
    fn percentile(mut times: Vec<Duration>, part: f64) -> Duration {
        times.sort_unstable();
        assert!(!times.is_empty(), "nothing was answered");
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let at = ((times.len() - 1) as f64 * part) as usize;
        times[at]
    }
    /// Of whole call times.
    pub(super) fn p99(&self) -> Duration {
        Self::percentile(self.answered.iter().map(|(_, _, whole)| *whole).collect(), 0.99)
    }
    pub(super) fn longest_wait(&self) -> Duration {
        self.answered.iter().map(|(_, wait, _)| *wait).max().unwrap_or_default()
    }
    /// Jain's index of what the tenants used.
    pub(super) fn jain(&self) -> f64 {
        let used: Vec<f64> = self.used.values().copied().collect();
        let (sum, squares) = (used.iter().sum::<f64>(), used.iter().map(|used| used * used).sum::<f64>());
        sum * sum / (f64::from(u32::try_from(used.len()).expect("few")) * squares)
    }
}

enum Event {
    Task { kind: usize, tenant: usize },
    Attempt { kind: usize, tenant: usize, attempt: u32 },
    Done(u64),
    GivesUp(u64),
    Tick,
}

struct Call {
    kind: usize,
    tenant: usize,
    attempt: u32,
    asked: Duration,
    foreseen: Duration,
    place: Place,
}

enum Place {
    Line(Ticket),
    Seat { held: Held, since: Duration },
}

/// How many times slower than usual the database is for callers of a kind at a moment, with so many statements at work.
type Slowness = Box<dyn Fn(usize, Duration, u32) -> f64>;

pub(super) struct World {
    pub(super) seats: FairSeats,
    pub(super) told: Vec<Told>,
    /// Sampled ten times a second: the time, seats in use, the limit.
    pub(super) samples: Vec<(Duration, u32, u32)>,
    pool: Pool,
    kinds: Vec<Callers>,
    names: Vec<Vec<Arc<str>>>,
    times: Vec<Arc<HoldTimes>>,
    slowness: Slowness,
    events: BinaryHeap<Reverse<(Duration, u64)>>,
    planned: HashMap<u64, Event>,
    calls: HashMap<u64, Call>,
    tickets: HashMap<Ticket, u64>,
    now: Duration,
    next: u64,
    random: u64,
}

impl World {
    pub(super) fn new(pool: Pool, kinds: Vec<Callers>) -> Self {
        let of = |kind: usize, callers: &Callers| {
            (0..callers.tenants).map(|number| format!("{}-{kind}-{number}", callers.tenant).into()).collect()
        };
        let names = kinds.iter().enumerate().map(|(kind, callers)| of(kind, callers)).collect();
        let mut world = World {
            seats: FairSeats::new(pool),
            told: kinds.iter().map(|_| Told::default()).collect(),
            samples: Vec::new(),
            pool,
            names,
            times: kinds.iter().map(|_| Arc::default()).collect(),
            slowness: Box::new(|_, _, _| 1.0),
            kinds,
            events: BinaryHeap::new(),
            planned: HashMap::new(),
            calls: HashMap::new(),
            tickets: HashMap::new(),
            now: Duration::ZERO,
            next: 0,
            random: 0x9E37_79B9_7F4A_7C15,
        };
        world.plan(ms(100), Event::Tick);
        for kind in 0..world.kinds.len() {
            let (tenants, pace, from) = (world.kinds[kind].tenants, world.kinds[kind].pace, world.kinds[kind].from);
            for tenant in 0..tenants {
                let tasks = if let Pace::Callers(callers) = pace { callers } else { 1 };
                for _ in 0..tasks {
                    world.plan(from, Event::Task { kind, tenant });
                }
            }
        }
        world
    }
    pub(super) fn slowed(mut self, slowness: impl Fn(usize, Duration, u32) -> f64 + 'static) -> Self {
        self.slowness = Box::new(slowness);
        self
    }
    /// Flows were called before.
    pub(super) fn measured(self) -> Self {
        for (callers, times) in self.kinds.iter().zip(&self.times) {
            (0..128).for_each(|_| times.record(callers.hold, Duration::ZERO));
        }
        self
    }
    /// Plays until then.
    pub(super) fn play(mut self, until: Duration) -> Self {
        while let Some(Reverse((at, number))) = self.events.pop()
            && at <= until
        {
            self.now = at;
            let Some(event) = self.planned.remove(&number) else { continue };
            match event {
                Event::Task { kind, tenant } => self.task(kind, tenant),
                Event::Attempt { kind, tenant, attempt } => self.attempt(kind, tenant, attempt),
                Event::Done(call) => self.done(call),
                Event::GivesUp(call) => self.gives_up(call),
                Event::Tick => self.tick(),
            }
            self.serve();
        }
        self
    }

    fn plan(&mut self, at: Duration, event: Event) {
        self.next += 1;
        self.planned.insert(self.next, event);
        self.events.push(Reverse((at, self.next)));
    }
    fn random(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        f64::from(u32::try_from(self.random >> 32).expect("32 bits")) / f64::from(u32::MAX)
    }
    fn tick(&mut self) {
        let limit = self.seats.status(self.now).limit;
        self.samples.push((self.now, self.seats.in_use(), limit));
        self.plan(self.now + ms(100), Event::Tick);
    }
    fn task(&mut self, kind: usize, tenant: usize) {
        let callers = &self.kinds[kind];
        if self.now >= callers.until {
            return;
        }
        if let Pace::Every(pause) = callers.pace {
            let jitter = if callers.varies { 0.5 + self.random() } else { 1.0 };
            self.plan(self.now + pause.mul_f64(jitter), Event::Task { kind, tenant });
        }
        self.attempt(kind, tenant, 1);
    }
    fn attempt(&mut self, kind: usize, tenant: usize, attempt: u32) {
        let callers = &self.kinds[kind];
        // To us each attempt of a caller is a first one.
        let (class, share, deadline, estimate) = (callers.class, callers.share, self.now + callers.deadline, self.times[kind].estimate());
        let asking = Asking { tenant: &self.names[kind][tenant], share, class, estimate, times: Some(&self.times[kind]), deadline };
        self.told[kind].attempts += 1;
        let gives_up = self.now + callers.patience.min(callers.deadline);
        let foreseen = self.seats.expected_wait(&asking, self.now);
        let asked = self.seats.ask(&asking, self.now);
        self.next += 1;
        let (call, now) = (self.next, self.now);
        match asked {
            Asked::Refuse(refusal) => {
                *self.told[kind].refused.entry(refusal.kind).or_default() += 1;
                self.failed(kind, tenant, attempt, Some(refusal.retry_after));
            }
            Asked::Wait(ticket) => {
                self.tickets.insert(ticket, call);
                self.calls.insert(call, Call { kind, tenant, attempt, asked: now, foreseen, place: Place::Line(ticket) });
                self.plan(gives_up, Event::GivesUp(call));
            }
            Asked::Seat(held) => {
                let place = Place::Seat { held, since: now };
                self.calls.insert(call, Call { kind, tenant, attempt, asked: now, foreseen, place });
                self.plan(gives_up, Event::GivesUp(call));
                self.begin(call, kind);
            }
        }
    }
    fn begin(&mut self, call: u64, kind: usize) {
        let (hold, varies) = (self.kinds[kind].hold, self.kinds[kind].varies);
        let factor = if varies { 0.5 + self.random() } else { 1.0 };
        let slowness = (self.slowness)(kind, self.now, self.seats.in_use());
        self.plan(self.now + hold.mul_f64(factor * slowness), Event::Done(call));
    }
    /// A task that failed is tried again, or given up; a caller with one task at a time goes on.
    fn failed(&mut self, kind: usize, tenant: usize, attempt: u32, advice: Option<Duration>) {
        let random = self.random();
        let callers = &self.kinds[kind];
        let again = self.now
            + match advice.filter(|_| callers.obeys) {
                // As callers are told it: never less than 50 ms, and up to half as long again.
                Some(advice) => advice.max(ms(50)).mul_f64(1.0 + random / 2.0),
                None => callers.pause.mul_f64(0.5 + random),
            };
        if attempt < callers.attempts {
            self.plan(again, Event::Attempt { kind, tenant, attempt: attempt + 1 });
        } else if matches!(callers.pace, Pace::Callers(_)) {
            self.plan(again, Event::Task { kind, tenant });
        }
    }
    fn serve(&mut self) {
        while let Some(next) = self.seats.next(self.now) {
            match next {
                Next::Grant { ticket, held } => {
                    let call = self.tickets.remove(&ticket).expect("a ticket is named once, and only while it waits");
                    let waiting = self.calls.get_mut(&call).expect("it waits");
                    waiting.place = Place::Seat { held, since: self.now };
                    let kind = waiting.kind;
                    self.told[kind].foreseen.push((waiting.foreseen, self.now - waiting.asked));
                    self.begin(call, kind);
                }
                Next::Drop { ticket, refusal } => {
                    let call = self.tickets.remove(&ticket).expect("a ticket is named once, and only while it waits");
                    let Call { kind, tenant, attempt, .. } = self.calls.remove(&call).expect("it waits");
                    *self.told[kind].refused.entry(refusal.kind).or_default() += 1;
                    self.failed(kind, tenant, attempt, Some(refusal.retry_after));
                }
            }
            assert!(self.seats.in_use() <= self.pool.max, "over-admitted");
        }
    }
    fn done(&mut self, call: u64) {
        let Some(Call { kind, tenant, asked, place: Place::Seat { held, since }, .. }) = self.calls.remove(&call) else { return };
        let took = self.now - since;
        self.times[kind].record(took, self.now);
        self.seats.end(held, Some(took), self.now);
        self.used(kind, tenant, took);
        self.told[kind].answered.push((asked, since - asked, self.now - asked));
        if matches!(self.kinds[kind].pace, Pace::Callers(_)) {
            self.plan(self.now, Event::Task { kind, tenant });
        }
    }
    fn gives_up(&mut self, call: u64) {
        let Some(Call { kind, tenant, attempt, place, .. }) = self.calls.remove(&call) else { return };
        match place {
            Place::Line(ticket) => {
                self.tickets.remove(&ticket);
                self.seats.leave(ticket, self.now);
            }
            Place::Seat { held, since } => {
                self.times[kind].cut_short(self.now - since, self.now);
                self.seats.end(held, None, self.now);
                self.used(kind, tenant, self.now - since);
            }
        }
        self.told[kind].timed_out += 1;
        self.failed(kind, tenant, attempt, None);
    }
    fn used(&mut self, kind: usize, tenant: usize, took: Duration) {
        *self.told[kind].used.entry(self.names[kind][tenant].clone()).or_default() += took.as_secs_f64();
    }
}
