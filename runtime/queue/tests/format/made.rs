//! Records and headers of every kind, by chance, and streams of extents with them, written as the store writes them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use spillgate_queue::disk::simulated::Chance;
use spillgate_queue::format::{Draft, EXTENT_BYTES, HEADER_BYTES, Join, Kind, Scan, Tail, encode_header, scan};
use spillgate_queue::record::{ExtentHeader, ItemOrigin, ItemRecord, JobRecord, JournalRecord, KeptKey, Meta, Stream};
use spillgate_queue::{Hash, JobId, JobState, Key, LaneName, Unique};

fn hash() -> impl Strategy<Value = Hash> {
    any::<Hash>()
}

prop_compose! {
    fn meta()(numbers: [u64; 6]) -> Meta {
        let [items_floor, journal_floor, kept_floor, next_sequence, time, wall] = numbers;
        Meta { items_floor, journal_floor, kept_floor, next_sequence, time, wall }
    }
}

prop_compose! {
    pub(crate) fn header()(
        numbers: [u64; 4], position: u32, meta in meta(), queue in "[a-zä]{0,64}", tenant in "[a-z-]{0,128}",
        stream in prop::sample::select(vec![Stream::Items, Stream::Journal, Stream::Kept]),
    ) -> ExtentHeader {
        let [store, lane, serial, first] = numbers;
        let name = LaneName { queue: Arc::from(queue), tenant: Arc::from(tenant) };
        ExtentHeader { store, position, lane, stream, serial, first, meta, name }
    }
}

prop_compose! {
    fn key()(hash in hash(), input in hash(), keep: u64) -> Key {
        Key { hash, input, keep: Duration::from_millis(keep) }
    }
}

prop_compose! {
    pub(crate) fn item()(
        sequence: u64, appended_at: u64, expires_at: Option<u64>, order: Option<u64>, claimed: bool, keys in vec(key(), 0..=2),
        unique in option::of((hash(), 0..u64::from(u32::MAX))), origin in option::of([any::<u64>(), any::<u64>(), any::<u64>()]), content in content(),
    ) -> ItemRecord {
        let unique = unique.map(|(hash, within)| Unique { hash, within: Duration::from_millis(within) });
        let origin = origin.map(|[lane, sequence, emission]| ItemOrigin { job: JobId { lane, sequence }, emission });
        ItemRecord { sequence, appended_at, expires_at, order, claimed, keys, unique, origin, content }
    }
}

pub(crate) fn content() -> impl Strategy<Value = Bytes> {
    let size = prop_oneof![6 => 0..300_usize, 2 => 0..5_000_usize, 1 => 60_000..70_000_usize, 1 => 0..200_000_usize];
    (size, any::<u64>()).prop_map(|(size, seed)| {
        let mut chance = Chance::new(seed);
        let mut bytes: Vec<u8> = (0..size.div_ceil(8)).flat_map(|_| chance.number().to_le_bytes()).collect();
        bytes.truncate(size);
        Bytes::from(bytes)
    })
}

prop_compose! {
    fn job()(
        numbers: [u64; 4], attempts: u32, state in prop::sample::select(JobState::ALL.to_vec()), flags: [bool; 4],
        keys in vec((hash(), hash(), any::<u64>()), 0..=2), unique in option::of((hash(), any::<u64>())), outcome in option::of(content()), note in option::of((hash(), content())),
    ) -> JobRecord {
        let [sequence, at, until, emission] = numbers;
        let [void, interrupted, letter, outcome_gone] = flags;
        let keys = keys.into_iter().map(|(hash, input, until)| KeptKey { hash, input, until }).collect();
        let replayed_as = void.then_some(JobId { lane: until, sequence: at });
        JobRecord {
            sequence,
            state,
            void,
            interrupted,
            letter,
            outcome_gone,
            attempts,
            at,
            until,
            emission,
            keys,
            unique,
            outcome,
            note,
            replayed_as,
        }
    }
}

fn ranges() -> impl Strategy<Value = Vec<(u64, u64)>> {
    vec((1..1_000_u64, 0..1_000_u64), 1..40).prop_map(|steps| {
        let mut at = 0;
        let ranges = steps.into_iter().map(|(skip, length)| {
            let first = at + skip;
            at = first + length;
            (first, at)
        });
        ranges.collect()
    })
}

pub(crate) fn journal() -> impl Strategy<Value = JournalRecord> {
    prop_oneof![
        meta().prop_map(JournalRecord::Meta),
        job().prop_map(JournalRecord::Job),
        (any::<u64>(), ranges()).prop_map(|(until, ranges)| JournalRecord::Purged { until, ranges }),
        (any::<[u64; 4]>(), ranges()).prop_map(|([until, serial, offset, suspect_below], ranges)| JournalRecord::Lost {
            until,
            serial,
            offset,
            suspect_below,
            ranges
        }),
        (hash(), content()).prop_map(|(name, content)| JournalRecord::Note { name, content }),
    ]
}

/// A stream of extents, written as the store writes it.
pub(crate) struct Written {
    pub(crate) extents: Vec<(ExtentHeader, Vec<u8>)>,
    /// Of the last extent, still open.
    pub(crate) tail: Tail,
    /// Which bytes of it the last batch wrote.
    pub(crate) last_batch: std::ops::Range<usize>,
}

/// What lay there before: not zeros.
pub(crate) fn used_extent(header: &ExtentHeader, chance: &mut Chance) -> Vec<u8> {
    let old = ExtentHeader { serial: header.serial ^ 1, ..header.clone() };
    let mut bytes = vec![0; EXTENT_BYTES];
    let mut tail = Tail::new(&old);
    let at = tail.begin_batch();
    let mut out = Vec::new();
    let note = JournalRecord::Note { name: [7; 16], content: Bytes::from(vec![b'x'; 400]) };
    while tail.append(&mut out, &Draft::journal(&note), 0).is_some() {}
    tail.seal(&mut out);
    bytes[at..].copy_from_slice(&out);
    for _ in 0..chance.below(4) {
        let at = usize::try_from(chance.below(EXTENT_BYTES as u64)).expect("small");
        bytes[at] = 0xff;
    }
    bytes
}

pub(crate) fn opened(header: &ExtentHeader, number: u64, chance: &mut Chance) -> (ExtentHeader, Vec<u8>, Tail) {
    let header = ExtentHeader { serial: header.serial.wrapping_add(number * 2), ..header.clone() };
    let mut bytes = used_extent(&header, chance);
    bytes[..HEADER_BYTES].copy_from_slice(&encode_header(&header));
    let tail = Tail::new(&header);
    (header, bytes, tail)
}

pub(crate) fn write(header: &ExtentHeader, drafts: &[Draft], seed: u64) -> Written {
    let mut chance = Chance::new(seed);
    let mut extents = Vec::new();
    let (mut now, mut bytes, mut tail) = opened(header, 0, &mut chance);
    let mut at = tail.begin_batch();
    let mut out = Vec::new();
    for draft in drafts {
        if chance.one_in(3) {
            bytes[at..at + out.len()].copy_from_slice(&out);
            out.clear();
            at = tail.begin_batch();
        }
        let mut done = 0;
        while done < draft.bytes() {
            let used = tail.room();
            if let Some((offset, now_done)) = tail.append(&mut out, draft, done) {
                assert!(now_done > done && offset >= at && used > tail.room());
                done = now_done;
                continue;
            }
            tail.seal(&mut out);
            assert_eq!(at + out.len(), EXTENT_BYTES, "a sealed extent is full to its end (invariant 4)");
            bytes[at..].copy_from_slice(&out);
            out.clear();
            extents.push((now, bytes));
            (now, bytes, tail) = opened(header, extents.len() as u64, &mut chance);
            at = tail.begin_batch();
        }
    }
    bytes[at..at + out.len()].copy_from_slice(&out);
    let last_batch = at..at + out.len();
    extents.push((now, bytes));
    Written { extents, tail, last_batch }
}

pub(crate) fn records(extents: &[(ExtentHeader, Vec<u8>)]) -> Vec<(Kind, Bytes)> {
    let mut join = Join::default();
    let mut records = Vec::new();
    for (header, bytes) in extents {
        let found = scan(bytes, header);
        let mut at = HEADER_BYTES;
        for fragment in &found.fragments {
            if fragment.offset != at {
                join.interrupt();
            }
            at = fragment.end().next_multiple_of(8);
            records.extend(join.push(fragment));
        }
        if at != found.end {
            join.interrupt();
        }
    }
    records
}

pub(crate) fn resumed(header: &ExtentHeader, found: &Scan<'_>) -> Tail {
    Tail::resume(header, found).expect("what was written can be sealed (invariant 4)")
}
