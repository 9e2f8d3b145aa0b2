//! A storm of retries: tasks that call three times in each of three layers and then split, against a statement that is slow for a
//! while. Then every call runs out of its caller's patience, and each task becomes a hundred calls. Nobody ever backs off or reads
//! what it is told.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::derby::Derby;
use crate::load::{Tasks, TasksSeen};
use crate::observer::Observer;
use crate::rig::{Rig, key};

/// How long a statement takes.
const STATEMENT: Duration = Duration::from_millis(200);
/// The same in the brown-out: far beyond anybody's patience.
const BROWN_OUT: Duration = Duration::from_secs(5);
/// What agents may hold of eight seats: so many writes wait in SQLite.
const AT_ONCE: u32 = 6;
/// A third of what six seats can do.
pub const TASKS_PER_SECOND: f64 = 10.0;
const PATIENCE: Duration = Duration::from_millis(600);
/// A task that is done so soon has not noticed anything.
pub const PROMPT: Duration = Duration::from_secs(2);
/// Limits of a server file that are all written away: of its pool, its database, its tenant.
pub const NO_LIMITS: Limits = Limits {
    pool: ", line = 100_000, fast_only = 0, shed = \"off\"",
    database: "breaker = \"off\"\n",
    tenant: "in_flight = \"unlimited\"\nmemory = \"unlimited\"\nseats = { limit = \"unlimited\" }\nrepeat_budget = \"unlimited\"\n",
};
/// Nothing written: limits as they come.
pub const AS_THEY_COME: Limits = Limits { pool: "", database: "", tenant: "" };

/// What is written of limits.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Further keys of the pool.
    pub pool: &'static str,
    /// Further lines of the database.
    pub database: &'static str,
    /// Further lines of the tenant.
    pub tenant: &'static str,
}

/// A database whose slow statement can be made longer and shorter while it is served.
pub struct Pace {
    rig: Rig,
    set: Box<dyn Fn(Duration)>,
}

/// How long each part is.
pub struct Course {
    /// Before the brown-out, with a second to come to rest that is not counted.
    pub calm: Duration,
    /// While the database is slow.
    pub brown_out: Duration,
    /// After it has healed.
    pub after: Duration,
}

/// What was seen.
pub struct Storm {
    seen: TasksSeen,
    start: Instant,
    sick: Instant,
    healed: Instant,
    end: Instant,
}

impl Pace {
    /// Postgres, which reads how long it sleeps from a table of this name.
    pub fn postgres(table: &str) -> Pace {
        let (observer, seconds) = (Observer::new(), STATEMENT.as_secs_f64());
        observer.execute(&format!("CREATE TABLE {table} (seconds double precision); INSERT INTO {table} VALUES ({seconds})"));
        let rig = Rig::postgres(Duration::ZERO).slow(format!("SELECT pg_sleep(seconds)::text AS slept FROM {table}"));
        let update = format!("UPDATE {table} SET seconds = ");
        Pace { rig, set: Box::new(move |length| observer.execute(&format!("{update}{}", length.as_secs_f64()))) }
    }
    /// SQLite in a file below this folder. Writes wait half as long as elsewhere, and less where fewer wait at once: each that a caller
    /// left still takes its turn.
    pub fn sqlite(folder: &Path) -> Pace {
        const TURNS: u32 = AT_ONCE * 2;
        let (rig, turnstile) = Rig::sqlite_behind_turnstile(folder, STATEMENT / TURNS);
        Pace { rig, set: Box::new(move |length| turnstile.turn_every(length / TURNS)) }
    }
    /// IBM's driver; a table of this name as with Postgres, read without a lock, which would last as long as the statement.
    pub fn db2(table: &str) -> Pace {
        let rig = Rig::db2(STATEMENT).slow(format!("SELECT NAP(MILLIS) AS SLEPT FROM {table} WITH UR"));
        let derby = Derby::shared();
        derby.run(&format!("CREATE TABLE {table} (MILLIS INTEGER)"));
        derby.run(&format!("INSERT INTO {table} VALUES ({})", STATEMENT.as_millis()));
        let update = format!("UPDATE {table} SET MILLIS = ");
        let set = move |length: Duration| drop(derby.run(&format!("{update}{}", length.as_millis())));
        Pace { rig, set: Box::new(set) }
    }
    /// The database.
    pub fn rig(&self) -> &Rig {
        &self.rig
    }
    /// Tasks of the tenant `agents` come all the time; the database falls ill and heals.
    pub fn play(&self, address: SocketAddr, course: &Course) -> Storm {
        let tasks = Tasks {
            address,
            request: self.rig.slow_call(&key("agents")),
            per_second: TASKS_PER_SECOND,
            patience: PATIENCE,
            pause: Duration::from_millis(50),
            attempts: 3,
            layers: 3,
            splits: 1,
        };
        let tasks = tasks.start();
        std::thread::sleep(Duration::from_secs(1));
        let start = Instant::now();
        std::thread::sleep(course.calm);
        let sick = Instant::now();
        (self.set)(BROWN_OUT);
        std::thread::sleep(course.brown_out);
        (self.set)(STATEMENT);
        let healed = Instant::now();
        std::thread::sleep(course.after);
        let end = Instant::now();
        // Tasks that were due at the end have their time, too.
        std::thread::sleep(PROMPT);
        Storm { seen: tasks.end(), start, sick, healed, end }
    }
}

impl Storm {
    /// Tasks done a second before the brown-out, but for those that it caught.
    pub fn before(&self) -> f64 {
        self.done(self.start, self.sick - Duration::from_millis(500))
    }
    /// Tasks done a second in this time after healing.
    pub fn after(&self, from: Duration, to: Duration) -> f64 {
        self.done(self.healed + from, self.healed + to)
    }
    /// Of those that were due, so that a span with a task more at its edge is not a better one.
    fn done(&self, from: Instant, to: Instant) -> f64 {
        TASKS_PER_SECOND * self.seen.prompt(from, to, PROMPT)
    }
    /// How long after healing all tasks but one in twenty were done as before, in each two seconds.
    pub fn recovery(&self) -> Duration {
        const STEP: Duration = Duration::from_millis(250);
        const SPAN: Duration = Duration::from_secs(2);
        let enough = 0.95 * self.before();
        let steps = (self.end - self.healed).saturating_sub(SPAN).as_millis() / STEP.as_millis();
        let mut moments = (0..=u32::try_from(steps).expect("a short scene")).map(|step| STEP * step);
        let last_bad = moments.rfind(|at| self.after(*at, *at + SPAN) < enough);
        last_bad.map_or(Duration::ZERO, |at| at + STEP)
    }
}

impl fmt::Display for Storm {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (storm, later) = (self.seen.calls.due_within(self.sick, self.healed), self.seen.calls.due_within(self.healed, self.end));
        write!(out, "in the brown-out {storm}; after it {later}; as before after {:?}", self.recovery())
    }
}
