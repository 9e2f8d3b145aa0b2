//! The first sector of an extent: whose it is.
//!
//! ```text
//! magic 8 | version u8 | stream u8 | 0 u16 | position u32 | store | lane | serial | first, u64 each | meta
//! | queue: length u8, bytes | tenant: length u8, bytes | zeros | checksum u32
//! meta: floor of items, of journal, of kept | next sequence | time | wall, u64 each
//! ```

use std::sync::Arc;

use crate::format::bytes::Input;
use crate::format::{Fault, HEADER_BYTES, MOST_NAME_BYTES, VERSION};
use crate::record::{ExtentHeader, Meta, Stream};
use crate::status::LaneName;

const MAGIC: [u8; 8] = *b"spillqxt";
const CHECKED_BYTES: usize = HEADER_BYTES - 4;

/// The whole sector. Names beyond their limit are refused long before; here they are cut so that nothing can overflow.
pub fn encode_header(header: &ExtentHeader) -> [u8; HEADER_BYTES] {
    let mut out = Vec::with_capacity(HEADER_BYTES);
    out.extend_from_slice(&MAGIC);
    let stream = match header.stream {
        Stream::Items => 0,
        Stream::Journal => 1,
        Stream::Kept => 2,
    };
    out.extend_from_slice(&[VERSION, stream, 0, 0]);
    out.extend_from_slice(&header.position.to_le_bytes());
    for number in [header.store, header.lane, header.serial, header.first] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    put_meta(&mut out, &header.meta);
    for name in [&header.name.queue, &header.name.tenant] {
        debug_assert!(name.len() <= MOST_NAME_BYTES, "names are checked when room is asked for");
        let name = &name.as_bytes()[..name.len().min(MOST_NAME_BYTES)];
        out.push(name.len() as u8);
        out.extend_from_slice(name);
    }
    out.resize(CHECKED_BYTES, 0);
    out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
    let mut sector = [0; HEADER_BYTES];
    sector.copy_from_slice(&out);
    sector
}

/// From the first sector of an extent.
pub fn decode_header(bytes: &[u8]) -> Result<ExtentHeader, Fault> {
    let bytes = bytes.get(..HEADER_BYTES).ok_or(Fault::Cut)?;
    if bytes.iter().all(|byte| *byte == 0) {
        return Err(Fault::Blank);
    }
    let (checked, checksum) = bytes.split_at(CHECKED_BYTES);
    if Input::new(checksum).u32()? != crc32fast::hash(checked) {
        return Err(Fault::Checksum);
    }
    let mut input = Input::new(checked);
    if input.take(MAGIC.len())? != MAGIC {
        return Err(Fault::Invalid("beginning"));
    }
    let version = input.u8()?;
    if version != VERSION {
        return Err(Fault::Version(version));
    }
    let stream = match input.u8()? {
        0 => Stream::Items,
        1 => Stream::Journal,
        2 => Stream::Kept,
        _ => return Err(Fault::Invalid("stream")),
    };
    input.u16()?;
    let position = input.u32()?;
    let (store, lane, serial, first) = (input.u64()?, input.u64()?, input.u64()?, input.u64()?);
    let meta = meta(&mut input)?;
    let name = LaneName { queue: name(&mut input)?, tenant: name(&mut input)? };
    Ok(ExtentHeader { store, position, lane, stream, serial, first, meta, name })
}

/// Six numbers.
pub(super) fn put_meta(out: &mut Vec<u8>, meta: &Meta) {
    for number in [meta.items_floor, meta.journal_floor, meta.kept_floor, meta.next_sequence, meta.time, meta.wall] {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

pub(super) fn meta(input: &mut Input<'_>) -> Result<Meta, Fault> {
    Ok(Meta {
        items_floor: input.u64()?,
        journal_floor: input.u64()?,
        kept_floor: input.u64()?,
        next_sequence: input.u64()?,
        time: input.u64()?,
        wall: input.u64()?,
    })
}

fn name(input: &mut Input<'_>) -> Result<Arc<str>, Fault> {
    let length = usize::from(input.u8()?);
    if length > MOST_NAME_BYTES {
        return Err(Fault::Invalid("name"));
    }
    std::str::from_utf8(input.take(length)?).map(Arc::from).map_err(|_| Fault::Invalid("name"))
}
