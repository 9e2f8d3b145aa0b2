//! Decoding of everything on disk, on bytes as they were written, torn, damaged, and never written by us at all.
//!
//! Format invariants 1 to 4: nothing panics, nothing false is taken for valid, a torn write is told from damage, and what was appended
//! can be sealed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use spillgate_queue::disk::simulated::Chance;
use spillgate_queue::format::{
    Draft, EXTENT_BYTES, Fault, Fragment, HEADER_BYTES, Join, Kind, MOST_ENTRY_BYTES, SECTOR_BYTES, Scan, StoreHead, Tail, decode_footer,
    decode_header, decode_item, decode_item_head, decode_job, decode_journal, encode_header, file_bytes, file_name, file_number,
    footer_bytes, record_disk_bytes, scan, scan_last,
};
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
    fn header()(
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
    fn item()(
        sequence: u64, appended_at: u64, expires_at: Option<u64>, order: Option<u64>, claimed: bool, keys in vec(key(), 0..=2),
        unique in option::of((hash(), 0..u64::from(u32::MAX))), origin in option::of([any::<u64>(), any::<u64>(), any::<u64>()]), content in content(),
    ) -> ItemRecord {
        let unique = unique.map(|(hash, within)| Unique { hash, within: Duration::from_millis(within) });
        let origin = origin.map(|[lane, sequence, emission]| ItemOrigin { job: JobId { lane, sequence }, emission });
        ItemRecord { sequence, appended_at, expires_at, order, claimed, keys, unique, origin, content }
    }
}

fn content() -> impl Strategy<Value = Bytes> {
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

fn journal() -> impl Strategy<Value = JournalRecord> {
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
struct Written {
    extents: Vec<(ExtentHeader, Vec<u8>)>,
    /// Of the last extent, still open.
    tail: Tail,
    /// Which bytes of it the last batch wrote.
    last_batch: std::ops::Range<usize>,
}

/// What lay there before: not zeros.
fn used_extent(header: &ExtentHeader, chance: &mut Chance) -> Vec<u8> {
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

fn opened(header: &ExtentHeader, number: u64, chance: &mut Chance) -> (ExtentHeader, Vec<u8>, Tail) {
    let header = ExtentHeader { serial: header.serial.wrapping_add(number * 2), ..header.clone() };
    let mut bytes = used_extent(&header, chance);
    bytes[..HEADER_BYTES].copy_from_slice(&encode_header(&header));
    let tail = Tail::new(&header);
    (header, bytes, tail)
}

fn write(header: &ExtentHeader, drafts: &[Draft], seed: u64) -> Written {
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

fn records(extents: &[(ExtentHeader, Vec<u8>)]) -> Vec<(Kind, Bytes)> {
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

fn resumed(header: &ExtentHeader, found: &Scan<'_>) -> Tail {
    Tail::resume(header, found).expect("what was written can be sealed (invariant 4)")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn headers_come_back_and_one_wrong_bit_is_seen(header in header(), bit in 0..HEADER_BYTES * 8) {
        let mut sector = encode_header(&header);
        prop_assert_eq!(decode_header(&sector), Ok(header));
        sector[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(decode_header(&sector), Err(Fault::Checksum));
    }

    #[test]
    fn heads_come_back_and_one_wrong_bit_is_seen(store: u64, files in 16..1024_u64, disk_limit: u64, next_serial: u64, bit in 0..52_usize * 8) {
        let head = StoreHead { store, file_bytes: files * EXTENT_BYTES as u64, disk_limit, next_serial };
        let mut bytes = head.encode();
        prop_assert_eq!(StoreHead::decode(&bytes), Ok(head));
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(StoreHead::decode(&bytes).is_err());
    }

    #[test]
    fn items_come_back_whatever_their_size_and_footers_name_them(
        header in header(), items in vec(item(), 1..25), seed: u64,
    ) {
        let drafts: Vec<Draft> = items.iter().cloned().map(Draft::item).collect();
        let written = write(&header, &drafts, seed);
        let found: Vec<ItemRecord> =
            records(&written.extents).iter().map(|(kind, bytes)| { assert_eq!(*kind, Kind::Item); decode_item(bytes).expect("it is whole") }).collect();
        prop_assert_eq!(&found, &items);

        let mut named = Vec::new();
        let (open, sealed) = written.extents.split_last().expect("one extent at least");
        for (header, bytes) in sealed {
            let length = footer_bytes(&bytes[EXTENT_BYTES - 32..]).expect("it is sealed");
            let footer = decode_footer(&bytes[EXTENT_BYTES - length..], header).expect("it is whole");
            let found = scan(bytes, header);
            prop_assert!(found.gaps.is_empty(), "{:?}", found.gaps);
            prop_assert_eq!(found.end, usize::from(footer.end));
            let beginning = items.iter().filter(|item| footer.items.iter().any(|named| named.sequence == item.sequence));
            if footer.items.len() == beginning.clone().count() {
                prop_assert_eq!(footer.earliest_expiry, beginning.filter_map(|item| item.expires_at).min());
            }
            named.extend(footer.items.into_iter().map(|item| (header.serial, item)));
        }
        // The open extent, sealed after it was found again.
        let (header, bytes) = open;
        let found = scan(bytes, header);
        prop_assert!(found.footer.is_none() && found.gaps.is_empty(), "{:?}", found.gaps);
        let (tail, mut out) = (resumed(header, &found), Vec::new());
        prop_assert_eq!(tail.offset(), written.tail.offset());
        let at = tail.offset();
        tail.seal(&mut out);
        let mut bytes = bytes.clone();
        bytes[at..].copy_from_slice(&out);
        named.extend(decode_footer(&bytes, header).expect("it is whole").items.into_iter().map(|item| (header.serial, item)));

        prop_assert_eq!(named.len(), items.len());
        for ((serial, entry), item) in named.iter().zip(&items) {
            let until = item.unique.map(|unique| (unique.hash, item.appended_at.saturating_add(u64::try_from(unique.within.as_millis()).expect("small"))));
            prop_assert_eq!((entry.sequence, entry.bytes as usize, entry.claimed), (item.sequence, item.content.len(), item.claimed));
            prop_assert_eq!((&entry.keys, entry.unique, entry.origin), (&item.keys, until, item.origin));
            let (_, bytes) = written.extents.iter().find(|(header, _)| header.serial == *serial).expect("it was written");
            let at = usize::from(entry.offset);
            let fragment = Fragment::decode(&bytes[at..], *serial, at).expect("a record begins where the footer says");
            let (head, content_bytes, _) = decode_item_head(fragment.payload).expect("its head is whole in the first fragment");
            prop_assert_eq!((head.sequence, content_bytes), (item.sequence, item.content.len()));
        }
    }

    #[test]
    fn journals_come_back_and_room_is_reckoned_high_enough(header in header(), journal in vec(journal(), 1..30), seed: u64) {
        let drafts: Vec<Draft> = journal.iter().map(Draft::journal).collect();
        let written = write(&header, &drafts, seed);
        let found: Vec<JournalRecord> =
            records(&written.extents).iter().map(|(kind, bytes)| decode_journal(*kind, bytes).expect("it is whole")).collect();
        prop_assert_eq!(&found, &journal);
        let most: usize = drafts.iter().map(Draft::disk_bytes).sum();
        let used = written.extents.len() * (EXTENT_BYTES - HEADER_BYTES) - written.tail.room();
        prop_assert!(used <= most + written.extents.len() * record_disk_bytes(0, 0, MOST_ENTRY_BYTES), "{used} of {most}");
    }

    #[test]
    fn a_torn_last_batch_loses_only_itself_and_is_not_called_damage(header in header(), items in vec(item(), 2..25), seed: u64) {
        let drafts: Vec<Draft> = items.iter().cloned().map(Draft::item).collect();
        let mut chance = Chance::new(seed);
        let mut written = write(&header, &drafts, seed);
        let (header, bytes) = written.extents.pop().expect("one at least");
        let whole = scan(&bytes, &header);
        let mut torn = bytes.clone();
        let old = used_extent(&header, &mut Chance::new(chance.number()));
        for sector in written.last_batch.start / SECTOR_BYTES..written.last_batch.end.div_ceil(SECTOR_BYTES) {
            let range = (sector * SECTOR_BYTES).max(written.last_batch.start)..(sector * SECTOR_BYTES + SECTOR_BYTES).min(EXTENT_BYTES);
            if chance.one_in(2) {
                torn[range.clone()].copy_from_slice(&old[range]);
            }
        }
        let found = scan(&torn, &header);
        prop_assert!(found.gaps.iter().all(|gap| gap.torn), "{:?}", found.gaps);
        let before = |scan: &Scan<'_>| scan.fragments.iter().filter(|fragment| fragment.offset < written.last_batch.start).count();
        prop_assert_eq!(before(&found), before(&whole), "what was durable is all there");
        prop_assert!(found.fragments.iter().all(|fragment| whole.fragments.contains(fragment)), "and nothing false");

        // Mended, it goes on behind it, and what is written then is found; nothing of the torn batch comes back.
        let fillers = found.fillers(header.serial);
        let mut tail = resumed(&header, &found);
        let (at, mut out) = (tail.begin_batch(), Vec::new());
        let note = Draft::journal(&JournalRecord::Note { name: [9; 16], content: Bytes::new() });
        if let Some((offset, _)) = tail.append(&mut out, &note, 0) {
            let mut again = torn.clone();
            again[at..at + out.len()].copy_from_slice(&out);
            for (offset, filler) in &fillers {
                again[*offset..offset + filler.len()].copy_from_slice(filler);
            }
            let again = scan(&again, &header);
            prop_assert_eq!(again.fragments.len(), found.fragments.len() + fillers.len() + 1);
            prop_assert_eq!(again.fragments.last().map(|last| last.offset), Some(offset));
            prop_assert!(again.gaps.is_empty(), "{:?}", again.gaps);
        }
    }

    #[test]
    fn a_torn_write_that_sealed_an_extent_is_told_from_damage_by_whoever_knows_that_it_was_the_last(header in header(), seed: u64) {
        let mut chance = Chance::new(seed);
        let (header, mut bytes, mut tail) = opened(&header, 0, &mut chance);
        let note = Draft::journal(&JournalRecord::Note { name: [1; 16], content: Bytes::from(vec![1; 700]) });
        let mut out = Vec::new();
        let mut first = tail.begin_batch();
        prop_assert!(tail.append(&mut out, &note, 0).is_some());
        bytes[first..first + out.len()].copy_from_slice(&out);
        out.clear();
        first = tail.begin_batch();
        while tail.append(&mut out, &note, 0).is_some() {}
        tail.seal(&mut out);
        let old = bytes.clone();
        bytes[first..].copy_from_slice(&out);
        prop_assert!(scan(&bytes, &header).gaps.is_empty());
        let mut lost = 0;
        for sector in first.div_ceil(SECTOR_BYTES)..EXTENT_BYTES / SECTOR_BYTES - 1 {
            if chance.one_in(8) {
                let range = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
                bytes[range.clone()].copy_from_slice(&old[range]);
                lost += 1;
            }
        }
        let (found, later) = (scan_last(&bytes, &header), scan(&bytes, &header));
        prop_assert!(found.footer.is_some() && !found.one_batch && found.fragments[0].piece.batch == 1);
        prop_assert!(lost == 0 || !found.gaps.is_empty());
        prop_assert!(found.gaps.iter().all(|gap| gap.torn) && later.gaps.iter().all(|gap| !gap.torn));
        prop_assert_eq!(found.gaps.len(), later.gaps.len());
        let fillers = found.fillers(header.serial);
        for (offset, filler) in fillers {
            bytes[offset..offset + filler.len()].copy_from_slice(&filler);
        }
        prop_assert!(scan(&bytes, &header).gaps.is_empty());
    }

    #[test]
    fn wrong_bits_cost_the_records_they_are_in_and_no_other(header in header(), items in vec(item(), 2..25), seed: u64, flips in 1..4_usize) {
        let drafts: Vec<Draft> = items.iter().cloned().map(Draft::item).collect();
        let mut chance = Chance::new(seed);
        let written = write(&header, &drafts, seed);
        for (header, bytes) in &written.extents {
            let whole = scan(bytes, header);
            let mut damaged = bytes.clone();
            let mut hit = Vec::new();
            for _ in 0..flips {
                let at = HEADER_BYTES + usize::try_from(chance.below((EXTENT_BYTES - HEADER_BYTES) as u64)).expect("small");
                damaged[at] ^= 1 << chance.below(8);
                hit.push(at);
            }
            let found = scan(&damaged, header);
            prop_assert!(found.fragments.iter().all(|fragment| whole.fragments.iter().any(|was| was.offset == fragment.offset && was.payload == fragment.payload)));
            for fragment in &whole.fragments {
                let untouched = !hit.iter().any(|at| (fragment.offset..fragment.end()).contains(at));
                prop_assert!(!untouched || found.fragments.contains(fragment), "an untouched record is lost");
            }
        }
    }

    #[test]
    fn bytes_that_nobody_wrote_are_refused_without_a_panic(mut bytes in vec(any::<u8>(), 0..2_000), header in header(), mark: bool) {
        if mark && bytes.len() > 40 {
            // Further in than chance would come.
            let end = bytes.len();
            bytes[4] = 0xc1;
            bytes[5] = 1;
            bytes[end - 8..end - 4].copy_from_slice(b"spft");
        }
        prop_assert!(decode_header(&bytes).is_err());
        prop_assert!(StoreHead::decode(&bytes).is_err());
        prop_assert!(Fragment::decode(&bytes, header.serial, HEADER_BYTES).is_err());
        prop_assert!(decode_footer(&bytes, &header).is_err());
        prop_assert!(scan(&bytes, &header).fragments.is_empty());
        let shared = Bytes::from(bytes);
        for kind in Kind::ALL {
            let _ = decode_journal(kind, &shared);
        }
        let _ = (decode_item(&shared), decode_item_head(&shared), decode_job(&shared), footer_bytes(&shared), Fragment::announced(&shared));
    }
}

/// Records whose checksum is right and whose content is not: what a wrong program would write. A loop of mutations with a fixed seed.
#[test]
fn mutated_records_decode_to_something_or_nothing_and_never_panic() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut chance = Chance::new(4711);
    let mut refused = 0;
    for _ in 0..400 {
        let small = |tree: Draft| -> Vec<u8> {
            let header = ExtentHeader {
                store: 1,
                position: 0,
                lane: 1,
                stream: Stream::Journal,
                serial: 1,
                first: 1,
                meta: Meta::default(),
                name: LaneName { queue: Arc::from("q"), tenant: Arc::from("t") },
            };
            let written = write(&header, &[tree], 1);
            records(&written.extents)[0].1.to_vec()
        };
        let record = journal().new_tree(&mut runner).expect("a record can be made").current();
        let item = item().new_tree(&mut runner).expect("an item can be made").current();
        for mut bytes in [small(Draft::journal(&record)), small(Draft::item(item))] {
            for _ in 0..8 {
                match chance.below(3) {
                    0 => bytes.truncate(usize::try_from(chance.below(bytes.len() as u64 + 1)).expect("small")),
                    1 => bytes.extend([0xff; 3]),
                    _ => {}
                }
                if !bytes.is_empty() {
                    let at = usize::try_from(chance.below((bytes.len() as u64).min(200))).expect("small");
                    bytes[at] = u8::try_from(chance.below(256)).expect("a byte");
                }
                let shared = Bytes::from(bytes.clone());
                for kind in Kind::ALL {
                    refused += usize::from(decode_journal(kind, &shared).is_err());
                }
                refused += usize::from(decode_item(&shared).is_err());
            }
        }
    }
    assert!(refused > 1_000, "{refused}");
}

#[test]
fn names_and_sizes_of_files_are_as_they_always_were() {
    assert_eq!(file_name(0), "extents-0000");
    assert_eq!(file_number("extents-0012"), Some(12));
    assert_eq!(file_number("extents-12345"), Some(12_345));
    for other in ["head", "extents-", "extents-12", "extents-00012", "extents-0001~", "extents-+001", "extents--001"] {
        assert_eq!(file_number(other), None, "{other}");
    }
    assert_eq!(file_bytes(0), 1 << 20);
    assert_eq!(file_bytes(10 << 30), 64 << 20);
    assert_eq!(file_bytes(100 << 20), (100 << 20) / 32 / 65_536 * 65_536);
}

#[test]
fn a_blank_extent_is_told_from_a_damaged_one_and_a_later_version_from_both() {
    assert_eq!(decode_header(&[0; HEADER_BYTES]), Err(Fault::Blank));
    assert_eq!(decode_header(&[0; HEADER_BYTES - 1]), Err(Fault::Cut));
    assert_eq!(decode_header(&[1; HEADER_BYTES]), Err(Fault::Checksum));
    assert_eq!(footer_bytes(&[0; 32]), Err(Fault::Blank));
    let mut later = StoreHead { store: 1, file_bytes: 1 << 20, disk_limit: 1 << 30, next_serial: 7 }.encode();
    later[8] = 2;
    let checksum = crc32fast::hash(&later[..48]).to_le_bytes();
    later[48..52].copy_from_slice(&checksum);
    assert_eq!(StoreHead::decode(&later), Err(Fault::Version(2)));
}
