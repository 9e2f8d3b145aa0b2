//! A SQLite file in which the work of durable flows is counted, past the product.

use std::path::PathBuf;

use rusqlite::Connection;

use crate::server::folder;

/// `BOOKING` takes the same reference as often as it comes, so that a second execution shows. `DONE` is for `record`.
const TABLES: &str = "
CREATE TABLE BOOKING (ID INTEGER PRIMARY KEY, REFERENCE TEXT NOT NULL, TENANT TEXT NOT NULL);
CREATE TABLE DONE (TENANT TEXT NOT NULL, FLOW TEXT NOT NULL, IDEMPOTENCY_KEY TEXT NOT NULL, JOB TEXT NOT NULL, DONE_AT TEXT NOT NULL,
    PRIMARY KEY (TENANT, FLOW, IDEMPOTENCY_KEY));
";

/// The file. Dropping it removes it.
pub struct Ledger {
    folder: PathBuf,
    connection: Connection,
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new()
    }
}

impl Ledger {
    /// A new one, empty.
    pub fn new() -> Ledger {
        let folder = folder("ledger");
        let connection = Connection::open(folder.join("ledger.db")).expect("a database can be made");
        connection.busy_timeout(crate::server::PATIENCE).expect("a timeout can be set");
        connection.execute_batch(TABLES).expect("its tables");
        Ledger { folder, connection }
    }
    /// Its section of a server file, as the database `main`.
    pub fn section(&self) -> String {
        let path = self.folder.join("ledger.db");
        format!("[database.main]\ndriver = \"sqlite\"\nconnection = \"{}\"\naccess = \"read-write\"\n", path.display())
    }
    /// Runs statements.
    pub fn execute(&self, statements: &str) {
        self.connection.execute_batch(statements).unwrap_or_else(|error| panic!("{statements}: {error}"));
    }
    /// The one number that a statement gives.
    pub fn count(&self, statement: &str) -> i64 {
        self.connection.query_row(statement, [], |row| row.get(0)).unwrap_or_else(|error| panic!("{statement}: {error}"))
    }
    /// How often a reference was booked.
    pub fn booked(&self, reference: &str) -> i64 {
        let sql = "SELECT COUNT(*) FROM BOOKING WHERE REFERENCE = ?1";
        self.connection.query_row(sql, [reference], |row| row.get(0)).expect("a count")
    }
    /// References in the order in which they were booked.
    pub fn references(&self) -> Vec<String> {
        let mut statement = self.connection.prepare("SELECT REFERENCE FROM BOOKING ORDER BY ID").expect("a statement");
        let rows = statement.query_map([], |row| row.get(0)).expect("rows");
        rows.collect::<Result<_, _>>().expect("texts")
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        let _left_behind = std::fs::remove_dir_all(&self.folder);
    }
}
