//! Putting the pieces of records together again, over the extents of a stream in order.

use bytes::Bytes;

use crate::format::MOST_RECORD_BYTES;
use crate::format::fragment::{Fragment, Kind};

/// The record that is being put together.
#[derive(Debug, Default)]
pub struct Join {
    open: Option<(Kind, Vec<u8>)>,
    broken: u64,
}

impl Join {
    /// The next fragment of the stream. Answers with a record that is whole now.
    pub fn push(&mut self, fragment: &Fragment<'_>) -> Option<(Kind, Bytes)> {
        let piece = fragment.piece;
        if piece.kind == Kind::Filler {
            self.interrupt();
            return None;
        }
        if piece.first {
            self.interrupt();
            if piece.last {
                return Some((piece.kind, Bytes::copy_from_slice(fragment.payload)));
            }
            self.open = Some((piece.kind, fragment.payload.to_vec()));
            return None;
        }
        let (kind, mut bytes) = self.open.take().filter(|(kind, _)| *kind == piece.kind)?;
        if bytes.len() + fragment.payload.len() > MOST_RECORD_BYTES {
            self.broken += 1;
            return None;
        }
        bytes.extend_from_slice(fragment.payload);
        if piece.last {
            return Some((kind, Bytes::from(bytes)));
        }
        self.open = Some((kind, bytes));
        None
    }

    /// Something is missing here: what is open can never be whole.
    pub fn interrupt(&mut self) {
        if self.open.take().is_some() {
            self.broken += 1;
        }
    }

    /// Whether a record has begun and not ended.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// How many records began and can never be whole.
    pub fn broken(&self) -> u64 {
        self.broken
    }
}
