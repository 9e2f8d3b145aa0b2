//! Two counts over the last while: what went well and what did not. A few atomics, no lock.
//!
//! Time is cut into slots, each a tenth of the while. A slot carries the number of the time it counts, so that an old one is known and
//! written over; nothing has to be done as time passes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Slots of a while. What is counted is forgotten after the while, give or take one of them.
const SLOTS: usize = 10;
/// Bits of each count in a slot; the rest is the number of its time.
const COUNT_BITS: u32 = 20;
const MOST: u64 = (1 << COUNT_BITS) - 1;
const NUMBERS: u64 = (1 << (64 - 2 * COUNT_BITS)) - 1;

/// What happened within the last while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) well: u64,
    pub(crate) ill: u64,
}

impl Counts {
    pub(crate) const WELL: Counts = Counts { well: 1, ill: 0 };
    pub(crate) const ILL: Counts = Counts { well: 0, ill: 1 };

    pub(crate) fn all(self) -> u64 {
        self.well + self.ill
    }
}

/// Counts by time.
#[derive(Debug, Default)]
pub(crate) struct Window {
    slots: [AtomicU64; SLOTS],
}

impl Window {
    /// A window of its own that begins with what went well in this one.
    pub(crate) fn well(&self) -> Window {
        let well = |slot: u64| packed(slot_number(slot), Counts { ill: 0, ..counts_of(slot) });
        Window { slots: self.slots.each_ref().map(|slot| AtomicU64::new(well(slot.load(Ordering::Relaxed)))) }
    }

    /// Adds to the slot of this time; a count that is full stays so. Returns the number of the slot, for [`Window::take_back`].
    pub(crate) fn add(&self, counts: Counts, span: Duration, now: Duration) -> u64 {
        let number = number(span, now);
        self.change(number, |old| {
            let old = if slot_number(old) == number { counts_of(old) } else { Counts::default() };
            Some(packed(number, Counts { well: old.well + counts.well, ill: old.ill + counts.ill }))
        });
        number
    }

    /// Takes back what was added to a slot, unless it was written over since.
    pub(crate) fn take_back(&self, counts: Counts, number: u64) {
        self.change(number, |old| {
            let kept = counts_of(old);
            let less = Counts { well: kept.well.saturating_sub(counts.well), ill: kept.ill.saturating_sub(counts.ill) };
            (slot_number(old) == number).then(|| packed(number, less))
        });
    }

    /// What was added within the span that ends now.
    pub(crate) fn sum(&self, span: Duration, now: Duration) -> Counts {
        let newest = number(span, now);
        let mut sum = Counts::default();
        for slot in &self.slots {
            let slot = slot.load(Ordering::Relaxed);
            if newest.wrapping_sub(slot_number(slot)) & NUMBERS < SLOTS as u64 {
                let counts = counts_of(slot);
                sum = Counts { well: sum.well + counts.well, ill: sum.ill + counts.ill };
            }
        }
        sum
    }

    pub(crate) fn clear(&self) {
        self.slots.iter().for_each(|slot| slot.store(0, Ordering::Relaxed));
    }

    fn change(&self, number: u64, change: impl FnMut(u64) -> Option<u64>) {
        let slot = &self.slots[usize::try_from(number % SLOTS as u64).unwrap_or(0)];
        let _unchanged = slot.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }
}

/// The number of a time: how many slots of this length fit before it, as far as there are bits for it.
fn number(span: Duration, now: Duration) -> u64 {
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let slot = (nanoseconds(span) / SLOTS as u64).max(1);
    (nanoseconds(now) / slot) & NUMBERS
}

fn packed(number: u64, counts: Counts) -> u64 {
    number << (2 * COUNT_BITS) | counts.well.min(MOST) << COUNT_BITS | counts.ill.min(MOST)
}

fn slot_number(slot: u64) -> u64 {
    slot >> (2 * COUNT_BITS)
}

fn counts_of(slot: u64) -> Counts {
    Counts { well: slot >> COUNT_BITS & MOST, ill: slot & MOST }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_secs(20);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn what_is_older_than_the_span_is_forgotten() {
        let window = Window::default();
        window.add(Counts::WELL, SPAN, at(100));
        window.add(Counts::ILL, SPAN, at(110));
        assert_eq!(window.sum(SPAN, at(111)), Counts { well: 1, ill: 1 });
        assert_eq!(window.sum(SPAN, at(121)), Counts { well: 0, ill: 1 });
        assert_eq!(window.sum(SPAN, at(131)), Counts::default());
        window.add(Counts::WELL, SPAN, at(140));
        assert_eq!(window.sum(SPAN, at(140)), Counts::WELL, "an old slot is written over");
    }

    #[test]
    fn what_is_taken_back_was_never_there() {
        let window = Window::default();
        let slot = window.add(Counts::ILL, SPAN, at(100));
        window.add(Counts::ILL, SPAN, at(104));
        window.take_back(Counts::ILL, slot);
        assert_eq!(window.sum(SPAN, at(104)), Counts::ILL);
        // Its place counts another time now.
        window.add(Counts::ILL, SPAN, at(120));
        window.take_back(Counts::ILL, slot);
        assert_eq!(window.sum(SPAN, at(120)).ill, 2);
    }

    #[test]
    fn what_went_well_can_begin_another_window() {
        let window = Window::default();
        window.add(Counts { well: 7, ill: 3 }, SPAN, at(100));
        let other = window.well();
        window.add(Counts::WELL, SPAN, at(100));
        assert_eq!(other.sum(SPAN, at(101)), Counts { well: 7, ill: 0 });
        assert_eq!(other.sum(SPAN, at(121)), Counts::default());
    }

    #[test]
    fn counts_end_at_their_most_and_touch_nothing_beside_them() {
        let window = Window::default();
        window.add(Counts { well: MOST, ill: 3 }, SPAN, at(50));
        window.add(Counts::WELL, SPAN, at(50));
        assert_eq!(window.sum(SPAN, at(50)), Counts { well: MOST, ill: 3 });
        window.clear();
        assert_eq!(window.sum(SPAN, at(50)).all(), 0);
    }

    #[test]
    fn a_year_of_uptime_changes_nothing() {
        let window = Window::default();
        let span = Duration::from_millis(100);
        for days in [0, 1, 19, 20, 365, 3_650] {
            let now = Duration::from_secs(days * 86_400 + 7);
            window.add(Counts::WELL, span, now);
            assert_eq!(window.sum(span, now), Counts::WELL, "{days} days");
            assert_eq!(window.sum(span, now + span * 2).all(), 0, "{days} days");
        }
    }
}
