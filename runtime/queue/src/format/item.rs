//! An item's record: a head, and its content as the body. Copies in the kept stream look the same.
//!
//! ```text
//! flags u8 | sequence u64 | appended u64 | content bytes u32 | expires u64? | order u64? | ties
//! ties: origin lane, sequence, emission u64? | business key: hash 16, within varint? | keys: hash 16, input 16, keep varint
//! ```

use std::time::Duration;

use bytes::Bytes;

use crate::format::bytes::{Input, put_varint};
use crate::format::{Fault, MOST_KEYS, MOST_RECORD_BYTES};
use crate::item::{Hash, Key, Unique};
use crate::job::JobId;
use crate::record::{ItemOrigin, ItemRecord};

pub(super) const EXPIRES: u8 = 1;
pub(super) const ORDER: u8 = 2;
const ORIGIN: u8 = 4;
const UNIQUE: u8 = 8;
pub(super) const CLAIMED: u8 = 0x10;
const KEYS_SHIFT: u8 = 6;

/// Which of the optional parts there are.
pub(super) fn flags(item: &ItemRecord) -> u8 {
    debug_assert!(item.keys.len() <= MOST_KEYS, "checked at the append");
    let flag = |is: bool, flag: u8| if is { flag } else { 0 };
    flag(item.expires_at.is_some(), EXPIRES)
        | flag(item.order.is_some(), ORDER)
        | flag(item.origin.is_some(), ORIGIN)
        | flag(item.unique.is_some(), UNIQUE)
        | flag(item.claimed, CLAIMED)
        | (item.keys.len().min(MOST_KEYS) as u8) << KEYS_SHIFT
}

/// Puts what stands before the content at the end of `out`.
pub(super) fn put_head(out: &mut Vec<u8>, item: &ItemRecord) {
    out.push(flags(item));
    out.extend_from_slice(&item.sequence.to_le_bytes());
    out.extend_from_slice(&item.appended_at.to_le_bytes());
    out.extend_from_slice(&(item.content.len() as u32).to_le_bytes());
    for number in [item.expires_at, item.order].into_iter().flatten() {
        out.extend_from_slice(&number.to_le_bytes());
    }
    put_ties(out, item, item.unique.map(|unique| (unique.hash, milliseconds(unique.within))));
}

/// From all fragments' payloads, joined. The content shares their memory.
pub fn decode_item(record: &Bytes) -> Result<ItemRecord, Fault> {
    let (mut item, content_bytes, head_bytes) = decode_item_head(record)?;
    if record.len() - head_bytes != content_bytes {
        return Err(Fault::Cut);
    }
    item.content = record.slice(head_bytes..);
    Ok(item)
}

/// From the first fragment's payload: the item without its content, how long that is, and where it begins.
pub fn decode_item_head(payload: &[u8]) -> Result<(ItemRecord, usize, usize), Fault> {
    let mut input = Input::new(payload);
    let flags = input.u8()?;
    let (sequence, appended_at, content_bytes) = (input.u64()?, input.u64()?, input.u32()? as usize);
    let expires_at = if flags & EXPIRES != 0 { Some(input.u64()?) } else { None };
    let order = if flags & ORDER != 0 { Some(input.u64()?) } else { None };
    let Ties { origin, unique, keys } = ties(&mut input, flags)?;
    let unique = unique.map(|(hash, within)| Unique { hash, within: Duration::from_millis(within) });
    if content_bytes > MOST_RECORD_BYTES || flags & 0x20 != 0 {
        return Err(Fault::Invalid("item"));
    }
    let claimed = flags & CLAIMED != 0;
    let head_bytes = payload.len() - input.rest().len();
    let item = ItemRecord { sequence, appended_at, expires_at, order, claimed, keys, unique, origin, content: Bytes::new() };
    Ok((item, content_bytes, head_bytes))
}

/// What ties an item to others. A start needs it, so it stands in footers too.
pub(super) struct Ties {
    pub(super) origin: Option<ItemOrigin>,
    /// With `within` in the item and `until` in a footer.
    pub(super) unique: Option<(Hash, u64)>,
    pub(super) keys: Vec<Key>,
}

pub(super) fn put_ties(out: &mut Vec<u8>, item: &ItemRecord, unique: Option<(Hash, u64)>) {
    if let Some(origin) = &item.origin {
        for number in [origin.job.lane, origin.job.sequence, origin.emission] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
    if let Some((hash, time)) = unique {
        out.extend_from_slice(&hash);
        put_varint(out, time);
    }
    for key in item.keys.iter().take(MOST_KEYS) {
        out.extend_from_slice(&key.hash);
        out.extend_from_slice(&key.input);
        put_varint(out, milliseconds(key.keep));
    }
}

pub(super) fn ties(input: &mut Input<'_>, flags: u8) -> Result<Ties, Fault> {
    let origin = if flags & ORIGIN == 0 {
        None
    } else {
        Some(ItemOrigin { job: JobId { lane: input.u64()?, sequence: input.u64()? }, emission: input.u64()? })
    };
    let unique = if flags & UNIQUE == 0 { None } else { Some((input.hash()?, input.varint()?)) };
    let count = usize::from(flags >> KEYS_SHIFT);
    if count > MOST_KEYS {
        return Err(Fault::Invalid("number of keys"));
    }
    let mut keys = Vec::with_capacity(count);
    for _ in 0..count {
        keys.push(Key { hash: input.hash()?, input: input.hash()?, keep: Duration::from_millis(input.varint()?) });
    }
    Ok(Ties { origin, unique, keys })
}

pub(super) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
