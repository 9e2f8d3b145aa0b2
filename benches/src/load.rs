//! The load generator: a closed loop of callers, each with one keep-alive connection, on one thread of this process.
//!
//! Invariants
//! 1. Only calls that end within the window are counted, and latencies are those of exactly these calls.
//! 2. A reply of another status than the expected one is never a completed call.
//! 3. CPU times are read at the edges of the window, by another thread than the one that makes the load.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::histogram::Histogram;
use crate::process::{Server, own_cpu};
use spillgate_test_support::client::Client;

/// What a round sends.
#[derive(Clone)]
pub(crate) struct Load {
    /// Each caller goes round these, from a place of its own.
    pub(crate) requests: Arc<[Vec<u8>]>,
    /// The only status that counts as completed.
    pub(crate) expects: u16,
    /// Callers at once.
    pub(crate) callers: usize,
    /// What each of them waits between two calls.
    pub(crate) pause: Duration,
    /// Not counted, at the start.
    pub(crate) warm_up: Duration,
    /// The window that is counted.
    pub(crate) window: Duration,
}

/// What a round measured.
pub(crate) struct Round {
    /// Completed calls.
    pub(crate) completed: u64,
    /// Calls that failed or were refused.
    pub(crate) failed: u64,
    /// What the first of these was answered.
    pub(crate) failure: Option<String>,
    /// Latencies in nanoseconds.
    pub(crate) latencies: Histogram,
    /// CPU of the server within the window.
    pub(crate) server_cpu: Duration,
    /// CPU of this process within the window.
    pub(crate) own_cpu: Duration,
    /// Length of the window.
    pub(crate) window: Duration,
}

#[derive(Default)]
struct Tally {
    latencies: Histogram,
    failed: u64,
    failure: Option<String>,
}

/// The time that is counted.
#[derive(Clone, Copy)]
pub(crate) struct Window {
    /// First moment.
    pub(crate) begin: Instant,
    /// First moment that is not counted any more.
    pub(crate) end: Instant,
}

impl Window {
    /// One that begins after the warm-up.
    pub(crate) fn after(warm_up: Duration, length: Duration) -> Self {
        let begin = Instant::now() + warm_up;
        Window { begin, end: begin + length }
    }
    /// How long it is.
    pub(crate) fn length(&self) -> Duration {
        self.end - self.begin
    }
}

impl Round {
    /// Completed calls a second.
    pub(crate) fn per_second(&self) -> f64 {
        self.completed as f64 / self.window.as_secs_f64()
    }
    /// Microseconds of the server's CPU for each completed call.
    pub(crate) fn cpu_micros(&self) -> f64 {
        self.server_cpu.as_secs_f64() * 1e6 / (self.completed.max(1)) as f64
    }
}

/// Runs one round against a server.
pub(crate) fn run(server: &Server, load: &Load) -> Result<Round> {
    let window = Window::after(load.warm_up, load.window);
    let (address, callers) = (server.address, load.clone());
    let generator = std::thread::Builder::new().name("load".into()).spawn(move || call_all(address, &callers, window))?;

    sleep_until(window.begin);
    let before = (server.cpu()?, own_cpu()?);
    sleep_until(window.end);
    let after = (server.cpu()?, own_cpu()?);

    let tally = generator.join().map_err(|_| anyhow::anyhow!("the load generator panicked"))??;
    Ok(Round {
        completed: tally.latencies.total(),
        failed: tally.failed,
        failure: tally.failure,
        latencies: tally.latencies,
        server_cpu: after.0.saturating_sub(before.0),
        own_cpu: after.1.saturating_sub(before.1),
        window: load.window,
    })
}

fn sleep_until(moment: Instant) {
    std::thread::sleep(moment.saturating_duration_since(Instant::now()));
}

fn call_all(address: SocketAddr, load: &Load, window: Window) -> Result<Tally> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let callers: Vec<_> = (0..load.callers)
            .map(|caller| {
                let first = caller * load.requests.len() / load.callers;
                tokio::spawn(call_until_end(address, load.clone(), first, window))
            })
            .collect();
        let mut sum = Tally::default();
        for caller in callers {
            let tally = caller.await.context("a caller panicked")?;
            sum.latencies.add(&tally.latencies);
            sum.failed += tally.failed;
            sum.failure = sum.failure.or(tally.failure);
        }
        Ok(sum)
    })
}

async fn call_until_end(address: SocketAddr, load: Load, first: usize, window: Window) -> Tally {
    let mut tally = Tally::default();
    let mut client = None;
    let mut next = first;
    loop {
        let started = Instant::now();
        if started >= window.end {
            return tally;
        }
        let request = &load.requests[next % load.requests.len()];
        next += 1;
        let failure = match call(&mut client, address, request, load.expects).await {
            Ok(failure) => failure,
            Err(error) => {
                client = None;
                Some(error.to_string())
            }
        };
        let ended = Instant::now();
        if !load.pause.is_zero() {
            tokio::time::sleep(load.pause).await;
        }
        if ended < window.begin || ended >= window.end {
            continue;
        }
        if failure.is_none() {
            let nanos = ended.duration_since(started).as_nanos();
            tally.latencies.record(u64::try_from(nanos).unwrap_or(u64::MAX));
        } else {
            tally.failed += 1;
            tally.failure = tally.failure.or(failure);
            // A server that refuses at once must not turn the generator into a spinning loop.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// One call: nothing if it was answered as expected, else what was said instead.
async fn call(client: &mut Option<Client>, address: SocketAddr, request: &[u8], expects: u16) -> Result<Option<String>> {
    let client = match client {
        Some(client) => client,
        none => none.insert(Client::connect(address).await?),
    };
    let (status, body) = client.call(request).await?;
    Ok((status != expects).then(|| format!("{status}: {}", String::from_utf8_lossy(body))))
}
