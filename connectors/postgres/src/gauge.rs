//! Looks at the length of each row on its way in, before the row is collected.
//!
//! The protocol's reader takes a message whole, however long it says it is: one value of a gigabyte would be held here before
//! anybody could find it too large. So the stream below it follows the messages by their heads, and breaks off at the head
//! of a row that no step allows. The session is lost with it; what it cost is one head.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

/// What a row may have beyond the step's limit: its limit counts the row as it is held and written, not as it is sent.
const SLACK_BYTES: usize = 1 << 20;
/// The message that carries a row.
const ROW: u8 = b'D';
/// A message's kind and the length of what follows, itself included.
const HEAD_BYTES: usize = 5;

/// What a session and its stream share.
#[derive(Debug)]
pub(crate) struct Gauge {
    most: AtomicUsize,
    passed: AtomicBool,
}

impl Gauge {
    pub(crate) fn new() -> Arc<Gauge> {
        Arc::new(Gauge { most: AtomicUsize::new(SLACK_BYTES), passed: AtomicBool::new(false) })
    }
    /// From here on a row has about so many bytes at most.
    pub(crate) fn allow(&self, bytes: usize) {
        self.most.store(bytes.saturating_add(SLACK_BYTES), Ordering::Relaxed);
    }
    /// Whether a row was longer: the stream is broken.
    pub(crate) fn passed(&self) -> bool {
        self.passed.load(Ordering::Relaxed)
    }
}

/// Where in the messages the stream stands.
enum Place {
    /// Greeting -> Head (no TLS) | Elsewhere (TLS begins: its inside has a gauge of its own).
    Greeting,
    /// Head -> Body | Broken, with so many bytes of the head read.
    Head([u8; HEAD_BYTES], usize),
    /// Body -> Head, with so many bytes to come.
    Body(usize),
    Elsewhere,
    /// At the head of a row that is too long: nothing more is read.
    Broken,
}

/// A stream with a gauge.
pub(crate) struct Gauged<S> {
    stream: S,
    place: Place,
    gauge: Arc<Gauge>,
}

const START: Place = Place::Head([0; HEAD_BYTES], 0);

impl<S> Gauged<S> {
    /// `greeted`: the server first says in one byte whether it speaks TLS.
    pub(crate) fn new(stream: S, greeted: bool, gauge: &Arc<Gauge>) -> Self {
        Gauged { stream, place: if greeted { Place::Greeting } else { START }, gauge: gauge.clone() }
    }

    /// Follows what came in: how many bytes of it may pass on.
    fn follow(&mut self, came: &[u8]) -> usize {
        let mut bytes = came;
        while let Some((first, rest)) = bytes.split_first() {
            match &mut self.place {
                Place::Elsewhere => break,
                Place::Broken => return came.len() - bytes.len(),
                Place::Greeting => {
                    self.place = if *first == b'N' { START } else { Place::Elsewhere };
                    bytes = rest;
                }
                Place::Head(head, read) => {
                    head[*read] = *first;
                    *read += 1;
                    if *read == HEAD_BYTES {
                        let [kind, length @ ..] = *head;
                        self.place = self.after_head(kind, u32::from_be_bytes(length) as usize);
                    }
                    // The last byte of a head that breaks the stream stays: without it no reader makes room for its row.
                    if !matches!(self.place, Place::Broken) {
                        bytes = rest;
                    }
                }
                Place::Body(left) => {
                    let here = bytes.len().min(*left);
                    *left -= here;
                    bytes = &bytes[here..];
                    if *left == 0 {
                        self.place = START;
                    }
                }
            }
        }
        came.len()
    }

    fn after_head(&self, kind: u8, length: usize) -> Place {
        match length.saturating_sub(HEAD_BYTES - 1) {
            left if kind == ROW && left > self.gauge.most.load(Ordering::Relaxed) => {
                self.gauge.passed.store(true, Ordering::Relaxed);
                Place::Broken
            }
            0 => START,
            left => Place::Body(left),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gauged<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        // What came before a row that is too long was read and is passed on; the failure comes after it.
        if !matches!(self.place, Place::Broken) {
            ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
            let came = buffer.filled().len() - before;
            let passes = self.follow(&buffer.filled()[before..]);
            buffer.set_filled(before + passes);
            if passes > 0 || came == 0 {
                return Poll::Ready(Ok(()));
            }
        }
        Poll::Ready(Err(io::Error::other("a row is larger than the step allows")))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gauged<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl<S: TlsStream + Unpin> TlsStream for Gauged<S> {
    fn channel_binding(&self) -> ChannelBinding {
        self.stream.channel_binding()
    }
}

/// A TLS connector whose streams have a gauge.
pub(crate) struct Gauging<T>(pub(crate) T, pub(crate) Arc<Gauge>);

impl<S, T> TlsConnect<S> for Gauging<T>
where
    T: TlsConnect<S>,
    T::Stream: Send,
    T::Future: Send + 'static,
{
    type Stream = Gauged<T::Stream>;
    type Error = T::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Stream, T::Error>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        let (connecting, gauge) = (self.0.connect(stream), self.1);
        Box::pin(async move { Ok(Gauged::new(connecting.await?, false, &gauge)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, length: usize) -> Vec<u8> {
        let told = u32::try_from(length + 4).expect("short");
        [&[kind][..], &told.to_be_bytes(), &vec![0; length]].concat()
    }

    #[test]
    fn messages_are_followed_however_they_are_cut_and_only_a_row_can_be_too_long() {
        let long = SLACK_BYTES + 11;
        let fine = [message(b'Z', 0), message(b'T', long), message(ROW, 0), message(ROW, SLACK_BYTES + 10)].concat();
        for piece in [1, 3, 5, 4_096, fine.len()] {
            let gauge = Gauge::new();
            gauge.allow(10);
            let mut stream = Gauged::new((), true, &gauge);
            assert_eq!(stream.follow(b"N"), 1, "no TLS");
            assert!(fine.chunks(piece).all(|bytes| stream.follow(bytes) == bytes.len()), "all of them fit");
            assert!(!gauge.passed());
            let last = [message(ROW, 3), message(ROW, long)].concat();
            assert_eq!(stream.follow(&last), HEAD_BYTES + 3 + HEAD_BYTES - 1, "known by its head");
            assert!(gauge.passed());
        }
        let gauge = Gauge::new();
        let mut private = Gauged::new((), true, &gauge);
        let looks_like_a_row = message(ROW, long);
        assert_eq!((private.follow(b"S"), private.follow(&looks_like_a_row)), (1, looks_like_a_row.len()), "TLS");
    }
}
