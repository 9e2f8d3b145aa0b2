//! What callers send, and what became of it: tenants at a fixed rate, agents that always come back, tasks that are retried in
//! layers and split when they fail.
//!
//! Invariants
//! 1. Open loop where a rate is given: a call is due at its time whatever became of those before it, and its latency counts from
//!    when it was due. A slow server cannot slow its callers down and look better for it.
//! 2. Each crowd runs on threads of its own, so that one crowd's work is not another's latency.
//! 3. Everything that was due is in the samples, that which could not be sent among it.
//! 4. What a crowd holds is bounded: connections, calls and tasks at once.

mod agents;
mod connections;
mod samples;
mod steady;
mod tasks;

use std::io::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

pub use agents::{Agents, Pause};
pub use samples::{End, Sample, Samples, jain};
pub use steady::Steady;
pub use tasks::{Task, Tasks, TasksSeen};
use tokio::runtime::Runtime;

/// Callers at work until they are told to stop.
pub struct Crowd<T> {
    stop: Stop,
    thread: JoinHandle<T>,
}

/// Whether to go on.
#[derive(Clone, Default)]
struct Stop(Arc<AtomicBool>);

impl Stop {
    fn is_told(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl<T: Send + 'static> Crowd<T> {
    fn start(name: &str, work: impl FnOnce(&Runtime, &Stop) -> T + Send + 'static) -> Crowd<T> {
        let stop = Stop::default();
        let told = stop.clone();
        let thread = Builder::new().name(name.to_owned()).spawn(move || work(&runtime(), &told)).expect("a thread for callers");
        Crowd { stop, thread }
    }
    /// Nothing more is sent; what is under way is waited for.
    pub fn end(self) -> T {
        self.stop.0.store(true, Ordering::Release);
        self.thread.join().expect("no caller panicked")
    }
}

/// One thread that drives the calls, beside the one that says when.
fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime for callers")
}

/// The moments at which something is due at so many a second.
struct Beat {
    start: Instant,
    period: Duration,
    count: u32,
}

impl Beat {
    fn per_second(rate: f64) -> Beat {
        Beat { start: Instant::now(), period: Duration::from_secs_f64(1.0 / rate), count: 0 }
    }
    /// Sleeps until the next moment, unless it has passed already: then what is late is sent at once.
    fn next(&mut self) -> Instant {
        let due = self.start + self.period * self.count;
        self.count += 1;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        due
    }
}

/// Where the servers of tests say they listen.
pub fn address(written: &str) -> std::net::SocketAddr {
    written.parse().expect("an address")
}

/// One call of its own, outside of any crowd: status and body.
pub fn call_once(address: std::net::SocketAddr, request: &[u8]) -> Result<(u16, Vec<u8>)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut client = crate::client::Client::connect(address).await?;
        let (status, body) = client.call(request).await?;
        Ok((status, body.to_vec()))
    })
}
