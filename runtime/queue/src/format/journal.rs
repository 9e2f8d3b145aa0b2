//! Records of a journal: a head, and for some a body (an outcome, a note, many ranges).
//!
//! ```text
//! meta    as in headers
//! job     state u8 | flags u8 | sequence u64 | at u64 | attempts, until - at, emission: varints
//!         | replayed as: lane u64, sequence u64? | business key: hash 16, until - at varint? | keys: hash 16, input 16, until - at varint | outcome bytes varint?
//!         | note: name 16, bytes varint?; the outcome and the note are the body
//! purged  until u64 | ranges: first, last as varints, each counted from the number before | (as many as there are)
//! lost    until u64 | serial u64 | offset u64 | suspect below u64 | ranges as in purged, maybe none
//! note    name 16 | content
//! ```

use bytes::Bytes;

use crate::format::bytes::{Input, put_varint};
use crate::format::fragment::Kind;
use crate::format::header::{meta, put_meta};
use crate::format::{Fault, MOST_KEYS};
use crate::item::Hash;
use crate::job::{JobId, JobState};
use crate::record::{JobRecord, JournalRecord, KeptKey};

const VOID: u8 = 1;
const INTERRUPTED: u8 = 2;
const LETTER: u8 = 4;
const OUTCOME_GONE: u8 = 8;
const OUTCOME: u8 = 0x10;
const UNIQUE: u8 = 0x20;
const KEYS_SHIFT: u8 = 6;
/// Beside the state.
const NOTE: u8 = 0x80;
const REPLAYED: u8 = 0x40;
/// A varint is at most this long.
const VARINT_BYTES: usize = 10;
/// The longest head of a job's record without a note: both keys and a business key.
pub const MOST_JOB_HEAD_BYTES: usize = 18 + 3 * VARINT_BYTES + 16 + 16 + VARINT_BYTES + MOST_KEYS * (32 + VARINT_BYTES) + VARINT_BYTES;
/// A meta record.
pub const META_HEAD_BYTES: usize = 48;

/// Puts a record's head at the end of `out` and answers with its kind and body.
pub(super) fn put(out: &mut Vec<u8>, record: &JournalRecord) -> (Kind, Bytes) {
    match record {
        JournalRecord::Meta(meta) => {
            put_meta(out, meta);
            (Kind::Meta, Bytes::new())
        }
        JournalRecord::Job(job) => {
            put_job(out, job);
            (Kind::Job, job_body(job))
        }
        JournalRecord::Purged { until, ranges } => {
            out.extend_from_slice(&until.to_le_bytes());
            (Kind::Purged, put_ranges(ranges))
        }
        JournalRecord::Lost { until, serial, offset, suspect_below, ranges } => {
            for number in [until, serial, offset, suspect_below] {
                out.extend_from_slice(&number.to_le_bytes());
            }
            (Kind::Lost, put_ranges(ranges))
        }
        JournalRecord::Note { name, content } => {
            out.extend_from_slice(name);
            (Kind::Note, content.clone())
        }
    }
}

/// Many ranges are a body, so that they may go on in the next extent.
fn put_ranges(ranges: &[(u64, u64)]) -> Bytes {
    let mut body = Vec::with_capacity(ranges.len() * 4);
    let mut before = 0;
    for (first, last) in ranges {
        debug_assert!(before <= *first && first <= last, "ascending and apart");
        put_varint(&mut body, first.wrapping_sub(before));
        put_varint(&mut body, last.wrapping_sub(*first));
        before = *last;
    }
    Bytes::from(body)
}

fn ranges(input: &mut Input<'_>) -> Result<Vec<(u64, u64)>, Fault> {
    let mut ranges = Vec::new();
    let mut before = 0_u64;
    while !input.rest().is_empty() {
        let first = before.checked_add(input.varint()?);
        let last = first.and_then(|first| first.checked_add(input.varint().ok()?));
        let (Some(first), Some(last)) = (first, last) else { return Err(Fault::Invalid("range")) };
        ranges.push((first, last));
        before = last;
    }
    Ok(ranges)
}

fn put_job(out: &mut Vec<u8>, job: &JobRecord) {
    debug_assert!(job.keys.len() <= MOST_KEYS, "no more than the item had");
    let keys = &job.keys[..job.keys.len().min(MOST_KEYS)];
    let flag = |is: bool, flag: u8| if is { flag } else { 0 };
    let flags = flag(job.void, VOID)
        | flag(job.interrupted, INTERRUPTED)
        | flag(job.letter, LETTER)
        | flag(job.outcome_gone, OUTCOME_GONE)
        | flag(job.outcome.is_some(), OUTCOME)
        | flag(job.unique.is_some(), UNIQUE)
        | (keys.len() as u8) << KEYS_SHIFT;
    let state = state_code(job.state) | flag(job.note.is_some(), NOTE) | flag(job.replayed_as.is_some(), REPLAYED);
    out.extend_from_slice(&[state, flags]);
    out.extend_from_slice(&job.sequence.to_le_bytes());
    out.extend_from_slice(&job.at.to_le_bytes());
    put_varint(out, u64::from(job.attempts));
    put_varint(out, job.until.wrapping_sub(job.at));
    put_varint(out, job.emission);
    if let Some(new) = &job.replayed_as {
        out.extend_from_slice(&new.lane.to_le_bytes());
        out.extend_from_slice(&new.sequence.to_le_bytes());
    }
    if let Some((hash, until)) = &job.unique {
        out.extend_from_slice(hash);
        put_varint(out, until.wrapping_sub(job.at));
    }
    for key in keys {
        out.extend_from_slice(&key.hash);
        out.extend_from_slice(&key.input);
        put_varint(out, key.until.wrapping_sub(job.at));
    }
    if let Some(outcome) = &job.outcome {
        put_varint(out, outcome.len() as u64);
    }
    if let Some((name, content)) = &job.note {
        out.extend_from_slice(name);
        put_varint(out, content.len() as u64);
    }
}

fn job_body(job: &JobRecord) -> Bytes {
    let outcome = job.outcome.clone().unwrap_or_default();
    match &job.note {
        None => outcome,
        Some((_, content)) => [outcome.as_ref(), content].concat().into(),
    }
}

/// From all fragments' payloads, joined. Bodies share their memory.
pub fn decode_journal(kind: Kind, record: &Bytes) -> Result<JournalRecord, Fault> {
    let mut input = Input::new(record);
    match kind {
        Kind::Item | Kind::Filler => Err(Fault::Invalid("kind of record")),
        Kind::Meta => {
            let meta = meta(&mut input)?;
            if input.rest().is_empty() { Ok(JournalRecord::Meta(meta)) } else { Err(Fault::Invalid("length")) }
        }
        Kind::Job => {
            let (mut job, outcome_bytes, note) = decode_job_head(&mut input)?;
            let mut outcome = record.slice(record.len() - input.rest().len()..);
            let note_bytes = note.map_or(0, |(_, bytes)| bytes);
            if outcome.len() != outcome_bytes.unwrap_or(0).saturating_add(note_bytes) {
                return Err(Fault::Cut);
            }
            let content = outcome.split_off(outcome_bytes.unwrap_or(0));
            job.outcome = outcome_bytes.map(|_| outcome);
            job.note = note.map(|(name, _)| (name, content));
            Ok(JournalRecord::Job(job))
        }
        Kind::Purged => {
            let until = input.u64()?;
            Ok(JournalRecord::Purged { until, ranges: ranges(&mut input)? })
        }
        Kind::Lost => {
            let (until, serial, offset, suspect_below) = (input.u64()?, input.u64()?, input.u64()?, input.u64()?);
            Ok(JournalRecord::Lost { until, serial, offset, suspect_below, ranges: ranges(&mut input)? })
        }
        Kind::Note => {
            let name = input.hash()?;
            Ok(JournalRecord::Note { name, content: record.slice(name.len()..) })
        }
    }
}

/// From the first fragment's payload: what became of a job, without outcome and note, and how long the outcome is if there is one.
pub fn decode_job(payload: &[u8]) -> Result<(JobRecord, Option<usize>), Fault> {
    decode_job_head(&mut Input::new(payload)).map(|(job, outcome_bytes, _)| (job, outcome_bytes))
}

/// The name of a note, and how long it is.
type NoteHead = (Hash, usize);

fn decode_job_head(input: &mut Input<'_>) -> Result<(JobRecord, Option<usize>, Option<NoteHead>), Fault> {
    let (state, flags) = (input.u8()?, input.u8()?);
    let (has_note, is_replayed) = (state & NOTE != 0, state & REPLAYED != 0);
    let state = state_from(state & !(NOTE | REPLAYED))?;
    let (sequence, at) = (input.u64()?, input.u64()?);
    let attempts = input.varint_u32()?;
    let until = at.wrapping_add(input.varint()?);
    let emission = input.varint()?;
    let replayed_as = if is_replayed { Some(JobId { lane: input.u64()?, sequence: input.u64()? }) } else { None };
    let unique = if flags & UNIQUE != 0 { Some((input.hash()?, at.wrapping_add(input.varint()?))) } else { None };
    let count = usize::from(flags >> KEYS_SHIFT);
    if count > MOST_KEYS {
        return Err(Fault::Invalid("number of keys"));
    }
    let mut keys = Vec::with_capacity(count);
    for _ in 0..count {
        keys.push(KeptKey { hash: input.hash()?, input: input.hash()?, until: at.wrapping_add(input.varint()?) });
    }
    let outcome_bytes = if flags & OUTCOME != 0 { Some(input.varint_u32()? as usize) } else { None };
    let note = if has_note { Some((input.hash()?, input.varint_u32()? as usize)) } else { None };
    let is = |flag: u8| flags & flag != 0;
    let job = JobRecord {
        sequence,
        state,
        void: is(VOID),
        interrupted: is(INTERRUPTED),
        letter: is(LETTER),
        outcome_gone: is(OUTCOME_GONE),
        attempts,
        at,
        until,
        emission,
        keys,
        unique,
        outcome: None,
        note: None,
        replayed_as,
    };
    Ok((job, outcome_bytes, note))
}

/// One byte for each state, for good.
fn state_code(state: JobState) -> u8 {
    match state {
        JobState::Queued => 1,
        JobState::Running => 2,
        JobState::Succeeded => 3,
        JobState::Failed => 4,
        JobState::Dead => 5,
        JobState::Cancelled => 6,
        JobState::Expired => 7,
        JobState::Shed => 8,
        JobState::Purged => 9,
        JobState::Unknown => 10,
    }
}

fn state_from(code: u8) -> Result<JobState, Fault> {
    JobState::ALL.into_iter().find(|state| state_code(*state) == code).ok_or(Fault::Invalid("state"))
}
