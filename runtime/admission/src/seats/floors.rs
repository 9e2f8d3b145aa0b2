//! A floor for each class below the first, so that none starves.
//!
//! Classes are served in their order. Of all connection-seconds a part is put aside for each class that has a floor, while calls of it
//! wait; a class that has something put aside goes before the others until it is used up. What is put aside is bounded, and so is what
//! a class can owe.

use std::time::Duration;

use super::asking::Class;

/// Most that is put aside for a class: a few short calls.
const MOST_PUT_ASIDE: i64 = 100_000_000;

/// So much put aside lets a class go first: the classes above it are ahead of it by no more than what that takes.
const OWED: i64 = 10_000_000;

/// Most that one call is charged here: an hour.
const MOST_CHARGED: i64 = 3_600_000_000_000;

/// Thousandths of all connection-seconds that a class gets if it wants them.
const fn floor(class: Class) -> i64 {
    match class {
        Class::Control | Class::Interactive => 0,
        Class::Agent => 150,
        Class::Batch => 50,
        Class::Background => 20,
    }
}

/// Classes that have a floor, the first to be served first.
pub(super) const FLOORED: [Class; 3] = [Class::Agent, Class::Batch, Class::Background];

/// What is put aside for each class, in connection-nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Floors {
    aside: [i64; Class::ALL.len()],
}

impl Floors {
    /// A class used that much, while calls of some classes wait.
    pub(super) fn used(&mut self, class: Class, cost: Duration, waits: impl Fn(Class) -> bool) {
        let cost = i64::try_from(cost.as_nanos()).unwrap_or(i64::MAX).min(MOST_CHARGED);
        for floored in FLOORED {
            let aside = &mut self.aside[floored as usize];
            // Debts are paid off in any case, but nobody saves up for a burst.
            let most = if waits(floored) { MOST_PUT_ASIDE } else { 0 };
            *aside = (*aside + cost * floor(floored) / 1_000).min(most);
        }
        // It owes one call at the most: what it had while nobody else wanted it is not held against it.
        let own = &mut self.aside[class as usize];
        *own = (*own - cost).max(-cost).min(*own);
    }

    /// Whether it goes before the classes above it.
    pub(super) fn is_owed(&self, class: Class) -> bool {
        self.aside[class as usize] >= OWED
    }
}
