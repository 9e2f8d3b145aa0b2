//! The admin listener: bounded connections, HTTP/1.1 on each, an orderly stop.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Connections open at once; further ones wait to be accepted.
const CONNECTIONS: usize = 64;
/// A client must have sent the head of its next request within this time.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Headers of one request.
const HEADERS: usize = 100;
/// Bytes of a request head.
const HEAD_BYTES: usize = 16 * 1024;
/// How long accepting pauses when the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `stopping`, then lets each connection finish its request.
pub(crate) async fn serve(router: Router, listener: TcpListener, stopping: CancellationToken) {
    let (places, connections) = (Arc::new(Semaphore::new(CONNECTIONS)), TaskTracker::new());
    loop {
        // The semaphore is never closed, so a place is only ever waited for.
        let place = tokio::select! {
            place = places.clone().acquire_owned() => place,
            () = stopping.cancelled() => break,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopping.cancelled() => break,
        };
        match accepted {
            Ok((stream, remote)) => {
                let (router, stopping) = (router.clone(), stopping.clone());
                connections.spawn(async move {
                    connection(stream, remote, router, stopping).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "an admin connection could not be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

async fn connection(stream: TcpStream, remote: SocketAddr, router: Router, stopping: CancellationToken) {
    // Replies are written whole; waiting for more would only delay them. A failure shows at the first write.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |mut request: http::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(ConnectInfo(remote));
        hyper::service::Service::call(&TowerToHyperService::new(router.clone()), request)
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_headers(HEADERS).max_buf_size(HEAD_BYTES);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = stopping.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "an admin connection broke off");
    }
}
