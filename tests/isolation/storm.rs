//! Promise 5, and that a recovery is a recovery: when a database is itself again, so are its callers, though none of them ever stops
//! to retry.
//!
//! With every limit written away the same storm keeps itself alive: calls reach a seat just before they are given up. Without that the
//! scene would prove nothing. The bench plays half a minute of brown-out, and half a minute without limits after it.

use std::time::Duration;

use spillgate_test_support::load::{Samples, address};
use spillgate_test_support::storm::{AS_THEY_COME, Course, Limits, NO_LIMITS, Pace, Storm, TASKS_PER_SECOND};

use crate::crowds::interactive;
use crate::scene::{serve, tenant, turn};

const SEATS: u32 = 8;
const HEALING: Duration = Duration::from_secs(5);
const LOOKED_AT: Duration = Duration::from_secs(3);
/// Long enough for as many callers to be there as ever will be.
const LONG: Duration = Duration::from_secs(15);
const SHORT: Duration = Duration::from_secs(5);

/// What became of the storm, and of a tenant beside it. `deadline`: of the flow that falls ill; a short one ends calls before their
/// callers hang up.
fn storm(table: &str, limits: Limits, deadline: &str, brown_out: Duration) -> (Storm, Samples) {
    let _turn = turn();
    let pace = Pace::new(table);
    let rig = pace.rig();
    let pool = format!("{}pool = {{ max = {SEATS}{} }}", limits.database, limits.pool);
    let sections = [rig.database("main", &pool), tenant("agents", "agent", limits.tenant), tenant("office", "interactive", "")];
    let [quick, (file, slow)] = rig.flows("main");
    let server = serve(&sections, &[quick, (file, slow.replace("\"50s\"", deadline))]);
    let office = interactive(&server, "office", 10.0);
    let course = Course { calm: Duration::from_secs(2), brown_out, after: HEALING + LOOKED_AT };
    let storm = pace.play(address(&server.flows), &course);
    let office = office.end();
    println!("{table}: {:.1}/s before; {storm}; office {office}", storm.before());
    assert!(storm.before() > 0.9 * TASKS_PER_SECOND, "{} tasks a second before it: {storm}", storm.before());
    (storm, office)
}

fn assert_healed((storm, office): &(Storm, Samples)) {
    // The database is ill for this tenant, too: a busy machine may cost it a call.
    assert!(office.well() * 100 >= office.len() * 95, "nobody else is refused for it: {office}");
    assert!(office.latency(900) < Duration::from_millis(300), "nobody else waited for it: {office}");
    let after = storm.after(HEALING, HEALING + LOOKED_AT);
    assert!(after >= 0.95 * storm.before(), "five seconds after healing {after} tasks a second, {} before: {storm}", storm.before());
}

#[test]
fn promise_5_a_retry_storm_ends_when_the_database_heals() {
    assert_healed(&storm("pace_healing", AS_THEY_COME, "\"50s\"", LONG));
}

/// E2, promise 5: a deadline counts against the flow, so that its breaker opens, and closes again.
#[test]
fn e2_a_retry_storm_of_calls_past_their_deadline_ends_when_the_database_heals() {
    assert_healed(&storm("pace_deadlines", AS_THEY_COME, "\"500ms\"", SHORT));
}

#[test]
fn a_retry_storm_without_limits_does_not_end() {
    let (storm, _) = storm("pace_without_limits", NO_LIMITS, "\"50s\"", SHORT);
    let after = storm.after(HEALING, HEALING + LOOKED_AT);
    assert!(after < 0.5 * storm.before(), "the scene has no power: {after} tasks a second, {} before: {storm}", storm.before());
}
