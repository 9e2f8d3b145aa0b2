//! A storm of retries: tasks that call three times in each of three layers and then split, against a database that is slow for a
//! while. With limits as they come, and with every one of them written `unlimited`: that storm must keep itself alive, or the scene
//! proves nothing.

use std::time::{Duration, Instant};

use anyhow::Result;
use spillgate_test_support::client::get;
use spillgate_test_support::load::{Tasks, TasksSeen};
use spillgate_test_support::observer::Observer;
use spillgate_test_support::rig::{Rig, SLOW, key, tenant};

use super::super::Settings;
use super::served::serve;
use crate::figure::{Asked, Figure, print_figures};
use crate::folder::Folder;

const SEATS: u32 = 8;
const STATEMENT: f64 = 0.2;
/// While the database is slow: far beyond anybody's patience.
const SLOW_STATEMENT: f64 = 5.0;
/// A third of what the seats that one tenant may hold can do.
const PER_SECOND: f64 = 10.0;
const PATIENCE: Duration = Duration::from_millis(600);
/// A task that is done so soon counts as before the storm.
const PROMPT: Duration = Duration::from_secs(2);
const HEALING: Duration = Duration::from_secs(5);

/// The same server file without anything that protects.
const UNLIMITED_POOL: &str = ", line = 100_000, fast_only = 0, shed = \"off\"";
const UNLIMITED_TENANT: &str =
    "in_flight = \"unlimited\"\nmemory = \"unlimited\"\nseats = { limit = \"unlimited\" }\nrepeat_budget = \"unlimited\"\n";

/// Runs both.
pub(super) fn run(settings: &Settings) -> Result<Vec<Figure>> {
    let limited = storm(settings, "storm_limited", "", "", "", HEALING * 2)?;
    let control = storm(settings, "storm_unlimited", UNLIMITED_POOL, "breaker = \"off\"\n", UNLIMITED_TENANT, settings.scale.down)?;
    let figures = vec![
        limited.figure("tasks done from 5 s after healing", HEALING, HEALING * 2).asked(Asked::RatioAtLeast(0.95)),
        Figure::value("storm", "all is as before", "s", limited.recovery().as_secs_f64()).asked(Asked::AtMost(5.0)).more("after healing"),
        control
            .figure("without any limit: tasks done in the last 5 s", settings.scale.down - HEALING, settings.scale.down)
            .asked(Asked::RatioAtMost(0.5)),
    ];
    let title = format!("A storm of retries, {:?} of brown-out, then healed", settings.scale.brown_out);
    print_figures(&title, "before the brown-out", &figures);
    Ok(figures)
}

/// What was seen of one storm.
struct Storm {
    seen: TasksSeen,
    start: Instant,
    sick: Instant,
    healed: Instant,
    end: Instant,
}

fn storm(settings: &Settings, table: &str, pool: &str, database: &str, limits: &str, after: Duration) -> Result<Storm> {
    let scale = settings.scale;
    let folder = Folder::new("storm")?;
    let observer = Observer::new();
    observer.execute(&format!("CREATE TABLE {table} (seconds double precision); INSERT INTO {table} VALUES ({STATEMENT})"));
    let rig = Rig::postgres(Duration::ZERO).slow(format!("SELECT pg_sleep(seconds)::text AS slept FROM {table}"));
    let sections = [rig.database("main", &format!("{database}pool = {{ max = {SEATS}{pool} }}")), tenant("agents", "agent", limits)];
    let served = serve(settings, &folder, &sections, &rig.flows("main"))?;
    let tasks = Tasks {
        address: served.address(),
        request: get(SLOW, &key("agents")),
        per_second: PER_SECOND,
        patience: PATIENCE,
        pause: Duration::from_millis(50),
        attempts: 3,
        layers: 3,
        splits: 1,
    };
    let tasks = tasks.start();
    let pace = |seconds: f64| observer.execute(&format!("UPDATE {table} SET seconds = {seconds}"));
    std::thread::sleep(scale.warm_up);
    let start = Instant::now();
    std::thread::sleep(scale.window);
    let sick = Instant::now();
    pace(SLOW_STATEMENT);
    std::thread::sleep(scale.brown_out);
    pace(STATEMENT);
    let healed = Instant::now();
    std::thread::sleep(after);
    let end = Instant::now();
    // Tasks that were due at the end have their time, too.
    std::thread::sleep(PROMPT);
    Ok(Storm { seen: tasks.end(), start, sick, healed, end })
}

impl Storm {
    /// Before the brown-out, but for those that it caught.
    fn before(&self) -> f64 {
        self.seen.prompt_per_second(self.start, self.sick - Duration::from_millis(500), PROMPT)
    }
    fn figure(&self, case: &str, from: Duration, to: Duration) -> Figure {
        let after = self.seen.prompt_per_second(self.healed + from, self.healed + to, PROMPT);
        let storm = self.seen.calls.due_within(self.sick, self.healed);
        let later = self.seen.calls.due_within(self.healed, self.end);
        Figure::beside("storm", case, "tasks/s", &[after], &[self.before()]).more(format!("in the storm {storm}; then {later}"))
    }
    /// From when each second's tasks were done as before.
    fn recovery(&self) -> Duration {
        const STEP: Duration = Duration::from_millis(250);
        const SECOND: Duration = Duration::from_secs(1);
        let mut back = Duration::ZERO;
        let mut at = Duration::ZERO;
        while self.healed + at + SECOND <= self.end {
            let from = self.healed + at;
            if self.seen.prompt_per_second(from, from + SECOND, PROMPT) < 0.95 * self.before() {
                back = at + STEP;
            }
            at += STEP;
        }
        back
    }
}
