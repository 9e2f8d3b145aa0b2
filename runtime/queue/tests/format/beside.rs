//! What stands beside the extents: batches in `redo`, and the catalog in `head`.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use spillgate_queue::format::{
    CATALOG_ENTRY_BYTES, CATALOG_MARK_BYTES, CatalogEntry, EXTENT_BYTES, Fault, REDO_HEAD_BYTES, REDO_PAGE_BYTES, RedoHead, RedoWrite,
    decode_entry, decode_mark, decode_redo, encode_entry, encode_mark, put_redo, redo_announced, redo_bytes,
};
use spillgate_queue::record::Stream;

/// A write: position, offset, content, zeros behind it.
type Place = (u32, usize, Vec<u8>, usize);

fn places() -> impl Strategy<Value = Vec<Place>> {
    let place = (any::<u32>(), 0..EXTENT_BYTES, vec(any::<u8>(), 0..3_000), 0..EXTENT_BYTES);
    let fits = |(position, offset, mut content, zeros): Place| {
        content.truncate(EXTENT_BYTES - offset);
        let zeros = zeros.min(EXTENT_BYTES - offset - content.len());
        (position, offset, content, zeros)
    };
    vec(place.prop_map(fits), 0..12)
}

fn writes(places: &[Place]) -> impl Iterator<Item = RedoWrite<'_>> + Clone {
    places.iter().map(|(position, offset, content, zeros)| RedoWrite { position: *position, offset: *offset, content, zeros: *zeros })
}

prop_compose! {
    fn head()(store: u64, epoch: u64, number: u32) -> RedoHead {
        RedoHead { store, epoch, number }
    }
}

prop_compose! {
    fn entry()(
        numbers: [u64; 3], stream in prop::sample::select(vec![Stream::Items, Stream::Journal, Stream::Kept]),
    ) -> CatalogEntry {
        let [serial, lane, first] = numbers;
        CatalogEntry { serial, lane, first, stream }
    }
}

/// With a checksum that is right: what a wrong program would write.
fn redo_summed(batch: &mut [u8]) {
    let at = REDO_HEAD_BYTES - 4;
    let Ok(bytes) = <[u8; 4]>::try_from(&batch[12..16]).map(u32::from_le_bytes) else { return };
    let Some(rest) = batch.get(REDO_HEAD_BYTES..bytes as usize) else { return };
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&batch[..at]);
    hasher.update(rest);
    let sum = hasher.finalize().to_le_bytes();
    batch[at..REDO_HEAD_BYTES].copy_from_slice(&sum);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn batches_in_redo_come_back_and_one_wrong_bit_or_sector_is_seen(head in head(), places in places(), bit: u64, cut: u64) {
        let mut bytes = Vec::new();
        put_redo(&mut bytes, head, writes(&places));
        prop_assert_eq!(bytes.len(), redo_bytes(writes(&places)));
        prop_assert_eq!(redo_announced(&bytes[..REDO_PAGE_BYTES], head.store), Ok(bytes.len()));
        prop_assert!(redo_announced(&bytes, head.store ^ 1).is_err(), "of another store");
        let (found, decoded) = decode_redo(&bytes).expect("it is whole");
        prop_assert_eq!(found, head);
        prop_assert_eq!(decoded, writes(&places).collect::<Vec<_>>());

        let whole = u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]) as usize;
        let bit = usize::try_from(bit % (whole as u64 * 8)).expect("small");
        let mut wrong = bytes.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(decode_redo(&wrong).is_err(), "bit {bit}");
        prop_assert!(decode_redo(&bytes[..usize::try_from(cut % whole as u64).expect("small")]).is_err());
    }

    #[test]
    fn batches_that_a_wrong_program_wrote_are_refused_or_stay_within_their_extents(
        head in head(), places in places(), changes in vec((any::<u64>(), any::<u8>()), 1..6), cut: Option<u64>,
    ) {
        let mut bytes = Vec::new();
        put_redo(&mut bytes, head, writes(&places));
        for (at, byte) in changes {
            // Where the numbers stand.
            let at = 8 + usize::try_from(at % (REDO_HEAD_BYTES as u64 + 16 * places.len() as u64)).expect("small");
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(REDO_HEAD_BYTES + usize::try_from(cut % (bytes.len() - REDO_HEAD_BYTES) as u64).expect("small"));
        }
        redo_summed(&mut bytes);
        let _ = redo_announced(&bytes, head.store);
        if let Ok((_, decoded)) = decode_redo(&bytes) {
            prop_assert!(decoded.iter().all(|write| write.offset + write.content.len() + write.zeros <= EXTENT_BYTES));
            prop_assert!(decoded.iter().map(|write| write.content.len()).sum::<usize>() <= bytes.len());
        }
    }

    #[test]
    fn entries_of_the_catalog_come_back_at_their_place_and_one_wrong_bit_is_seen(
        entry in option::of(entry()), position: u32, other: u32, bit in 0..CATALOG_ENTRY_BYTES * 8,
    ) {
        let mut bytes = encode_entry(entry.as_ref(), position);
        prop_assert_eq!(decode_entry(&bytes, position), Ok(entry));
        prop_assert!(entry.is_none() || other == position || decode_entry(&bytes, other).is_err(), "of another place");
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(decode_entry(&bytes, position).is_err());
        prop_assert_eq!(decode_entry(&bytes[..bit / 8], position), Err(Fault::Cut));
    }

    #[test]
    fn the_mark_of_the_catalog_comes_back_and_one_wrong_bit_is_seen(store: u64, complete_below: u64, bit in 0..CATALOG_MARK_BYTES * 8) {
        let mut bytes = encode_mark(store, complete_below);
        prop_assert_eq!(decode_mark(&bytes, store), Ok(complete_below));
        prop_assert!(decode_mark(&bytes, store ^ 1).is_err(), "of another store");
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(decode_mark(&bytes, store).is_err());
        prop_assert_eq!(decode_mark(&bytes[..bit / 8], store), Err(Fault::Cut));
    }

    #[test]
    fn bytes_that_nobody_wrote_are_no_batch_and_no_entry(mut bytes in vec(any::<u8>(), 0..9_000), store: u64, position: u32, mark: bool) {
        if mark && bytes.len() > 16 {
            // Further in than chance would come.
            bytes[..8].copy_from_slice(b"spillqrd");
            bytes[14..16].fill(0);
        }
        let is_blank = |length: usize| bytes.iter().take(length).all(|byte| *byte == 0);
        prop_assert!(decode_redo(&bytes).is_err());
        prop_assert!(redo_announced(&bytes, store).is_err());
        prop_assert!(decode_mark(&bytes, store).is_err());
        prop_assert!(decode_entry(&bytes, position).is_err() || is_blank(CATALOG_ENTRY_BYTES));
    }
}
