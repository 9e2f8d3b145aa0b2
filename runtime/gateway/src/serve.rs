//! The listener: accepts connections, runs HTTP/1.1 on each, and stops in order.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use spillgate_model::{Code, Refusal, Scope, limits};
use spillgate_telemetry::happened;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::connections::{Connections, Seat, Stage};
use crate::lingering::Lingering;
use crate::problem::{self, Delay};
use crate::{Gateway, Inner, stack};

/// A client must have sent the head of its next request within this time; an idle connection is closed after it.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long kept-alive connections stay open after draining began, so that a call that is on its way to us gets a typed
/// refusal instead of a reset.
const LINGER: Duration = Duration::from_millis(250);
/// Headers of one request.
const HEADERS: usize = 100;
/// How long accepting pauses when the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

const _: () = assert!(limits::HEAD_BYTES <= 64 * 1024, "the reader's buffer holds a head that is too large by half");

impl Gateway {
    /// Serves until `shutdown`, then stops: no new connections, new calls refused as `draining`, accepted calls finished
    /// within `shutdown_grace`. Returns when every connection is gone.
    pub async fn serve(self, listener: TcpListener, shutdown: CancellationToken) {
        serve(listener, &self.inner, &shutdown).await;
    }
}

async fn serve(listener: TcpListener, gateway: &Arc<Inner>, shutdown: &CancellationToken) {
    let connections = Connections::new(gateway.connections);
    tokio::select! {
        never = accept(&listener, gateway, &connections) => match never {},
        () = shutdown.cancelled() => {}
    }
    drop(listener);
    gateway.draining.store(true, Ordering::SeqCst);
    gateway.stopping.notify_waiters();
    let grace = gateway.engine.live().plan.server.shutdown_grace;
    let orderly = async {
        // Nobody waits out the linger when no connection is left.
        if timeout(LINGER, connections.wait_empty()).await.is_err() {
            connections.advance(Stage::Closing);
            connections.wait_empty().await;
        }
    };
    if timeout(grace.max(LINGER), orderly).await.is_err() {
        tracing::warn!(?grace, "calls were still running when the grace time ended");
        connections.advance(Stage::Dropped);
        connections.wait_empty().await;
    }
}

async fn accept(listener: &TcpListener, gateway: &Arc<Inner>, connections: &Arc<Connections>) -> std::convert::Infallible {
    loop {
        match listener.accept().await {
            Ok((stream, remote)) => admit(stream, remote, gateway, connections),
            // The one client is gone; the listener is well.
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) => {}
            Err(error) => {
                happened::not_accepted(&gateway.telemetry, "flows", &error);
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn admit(stream: TcpStream, remote: SocketAddr, gateway: &Arc<Inner>, connections: &Arc<Connections>) {
    // Replies are written whole; waiting for more would only delay them. A failure shows at the first write.
    let _ = stream.set_nodelay(true);
    match connections.enter() {
        Some(seat) => drop(tokio::spawn(connection(stream, remote.ip(), gateway.clone(), seat))),
        None => refuse(&stream, gateway),
    }
}

/// Answers a connection beyond the cap without reading from it: what fits the socket's buffer, at once.
fn refuse(stream: &TcpStream, gateway: &Inner) {
    let refusal = Refusal { scope: Scope::Server, ..Refusal::new(Code::Overloaded, "Too many connections are open.") };
    let (id, number) = gateway.ids.next();
    let delay = Delay::of(&refusal, number);
    let body = problem::body(&refusal, delay, &id);
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\n\
         retry-after: {}\r\nspillgate-request-id: {id}\r\nconnection: close\r\n\r\n",
        body.len(),
        delay.map_or(1, Delay::seconds),
    );
    let _ = stream.try_write(&[head.as_bytes(), &body].concat());
}

async fn connection(stream: TcpStream, remote: IpAddr, gateway: Arc<Inner>, seat: Seat) {
    let service = service_fn(|request| {
        let gateway = &gateway;
        async move { Ok::<_, std::convert::Infallible>(stack::answer(gateway, remote, request).await) }
    });
    let mut builder = http1::Builder::new();
    // Without a timer the time-out for heads would do nothing. Half-closed connections are closed ones: that is how a
    // caller that hangs up ends its read.
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).half_close(false);
    // A head that is too large by less than half gets a problem object from the stack; beyond, the reader says 431.
    builder.max_headers(HEADERS).max_buf_size(limits::HEAD_BYTES * 2);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(Lingering::new(stream)), service));
    let mut seen = None;
    let served = poll_fn(|context| {
        if seen != Some(seat.stage()) {
            // Being woken takes the waker, so it is left again, and before the stage is looked at: no change is missed.
            seat.watch(context.waker());
            let stage = seat.stage();
            seen = Some(stage);
            match stage {
                Stage::Serving => {}
                Stage::Closing => connection.as_mut().graceful_shutdown(),
                Stage::Dropped => return Poll::Ready(Ok(())),
            }
        }
        connection.as_mut().poll(context)
    });
    if let Err(error) = served.await {
        tracing::debug!(%error, "a connection broke off");
    }
}
