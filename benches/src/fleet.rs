//! What is asked, of whom: one table of trucks, a lookup by key and a list of a hundred.
//!
//! Both sides use these very statements; the product has them in its flow files, the floors in their code.

use std::fmt::Write;

use anyhow::Result;

/// Trucks in the table.
pub(crate) const TRUCKS: i64 = 10_000;
/// Depots, each with a hundred trucks.
pub(crate) const DEPOTS: i64 = TRUCKS / 100;

const COLUMNS: &str = "id, plate, driver, active, odometer, speed, seen";

/// The lookup by key.
pub(crate) fn one(marker: &str) -> String {
    format!("SELECT {COLUMNS} FROM trucks WHERE id = {marker}")
}

/// The list of a hundred rows.
pub(crate) fn list(marker: &str) -> String {
    format!("SELECT {COLUMNS} FROM trucks WHERE depot = {marker} ORDER BY id")
}

/// The table, for Postgres.
pub(crate) fn postgres_schema() -> Result<String> {
    let table =
        "CREATE TABLE trucks (id bigint PRIMARY KEY, depot bigint NOT NULL, plate text NOT NULL, driver text, active boolean NOT NULL,
        odometer numeric(12,3) NOT NULL, speed double precision NOT NULL, seen timestamp NOT NULL);";
    script(table, "CREATE INDEX trucks_by_depot ON trucks (depot, id); ANALYZE trucks;")
}

/// The table, for SQLite, which has neither decimals nor timestamps: both are text there.
pub(crate) fn sqlite_schema() -> Result<String> {
    let table = "PRAGMA journal_mode = WAL; BEGIN;
        CREATE TABLE trucks (id INTEGER PRIMARY KEY, depot INTEGER NOT NULL, plate TEXT NOT NULL, driver TEXT, active BOOLEAN NOT NULL,
        odometer TEXT NOT NULL, speed REAL NOT NULL, seen TEXT NOT NULL);";
    script(table, "CREATE INDEX trucks_by_depot ON trucks (depot, id); ANALYZE; COMMIT;")
}

fn script(table: &str, end: &str) -> Result<String> {
    let mut sql = format!("{table}\nINSERT INTO trucks VALUES\n");
    for id in 1..=TRUCKS {
        let comma = if id == 1 { "" } else { ",\n" };
        let driver = if id % 5 == 0 { "NULL".to_owned() } else { format!("'Driver \"{id}\" of Lyon-Vénissieux'") };
        write!(
            sql,
            "{comma}({id}, {depot}, 'FR-{id:06}-X', {driver}, {active}, '{km}.{metres:03}', {speed}.5, '2026-11-{day:02}T{hour:02}:{minute:02}:07')",
            depot = (id - 1) / (TRUCKS / DEPOTS) + 1,
            active = id % 3 != 0,
            km = id * 37,
            metres = id % 1000,
            speed = id % 90,
            day = id % 28 + 1,
            hour = id % 24,
            minute = id % 60,
        )?;
    }
    write!(sql, ";\n{end}")?;
    Ok(sql)
}
