//! The test program's own Postgres, and its dialect.

use std::sync::Arc;
use std::time::Duration;

use spillgate_connector::Database;
use spillgate_connector::conformance::{Fixture, Fragile, Proxy};
use spillgate_model::{Secret, Type, Value};
use spillgate_postgres::{Postgres, PostgresOptions};
use spillgate_test_support::postgres::{self, PASSWORD};
use tokio_postgres::{Client, NoTls};

/// The shared server, and a connection beside the connector that watches it.
pub(crate) struct Server {
    pub(crate) beside: Client,
}

impl Server {
    pub(crate) async fn new() -> Server {
        let url = tokio::task::spawn_blocking(|| postgres::shared().url()).await.expect("a server");
        let (beside, connection) = tokio_postgres::connect(&url, NoTls).await.expect("a connection beside");
        tokio::spawn(connection);
        Server { beside }
    }
    pub(crate) async fn execute(&self, text: &str) {
        self.beside.batch_execute(text).await.unwrap_or_else(|error| panic!("{text}: {error:?}"));
    }
}

pub(crate) fn options(connection: impl Into<String>) -> PostgresOptions {
    PostgresOptions {
        connection: Secret::new(connection.into()),
        on_connect: vec![],
        statement_timeout: Duration::from_secs(60),
        application_name: "spillgate".into(),
    }
}

pub(crate) fn database(connection: impl Into<String>) -> Postgres {
    Postgres::new(options(connection)).expect("good settings")
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

impl Fixture for Server {
    fn database(&self) -> Arc<dyn Database> {
        Arc::new(database(postgres::shared().url()))
    }
    fn marker(&self, index: usize) -> String {
        format!("${index}")
    }
    fn from_nothing(&self) -> &'static str {
        ""
    }
    fn literal(&self, value: &Value) -> Option<String> {
        let text = match value {
            Value::Integer(value) => value.to_string(),
            Value::Number(value) => format!("{value:?}"),
            Value::Boolean(value) => value.to_string(),
            Value::Binary(bytes) => bytes.iter().fold("\\x".to_owned(), |text, byte| format!("{text}{byte:02x}")),
            Value::Text(text) | Value::Decimal(text) | Value::Date(text) | Value::Time(text) | Value::Timestamp(text) => text.to_string(),
            Value::Null | Value::List(_) => return None,
        };
        Some(format!("CAST({} AS {})", quoted(&text), self.column_type(Type::of(value))))
    }
    fn bound(&self, index: usize, value: &Value) -> Option<String> {
        Some(format!("${index}::{}", self.column_type(Type::of(value))))
    }
    fn native(&self, _kind: Type) -> bool {
        true
    }
    fn column_type(&self, kind: Type) -> &'static str {
        match kind {
            Type::Integer => "int8",
            Type::Number => "float8",
            Type::Decimal => "numeric",
            Type::Text => "text",
            Type::Boolean => "bool",
            Type::Date => "date",
            Type::Time => "time",
            Type::Timestamp => "timestamp",
            Type::Binary => "bytea",
        }
    }
    fn zoned_timestamp(&self) -> Option<(&'static str, &'static str)> {
        Some(("TIMESTAMPTZ '2026-03-08 02:30:00+05:00'", "2026-03-07T21:30:00+00:00"))
    }
    fn numbers(&self, count: u64) -> String {
        format!("SELECT generate_series(1, {count}) AS \"N\"")
    }
    fn slow_read(&self, mark: &str) -> String {
        format!("SELECT pg_sleep(60) /* {mark} */")
    }
    fn slow_insert(&self, table: &str, mark: &str) -> String {
        format!("INSERT INTO {table} SELECT 1 FROM pg_sleep(60) /* {mark} */")
    }
    async fn running(&self, mark: &str) -> bool {
        let asked =
            "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid() AND position($1 IN query) > 0";
        self.beside.query_one(asked, &[&mark]).await.expect("the activity view").get::<_, i64>(0) > 0
    }
    fn insert_returning(&self, table: &str) -> Option<String> {
        Some(format!("INSERT INTO {table} VALUES (1) RETURNING \"N\""))
    }
    fn guards_reads(&self) -> bool {
        true
    }
    async fn fragile(&self) -> Option<Fragile> {
        let server = postgres::shared();
        let link = Proxy::to(([127, 0, 0, 1], server.port()).into()).await;
        Some(Fragile { database: Arc::new(database(server.url_at(link.address().port()))), link })
    }
    fn unreachable(&self) -> (Arc<dyn Database>, Vec<&'static str>) {
        (Arc::new(database(format!("postgres://someone:{PASSWORD}@127.0.0.1:1/fleet"))), vec![PASSWORD])
    }
}
