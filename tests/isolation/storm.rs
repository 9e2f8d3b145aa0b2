//! Promise 5, and that a recovery is a recovery: when a database is itself again, so are its callers, though none of them ever stops
//! to retry.
//!
//! With every limit written away the same storm keeps itself alive: calls reach a seat just before they are given up. Without that the
//! scene would prove nothing. The bench plays half a minute of brown-out, and half a minute without limits after it.

use std::time::Duration;

use spillgate_test_support::load::{Samples, address};
use spillgate_test_support::server::{Server, folder};
use spillgate_test_support::storm::{AS_THEY_COME, Course, Limits, NO_LIMITS, Pace, Storm, TASKS_PER_SECOND};

use crate::beside::assert_unmoved;
use crate::crowds::interactive;
use crate::scene::{serve, tenant, turn};

const SEATS: u32 = 8;
const HEALING: Duration = Duration::from_secs(5);
const LOOKED_AT: Duration = Duration::from_secs(4);
/// Long enough for as many callers to be there as ever will be.
const LONG: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_secs(5);

/// What is written of the storm's server.
struct Written {
    limits: Limits,
    /// Of the flow that falls ill; a short one ends calls before their callers hang up.
    deadline: &'static str,
    /// Of its database.
    statement_timeout: &'static str,
}

const PATIENT: Written = Written { limits: AS_THEY_COME, deadline: "\"50s\"", statement_timeout: "\"60s\"" };

/// What became of a storm, and of a tenant beside it.
struct Seen {
    storm: Storm,
    office: Samples,
    server: Server,
}

fn storm(pace: &Pace, written: &Written, brown_out: Duration) -> Seen {
    let (rig, limits) = (pace.rig(), written.limits);
    let database = format!("{}pool = {{ max = {SEATS}{} }}", limits.database, limits.pool);
    let database = rig.database("main", &database).replace("\"60s\"", written.statement_timeout);
    let sections = [database, tenant("agents", "agent", limits.tenant), tenant("office", "interactive", "")];
    let [quick, (file, slow)] = rig.flows("main");
    let server = serve(&sections, &[quick, (file, slow.replace("\"50s\"", written.deadline))]);
    let office = interactive(&server, "office", 10.0);
    let course = Course { calm: Duration::from_secs(2), brown_out, after: HEALING + LOOKED_AT };
    let storm = pace.play(address(&server.flows), &course);
    let office = office.end();
    println!("{}: {:.1}/s before; {storm}; office {office}", rig.name, storm.before());
    assert!(storm.before() > 0.9 * TASKS_PER_SECOND, "{} tasks a second before it: {storm}", storm.before());
    Seen { storm, office, server }
}

/// Of the tasks that were done before; fewer are asked where a busy machine also holds up the database itself.
const AS_BEFORE: f64 = 0.95;
const NEARLY_AS_BEFORE: f64 = 0.9;

fn assert_healed(Seen { storm, office, server }: &Seen, part: f64) {
    assert_unmoved(server, office);
    let after = storm.after(HEALING, HEALING + LOOKED_AT);
    assert!(after >= part * storm.before(), "five seconds after healing {after} tasks a second, {} before: {storm}", storm.before());
}

#[test]
fn promise_5_a_retry_storm_ends_when_postgres_heals() {
    let _turn = turn();
    assert_healed(&storm(&Pace::postgres("pace_healing"), &PATIENT, LONG), AS_BEFORE);
}

/// Its writes outlive their callers.
#[test]
fn promise_5_a_retry_storm_ends_when_sqlite_heals() {
    let _turn = turn();
    let folder = folder("storm");
    assert_healed(&storm(&Pace::sqlite(&folder), &PATIENT, SHORT), NEARLY_AS_BEFORE);
    let _left_behind = std::fs::remove_dir_all(&folder);
}

/// Nobody confirms the end of what a caller left: its seat comes back when the database's own limit must have ended it.
#[test]
fn promise_5_a_retry_storm_ends_when_a_database_behind_ibms_driver_heals() {
    let _turn = turn();
    assert_healed(&storm(&Pace::db2("PACE_HEALING"), &Written { statement_timeout: "\"1s\"", ..PATIENT }, SHORT), NEARLY_AS_BEFORE);
}

/// E2, promise 5: a deadline counts against the flow, so that its breaker opens, and closes again.
#[test]
fn e2_a_retry_storm_of_calls_past_their_deadline_ends_when_the_database_heals() {
    let _turn = turn();
    assert_healed(&storm(&Pace::postgres("pace_deadlines"), &Written { deadline: "\"500ms\"", ..PATIENT }, SHORT), AS_BEFORE);
}

#[test]
fn a_retry_storm_without_limits_does_not_end() {
    let _turn = turn();
    let Seen { storm, .. } = storm(&Pace::postgres("pace_without_limits"), &Written { limits: NO_LIMITS, ..PATIENT }, SHORT);
    let after = storm.after(HEALING, HEALING + LOOKED_AT);
    assert!(after < 0.5 * storm.before(), "the scene has no power: {after} tasks a second, {} before: {storm}", storm.before());
}
