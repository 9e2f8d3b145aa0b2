//! Breakers, and what tenants have of each database: the parts of isolation that stand in more than one section.

use std::time::Duration;

use spillgate_model::units::show_duration;

use crate::keys::isolation::{BREAKER, SEATS};
use crate::place::{Place, Setting};
use crate::plan::{BreakerPlan, DatabasePlan, SeatShare, TenantPlan, crowded};
use crate::written::Table;

use super::Checker;
use super::roots::Roots;

/// A breaker as written: each key with its place.
#[derive(Clone, Debug)]
pub(crate) struct BreakerSettings {
    window: Setting<Duration>,
    min_calls: Setting<i64>,
    open_below: Setting<f64>,
    probes: Setting<i64>,
    probe_limit: Setting<Duration>,
    cool_down: Setting<Duration>,
}

impl BreakerSettings {
    fn unwritten(place: &Place) -> Self {
        let table = Table::empty(&BREAKER, place.clone());
        BreakerSettings {
            window: table.time("window"),
            min_calls: table.integer("min_calls"),
            open_below: table.share("open_below"),
            probes: table.integer("probes"),
            probe_limit: table.time("probe_limit"),
            cool_down: table.time("cool_down"),
        }
    }

    /// `breaker` of a database or flow: `otherwise` is what a key has that is not written there. `None`: it is off.
    pub(crate) fn read(table: &Table, otherwise: Option<&BreakerSettings>) -> Option<Self> {
        if table.is_lifted("breaker") {
            return None;
        }
        let Some(written) = table.table("breaker") else { return otherwise.cloned() };
        let otherwise = otherwise.cloned().unwrap_or_else(|| Self::unwritten(&table.place));
        Some(BreakerSettings {
            window: written.written_time("window").unwrap_or(otherwise.window),
            min_calls: written.written_integer("min_calls").unwrap_or(otherwise.min_calls),
            open_below: written.written_share("open_below").unwrap_or(otherwise.open_below),
            probes: written.written_integer("probes").unwrap_or(otherwise.probes),
            probe_limit: written.written_time("probe_limit").unwrap_or(otherwise.probe_limit),
            cool_down: written.written_time("cool_down").unwrap_or(otherwise.cool_down),
        })
    }

    /// That of a database: the declared defaults stand where nothing is written.
    pub(crate) fn of_database(table: &Table) -> Option<Self> {
        Self::read(table, Some(&Self::unwritten(&table.place)))
    }

    pub(crate) fn plan(&self) -> BreakerPlan {
        BreakerPlan {
            window: self.window.value,
            min_calls: self.min_calls.value.unsigned_abs(),
            open_below: self.open_below.value,
            probes: u32::try_from(self.probes.value).unwrap_or(1),
            probe_limit: self.probe_limit.value,
            cool_down: self.cool_down.value,
        }
    }

    fn limits(&self, checker: &mut Checker<'_>, subject: &str, prefix: &str) {
        let of = |key: &str| format!("{prefix}.breaker.{key}");
        checker.limit(subject, of("window"), &self.window, show_duration(self.window.value));
        checker.limit(subject, of("min_calls"), &self.min_calls, self.min_calls.value.to_string());
        checker.limit(subject, of("open_below"), &self.open_below, self.open_below.value.to_string());
        checker.limit(subject, of("probes"), &self.probes, self.probes.value.to_string());
        checker.limit(subject, of("probe_limit"), &self.probe_limit, show_duration(self.probe_limit.value));
        checker.limit(subject, of("cool_down"), &self.cool_down, show_duration(self.cool_down.value));
    }
}

/// For `explain`.
pub(crate) fn breaker_limits(checker: &mut Checker<'_>, table: &Table, breaker: Option<&BreakerSettings>, subject: &str, prefix: &str) {
    match (breaker, table.entry("breaker")) {
        (Some(breaker), _) => breaker.limits(checker, subject, prefix),
        (None, Some(entry)) => checker.line(subject, format!("{prefix}.breaker"), "off", entry.value.place.origin()),
        (None, None) => {}
    }
}

/// What a tenant has of each database: its section for that database, its own `seats`, its class's, the default; each key for itself.
pub(crate) fn seats(checker: &mut Checker<'_>, table: &Table, class: Option<&Table>, databases: &[DatabasePlan]) -> Vec<SeatShare> {
    let of_databases = table.named("database");
    for (name, _) in of_databases {
        if !checker.incomplete && !databases.iter().any(|database| *database.name == *name.value) {
            let near = crate::fault::did_you_mean(&name.value, databases.iter().map(|database| &*database.name));
            checker.faults.add(&name.place, format!("there is no database `{}`{near}", crate::raw::printable(&name.value)));
        }
    }
    let everywhere = [table.table("seats"), class.and_then(|class| class.table("seats"))];
    let unwritten = Table::empty(&SEATS, table.place.clone());
    let share = |database: &DatabasePlan| {
        let here = of_databases.iter().find(|(name, _)| *name.value == *database.name).and_then(|(_, table)| table.table("seats"));
        let written = |key: &str| [here].iter().chain(&everywhere).flatten().find_map(|seats| seats.written_integer(key));
        SeatShare {
            reserved: count(written("reserved").unwrap_or_else(|| unwritten.integer("reserved"))),
            limit: written("limit").map_or_else(|| SeatShare::of_pool(database.pool_max).limit, count),
        }
    };
    databases.iter().map(share).collect()
}

/// A count that stands for no limit where it is lifted.
pub(crate) fn count(setting: Setting<i64>) -> crate::plan::Limit<u32> {
    let value = u32::try_from(setting.value).unwrap_or(u32::MAX);
    crate::plan::Limit { value, origin: setting.origin() }
}

/// Seats that are promised must be there.
pub(crate) fn check_reserved(checker: &mut Checker<'_>, roots: &Roots, databases: &[DatabasePlan], tenants: &[TenantPlan]) {
    let sections = roots.named("tenant");
    for crowded in crowded(databases, tenants) {
        let tenant = &tenants[crowded.tenant];
        let section = sections.iter().find(|(name, _)| *name.value == *tenant.name);
        let place =
            section.map_or(roots.place.clone(), |(name, table)| place_of_reserved(roots, &name.place, table, &databases[crowded.database]));
        checker.faults.add(&place, crowded.problem);
    }
    for (index, database) in databases.iter().enumerate() {
        let reserved: u64 = tenants.iter().map(|tenant| u64::from(tenant.seats_of(index).reserved.value)).sum();
        let slow = database.pool_max.saturating_sub(database.fast_only) as u64;
        if reserved == database.pool_max as u64 && tenants.iter().any(|tenant| tenant.seats_of(index).reserved.value == 0) {
            checker.notes.push(format!(
                "database {}: all {reserved} seats are reserved: tenants that reserve none have what those leave idle",
                database.name
            ));
        }
        if reserved > slow && reserved <= database.pool_max as u64 {
            checker.notes.push(format!(
                "database {}: {reserved} seats are reserved, slow flows can hold {slow} (`pool.fast_only` is {}): a slow flow may wait for a seat that is reserved for it",
                database.name, database.fast_only
            ));
        }
    }
}

fn place_of_reserved(roots: &Roots, otherwise: &Place, table: &Table, database: &DatabasePlan) -> Place {
    let here = table.named("database").iter().find(|(name, _)| *name.value == *database.name).and_then(|(_, table)| table.table("seats"));
    let classes = roots.named("class");
    let class = classes.iter().find(|(name, _)| name.value == table.text("class").value).and_then(|(_, class)| class.table("seats"));
    let written = [here, table.table("seats"), class].into_iter().flatten().find(|seats| seats.has("reserved"));
    written.map_or_else(|| otherwise.clone(), |seats| seats.place_of("reserved"))
}
