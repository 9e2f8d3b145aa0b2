//! Decoding of everything on disk, on bytes as they were written, torn, damaged, and never written by us at all.
//!
//! Format invariants 1 to 4: nothing panics, nothing false is taken for valid, a torn write is told from damage, and what was appended
//! can be sealed.

mod beside;
mod made;

use std::sync::Arc;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use spillgate_queue::LaneName;
use spillgate_queue::disk::simulated::Chance;
use spillgate_queue::format::{
    Draft, EXTENT_BYTES, Fault, Fragment, HEADER_BYTES, Kind, MOST_ENTRY_BYTES, SECTOR_BYTES, Scan, StoreHead, decode_footer,
    decode_header, decode_item, decode_item_head, decode_job, decode_journal, encode_header, file_bytes, file_name, file_number,
    footer_bytes, record_disk_bytes, scan, scan_last,
};
use spillgate_queue::record::{ExtentHeader, ItemRecord, JournalRecord, Meta, Stream};

use crate::made::{header, item, journal, opened, records, resumed, used_extent, write};

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
