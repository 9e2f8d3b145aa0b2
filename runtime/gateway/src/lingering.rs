//! A socket that closes so that its last reply arrives.
//!
//! Closing a socket with unread bytes resets the connection, and a reset may overtake the reply that was just sent: a
//! caller refused in the middle of a large body would see a broken connection instead of its refusal. So after the last
//! byte out, what still comes in is read and thrown away: [`BYTES`] and [`TIME`] at most, and only if there is anything.

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

/// The socket of a server's connection.
pub(crate) struct Lingering {
    stream: TcpStream,
    /// Open -> Closing (the last byte is out, bytes were unread) -> Closed.
    end: End,
}

enum End {
    Open,
    Closing { left: usize, until: Pin<Box<Sleep>> },
    Closed,
}

impl Lingering {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Lingering { stream, end: End::Open }
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
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }
    fn poll_write_vectored(mut self: Pin<&mut Self>, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
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
                // Open -> Closing if something is unread, else Closed.
                End::Open => {
                    ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
                    let unread = matches!(self.discard(context), Poll::Ready(Ok(count)) if count > 0);
                    self.end = if unread { End::Closing { left: BYTES, until: Box::pin(sleep(TIME)) } } else { End::Closed };
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
