//! A session of the test's own in Postgres: it prepares, counts, and sees what others run, past the product.

use std::time::{Duration, Instant};

use tokio_postgres::{Client, NoTls};

use crate::postgres;

/// One session. Statements that fail end the test.
pub struct Observer {
    runtime: tokio::runtime::Runtime,
    client: Client,
}

impl Default for Observer {
    fn default() -> Self {
        Self::new()
    }
}

impl Observer {
    /// On the server that the test program shares.
    pub fn new() -> Observer {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let client = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&postgres::shared().url(), NoTls).await.expect("Postgres answers");
            tokio::spawn(connection);
            client
        });
        Observer { runtime, client }
    }
    /// Runs statements.
    pub fn execute(&self, statements: &str) {
        self.runtime.block_on(self.client.batch_execute(statements)).unwrap_or_else(|error| panic!("{statements}: {error:?}"));
    }
    /// The one number that a statement gives.
    pub fn count(&self, statement: &str) -> i64 {
        self.runtime.block_on(self.client.query_one(statement, &[])).unwrap_or_else(|error| panic!("{statement}: {error:?}")).get(0)
    }
    /// The first column of each row, as text.
    pub fn texts(&self, statement: &str) -> Vec<String> {
        let rows = self.runtime.block_on(self.client.query(statement, &[])).unwrap_or_else(|error| panic!("{statement}: {error:?}"));
        rows.iter().map(|row| row.get(0)).collect()
    }
    /// Statements that hold `mark` and run now.
    pub fn active(&self, mark: &str) -> i64 {
        self.count(&format!(
            "SELECT count(*) FROM pg_stat_activity WHERE state <> 'idle' AND pid <> pg_backend_pid() AND query LIKE '%{mark}%'"
        ))
    }
    /// Waits until a statement with `mark` runs, or none does any more.
    pub fn wait_until_active(&self, mark: &str, wanted: bool, within: Duration) {
        let end = Instant::now() + within;
        while (self.active(mark) > 0) != wanted {
            assert!(Instant::now() < end, "the database's own view: active is {} within {within:?}", !wanted);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
