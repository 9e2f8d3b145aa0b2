//! A tenant that calls at a fixed rate, whatever becomes of its calls.

use std::net::SocketAddr;
use std::time::Duration;

use super::connections::Connections;
use super::{Beat, Crowd, Samples};

/// How it calls.
pub struct Steady {
    /// Where.
    pub address: SocketAddr,
    /// What, one after the other and over again.
    pub requests: Vec<Vec<u8>>,
    /// How often.
    pub per_second: f64,
    /// When a caller hangs up.
    pub patience: Duration,
}

impl Steady {
    /// Begins to call.
    pub fn start(self) -> Crowd<Samples> {
        Crowd::start("steady", move |runtime, stop| {
            let connections = Connections::to(self.address);
            let requests: Vec<std::sync::Arc<[u8]>> = self.requests.into_iter().map(Into::into).collect();
            let mut beat = Beat::per_second(self.per_second);
            let mut calls = Vec::new();
            for request in requests.iter().cycle() {
                let due = beat.next();
                if stop.is_told() {
                    break;
                }
                let (connections, request, patience) = (connections.clone(), request.clone(), self.patience);
                calls.push(runtime.spawn(async move { connections.call(&request, due, patience).await }));
            }
            runtime.block_on(async {
                let mut samples = Vec::with_capacity(calls.len());
                for call in calls {
                    samples.push(call.await.expect("no call panicked"));
                }
                Samples(samples)
            })
        })
    }
}
