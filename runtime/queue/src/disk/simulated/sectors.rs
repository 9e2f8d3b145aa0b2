//! One file: what readers see, and what a crash would leave of it.

use std::collections::BTreeMap;

use crate::disk::simulated::Chance;
use crate::format::SECTOR_BYTES;

type Sector = Vec<u8>;

#[derive(Debug)]
pub(super) struct Sectors {
    content: Vec<u8>,
    /// Of each sector written since the last sync: what it was before, oldest first. Any of it may be what is left.
    before: BTreeMap<usize, Vec<Sector>>,
    /// Of sectors a failed sync gave up on: what is durable. A later sync does not write them.
    forgotten: BTreeMap<usize, Sector>,
    /// Whether its length is durable.
    length_durable: bool,
}

impl Sectors {
    pub(super) fn new(bytes: usize) -> Sectors {
        Sectors { content: vec![0; bytes], before: BTreeMap::new(), forgotten: BTreeMap::new(), length_durable: false }
    }
    pub(super) fn durable(content: Vec<u8>) -> Sectors {
        Sectors { content, before: BTreeMap::new(), forgotten: BTreeMap::new(), length_durable: true }
    }
    pub(super) fn content(&self) -> &[u8] {
        &self.content
    }

    fn range(&self, sector: usize) -> std::ops::Range<usize> {
        let start = sector * SECTOR_BYTES;
        start..(start + SECTOR_BYTES).min(self.content.len())
    }

    pub(super) fn grow(&mut self, bytes: usize) {
        if bytes > 0 {
            self.content.resize(self.content.len() + bytes, 0);
            self.length_durable = false;
        }
    }

    pub(super) fn cut(&mut self, bytes: usize) {
        self.content.truncate(bytes);
        let sectors = self.content.len().div_ceil(SECTOR_BYTES);
        self.before.retain(|sector, _| *sector < sectors);
        self.forgotten.retain(|sector, _| *sector < sectors);
    }

    pub(super) fn write(&mut self, content: &[u8], offset: usize) {
        if content.is_empty() {
            return;
        }
        for sector in offset / SECTOR_BYTES..=(offset + content.len() - 1) / SECTOR_BYTES {
            let now = self.content[self.range(sector)].to_vec();
            // Written again, it is known again: the next sync takes it along.
            let was = self.forgotten.remove(&sector);
            let versions = self.before.entry(sector).or_default();
            versions.extend(was);
            versions.push(now);
        }
        self.content[offset..offset + content.len()].copy_from_slice(content);
    }

    pub(super) fn sync(&mut self) {
        self.before.clear();
        self.length_durable = true;
    }

    pub(super) fn fail_sync(&mut self, chance: &mut Chance) {
        for (sector, versions) in std::mem::take(&mut self.before) {
            if chance.one_in(2) {
                self.forgotten.extend(versions.into_iter().next().map(|oldest| (sector, oldest)));
            }
        }
        self.length_durable |= chance.one_in(2);
    }

    /// Readers see what is durable where a failed sync gave up.
    pub(super) fn forget(&mut self) {
        for (sector, durable) in std::mem::take(&mut self.forgotten) {
            let range = self.range(sector);
            self.content[range].copy_from_slice(&durable);
        }
    }

    pub(super) fn crash(&mut self, chance: &mut Chance) {
        // Sometimes all or nothing, so that whole batches are lost and kept too.
        let mode = chance.below(4);
        for (sector, mut versions) in std::mem::take(&mut self.before) {
            let kept = match mode {
                0 => Some(0),
                1 => None,
                _ => usize::try_from(chance.below(versions.len() as u64 + 1)).ok(),
            };
            if let Some(version) = kept.filter(|version| *version < versions.len()) {
                let range = self.range(sector);
                self.content[range].copy_from_slice(&versions.swap_remove(version));
            }
        }
        self.forget();
        if !self.length_durable && chance.one_in(2) {
            let left = chance.below(self.content.len() as u64 + 1);
            self.content.truncate(usize::try_from(left).unwrap_or(0));
        }
        self.length_durable = true;
    }
}
