//! A batch as it stands in the file `redo`: what it writes, and where, in one piece.
//!
//! ```text
//! on a multiple of 4 KiB: magic 8 | version u8 | 0, 3 bytes | bytes of all this u32 | store u64 | epoch u64 | number u32 | writes u32
//!   | checksum u32, of everything but itself | for each write: position u32, offset u32, content bytes u32, zeros behind u32
//!   | contents | zeros up to a page
//! ```
//! Batches of one epoch stand behind each other from the file's beginning, numbered from 0. The first one of the next epoch is written
//! over the first one of this: whatever stands behind it then is of another epoch, or has a number out of turn.

use crate::format::bytes::Input;
use crate::format::{EXTENT_BYTES, Fault, VERSION};

/// Batches begin on a multiple of this.
pub const REDO_PAGE_BYTES: usize = 4096;
/// Bytes that tell how long a batch is.
pub const REDO_HEAD_BYTES: usize = 44;
/// For each write.
const ENTRY_BYTES: usize = 16;
const MAGIC: [u8; 8] = *b"spillqrd";
const BYTES_AT: usize = 12;
const CHECKSUM_AT: usize = REDO_HEAD_BYTES - 4;

/// Which batch it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedoHead {
    /// Of the store.
    pub store: u64,
    /// Since the last time everything was in its place.
    pub epoch: u64,
    /// In the epoch, from 0.
    pub number: u32,
}

/// One write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedoWrite<'a> {
    /// The extent.
    pub position: u32,
    /// Where in it.
    pub offset: usize,
    /// What is written there.
    pub content: &'a [u8],
    /// Zeros that are written behind it.
    pub zeros: usize,
}

/// Bytes that a batch takes in the file.
pub fn redo_bytes<'a>(writes: impl Iterator<Item = RedoWrite<'a>>) -> usize {
    let bytes: usize = writes.map(|write| ENTRY_BYTES + write.content.len()).sum();
    (REDO_HEAD_BYTES + bytes).next_multiple_of(REDO_PAGE_BYTES)
}

/// Puts a batch into `out`, which is emptied first.
pub fn put_redo<'a>(out: &mut Vec<u8>, head: RedoHead, writes: impl Iterator<Item = RedoWrite<'a>> + Clone) {
    out.clear();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[VERSION, 0, 0, 0]);
    out.extend_from_slice(&0_u32.to_le_bytes());
    out.extend_from_slice(&head.store.to_le_bytes());
    out.extend_from_slice(&head.epoch.to_le_bytes());
    out.extend_from_slice(&head.number.to_le_bytes());
    out.extend_from_slice(&(writes.clone().count() as u32).to_le_bytes());
    out.extend_from_slice(&[0; REDO_HEAD_BYTES - CHECKSUM_AT]);
    for write in writes.clone() {
        for number in [write.position, write.offset as u32, write.content.len() as u32, write.zeros as u32] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
    writes.for_each(|write| out.extend_from_slice(write.content));
    let bytes = out.len() as u32;
    out[BYTES_AT..BYTES_AT + 4].copy_from_slice(&bytes.to_le_bytes());
    let sum = checksum(out);
    out[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
    out.resize(out.len().next_multiple_of(REDO_PAGE_BYTES), 0);
}

fn checksum(batch: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&batch[..CHECKSUM_AT]);
    hasher.update(&batch[REDO_HEAD_BYTES..]);
    hasher.finalize()
}

/// How long the batch of this store is whose beginning this is, whole pages; not proven by a checksum.
pub fn redo_announced(beginning: &[u8], store: u64) -> Result<usize, Fault> {
    let mut input = Input::new(beginning);
    if input.take(MAGIC.len())? != MAGIC {
        return Err(Fault::Invalid("beginning"));
    }
    input.u32()?;
    let bytes = input.u32()? as usize;
    if input.u64()? != store {
        return Err(Fault::Invalid("store"));
    }
    if bytes < REDO_HEAD_BYTES { Err(Fault::Invalid("length")) } else { Ok(bytes.next_multiple_of(REDO_PAGE_BYTES)) }
}

/// From as many bytes as [`redo_announced`] says.
pub fn decode_redo(bytes: &[u8]) -> Result<(RedoHead, Vec<RedoWrite<'_>>), Fault> {
    let mut input = Input::new(bytes);
    if input.take(MAGIC.len())? != MAGIC {
        return Err(Fault::Invalid("beginning"));
    }
    let version = input.take(4)?[0];
    let length = input.u32()? as usize;
    let head = RedoHead { store: input.u64()?, epoch: input.u64()?, number: input.u32()? };
    let (count, sum) = (input.u32()? as usize, input.u32()?);
    let batch = bytes.get(..length).filter(|batch| batch.len() >= REDO_HEAD_BYTES).ok_or(Fault::Cut)?;
    if sum != checksum(batch) {
        return Err(Fault::Checksum);
    }
    if version != VERSION {
        return Err(Fault::Version(version));
    }
    let mut entries = Input::new(&batch[REDO_HEAD_BYTES..]);
    let table = count.checked_mul(ENTRY_BYTES).ok_or(Fault::Invalid("number of writes"))?;
    let mut contents = entries;
    contents.take(table)?;
    let mut writes = Vec::with_capacity(count);
    for _ in 0..count {
        let (position, offset) = (entries.u32()?, entries.u32()? as usize);
        let (content, zeros) = (entries.u32()? as usize, entries.u32()? as usize);
        let content = contents.take(content)?;
        if offset.saturating_add(content.len()).saturating_add(zeros) > EXTENT_BYTES {
            return Err(Fault::Invalid("place"));
        }
        writes.push(RedoWrite { position, offset, content, zeros });
    }
    if contents.rest().is_empty() { Ok((head, writes)) } else { Err(Fault::Invalid("length")) }
}

#[cfg(test)]
mod tests {
    use super::{REDO_PAGE_BYTES, RedoHead, RedoWrite, decode_redo, put_redo, redo_announced, redo_bytes};
    use crate::format::EXTENT_BYTES;

    const HEAD: RedoHead = RedoHead { store: 7, epoch: 3, number: 2 };

    fn batch(writes: &[RedoWrite<'_>]) -> Vec<u8> {
        let mut out = vec![9; 5];
        put_redo(&mut out, HEAD, writes.iter().copied());
        assert_eq!(out.len(), redo_bytes(writes.iter().copied()));
        out
    }

    #[test]
    fn a_batch_comes_back_as_it_was_put() {
        let large = vec![1; EXTENT_BYTES];
        let writes = [
            RedoWrite { position: 4, offset: 512, content: b"content", zeros: 3577 },
            RedoWrite { position: 9, offset: 0, content: &large, zeros: 0 },
            RedoWrite { position: 10, offset: 65_535, content: b"", zeros: 1 },
        ];
        let bytes = batch(&writes);
        assert_eq!(redo_announced(&bytes[..REDO_PAGE_BYTES], 7), Ok(bytes.len()));
        assert_eq!(decode_redo(&bytes), Ok((HEAD, writes.to_vec())));
        assert_eq!(decode_redo(&batch(&[])), Ok((HEAD, Vec::new())));
    }

    #[test]
    fn what_is_not_whole_is_not_taken_for_one() {
        let bytes = batch(&[RedoWrite { position: 4, offset: 512, content: &[5; 5000], zeros: 0 }]);
        for length in 0..bytes.len() - REDO_PAGE_BYTES {
            assert!(decode_redo(&bytes[..length]).is_err(), "{length}");
        }
        for at in 0..5000 {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << (at % 8);
            assert!(decode_redo(&bytes).is_err(), "{at}");
        }
        let beyond = batch(&[RedoWrite { position: 4, offset: EXTENT_BYTES, content: b"x", zeros: 0 }]);
        assert!(decode_redo(&beyond).is_err(), "it would be in another extent");
    }
}
