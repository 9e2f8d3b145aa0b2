//! One piece of work at a database on its way through the two breakers in front of it.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use spillgate_admission::{BreakerLimits, Pass, Said};
use spillgate_config::plan::BreakerPlan;
use spillgate_connector::{Blame, DatabaseError, Failure};
use tokio::time::Instant;

use super::{LiveBreaker, limits};
use crate::run::{Doing, Notes};
use crate::seats::CONNECT_PATIENCE;
use crate::verdict::{Cause, Failed, Fallible};

/// Whose a failure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// There is none: the work was done.
    Well,
    /// The database's: it can be reached by nobody.
    Database,
    /// The flow's: its statement is not answered.
    Flow,
    /// Somebody else's, or nobody's.
    Nobody,
}

/// The way through both. Told once what came of it; dropped, it finds out by itself.
pub(crate) struct Passage<'a> {
    tenant: Cow<'a, Arc<str>>,
    database: Option<Half<'a>>,
    flow: Option<Half<'a>>,
    /// When the work began, and how long its call had waited for seats by then.
    began: Instant,
    waited: Duration,
    /// `None`: the work has its seat.
    notes: Option<&'a Notes>,
    deadline: Instant,
    /// Without an answer for so long it counts as a failure.
    enough: Duration,
}

/// The way through one.
struct Half<'a> {
    breaker: Cow<'a, Arc<LiveBreaker>>,
    limits: BreakerLimits,
    pass: Pass,
}

/// A breaker and its settings, where it is not off.
pub(crate) type Asked<'a> = (&'a Arc<LiveBreaker>, Option<&'a BreakerPlan>);

impl<'a> Passage<'a> {
    /// Asks both for a call of a tenant. `patience`: how long the flow gives its statements.
    pub(crate) fn ask(
        tenant: &'a Arc<str>,
        database: Asked<'a>,
        flow: Option<Asked<'a>>,
        notes: &'a Notes,
        deadline: Instant,
        patience: Duration,
    ) -> Fallible<Self> {
        let (began, waited) = (Instant::now(), notes.waited());
        let (tenant_name, enough) = (Cow::Borrowed(tenant), patience / 2);
        let mut passage = Passage { tenant: tenant_name, database: None, flow: None, began, waited, notes: Some(notes), deadline, enough };
        passage.database = Half::of(database, tenant, began)?;
        // Refused here, it gives its place at the database's back by drop.
        passage.flow = flow.map_or(Ok(None), |flow| Half::of(flow, tenant, began))?;
        Ok(passage)
    }

    /// Passes on what came of asking for a seat.
    pub(crate) fn seat<T>(&mut self, seat: Fallible<T>) -> Fallible<T> {
        if let Err(failed) = &seat {
            self.tell(without_seat(failed));
        }
        seat
    }

    /// What came of the last statement.
    pub(crate) fn answered<T>(&mut self, result: &Result<T, DatabaseError>) {
        match result {
            Ok(_) => self.tell(Verdict::Well),
            Err(error) => self.failed(error),
        }
    }

    /// What came of a statement or commit that others may follow.
    pub(crate) fn failed(&mut self, error: &DatabaseError) {
        self.tell(of_statement(error));
    }

    /// The same on its own, from where the work has its seat.
    pub(crate) fn seated(mut self) -> Passage<'static> {
        let owned = |half: Half<'_>| Half { breaker: Cow::Owned(half.breaker.clone().into_owned()), ..half };
        Passage {
            tenant: Cow::Owned((*self.tenant).clone()),
            database: self.database.take().map(owned),
            flow: self.flow.take().map(owned),
            began: Instant::now(),
            waited: Duration::ZERO,
            notes: None,
            deadline: self.deadline,
            enough: self.enough,
        }
    }

    fn tell(&mut self, verdict: Verdict) {
        let (database, flow) = match verdict {
            Verdict::Well => (Said::Well, Said::Well),
            Verdict::Database => (Said::Ill, Said::Nothing),
            Verdict::Flow => (Said::Nothing, Said::Ill),
            Verdict::Nobody => (Said::Nothing, Said::Nothing),
        };
        let now = Instant::now();
        for (half, said) in [(self.database.take(), database), (self.flow.take(), flow)] {
            if let Some(Half { breaker, limits, pass }) = half {
                breaker.told(&self.tenant, pass, said, &limits, now);
            }
        }
    }

    /// The work was dropped: by its deadline, or by whoever wanted it.
    fn left(&self) -> Verdict {
        let now = Instant::now();
        if now < self.deadline {
            return Verdict::Nobody;
        }
        let waited = self.notes.map_or(Duration::ZERO, Notes::waited).saturating_sub(self.waited);
        let had = (now - self.began).saturating_sub(waited);
        match self.notes.map_or(Doing::Working, Notes::doing) {
            Doing::Opening | Doing::Connecting if had >= self.enough.min(CONNECT_PATIENCE) => Verdict::Database,
            Doing::Working | Doing::Beginning if had >= self.enough => Verdict::Flow,
            Doing::Opening | Doing::Connecting | Doing::Waiting | Doing::Working | Doing::Beginning => Verdict::Nobody,
        }
    }
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        if self.database.is_some() || self.flow.is_some() {
            self.tell(self.left());
        }
    }
}

impl<'a> Half<'a> {
    fn of((breaker, plan): Asked<'a>, tenant: &str, now: Instant) -> Fallible<Option<Self>> {
        let Some(plan) = plan else { return Ok(None) };
        let limits = limits(plan);
        match breaker.enter(tenant, &limits, now) {
            Ok(pass) => Ok(Some(Half { breaker: Cow::Borrowed(breaker), limits, pass })),
            Err(refusal) => Err(Failed::refused(*refusal)),
        }
    }
}

/// There was no seat: not to be had, which is ours, or no session could be opened in it.
fn without_seat(failed: &Failed) -> Verdict {
    match failed.cause {
        // Neither where it is unfit: that is told to be mended, not to be waited for.
        _ if !failed.again => Verdict::Nobody,
        // What others found out is counted once, by them: however many calls come while nobody may try, they tell nothing new.
        Cause::NotTried => Verdict::Nobody,
        _ => Verdict::Database,
    }
}

fn of_statement(error: &DatabaseError) -> Verdict {
    match (&error.failure, error.blame) {
        // There was no session: what it was opened for was not even sent.
        (Failure::Unreachable, _) => Verdict::Database,
        // One that is lost over a statement says nothing of other sessions. Where no other can be opened, that is told by itself.
        (Failure::LinkLost | Failure::Ended, _) | (Failure::Passing, Blame::Others) => Verdict::Flow,
        // The database answered. A conflict of transactions is between callers, and so are bad values.
        (Failure::Passing | Failure::Refused, _) => Verdict::Nobody,
        (Failure::ValueInexact { .. } | Failure::ResultTooLarge { .. } | Failure::NoTransactions | Failure::Unfit, _) => Verdict::Nobody,
    }
}

#[cfg(test)]
mod tests {
    use spillgate_model::{Code, Refusal};

    use super::*;

    #[test]
    fn only_what_the_other_side_did_counts_and_each_failure_once() {
        let of = |failure, blame| of_statement(&DatabaseError::new(failure, "no", "no").blame(blame));
        assert_eq!(of(Failure::Unreachable, Blame::Statement), Verdict::Database);
        assert_eq!(of(Failure::LinkLost, Blame::Statement), Verdict::Flow);
        assert_eq!(of(Failure::Ended, Blame::Statement), Verdict::Flow);
        assert_eq!(of(Failure::Passing, Blame::Others), Verdict::Flow);
        let columns = [Failure::ValueInexact { column: "A".into() }, Failure::ResultTooLarge { column: "A".into() }];
        for failure in [Failure::Passing, Failure::Refused, Failure::NoTransactions, Failure::Unfit].into_iter().chain(columns) {
            assert_eq!(of(failure.clone(), Blame::Statement), Verdict::Nobody, "{failure:?}");
        }
    }

    #[test]
    fn a_seat_that_this_server_refuses_counts_against_nobody() {
        let without = |code, again, cause| without_seat(&Failed { refusal: Refusal::new(code, "no"), again, cause });
        assert_eq!(without(Code::Overloaded, false, Cause::Said), Verdict::Nobody);
        assert_eq!(without(Code::WaitTooLong, false, Cause::Said), Verdict::Nobody);
        assert_eq!(without(Code::DatabaseUnreachable, true, Cause::Said), Verdict::Database);
        assert_eq!(without(Code::DatabaseUnreachable, true, Cause::NotTried), Verdict::Nobody, "it is refused between tries");
        assert_eq!(without(Code::DatabaseUnreachable, false, Cause::NotTried), Verdict::Nobody, "it is unfit until it is mended");
    }
}
