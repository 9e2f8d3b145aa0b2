//! Finding out what became of a claimed write that was cut off, and ending its claim with it.
//!
//! `cut off -> succeeded | failed (proven not done: its keys are free) | unknown`. While the database cannot be asked the claim stays as it
//! is and its caller's repeats are told that it runs; after [`LONGEST`] it is `unknown`, which an operator resolves.

use std::time::Duration;

use bytes::Bytes;
use spillgate_model::{Code, Refusal};
use spillgate_queue::JobState;
use spillgate_telemetry::{ResolvedBy, happened};
use tokio::time::Instant;

use super::Found;
use super::ending::{self, Ending};
use super::evidence::{self, LONGEST_LOOK};
use crate::Call;
use crate::durable::Claim;
use crate::reload::Inner;
use crate::run::Notes;
use crate::steps::Context;

/// The first pause before a database is asked again, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// How long a database is asked again and again.
const LONGEST: Duration = Duration::from_secs(600);
/// A lease outlasts a look and the pause after it.
pub(super) const LEASE: Duration = Duration::from_secs(120);

const _: () = assert!(LONGEST_LOOK.as_secs() + LONGEST_PAUSE.as_secs() < LEASE.as_secs());

/// When to ask again.
#[derive(Debug)]
struct Pauses {
    next: Duration,
    left: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        Pauses { next: FIRST_PAUSE, left: LONGEST }
    }
}

impl Pauses {
    /// `None`: it was asked for long enough. `took`: the look before.
    fn next(&mut self, took: Duration) -> Option<Duration> {
        self.left = self.left.checked_sub(self.next + took)?;
        let pause = self.next;
        self.next = (pause * 2).min(LONGEST_PAUSE);
        Some(pause)
    }
}

/// Looks until there is an end, and ends the claim. `promised`: the reply's body if the write was done.
pub(super) async fn settle(inner: &Inner, call: &Call, claim: Claim, promised: Option<Bytes>) {
    let mut pauses = Pauses::default();
    loop {
        // A lost lease: the store has handed the claim to somebody else, who looks into it.
        if claim.store.renew(claim.lease(), LEASE).is_err() {
            return;
        }
        let began = Instant::now();
        let notes = Notes::default();
        let found = evidence::look_into(&Context::new(inner, call, &notes).claimed(Some(&claim)).unattended()).await;
        let unknown = match found {
            Found::Later(refusal) => match pauses.next(began.elapsed()) {
                Some(pause) => {
                    tokio::time::sleep(pause).await;
                    continue;
                }
                None => never_told(*refusal),
            },
            found => return end(inner, call, claim, found, promised).await,
        };
        return end(inner, call, claim, Found::Unknown(unknown), promised).await;
    }
}

/// Ends a claim as was found. Not for [`Found::Later`].
pub(super) async fn end(inner: &Inner, call: &Call, claim: Claim, found: Found, promised: Option<Bytes>) {
    let (job, flow) = (claim.job().to_string(), call.live.plan.flows[call.flow].name.clone());
    let by = resolved_by(call, &found);
    let ending = match found {
        Found::Done(body) => Ending::Succeeded(promised.or(body)),
        Found::NotDone => Ending::NotDone(not_done()),
        Found::Unknown(refusal) | Found::Later(refusal) => Ending::Unknown(*refusal),
    };
    let state = ending.state();
    happened::interrupted_resolved(&inner.telemetry, &flow, &job, by, state.name());
    if state == JobState::Unknown {
        happened::outcome_unknown(&inner.telemetry, &call.flowfile.tenant, &flow, &job);
    }
    let _told_if_not = ending::end(inner, call, claim, ending, Vec::new()).await;
}

fn resolved_by(call: &Call, found: &Found) -> ResolvedBy {
    match found {
        Found::Unknown(_) | Found::Later(_) => ResolvedBy::Nothing,
        _ if call.live.flows[call.flow].record.is_some() => ResolvedBy::Record,
        _ => ResolvedBy::Verify,
    }
}

/// It is proven that nothing was written.
pub(super) fn not_done() -> Refusal {
    let refusal = Refusal::new(Code::DatabaseError, "The write was cut off, and the database has nothing of it: it was not done.");
    refusal.retry_after(FIRST_PAUSE)
}

fn never_told(last: Refusal) -> Box<Refusal> {
    let detail = format!("The write was cut off, and the database has not told in time whether it was done: {}", last.detail);
    let mut refusal = Refusal::new(Code::OutcomeUnknown, detail);
    refusal.internal = last.internal;
    refusal.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_asked_again_for_a_bounded_time() {
        let mut pauses = Pauses::default();
        let took = Duration::from_secs(1);
        let all: Vec<Duration> = std::iter::from_fn(|| pauses.next(took)).collect();
        assert_eq!(all[..3], [100, 200, 400].map(Duration::from_millis));
        assert!(all.iter().all(|pause| *pause <= LONGEST_PAUSE) && all.len() < 100, "{all:?}");
        assert!(all.iter().map(|pause| *pause + took).sum::<Duration>() <= LONGEST);
    }
}
