//! The items stream of a lane: which extents hold which items, and which of them are over.
//!
//! Invariants
//! 1. Sequences run on without a gap inside an extent, and upwards from extent to extent.
//! 2. Extents are given back from the front, when all that begins in them is over and durably so.
//! 3. Memory is per extent, about 100 bytes, and one bit per item.

use std::collections::VecDeque;

use crate::core::extents::Position;
use crate::core::stream::Open;

/// Sequences that an extent may leave out.
const MOST_SKIPPED: u64 = 1 << 16;

/// One extent.
#[derive(Debug)]
pub(crate) struct ItemExtent {
    pub(crate) serial: u64,
    pub(crate) position: Position,
    /// Of the items that begin in it: how many.
    pub(crate) count: u32,
    /// That are not over, or not durably so.
    pub(crate) live: u32,
    /// Sequence of the first.
    pub(crate) first: u64,
    /// Content bytes of those whose bit is not set.
    pub(crate) live_bytes: u64,
    /// No item in it expires before.
    pub(crate) earliest_expiry: u64,
    /// When it was taken into use.
    pub(crate) time: u64,
    /// A bit for each that is over.
    over: Vec<u64>,
}

impl ItemExtent {
    pub(crate) fn new(serial: u64, position: Position, first: u64, time: u64) -> Self {
        ItemExtent { serial, position, count: 0, live: 0, first, live_bytes: 0, earliest_expiry: u64::MAX, time, over: Vec::new() }
    }
    /// The next item that begins in it has this sequence; what is missing before it never was, or cannot be read. Whether that can be
    /// told: the gap must be small enough for a bit each.
    pub(crate) fn skip_to(&mut self, sequence: u64) -> bool {
        if self.count == 0 {
            self.first = sequence.max(self.first);
            return true;
        }
        let gap = sequence.saturating_sub(self.end());
        if gap > MOST_SKIPPED {
            return false;
        }
        for _ in 0..gap {
            self.push(0, None);
            self.set_over(self.end() - 1, 0);
            self.live -= 1;
        }
        true
    }
    /// One more item begins in it.
    pub(crate) fn push(&mut self, bytes: u64, expires_at: Option<u64>) {
        if self.count.is_multiple_of(64) {
            self.over.push(0);
        }
        self.count += 1;
        self.live += 1;
        self.live_bytes += bytes;
        self.earliest_expiry = self.earliest_expiry.min(expires_at.unwrap_or(u64::MAX));
    }
    fn index(&self, sequence: u64) -> Option<u32> {
        u32::try_from(sequence.checked_sub(self.first)?).ok().filter(|index| *index < self.count)
    }
    pub(crate) fn is_over(&self, sequence: u64) -> bool {
        self.index(sequence).is_none_or(|index| self.over[(index / 64) as usize] & (1 << (index % 64)) != 0)
    }
    /// Marks an item of so many content bytes: whether it was not marked before.
    pub(crate) fn set_over(&mut self, sequence: u64, bytes: u64) -> bool {
        let Some(index) = self.index(sequence).filter(|_| !self.is_over(sequence)) else { return false };
        self.over[(index / 64) as usize] |= 1 << (index % 64);
        self.live_bytes = self.live_bytes.saturating_sub(bytes);
        true
    }
    /// Sequence behind the last that begins in it.
    pub(crate) fn end(&self) -> u64 {
        self.first + u64::from(self.count)
    }
    /// The first from `sequence` on that is not over.
    pub(crate) fn next(&self, sequence: u64) -> Option<u64> {
        let mut index = u32::try_from(sequence.saturating_sub(self.first)).ok()?;
        while index < self.count {
            let open = !self.over[(index / 64) as usize] >> (index % 64);
            if open != 0 {
                let next = index + open.trailing_zeros();
                return (next < self.count).then_some(self.first + u64::from(next));
            }
            index = (index / 64 + 1) * 64;
        }
        None
    }
}

/// The stream.
#[derive(Debug, Default)]
pub(crate) struct Items {
    pub(crate) extents: VecDeque<ItemExtent>,
    pub(crate) open: Option<Open>,
}

impl Items {
    /// Where an item begins, by index.
    pub(crate) fn find(&self, sequence: u64) -> Option<usize> {
        // Extents in which nothing begins have the `first` of the next: the last candidate is the one.
        let index = self.extents.partition_point(|extent| extent.first <= sequence).checked_sub(1)?;
        (sequence < self.extents[index].end()).then_some(index)
    }
    pub(crate) fn extent_of(&mut self, sequence: u64) -> Option<&mut ItemExtent> {
        let index = self.find(sequence)?;
        self.extents.get_mut(index)
    }
    /// Whether an item stands in it and is not over.
    pub(crate) fn is_live(&self, sequence: u64) -> bool {
        self.find(sequence).is_some_and(|index| !self.extents[index].is_over(sequence))
    }
    /// The first item from `sequence` on that is not over.
    pub(crate) fn next(&self, sequence: u64) -> Option<u64> {
        let from = self.extents.partition_point(|extent| extent.end() <= sequence);
        self.extents.range(from..).find_map(|extent| extent.next(sequence))
    }
    pub(crate) fn by_serial(&self, serial: u64) -> Option<usize> {
        self.extents.binary_search_by_key(&serial, |extent| extent.serial).ok()
    }
    /// Sequence of the first item that any extent holds, over or not.
    pub(crate) fn first(&self) -> u64 {
        self.extents.front().map_or(u64::MAX, |extent| extent.first)
    }
    /// Takes the next extent off the front that nothing needs any more. The open one stays.
    pub(crate) fn pop(&mut self) -> Option<ItemExtent> {
        let front = self.extents.front()?;
        let is_open = self.open.as_ref().is_some_and(|open| open.serial == front.serial);
        if front.live > 0 || is_open { None } else { self.extents.pop_front() }
    }
    pub(crate) fn room(&self) -> usize {
        self.open.as_ref().map_or(0, |open| open.tail.room())
    }
}

#[cfg(test)]
mod tests {
    use super::{ItemExtent, Items};
    use crate::format::{EXTENT_BYTES, FRAGMENT_BYTES, LEAST_ENTRY_BYTES, LEAST_ITEM_HEAD_BYTES};

    #[test]
    fn an_extent_costs_about_100_bytes() {
        assert!(size_of::<ItemExtent>() <= 88, "{}", size_of::<ItemExtent>());
    }

    #[test]
    fn d3_items_of_an_extent_cost_a_bit_each_and_the_smallest_no_more_than_half_a_kilobyte_together() {
        let smallest = EXTENT_BYTES / (FRAGMENT_BYTES + LEAST_ITEM_HEAD_BYTES + LEAST_ENTRY_BYTES);
        for (count, most_bytes) in [(280, 64), (smallest as u64, 512)] {
            let mut extent = ItemExtent::new(1, 0, 1, 0);
            (0..count).for_each(|_| extent.push(200, None));
            let waiting = extent.over.capacity();
            (1..=count).for_each(|sequence| assert!(extent.set_over(sequence, 200)));
            assert_eq!(extent.over.capacity(), waiting);
            assert!(waiting * size_of::<u64>() <= most_bytes, "{count}: {waiting}");
        }
    }

    #[test]
    fn items_are_found_over_extents_in_which_nothing_begins() {
        let mut items = Items::default();
        for (serial, first, count) in [(1, 1, 3), (2, 4, 0), (3, 4, 0), (5, 4, 70), (9, 90, 2)] {
            let mut extent = ItemExtent::new(serial, 0, first, 0);
            (0..count).for_each(|_| extent.push(10, None));
            items.extents.push_back(extent);
        }
        assert_eq!([3, 4, 73, 74, 90].map(|sequence| items.find(sequence)), [Some(0), Some(3), Some(3), None, Some(4)]);
        assert!((4..74).all(|sequence| items.extent_of(sequence).is_some_and(|extent| extent.set_over(sequence, 10))));
        assert!(!items.extents[3].set_over(5, 10), "it is over already");
        assert_eq!((items.next(1), items.next(4), items.next(92)), (Some(1), Some(90), None));
        assert_eq!(items.extents[3].live_bytes, 0);
    }
}
