//! Agents that always have a call under way: who is answered asks the next thing, who is refused comes back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::connections::Connections;
use super::{Crowd, End, Samples};

/// How they call.
pub struct Agents {
    /// Where.
    pub address: SocketAddr,
    /// What; each agent keeps to one, in turn.
    pub requests: Vec<Vec<u8>>,
    /// How many agents.
    pub count: usize,
    /// When an agent hangs up.
    pub patience: Duration,
    /// What an agent that was refused, hung up or lost its connection waits.
    pub pause: Pause,
}

/// What a caller waits before it comes back.
#[derive(Clone, Copy, Debug)]
pub enum Pause {
    /// Always so long, whatever it was told.
    Fixed(Duration),
    /// What it was told; so long where it was told nothing.
    AsTold(Duration),
}

impl Pause {
    pub(super) fn after(self, end: &End) -> Duration {
        match (self, end) {
            (Pause::AsTold(_), End::Refused(_, Some(told))) => *told,
            (Pause::AsTold(pause) | Pause::Fixed(pause), _) => pause,
        }
    }
}

impl Agents {
    /// They begin to call.
    pub fn start(self) -> Crowd<Samples> {
        Crowd::start("agents", move |runtime, stop| {
            let connections = Connections::to(self.address);
            let requests: Vec<Arc<[u8]>> = self.requests.into_iter().map(Into::into).collect();
            let agents: Vec<_> = (0..self.count)
                .map(|agent| {
                    let (connections, request, stop) = (connections.clone(), requests[agent % requests.len()].clone(), stop.clone());
                    runtime.spawn(async move {
                        let mut samples = Vec::new();
                        while !stop.is_told() {
                            let sample = connections.call(&request, Instant::now(), self.patience).await;
                            let pause = if sample.end.is_well() { Duration::ZERO } else { self.pause.after(&sample.end) };
                            samples.push(sample);
                            wait(pause, &stop).await;
                        }
                        samples
                    })
                })
                .collect();
            runtime.block_on(async {
                let mut samples = Vec::new();
                for agent in agents {
                    samples.extend(agent.await.expect("no agent panicked"));
                }
                Samples(samples)
            })
        })
    }
}

/// Waits, but not much longer than the crowd goes on.
async fn wait(pause: Duration, stop: &super::Stop) {
    const LOOK: Duration = Duration::from_millis(100);
    let end = Instant::now() + pause;
    while Instant::now() < end && !stop.is_told() {
        tokio::time::sleep(LOOK.min(end.saturating_duration_since(Instant::now()))).await;
    }
}
