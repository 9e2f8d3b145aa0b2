//! What is asked, of whom: one table of trucks, a lookup by key and a list of a hundred.
//!
//! Both sides use these very statements; the product has them in its flow files, the floors in their code.

use std::fmt::Write;

use anyhow::Result;

/// Trucks in the table.
pub(crate) const TRUCKS: i64 = 10_000;
/// Depots, each with a hundred trucks.
pub(crate) const DEPOTS: i64 = TRUCKS / 100;

/// Columns of each row.
pub(crate) const COLUMN_COUNT: u16 = 7;

const COLUMNS: &str = "id, plate, driver, active, odometer, speed, seen";

/// The lookup by key.
pub(crate) fn one(marker: &str) -> String {
    format!("SELECT {COLUMNS} FROM trucks WHERE id = {marker}")
}

/// The list of a hundred rows.
pub(crate) fn list(marker: &str) -> String {
    format!("SELECT {COLUMNS} FROM trucks WHERE depot = {marker} ORDER BY id")
}

/// Every row, in no order.
pub(crate) fn all() -> String {
    format!("SELECT {COLUMNS} FROM trucks")
}

/// The table, for Derby, a statement each. It has ten rows to begin with and makes the others of them.
pub(crate) fn derby_schema() -> [String; 4] {
    let number = "a.d * 1000 + b.d * 100 + c.d * 10 + e.d + 1";
    [
        "CREATE TABLE digits (d INT)".to_owned(),
        "INSERT INTO digits VALUES 0, 1, 2, 3, 4, 5, 6, 7, 8, 9".to_owned(),
        "CREATE TABLE trucks (id BIGINT PRIMARY KEY, depot BIGINT NOT NULL, plate VARCHAR(20) NOT NULL, driver VARCHAR(60), \
         active SMALLINT NOT NULL, odometer DECIMAL(12,3) NOT NULL, speed DOUBLE NOT NULL, seen TIMESTAMP NOT NULL)"
            .to_owned(),
        format!(
            "INSERT INTO trucks SELECT n, (n - 1) / 100 + 1, 'FR-' || TRIM(CAST(CAST(n AS CHAR(10)) AS VARCHAR(10))) || '-X', \
             CASE WHEN MOD(n, 5) = 0 THEN CAST(NULL AS VARCHAR(60)) ELSE 'Driver of Lyon-Venissieux' END, MOD(n, 2), \
             CAST(n AS DECIMAL(12,3)) * 37.001, MOD(n, 90) + 0.5E0, \
             {{fn TIMESTAMPADD(SQL_TSI_SECOND, n, TIMESTAMP('2026-11-01 10:00:00'))}} \
             FROM (SELECT {number} AS n FROM digits a, digits b, digits c, digits e) AS numbers"
        ),
    ]
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
