//! Breakers, and what was retried.

use std::sync::Arc;

use super::Page;
use crate::breakers::{BreakerLabel, BreakerMetrics};
use crate::databases::DatabaseMetrics;
use crate::names;

/// Breakers of databases and flows.
pub(crate) fn breakers(page: &mut Page, all: &[Arc<BreakerMetrics>]) {
    let shown = || all.iter().filter(|breaker| breaker.is_shown());
    page.family(names::BREAKER_STATE);
    for breaker in shown() {
        for label in BreakerLabel::ALL {
            let is = u8::from(breaker.is(label));
            page.sample(names::BREAKER_STATE, &[&breaker.database, &breaker.flow, label.name()], is);
        }
    }
    page.family(names::BREAKER_MOVES);
    for breaker in shown() {
        for label in BreakerLabel::ALL {
            let count = breaker.moves[label as usize].value();
            page.sample(names::BREAKER_MOVES, &[&breaker.database, &breaker.flow, label.name()], count);
        }
    }
    page.family(names::BREAKER_SHUT_OUT);
    for breaker in shown().filter(|breaker| !breaker.flow.is_empty()) {
        page.sample(names::BREAKER_SHUT_OUT, &[&breaker.database, &breaker.flow], breaker.shut_out.value());
    }
    page.family(names::BREAKER_REFUSED);
    for breaker in shown() {
        page.sample(names::BREAKER_REFUSED, &[&breaker.database, &breaker.flow], breaker.refused.value());
    }
}

/// Retries of steps.
pub(crate) fn retries(page: &mut Page, all: &[Arc<DatabaseMetrics>]) {
    page.family(names::RETRIES);
    for database in all {
        page.sample(names::RETRIES, &[&database.name, "made"], database.retries.value());
        page.sample(names::RETRIES, &[&database.name, "budget_spent"], database.retries_refused.value());
    }
}
