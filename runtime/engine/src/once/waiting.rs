//! Calls that repeat and wait for the first: how many, of one job and of all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use spillgate_model::{Code, Refusal};
use spillgate_queue::JobId;

/// Repeats that may wait for one job, and for all together.
const OF_ONE: usize = 256;
const OF_ALL: usize = 8_192;

const _: () = assert!(OF_ONE <= OF_ALL);

/// Who waits for whom.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    of_one: HashMap<JobId, usize>,
    of_all: usize,
}

/// The right to wait; given back by drop.
#[derive(Debug)]
pub(super) struct Place {
    waiting: Arc<Waiting>,
    job: JobId,
}

impl Waiting {
    pub(super) fn enter(self: &Arc<Self>, job: JobId) -> Result<Place, Box<Refusal>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let of_one = state.of_one.get(&job).copied().unwrap_or(0);
        if of_one >= OF_ONE {
            return Err(too_many("repeats.of_one", OF_ONE, of_one));
        }
        if state.of_all >= OF_ALL {
            return Err(too_many("repeats.of_all", OF_ALL, state.of_all));
        }
        state.of_all += 1;
        state.of_one.insert(job, of_one + 1);
        Ok(Place { waiting: self.clone(), job })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.waiting.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.of_all = state.of_all.saturating_sub(1);
        if let Some(of_one) = state.of_one.get_mut(&self.job) {
            *of_one -= 1;
            if *of_one == 0 {
                state.of_one.remove(&self.job);
            }
        }
    }
}

fn too_many(name: &'static str, limit: usize, used: usize) -> Box<Refusal> {
    let refusal = Refusal::new(Code::ConflictRunning, "The first call with this key still runs, and too many wait for it already.");
    refusal.policy(name, limit as u64, used as u64).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(sequence: u64) -> JobId {
        JobId { lane: 1, sequence }
    }

    #[test]
    fn waiting_repeats_are_bounded_and_places_come_back() {
        let waiting = Arc::<Waiting>::default();
        let places: Vec<Place> = (0..OF_ONE).map(|_| waiting.enter(job(1)).expect("a place")).collect();
        let refused = waiting.enter(job(1)).expect_err("one job is waited for by so many");
        assert_eq!((refused.code, refused.policy.map(|policy| policy.used)), (Code::ConflictRunning, Some(OF_ONE as u64)));
        let others: Vec<Place> = (0..OF_ALL - OF_ONE).map(|number| waiting.enter(job(2 + number as u64 / 100)).expect("a place")).collect();
        assert_eq!(waiting.enter(job(9_999)).expect_err("all together").policy.map(|policy| policy.limit), Some(OF_ALL as u64));
        drop((places, others));
        let state = waiting.state.lock().expect("not poisoned");
        assert_eq!((state.of_all, state.of_one.len()), (0, 0));
    }
}
