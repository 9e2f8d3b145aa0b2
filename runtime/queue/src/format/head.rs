//! The file `head`: what holds for the whole store, fixed when it is made, and what changes with each start.

use crate::format::bytes::Input;
use crate::format::{EXTENT_BYTES, FILE_BYTES, Fault, HEAD_BYTES, VERSION};

const MAGIC: [u8; 8] = *b"spillqhd";
const CHECKED_BYTES: usize = 48;

/// What the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreHead {
    /// Chosen when the store is made; every extent carries it.
    pub store: u64,
    /// Bytes of each store file.
    pub file_bytes: u64,
    /// The limit at the last start: how long the files were then.
    pub disk_limit: u64,
    /// Serials below it may have been given out, whether or not anything can be seen of them. 0: not known.
    pub next_serial: u64,
}

impl StoreHead {
    /// The whole file.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[VERSION, 0, 0, 0]);
        out.extend_from_slice(&(EXTENT_BYTES as u32).to_le_bytes());
        out.extend_from_slice(&self.store.to_le_bytes());
        out.extend_from_slice(&self.file_bytes.to_le_bytes());
        out.extend_from_slice(&self.disk_limit.to_le_bytes());
        out.extend_from_slice(&self.next_serial.to_le_bytes());
        out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
        out.resize(HEAD_BYTES, 0);
        out
    }

    /// From the file's bytes, or at least their beginning.
    pub fn decode(bytes: &[u8]) -> Result<StoreHead, Fault> {
        let mut input = Input::new(bytes);
        if input.take(MAGIC.len())? != MAGIC {
            return Err(if bytes.iter().all(|byte| *byte == 0) { Fault::Blank } else { Fault::Invalid("beginning") });
        }
        let version = input.take(4)?[0];
        let extent = input.u32()?;
        let head = StoreHead { store: input.u64()?, file_bytes: input.u64()?, disk_limit: input.u64()?, next_serial: input.u64()? };
        if input.u32()? != crc32fast::hash(&bytes[..CHECKED_BYTES]) {
            return Err(Fault::Checksum);
        }
        if version != VERSION {
            return Err(Fault::Version(version));
        }
        if extent as usize != EXTENT_BYTES {
            return Err(Fault::Invalid("extent size"));
        }
        if !FILE_BYTES.contains(&head.file_bytes) || !head.file_bytes.is_multiple_of(EXTENT_BYTES as u64) {
            return Err(Fault::Invalid("file size"));
        }
        Ok(head)
    }
}
