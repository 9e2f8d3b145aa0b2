//! A retry storm: callers that retry three times in three layers and then split their task. While the database is slow every call
//! runs out of its caller's patience, and each task becomes a hundred calls. When the database is itself again, so must its callers
//! be, though none of them ever backs off or reads what it is told (promise 5).
//!
//! With every limit written `unlimited` the same storm keeps itself alive: calls reach a seat just before they are given up. Without
//! that the scene would prove nothing.

use std::time::{Duration, Instant};

use spillgate_test_support::client::get;
use spillgate_test_support::load::{Tasks, address};
use spillgate_test_support::observer::Observer;
use spillgate_test_support::rig::{Rig, SLOW};

use crate::scene::{key, play, serve, tenant, turn};

const SEATS: u32 = 8;
const STATEMENT: f64 = 0.2;
const BROWN_OUT: f64 = 5.0;
const TASKS_PER_SECOND: f64 = 10.0;
const PATIENCE: Duration = Duration::from_millis(600);

/// Tasks done a second before the brown-out and from five seconds after its end.
fn storm(table: &str, pool: &str, limits: &str) -> (f64, f64) {
    let _turn = turn();
    let observer = Observer::new();
    observer.execute(&format!("CREATE TABLE {table} (seconds double precision); INSERT INTO {table} VALUES ({STATEMENT})"));
    let rig = Rig::postgres(Duration::from_secs(1)).slow(format!("SELECT pg_sleep(seconds)::text AS slept FROM {table}"));
    let sections = [rig.database("main", &format!("pool = {{ max = {SEATS}{pool} }}")), tenant("agents", "agent", limits)];
    let server = serve(&sections, &rig.flows("main"));
    let tasks = Tasks {
        address: address(&server.flows),
        request: get(SLOW, &key("agents")),
        per_second: TASKS_PER_SECOND,
        patience: PATIENCE,
        pause: Duration::from_millis(50),
        attempts: 3,
        layers: 3,
        splits: 1,
    };
    let tasks = tasks.start();
    let pace = |seconds: f64| observer.execute(&format!("UPDATE {table} SET seconds = {seconds}"));
    play(Duration::from_secs(1));
    let start = Instant::now();
    play(Duration::from_secs(2));
    let sick = Instant::now();
    pace(BROWN_OUT);
    play(Duration::from_secs(5));
    pace(STATEMENT);
    let healed = Instant::now();
    play(Duration::from_secs(8));
    let seen = tasks.end();
    let limit = Duration::from_secs(2);
    let before = seen.prompt_per_second(start, sick - limit / 4, limit);
    let after = seen.prompt_per_second(healed + Duration::from_secs(5), healed + Duration::from_secs(7), limit);
    let storm = seen.calls.due_within(sick, healed);
    println!(
        "{table}: {before:.1}/s before, {after:.1}/s after; in the storm {storm}; then {}",
        seen.calls.due_within(healed, Instant::now())
    );
    (before, after)
}

#[test]
fn promise_5_a_retry_storm_ends_when_the_database_heals() {
    let (before, after) = storm("pace_healing", "", "");
    assert!(before > 0.8 * TASKS_PER_SECOND, "{before}");
    assert!(after > 0.8 * before, "five seconds after healing: {after} tasks a second, {before} before");
}

#[test]
fn a_retry_storm_without_limits_does_not_end() {
    let (before, after) = storm("pace_without_limits", ", line = 100_000", "in_flight = \"unlimited\"");
    assert!(before > 0.8 * TASKS_PER_SECOND, "{before}");
    assert!(after < 0.5 * before, "the scene has no power: {after} tasks a second, {before} before");
}
