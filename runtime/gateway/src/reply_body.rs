//! The body of a reply: small ones whole, large ones encoded while they are sent.
//!
//! Invariants
//! 1. A large result is held once, as rows; of its text there is never more than a piece (promise 11).
//! 2. The length is known before the first byte is sent, so a reply that breaks off is seen to be broken.
//! 3. The memory a call was admitted by is given back with the last byte, or with the connection.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use spillgate_admission::{PayloadMemory, Permit};
use spillgate_model::Rows;
use spillgate_model::json::RowsWriter;

/// Results larger than this are encoded while they are sent.
pub(crate) const WHOLE_BYTES: usize = 64 * 1024;
/// Text encoded at once.
const PIECE_BYTES: usize = 32 * 1024;

/// What a reply's bytes were admitted by. A write that its caller no longer waits for may still hold the permit; then all of
/// it stays until both are done.
pub(crate) type Cover = Result<PayloadMemory, Arc<Permit>>;

/// See the module.
pub(crate) struct ReplyBody {
    now: Bytes,
    rest: Option<Box<Rest>>,
    /// Bytes still to be sent.
    left: u64,
}

/// Rows that are not yet text.
struct Rest {
    rows: Arc<Rows>,
    writer: RowsWriter,
    tail: Vec<u8>,
    _cover: Cover,
}

struct Covered {
    buffer: Vec<u8>,
    _cover: Cover,
}

impl AsRef<[u8]> for Covered {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl From<Bytes> for ReplyBody {
    fn from(now: Bytes) -> Self {
        ReplyBody { left: now.len() as u64, now, rest: None }
    }
}

impl ReplyBody {
    /// A body that is text already.
    pub(crate) fn whole(buffer: Vec<u8>, cover: Cover) -> Self {
        Bytes::from_owner(Covered { buffer, _cover: cover }).into()
    }

    /// `head`, the rows, `tail`. The rows are encoded twice, first only to learn their length.
    pub(crate) fn rows(head: &'static [u8], rows: Arc<Rows>, tail: Vec<u8>, cover: Cover) -> Self {
        let left = head.len() as u64 + length(&rows) + tail.len() as u64;
        let writer = RowsWriter::new(&rows);
        ReplyBody { now: Bytes::from_static(head), rest: Some(Box::new(Rest { rows, writer, tail, _cover: cover })), left }
    }

    /// Bytes in all, while nothing was sent.
    pub(crate) fn length(&self) -> u64 {
        self.left
    }
}

fn length(rows: &Rows) -> u64 {
    let (mut writer, mut piece, mut length) = (RowsWriter::new(rows), Vec::with_capacity(PIECE_BYTES), 0);
    loop {
        let done = writer.write(rows, PIECE_BYTES, &mut piece);
        length += piece.len() as u64;
        piece.clear();
        if done {
            return length;
        }
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let mut piece = std::mem::take(&mut self.now);
        if piece.is_empty()
            && let Some(rest) = &mut self.rest
        {
            let mut text = Vec::with_capacity(PIECE_BYTES);
            if rest.writer.write(&rest.rows, PIECE_BYTES, &mut text) {
                text.append(&mut rest.tail);
                self.rest = None;
            }
            piece = text.into();
        }
        self.left = self.left.saturating_sub(piece.len() as u64);
        Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.now.is_empty() && self.rest.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use spillgate_model::{Column, RowsBuilder, Type, json};

    use super::*;

    fn permit() -> Permit {
        let rate = spillgate_model::units::Rate::parse("60/min").expect("a rate");
        let limits = spillgate_admission::TenantLimits { rate, in_flight: 1, memory: 1, ..Default::default() };
        let call = spillgate_admission::Entering { run: None, depth: 0, memory: 1, now: std::time::Duration::ZERO };
        let gate = Arc::new(spillgate_admission::TenantGate::default());
        gate.enter(&limits, &call, &Arc::default(), 1).expect("there is room")
    }

    #[test]
    fn a_body_in_pieces_is_the_body_as_a_whole_and_as_long_as_it_says() {
        let columns: Arc<[Column]> =
            Arc::new([Column { name: "ID".into(), kind: Type::Integer }, Column { name: "TEXT".into(), kind: Type::Text }]);
        for count in [0, 1, 5_000] {
            let mut builder = RowsBuilder::new(columns.clone(), 10_000, 16 << 20);
            for number in 0..count {
                builder.integer(number);
                builder.text(Type::Text, &"\"x\n".repeat(40)).expect("it fits");
                builder.end_row();
            }
            let rows = Arc::new(builder.finish());
            let mut expected = b"{\"rows\":".to_vec();
            json::write_rows(&rows, &mut expected);
            expected.push(b'}');
            let memory = Err(Arc::new(permit()));
            let body = ReplyBody::rows(b"{\"rows\":", rows, vec![b'}'], memory);
            assert_eq!(body.length(), expected.len() as u64);
            let sent =
                futures_util::FutureExt::now_or_never(body.collect()).expect("nothing is waited for").expect("infallible").to_bytes();
            assert!(sent == expected, "{count} rows");
        }
    }
}
