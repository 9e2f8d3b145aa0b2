//! psqlODBC. Here the database itself says that it ended a statement, so the promises on ending hold in full.

use std::sync::Arc;
use std::time::Duration;

use spillgate_connector::Database;
use spillgate_connector::conformance::{Fixture, Fragile, Proxy, statement, value};
use spillgate_connector::{Access, ReadLimits};
use spillgate_model::{Secret, Type, Value};
use spillgate_odbc::{Odbc, OdbcOptions};
use spillgate_test_support::odbc::postgres_driver;
use spillgate_test_support::postgres::{self, PASSWORD, USER};

struct Server;

fn odbc(port: u16) -> Odbc {
    // The driver holds whole results in memory unless it is told to use a cursor.
    let connection = format!(
        "Driver={};Server=127.0.0.1;Port={port};Database=postgres;UID={USER};PWD={PASSWORD};UseDeclareFetch=1;Fetch=500;BoolsAsChar=0;",
        postgres_driver().display()
    );
    Odbc::new(OdbcOptions {
        connection: Secret::new(connection),
        on_connect: vec![],
        statement_timeout: Duration::from_secs(60),
        threads: 4,
    })
}

impl Server {
    async fn new() -> Server {
        tokio::task::spawn_blocking(|| postgres::shared().port()).await.expect("a server");
        Server
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

impl Fixture for Server {
    fn database(&self) -> Arc<dyn Database> {
        Arc::new(odbc(postgres::shared().port()))
    }
    fn marker(&self, _index: usize) -> String {
        "?".into()
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
    fn bound(&self, _index: usize, value: &Value) -> Option<String> {
        Some(format!("CAST(? AS {})", self.column_type(Type::of(value))))
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
        None
    }
    fn numbers(&self, count: u64) -> String {
        format!("SELECT n AS \"N\" FROM generate_series(1, {count}) AS n")
    }
    fn slow_read(&self, mark: &str) -> String {
        format!("SELECT pg_sleep(60)::text /* {mark} */")
    }
    fn slow_insert(&self, table: &str, mark: &str) -> String {
        format!("INSERT INTO {table} SELECT 1 FROM pg_sleep(60) /* {mark} */")
    }
    async fn running(&self, mark: &str) -> bool {
        let mut beside = self.database().connect(Access::ReadOnly).await.expect("a connection beside");
        let asked = format!(
            "SELECT count(*) AS c FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid() AND query LIKE '%{mark}%'"
        );
        let limits = ReadLimits { max_rows: 1, max_bytes: 1_000 };
        let rows = beside.read(&statement(asked), &[], limits).await.expect("the activity view");
        value(&rows, 0, 0) != Value::Integer(0)
    }
    fn insert_returning(&self, table: &str) -> Option<String> {
        Some(format!("INSERT INTO {table} VALUES (1) RETURNING \"N\""))
    }
    fn guards_reads(&self) -> bool {
        false
    }
    async fn fragile(&self) -> Option<Fragile> {
        let link = Proxy::to(([127, 0, 0, 1], postgres::shared().port()).into()).await;
        Some(Fragile { database: Arc::new(odbc(link.address().port())), link })
    }
    fn unreachable(&self) -> (Arc<dyn Database>, Vec<&'static str>) {
        (Arc::new(odbc(1)), vec![PASSWORD])
    }
}

spillgate_connector::conformance_suite!(Server::new);
