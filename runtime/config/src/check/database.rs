//! `[database.NAME]`.

use std::path::Path;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use spillgate_model::Secret;
use spillgate_model::units::show_duration;

use crate::place::Setting;
use crate::plan::{DatabasePlan, Driver, Origin, Shed};
use crate::written::Table;

use super::isolation::{BreakerSettings, breaker_limits};
use super::roots::Roots;
use super::{Checker, KnownDatabase, Naming, check_name};

/// Most databases of one server.
const DATABASES: usize = 64;

/// The proven ones, and all that flows may refer to, in name order both.
pub(crate) fn databases(checker: &mut Checker<'_>, roots: &Roots) -> (Vec<DatabasePlan>, Vec<KnownDatabase>) {
    let (mut plans, mut known) = (Vec::new(), Vec::new());
    for (name, table) in roots.named("database") {
        check_name(checker, "a database", &name.value, Naming::Free, &name.place);
        if known.len() == DATABASES {
            checker.faults.add(&name.place, format!("more than {DATABASES} databases"));
            break;
        }
        let driver = table.written_text("driver").and_then(|driver| match &*driver.value {
            "odbc" => Some(Driver::Odbc),
            "postgres" => Some(Driver::Postgres),
            "sqlite" => Some(Driver::Sqlite),
            _ => None,
        });
        let breaker = BreakerSettings::of_database(table);
        let plan = database(checker, &name.value, table, driver.unwrap_or(Driver::Odbc), breaker.as_ref());
        known.push(KnownDatabase { name: plan.name.clone(), driver, writable: plan.writable, identity: identity(&plan), breaker });
        plans.push(plan);
    }
    (plans, known)
}

fn database(checker: &mut Checker<'_>, name: &str, table: &Table, driver: Driver, breaker: Option<&BreakerSettings>) -> DatabasePlan {
    let connection = table.secret("connection");
    let origin = connection.as_ref().map_or(Origin::Default, |connection| connection.place.origin());
    let text = connection.map_or(Secret::new(""), |connection| match driver {
        Driver::Sqlite => resolve(&connection.value, connection.place.folder()),
        Driver::Odbc | Driver::Postgres => connection.value,
    });
    let no_pool = table.unwritten("pool");
    let pool = table.table("pool").unwrap_or(&no_pool);
    let subject = format!("database.{name}");
    let (max, line, idle) = (pool.integer("max"), pool.integer("line"), pool.time("idle"));
    let timeout = table.time("statement_timeout");
    let fast_only = fast_only(checker, pool, max.value);
    let shed = shed(checker, pool, &subject);
    checker.limit(&subject, format!("{subject}.pool.max"), &max, max.value.to_string());
    checker.limit(&subject, format!("{subject}.pool.fast_only"), &fast_only, fast_only.value.to_string());
    checker.limit(&subject, format!("{subject}.pool.line"), &line, line.value.to_string());
    checker.limit(&subject, format!("{subject}.pool.idle"), &idle, show_duration(idle.value));
    checker.limit(&subject, format!("{subject}.statement_timeout"), &timeout, show_duration(timeout.value));
    breaker_limits(checker, table, breaker, &subject, &subject);
    DatabasePlan {
        name: Arc::from(name),
        driver,
        connection: text,
        writable: table.text("access").value == "read-write",
        on_connect: table.texts("on_connect").into_iter().map(|statement| statement.value).collect(),
        pool_max: usize::try_from(max.value).unwrap_or(1),
        fast_only: usize::try_from(fast_only.value).unwrap_or(0),
        shed,
        breaker: breaker.map(BreakerSettings::plan),
        line: usize::try_from(line.value).unwrap_or(0),
        idle: idle.value,
        statement_timeout: timeout.value,
        origin,
    }
}

/// An eighth of the pool, unless written: and never all of it, for a slow flow must have somewhere to go.
fn fast_only(checker: &mut Checker<'_>, pool: &Table, max: i64) -> Setting<i64> {
    let fast_only = pool.written_integer("fast_only").unwrap_or(Setting { value: max / 8, place: None });
    if fast_only.value >= max {
        let message = format!("`fast_only` ({}) leaves no connection of `max` ({max}) to slow flows", fast_only.value);
        checker.faults.add(&pool.place_of("fast_only"), message);
    }
    fast_only
}

fn shed(checker: &mut Checker<'_>, pool: &Table, subject: &str) -> Shed {
    let shed = pool.text("shed");
    checker.limit(subject, format!("{subject}.pool.shed"), &shed, shed.value.as_str());
    if shed.value != "off" {
        return Shed::Adaptive;
    }
    checker.notes.push(format!("{}: `shed` is off", pool.place_of("shed").short()));
    Shed::Off
}

/// A SQLite path starts at the file it stands in.
fn resolve(connection: &Secret, folder: &Path) -> Secret {
    match connection.expose() {
        ":memory:" => connection.clone(),
        path => Secret::new(folder.join(path).to_string_lossy().into_owned()),
    }
}

fn identity(plan: &DatabasePlan) -> [u8; 32] {
    let mut digest = Sha256::new();
    for part in [plan.connection.expose()].into_iter().chain(plan.on_connect.iter().map(String::as_str)) {
        digest.update(part.as_bytes());
        digest.update([0]);
    }
    digest.finalize().into()
}
