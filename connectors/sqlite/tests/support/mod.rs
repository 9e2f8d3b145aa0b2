//! A database file of a test's own, and SQLite's dialect.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use spillgate_connector::Database;
use spillgate_connector::conformance::{Fixture, Fragile, unique};
use spillgate_model::{Type, Value};
use spillgate_sqlite::{Sqlite, SqliteOptions};

/// A folder with one database in it, gone with the fixture.
pub(crate) struct File {
    folder: PathBuf,
}

impl File {
    pub(crate) fn new() -> File {
        let folder = std::env::temp_dir().join(unique("spillgate-sqlite"));
        std::fs::create_dir(&folder).expect("a folder of its own");
        let file = File { folder };
        file.beside().execute_batch("CREATE TABLE probe (n INTEGER); INSERT INTO probe VALUES (0);").expect("a probe table");
        file
    }
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join("data.db")
    }
    /// A connection of the test's own, beside the connector.
    pub(crate) fn beside(&self) -> Connection {
        let connection = Connection::open(self.path()).expect("the file");
        connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(())).expect("wal");
        connection.busy_timeout(Duration::ZERO).expect("no waiting");
        connection
    }
    pub(crate) fn with(&self, on_connect: &[&str], statement_timeout: Duration) -> Sqlite {
        sqlite(&self.path(), on_connect, statement_timeout)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.folder);
    }
}

fn sqlite(path: &Path, on_connect: &[&str], statement_timeout: Duration) -> Sqlite {
    let on_connect = on_connect.iter().map(|text| (*text).to_owned()).collect();
    Sqlite::new(SqliteOptions { path: path.into(), on_connect, statement_timeout }).expect("good settings")
}

const MANY: u64 = 100_000_000_000;

impl Fixture for File {
    fn database(&self) -> Arc<dyn Database> {
        Arc::new(self.with(&[], Duration::from_secs(60)))
    }
    fn marker(&self, _index: usize) -> String {
        "?".into()
    }
    fn from_nothing(&self) -> &'static str {
        ""
    }
    fn literal(&self, value: &Value) -> Option<String> {
        Some(match value {
            Value::Integer(value) => value.to_string(),
            Value::Number(value) if value.is_nan() => return None,
            Value::Number(value) if value.is_infinite() => (if *value > 0.0 { "9e999" } else { "-9e999" }).into(),
            Value::Number(value) => format!("{value:?}"),
            Value::Boolean(value) => value.to_string(),
            Value::Binary(bytes) => format!("x'{}'", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
            Value::Text(text) | Value::Decimal(text) | Value::Date(text) | Value::Time(text) | Value::Timestamp(text) => {
                format!("'{}'", text.replace('\'', "''"))
            }
            Value::Null | Value::List(_) => return None,
        })
    }
    fn bound(&self, _index: usize, value: &Value) -> Option<String> {
        let nan = matches!(value, Value::Number(value) if value.is_nan());
        (!nan).then(|| "?".into())
    }
    fn native(&self, kind: Type) -> bool {
        matches!(kind, Type::Integer | Type::Number | Type::Text | Type::Binary)
    }
    fn column_type(&self, kind: Type) -> &'static str {
        match kind {
            Type::Integer | Type::Boolean => "INTEGER",
            Type::Number => "REAL",
            Type::Binary => "BLOB",
            _ => "TEXT",
        }
    }
    fn zoned_timestamp(&self) -> Option<(&'static str, &'static str)> {
        Some(("'2026-03-08 02:30:00+05:00'", "2026-03-08T02:30:00+05:00"))
    }
    fn numbers(&self, count: u64) -> String {
        format!("WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {count}) SELECT n AS \"N\" FROM c")
    }
    fn slow_read(&self, mark: &str) -> String {
        format!(
            "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {MANY}) SELECT COUNT(*) FROM c, probe WHERE c.n < 0 /* {mark} */"
        )
    }
    fn slow_insert(&self, table: &str, mark: &str) -> String {
        format!("INSERT INTO {table} {} /* {mark} */", self.numbers(MANY) + " WHERE n < 0")
    }
    /// SQLite shows no list of statements, but its locks: a writer keeps others from writing, a reader keeps a checkpoint from
    /// moving what was written since.
    async fn running(&self, _mark: &str) -> bool {
        let connection = self.beside();
        if connection.execute_batch("BEGIN IMMEDIATE; UPDATE probe SET n = n + 1; COMMIT;").is_err() {
            return true;
        }
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get::<_, i64>(0)) != Ok(0)
    }
    fn insert_returning(&self, table: &str) -> Option<String> {
        Some(format!("INSERT INTO {table} VALUES (1) RETURNING \"N\""))
    }
    fn guards_reads(&self) -> bool {
        true
    }
    async fn fragile(&self) -> Option<Fragile> {
        None
    }
    fn unreachable(&self) -> (Arc<dyn Database>, Vec<&'static str>) {
        (Arc::new(sqlite(&self.folder.join("not-there.db"), &[], Duration::from_secs(1))), vec![])
    }
}
