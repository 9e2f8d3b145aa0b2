//! Keys that are in use: idempotency keys and business keys, and the jobs they stand for.
//!
//! About 40 bytes each, at most [`MOST_KEYS`] of each sort. Split by hash into parts, so that growing or sweeping one is short.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::item::Hash;

/// Of each sort. What comes beyond is refused as if the disk were full.
pub(crate) const MOST_KEYS: usize = 1 << 21;
const PARTS: usize = 16;
/// A key of a job that has not ended.
const UNTIL_THE_END: u32 = u32::MAX;

/// The keys are hashes already.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Prehashed(u64);

impl Hasher for Prehashed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 = self.0.rotate_left(29) ^ u64::from_le_bytes(word);
        }
    }
    fn write_usize(&mut self, _length: usize) {}
}

/// Which job, by index of its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) lane: u32,
    pub(crate) sequence: u64,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    sequence: u64,
    input: [u8; 8],
    lane: u32,
    /// Seconds of store time.
    until: u32,
}

type Part = HashMap<Hash, Held, BuildHasherDefault<Prehashed>>;

/// One sort of keys.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    parts: [Part; PARTS],
    count: usize,
    swept: usize,
}

fn part_of(hash: &Hash) -> usize {
    usize::from(hash[15]) % PARTS
}

fn seconds(milliseconds: u64) -> u32 {
    u32::try_from(milliseconds.div_ceil(1000)).unwrap_or(UNTIL_THE_END - 1).min(UNTIL_THE_END - 1)
}

fn shortened(input: &Hash) -> [u8; 8] {
    let mut short = [0; 8];
    short.copy_from_slice(&input[..8]);
    short
}

impl Keys {
    pub(crate) fn len(&self) -> usize {
        self.count
    }
    /// Whether so many more may come.
    pub(crate) fn has_room(&self, more: usize) -> bool {
        self.count + more <= MOST_KEYS
    }
    /// Who holds a key, and whether with this input.
    pub(crate) fn find(&self, hash: &Hash, input: &Hash, now: u64) -> Option<(Holder, bool)> {
        let held = self.parts[part_of(hash)].get(hash).filter(|held| u64::from(held.until) * 1000 > now)?;
        Some((Holder { lane: held.lane, sequence: held.sequence }, held.input == shortened(input)))
    }
    /// Holds a key until the given time; `None`: until the job ends.
    pub(crate) fn hold(&mut self, hash: Hash, input: &Hash, holder: Holder, until: Option<u64>) {
        let held =
            Held { sequence: holder.sequence, input: shortened(input), lane: holder.lane, until: until.map_or(UNTIL_THE_END, seconds) };
        if self.parts[part_of(&hash)].insert(hash, held).is_none() {
            self.count += 1;
        }
    }
    /// At a start, when jobs are found in no order: holds a key unless another job holds it longer. It was freed or had run out before
    /// that one could have it.
    pub(crate) fn hold_longest(&mut self, hash: Hash, input: &Hash, holder: Holder, until: Option<u64>) {
        let held = self.parts[part_of(&hash)].get(&hash);
        if held.is_none_or(|held| held.until < until.map_or(UNTIL_THE_END, seconds)) {
            self.hold(hash, input, holder, until);
        }
    }
    /// Frees a key, if that job holds it.
    pub(crate) fn free(&mut self, hash: &Hash, holder: Holder) {
        let part = &mut self.parts[part_of(hash)];
        if part.get(hash).is_some_and(|held| held.lane == holder.lane && held.sequence == holder.sequence) {
            part.remove(hash);
            self.count -= 1;
        }
    }
    /// Frees all keys of a lane's jobs that are ended otherwise.
    pub(crate) fn free_where(&mut self, lane: u32, mut ended: impl FnMut(u64) -> bool) {
        for part in &mut self.parts {
            part.retain(|_, held| held.lane != lane || !ended(held.sequence));
        }
        self.count = self.parts.iter().map(HashMap::len).sum();
    }
    /// Forgets what ran out, in one part after the other.
    pub(crate) fn sweep(&mut self, now: u64) {
        let part = &mut self.parts[self.swept];
        let before = part.len();
        part.retain(|_, held| u64::from(held.until) * 1000 > now);
        self.count -= before - part.len();
        if part.capacity() > 4 * (part.len() + 64) {
            part.shrink_to_fit();
        }
        self.swept = (self.swept + 1) % PARTS;
    }
}

#[cfg(test)]
mod tests {
    use super::{Held, Holder, Keys};
    use crate::item::Hash;

    #[test]
    fn a_key_takes_40_bytes() {
        assert_eq!(size_of::<(Hash, Held)>(), 40);
    }

    #[test]
    fn a_key_is_freed_by_its_holder_only_and_runs_out() {
        let mut keys = Keys::default();
        let (first, second) = (Holder { lane: 1, sequence: 7 }, Holder { lane: 1, sequence: 8 });
        keys.hold([3; 16], &[1; 16], first, None);
        assert_eq!(keys.find(&[3; 16], &[2; 16], 5_000), Some((first, false)));
        keys.free(&[3; 16], second);
        assert_eq!(keys.find(&[3; 16], &[1; 16], 5_000), Some((first, true)));
        keys.hold([3; 16], &[1; 16], first, Some(6_000));
        assert_eq!((keys.len(), keys.find(&[3; 16], &[1; 16], 6_000)), (1, None));
        keys.hold_longest([3; 16], &[1; 16], second, Some(5_000));
        assert_eq!(keys.find(&[3; 16], &[1; 16], 5_500), Some((first, true)));
        for _ in 0..16 {
            keys.sweep(6_000);
        }
        assert_eq!(keys.len(), 0);
    }
}
