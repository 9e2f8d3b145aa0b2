//! Work that makes more of itself when it fails: each task calls through layers that each retry what the one below gave up, and a
//! task that failed through all of them is split into parts that do the same. Nobody backs off and nobody reads what it is told.
//!
//! With three attempts in three layers a failing task costs 27 calls, and 81 when it is split in two once.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::connections::Connections;
use super::{Beat, Crowd, Sample, Samples};

/// Tasks at work at once; those that are due beyond it are given up unsent.
const MOST: usize = 2_000;

/// How they come and what they do.
pub struct Tasks {
    /// Where they call.
    pub address: SocketAddr,
    /// What.
    pub request: Vec<u8>,
    /// How many tasks begin in a second, whatever became of others.
    pub per_second: f64,
    /// When a call is hung up on.
    pub patience: Duration,
    /// What stands between two attempts.
    pub pause: Duration,
    /// Attempts in each layer.
    pub attempts: u32,
    /// Layers.
    pub layers: u32,
    /// How often a task, and each of its parts, may be split in two.
    pub splits: u32,
}

/// One task.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// When it was due.
    pub due: Instant,
    /// When it was done or given up.
    pub ended: Instant,
    /// Whether it was done, whole or in all its parts.
    pub done: bool,
}

/// What was seen.
pub struct TasksSeen {
    /// Each task.
    pub tasks: Vec<Task>,
    /// Each call they made.
    pub calls: Samples,
}

impl TasksSeen {
    /// Of the tasks that were due in this time, the part that was done at once: within `limit`.
    pub fn prompt(&self, from: Instant, to: Instant, limit: Duration) -> f64 {
        let due = self.tasks.iter().filter(|task| task.due >= from && task.due < to);
        let prompt = due.clone().filter(|task| task.done && task.ended - task.due <= limit);
        prompt.count() as f64 / due.count().max(1) as f64
    }
}

/// What every call of a crowd needs.
struct Shared {
    connections: Connections,
    request: Vec<u8>,
    rules: Rules,
    at_work: AtomicUsize,
}

#[derive(Clone, Copy)]
struct Rules {
    patience: Duration,
    pause: Duration,
    attempts: u32,
}

impl Tasks {
    /// They begin to come.
    pub fn start(self) -> Crowd<TasksSeen> {
        Crowd::start("tasks", move |runtime, stop| {
            let rules = Rules { patience: self.patience, pause: self.pause, attempts: self.attempts };
            let connections = Connections::to(self.address);
            let shared = Arc::new(Shared { connections, request: self.request, rules, at_work: AtomicUsize::new(0) });
            let mut beat = Beat::per_second(self.per_second);
            let mut running = Vec::new();
            let mut tasks = Vec::new();
            loop {
                let due = beat.next();
                if stop.is_told() {
                    break;
                }
                if shared.at_work.load(Ordering::Relaxed) >= MOST {
                    tasks.push(Task { due, ended: due, done: false });
                    continue;
                }
                shared.at_work.fetch_add(1, Ordering::Relaxed);
                let (shared, stop, layers, splits) = (shared.clone(), stop.clone(), self.layers, self.splits);
                running.push(runtime.spawn(async move {
                    let mut calls = Vec::new();
                    let done = shared.whole_or_in_parts(layers, splits, &mut calls, &stop).await;
                    shared.at_work.fetch_sub(1, Ordering::Relaxed);
                    (Task { due, ended: Instant::now(), done }, calls)
                }));
            }
            runtime.block_on(async {
                let mut all = Vec::new();
                for task in running {
                    let (task, calls) = task.await.expect("no task panicked");
                    tasks.push(task);
                    all.extend(calls);
                }
                TasksSeen { tasks, calls: Samples(all) }
            })
        })
    }
}

type Doing<'a> = Pin<Box<dyn Future<Output = bool> + Send + 'a>>;

impl Shared {
    /// A task that fails is split: both halves must be done.
    fn whole_or_in_parts<'a>(&'a self, layers: u32, splits: u32, calls: &'a mut Vec<Sample>, stop: &'a super::Stop) -> Doing<'a> {
        Box::pin(async move {
            if self.through(layers, calls, stop).await {
                return true;
            }
            if splits == 0 || stop.is_told() {
                return false;
            }
            let mut others = Vec::new();
            let (first, second) = tokio::join!(
                self.whole_or_in_parts(layers, splits - 1, calls, stop),
                self.whole_or_in_parts(layers, splits - 1, &mut others, stop)
            );
            calls.extend(others);
            first && second
        })
    }
    /// Each layer retries what the layer below it gave up.
    fn through<'a>(&'a self, layers: u32, calls: &'a mut Vec<Sample>, stop: &'a super::Stop) -> Doing<'a> {
        Box::pin(async move {
            let Some(below) = layers.checked_sub(1) else {
                let sample = self.connections.call(&self.request, Instant::now(), self.rules.patience).await;
                let well = sample.end.is_well();
                calls.push(sample);
                return well;
            };
            for attempt in 0..self.rules.attempts {
                if attempt > 0 {
                    tokio::time::sleep(self.rules.pause).await;
                }
                if self.through(below, calls, stop).await {
                    return true;
                }
                if stop.is_told() {
                    return false;
                }
            }
            false
        })
    }
}
