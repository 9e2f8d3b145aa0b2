//! A cancel request that is known to have been delivered.
//!
//! Postgres answers a cancel request with nothing but the end of its connection, which it closes after it has sent the
//! signal. Hence the request's own shutdown waits for that end: when it is over, the signal is on its way to the one
//! backend, before anything that is sent to that backend later.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::timeout;
use tokio_postgres::CancelToken;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::link::{Link, Peer};

/// A server that takes no new connection within this time takes no cancel either.
const LIMIT: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(crate) struct Cancel {
    pub(crate) token: CancelToken,
    pub(crate) peer: Peer,
    pub(crate) tls: MakeRustlsConnect,
    /// The name the server's certificate bears.
    pub(crate) name: String,
}

impl Cancel {
    /// Asks the server to end what the session's connection runs. False when the request may not have arrived.
    pub(crate) async fn deliver(&self) -> bool {
        let delivering = async {
            let stream = UntilClosed { link: self.peer.connect(None).await?, shut: false };
            let Ok(tls) = MakeTlsConnect::<UntilClosed>::make_tls_connect(&mut self.tls.clone(), &self.name);
            self.token.cancel_query_raw(stream, tls).await.map_err(io::Error::other)
        };
        match timeout(LIMIT, delivering).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::debug!(%error, "a cancel request did not arrive");
                false
            }
            Err(_) => false,
        }
    }
}

/// A stream whose shutdown ends when the other side has closed.
struct UntilClosed {
    link: Link,
    shut: bool,
}

impl AsyncRead for UntilClosed {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.link).poll_read(context, buffer)
    }
}

impl AsyncWrite for UntilClosed {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.link).poll_write(context, bytes)
    }
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.link).poll_flush(context)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.shut {
            ready!(Pin::new(&mut self.link).poll_shutdown(context))?;
            self.shut = true;
        }
        loop {
            let mut space = [0; 256];
            let mut buffer = ReadBuf::new(&mut space);
            ready!(Pin::new(&mut self.link).poll_read(context, &mut buffer))?;
            if buffer.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}
