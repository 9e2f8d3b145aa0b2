//! Connections of one crowd: kept between calls, opened when none is free, closed where a caller hangs up.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::{End, Sample};
use crate::client::Client;

/// Calls of one crowd at once. A crowd that needs more is told so by broken calls.
const MOST: usize = 4_000;

/// Cheap to clone.
#[derive(Clone)]
pub(super) struct Connections(Arc<Shared>);

struct Shared {
    address: SocketAddr,
    free: Mutex<Vec<Client>>,
    places: Semaphore,
}

impl Connections {
    pub(super) fn to(address: SocketAddr) -> Connections {
        Connections(Arc::new(Shared { address, free: Mutex::new(Vec::new()), places: Semaphore::new(MOST) }))
    }
    /// One call, hung up on when the caller's patience ends.
    pub(super) async fn call(&self, request: &[u8], due: Instant, patience: Duration) -> Sample {
        let end = match self.0.places.try_acquire() {
            Err(_) => End::Broken("more calls at once than a crowd may have".into()),
            Ok(_place) => {
                let left = patience.saturating_sub(due.elapsed());
                timeout(left, self.exchange(request)).await.unwrap_or(End::HungUp)
            }
        };
        Sample { due, ended: Instant::now(), end }
    }
    async fn exchange(&self, request: &[u8]) -> End {
        let kept = self.0.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        // A kept connection may have been closed meanwhile; that says nothing about the call.
        if let Some(client) = kept
            && let Ok(end) = self.exchange_on(client, request).await
        {
            return end;
        }
        let opened = Client::connect(self.0.address).await;
        let ended = match opened {
            Ok(client) => self.exchange_on(client, request).await,
            Err(error) => Err(error),
        };
        ended.unwrap_or_else(|error| End::Broken(error.to_string().into()))
    }
    async fn exchange_on(&self, mut client: Client, request: &[u8]) -> std::io::Result<End> {
        let (status, body) = client.call(request).await?;
        let end = End::of(status, body);
        self.0.free.lock().unwrap_or_else(PoisonError::into_inner).push(client);
        Ok(end)
    }
}
