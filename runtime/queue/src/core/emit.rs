//! Items handed on by a job: they exist if and only if its end does.
//!
//! written, hidden -> (the end is durable) waiting
//!                 -> (the end did not come true) void: as if they never were
//!
//! On disk an emitted item names its origin and the emission; the origin's end names the emission that came true.

use std::time::Duration;

use crate::core::append::{How, Outcome};
use crate::core::end::Ending;
use crate::core::{Core, Ticket};
use crate::item::NewItem;
use crate::job::{JobId, JobState};
use crate::record::ItemOrigin;
use crate::store::StoreError;

impl Core {
    /// Appends items that stay hidden until their origin's end is durable; those whose keys are held are left out. What was appended
    /// is added to `emitted`, whatever the answer.
    pub(crate) fn emit(
        &mut self,
        origin: ItemOrigin,
        room: (usize, &mut u64, &mut u64),
        item_bytes: u64,
        items: Vec<NewItem>,
        emitted: &mut Vec<(usize, u64)>,
    ) -> Result<Ticket, StoreError> {
        let (lane, count, bytes) = room;
        let how = How { lane, lease: Duration::ZERO, origin: Some(origin), from: None };
        let items = items.into_iter().map(|item| NewItem { claimed: false, ..item }).collect();
        let (outcomes, ticket) = self.append(how, (count, bytes), item_bytes, items)?;
        emitted.extend(outcomes.iter().filter_map(|outcome| match outcome {
            Outcome::New { sequence, .. } => Some((lane, *sequence)),
            Outcome::Held { .. } | Outcome::Taken { .. } => None,
        }));
        Ok(ticket)
    }

    /// The end did not come true.
    pub(crate) fn void(&mut self, emitted: Vec<(usize, u64)>) {
        self.voids.extend(emitted);
        self.void_some();
    }

    /// Says that hidden items never were, as far as there is room to say it now.
    pub(crate) fn void_some(&mut self) {
        for (lane, sequence) in std::mem::take(&mut self.voids) {
            let Some(traits) = self.lanes[lane].jobs.get(&sequence).and_then(|entry| entry.traits.clone()) else { continue };
            let ending = Ending { void: true, ..Ending::unexecuted(JobState::Cancelled) };
            if self.end(lane, sequence, &traits, ending).is_err() {
                self.voids.push((lane, sequence));
            }
        }
    }

    /// Whether what an item says of its origin came true.
    pub(crate) fn came_true(&self, origin: &ItemOrigin) -> Truth {
        let JobId { sequence, .. } = origin.job;
        let Some(lane) = self.lane_of(origin.job) else { return Truth::Forgotten };
        let of = &self.lanes[lane];
        if of.jobs.contains_key(&sequence) || (of.items.is_live(sequence) && !of.letters.contains_key(&sequence)) {
            return Truth::No;
        }
        // Whether it names this emission must be read.
        if of.journal.find(super::journal::Sort::Job, sequence).is_some() { Truth::Recorded { lane } } else { Truth::Forgotten }
    }
}

/// See [`Core::came_true`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Truth {
    /// The origin has not ended.
    No,
    /// The origin has ended; its record says with which emission.
    Recorded {
        /// Its lane.
        lane: usize,
    },
    /// Nothing is kept of the origin: it ended long ago.
    Forgotten,
}
