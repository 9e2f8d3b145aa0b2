//! Whose turn it is: start-time fair queuing (Goyal, Vin and Cheng 1996) on connection-seconds, over the tenants of each class.
//!
//! A queue is the waiting calls of one tenant in one class. Its start tag is the virtual time at which its next call begins: where its
//! last one ended, or the virtual time of its class if that is later. The least tag is next; a call moves its queue's tag by its
//! connection-seconds over the tenant's weight. Only queues whose tenant may have another seat are filed here.

use std::collections::BTreeSet;
use std::time::Duration;

use super::asking::Class;
use super::floors::{FLOORED, Floors};

/// Connection-nanoseconds over weight, times 1,024.
pub(super) type Virtual = u128;

/// What so many connection-seconds are in virtual time.
pub(super) fn virtual_time(cost: Duration, weight: u32) -> Virtual {
    let nanoseconds = u64::try_from(cost.as_nanos()).unwrap_or(u64::MAX);
    Virtual::from(nanoseconds.saturating_mul(1 << 10) / u64::from(weight.max(1)))
}

/// Index of the calls that are fast, and of those that are slow or not yet measured.
pub(super) const FAST: usize = 0;
pub(super) const SLOW: usize = 1;

/// Where a queue is filed. Within a rank: class, then tag, then who had no turn for longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) class: Class,
    pub(super) start: Virtual,
    pub(super) turn: u64,
    pub(super) tenant: usize,
}

/// What goes before what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rank {
    Control,
    /// Its tenant holds fewer seats than are reserved for it.
    Reserved,
    Class(Class),
}

impl Rank {
    const COUNT: usize = 2 + Class::ALL.len();

    const fn index(self) -> usize {
        match self {
            Rank::Control => 0,
            Rank::Reserved => 1,
            Rank::Class(class) => 2 + class as usize,
        }
    }
}

/// A queue's place; it stands in the sets of the speeds of which it has calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Filed {
    pub(super) rank: Rank,
    pub(super) key: Key,
    pub(super) speeds: [bool; 2],
}

/// All queues that could be served.
#[derive(Debug, Default)]
pub(super) struct Order {
    sets: [[BTreeSet<Key>; 2]; Rank::COUNT],
    /// Entries by speed.
    entries: [usize; 2],
}

impl Order {
    pub(super) fn file(&mut self, filed: &Filed) {
        for speed in [FAST, SLOW].into_iter().filter(|speed| filed.speeds[*speed]) {
            if self.sets[filed.rank.index()][speed].insert(filed.key) {
                self.entries[speed] += 1;
            }
        }
    }
    pub(super) fn take_out(&mut self, filed: &Filed) {
        for speed in [FAST, SLOW].into_iter().filter(|speed| filed.speeds[*speed]) {
            if self.sets[filed.rank.index()][speed].remove(&filed.key) {
                self.entries[speed] -= 1;
            }
        }
    }
    /// Whether any queue has a call of a speed for which there is room.
    pub(super) fn any(&self, room: [bool; 2]) -> bool {
        (room[FAST] && self.entries[FAST] > 0) || (room[SLOW] && self.entries[SLOW] > 0)
    }
    /// The queue that is next among those with calls of a speed for which there is room.
    pub(super) fn first(&self, room: [bool; 2], control: bool, floors: &Floors) -> Option<Key> {
        if !self.any(room) {
            return None;
        }
        let first = [control.then_some(Rank::Control), Some(Rank::Reserved)].into_iter().flatten();
        let owed = FLOORED.into_iter().filter(|class| floors.is_owed(*class)).map(Rank::Class);
        let rest = Class::ALL.into_iter().map(Rank::Class);
        first.chain(owed).chain(rest).find_map(|rank| self.first_of(rank, room))
    }
    fn first_of(&self, rank: Rank, room: [bool; 2]) -> Option<Key> {
        let sets = &self.sets[rank.index()];
        let of = |speed: usize| sets[speed].first().filter(|_| room[speed]).copied();
        match (of(FAST), of(SLOW)) {
            (Some(fast), Some(slow)) => Some(fast.min(slow)),
            (fast, slow) => fast.or(slow),
        }
    }
}
