//! A socket that closes so that its last reply arrives.
//!
//! Closing a socket with unread bytes resets the connection, and a reset may overtake the reply that was just sent: a
//! caller refused in the middle of a large body would see a broken connection instead of its refusal. So after the last
//! byte out, what still comes in is read and thrown away until the caller ends: [`BYTES`] and [`TIME`] at most.
//!
//! And a socket whose other side must read: a caller that takes nothing of its reply for [`STALL`] is cut off, for its reply
//! holds memory and its connection a place until then.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// The most that is read and thrown away.
const BYTES: usize = 4 << 20;
/// The longest that is waited for more of it.
const TIME: Duration = Duration::from_secs(1);

/// The longest that a reply waits for its caller to take any of it.
const STALL: Duration = Duration::from_secs(30);

/// The socket of a server's connection.
pub(crate) struct Lingering {
    stream: TcpStream,
    /// Runs while a write waits for the caller.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Open -> Closing (the last byte is out, the caller may still send) -> Closed.
    end: End,
}

enum End {
    Open,
    Closing { left: usize, until: Pin<Box<Sleep>> },
    Closed,
}

impl Lingering {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Lingering { stream, stalled: None, end: End::Open }
    }

    /// What a write came to: one that waits for too long is an error.
    fn written(&mut self, context: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(STALL)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Reads once and throws it away: how many bytes came.
    fn discard(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut buffer = [0; 4096];
        let mut buffer = ReadBuf::new(&mut buffer);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }
}

impl AsyncRead for Lingering {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Lingering {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(context, written)
    }
    fn poll_write_vectored(mut self: Pin<&mut Self>, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.written(context, written)
    }
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match &mut self.end {
                // Open -> Closed if the caller has ended, else Closing: with nothing unread now, the rest may be on its way.
                End::Open => {
                    ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
                    let ended = matches!(self.discard(context), Poll::Ready(Ok(0) | Err(_)));
                    self.end = if ended { End::Closed } else { End::Closing { left: BYTES, until: Box::pin(sleep(TIME)) } };
                }
                // Closing -> Closed when the caller ends, or has had its share of patience.
                End::Closing { left, until } => {
                    let spent = *left == 0 || until.as_mut().poll(context).is_ready();
                    let count = if spent { 0 } else { ready!(self.discard(context)).unwrap_or(0) };
                    match &mut self.end {
                        End::Closing { left, .. } if count > 0 => *left = left.saturating_sub(count),
                        end => *end = End::Closed,
                    }
                }
                End::Closed => return Poll::Ready(Ok(())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_body_that_is_still_on_its_way_does_not_reset_the_reply() {
        use tokio::io::AsyncReadExt as _;
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let mut caller = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("connected");
        let (stream, _) = listener.accept().await.expect("accepted");
        let mut stream = Lingering::new(stream);
        stream.write_all(b"refused").await.expect("written");
        // Polled once with nothing unread: it must wait for the rest.
        let mut closing = Box::pin(async move { stream.shutdown().await });
        assert!(futures_util::poll!(&mut closing).is_pending(), "the caller has not ended");
        let closed = tokio::spawn(closing);
        caller.write_all(&vec![0; 1 << 20]).await.expect("nobody resets the connection");
        caller.shutdown().await.expect("ended");
        let mut reply = Vec::new();
        caller.read_to_end(&mut reply).await.expect("the reply arrives");
        assert_eq!(reply, b"refused");
        closed.await.expect("no panic").expect("closed in order");
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_takes_nothing_of_its_reply_is_cut_off() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let caller = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("connected");
        let (stream, _) = listener.accept().await.expect("accepted");
        let mut stream = Lingering::new(stream);
        let error = loop {
            if let Err(error) = stream.write_all(&[0; 65_536]).await {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(caller);
    }
}
