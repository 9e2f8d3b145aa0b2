//! Promise 5, and that a recovery is a recovery: when a database is itself again, so are its callers, though none of them ever stops
//! to retry.
//!
//! With every limit written away the same storm keeps itself alive: calls reach a seat just before they are given up. Without that the
//! scene would prove nothing.

use std::time::Duration;

use spillgate_test_support::load::address;
use spillgate_test_support::storm::{AS_THEY_COME, Course, Limits, NO_LIMITS, Pace, Storm, TASKS_PER_SECOND};

use crate::scene::{serve, tenant, turn};

const SEATS: u32 = 8;
const HEALING: Duration = Duration::from_secs(5);
const LOOKED_AT: Duration = Duration::from_secs(2);

fn storm(table: &str, limits: Limits) -> Storm {
    let _turn = turn();
    let pace = Pace::new(table);
    let rig = pace.rig();
    let pool = format!("{}pool = {{ max = {SEATS}{} }}", limits.database, limits.pool);
    let server = serve(&[rig.database("main", &pool), tenant("agents", "agent", limits.tenant)], &rig.flows("main"));
    let course = Course { calm: Duration::from_secs(2), brown_out: Duration::from_secs(5), after: HEALING + LOOKED_AT };
    let storm = pace.play(address(&server.flows), &course);
    assert!(storm.before() > 0.8 * TASKS_PER_SECOND, "{} tasks a second before it: {storm}", storm.before());
    println!("{table}: {:.1}/s before; {storm}", storm.before());
    storm
}

#[test]
fn promise_5_a_retry_storm_ends_when_the_database_heals() {
    let storm = storm("pace_healing", AS_THEY_COME);
    let after = storm.after(HEALING, HEALING + LOOKED_AT);
    assert!(after > 0.8 * storm.before(), "five seconds after healing {after} tasks a second, {} before: {storm}", storm.before());
}

#[test]
fn a_retry_storm_without_limits_does_not_end() {
    let storm = storm("pace_without_limits", NO_LIMITS);
    let after = storm.after(HEALING, HEALING + LOOKED_AT);
    assert!(after < 0.5 * storm.before(), "the scene has no power: {after} tasks a second, {} before: {storm}", storm.before());
}
