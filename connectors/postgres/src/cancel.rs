//! A cancel request that is known to have been delivered.
//!
//! Postgres answers a cancel request with nothing but the end of its connection, which it closes after it has sent the
//! signal. Hence the request's own shutdown waits for that end: when it is over, the signal is on its way to the one
//! backend, before anything that is sent to that backend later.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::timeout;
use tokio_postgres::CancelToken;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
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
            let stream = UntilClosed(self.peer.connect(None).await?);
            let Ok(tls) = MakeTlsConnect::<UntilClosed<Link>>::make_tls_connect(&mut self.tls.clone(), &self.name);
            self.token.cancel_query_raw(stream, UntilClosed(tls)).await.map_err(io::Error::other)
        };
        match timeout(LIMIT, Box::pin(delivering)).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::debug!(%error, "a cancel request did not arrive");
                false
            }
            Err(_) => false,
        }
    }
}

/// A stream whose shutdown says nothing and ends when the other side has closed. Around TLS too: its parting word would meet a
/// closed door, and the answer to that could not be told from a lost link.
struct UntilClosed<S>(S);

impl<S: AsyncRead + Unpin> AsyncRead for UntilClosed<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for UntilClosed<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut space = [0; 256];
            let mut buffer = ReadBuf::new(&mut space);
            match ready!(Pin::new(&mut self.0).poll_read(context, &mut buffer)) {
                Ok(()) if buffer.filled().is_empty() => return Poll::Ready(Ok(())),
                Ok(()) => {}
                // Postgres closes without TLS' own farewell.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Poll::Ready(Ok(())),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl<S: TlsStream + Unpin> TlsStream for UntilClosed<S> {
    fn channel_binding(&self) -> ChannelBinding {
        self.0.channel_binding()
    }
}

impl<S, T> TlsConnect<S> for UntilClosed<T>
where
    T: TlsConnect<S>,
    T::Stream: Send,
    T::Future: Send + 'static,
{
    type Stream = UntilClosed<T::Stream>;
    type Error = T::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Stream, T::Error>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        let connecting = self.0.connect(stream);
        Box::pin(async move { connecting.await.map(UntilClosed) })
    }
}
