//! Derby behind the wire shim, in the dialect it shares with Db2.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use spillgate_connector::conformance::{Fixture, Fragile, Proxy};
use spillgate_connector::{Database, ReadLimits};
use spillgate_model::{Secret, Type, Value};
use spillgate_odbc::{Odbc, OdbcOptions};
use spillgate_test_support::derby::{Derby, PASSWORD};
use spillgate_test_support::odbc::db2_connection;
use spillgate_test_support::shim::Shim;

/// Limits no test meets by accident.
pub(crate) const WIDE: ReadLimits = ReadLimits { max_rows: 10_000, max_bytes: 16 << 20 };

/// The Derby of this test program.
pub(crate) struct Db2;

/// A shim that no test breaks.
fn sound_link() -> SocketAddr {
    static LINK: OnceLock<Shim> = OnceLock::new();
    LINK.get_or_init(|| Shim::to(Derby::shared().address())).address()
}

/// What the connector is told of the Derby at the end of this link.
pub(crate) fn options(link: SocketAddr) -> OdbcOptions {
    OdbcOptions {
        connection: Secret::new(db2_connection(link)),
        on_connect: vec![],
        statement_timeout: Duration::from_secs(60),
        threads: 4,
    }
}

/// IBM's driver through the sound link.
pub(crate) fn sound() -> Odbc {
    Odbc::new(options(sound_link()))
}

/// A read that takes some seconds at Derby, with the mark in a comment.
pub(crate) fn slow_read(mark: &str) -> String {
    format!("SELECT COUNT(*) AS \"C\" FROM SYS.SYSCOLUMNS A, SYS.SYSCOLUMNS B, SYS.SYSCOLUMNS C /* {mark} */")
}

/// Derby's own view, asked past the driver.
pub(crate) async fn running(mark: &str) -> bool {
    let mark = mark.to_owned();
    tokio::task::spawn_blocking(move || Derby::shared().running(&mark) > 0).await.expect("the activity view")
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn type_of(value: &Value) -> String {
    match value {
        Value::Integer(_) => "BIGINT".into(),
        Value::Number(_) => "DOUBLE".into(),
        Value::Decimal(digits) => {
            let scale = digits.split_once('.').map_or(0, |(_, fraction)| fraction.len());
            format!("DECIMAL(31, {scale})")
        }
        Value::Boolean(_) => "SMALLINT".into(),
        Value::Date(_) => "DATE".into(),
        Value::Time(_) => "TIME".into(),
        Value::Timestamp(_) => "TIMESTAMP".into(),
        Value::Binary(_) => "VARCHAR(2000) FOR BIT DATA".into(),
        Value::Text(_) | Value::Null | Value::List(_) => "VARCHAR(2000)".into(),
    }
}

impl Db2 {
    pub(crate) async fn new() -> Db2 {
        tokio::task::spawn_blocking(sound_link).await.expect("Derby starts");
        Db2
    }
}

impl Fixture for Db2 {
    fn database(&self) -> Arc<dyn Database> {
        Arc::new(sound())
    }
    fn marker(&self, _index: usize) -> String {
        "?".into()
    }
    fn from_nothing(&self) -> &'static str {
        " FROM SYSIBM.SYSDUMMY1"
    }
    fn literal(&self, value: &Value) -> Option<String> {
        let text = match value {
            Value::Integer(value) => value.to_string(),
            // Derby keeps to Db2's range of doubles, which is smaller than IEEE's and has no NaN.
            Value::Number(value) if value.is_finite() && (1e-300..=1e300).contains(&value.abs()) => format!("{value:e}"),
            Value::Boolean(value) => u8::from(*value).to_string(),
            Value::Binary(bytes) => format!("X'{}'", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
            // A decimal of 31 digits has no room for others, so it is not cast from a wider literal.
            Value::Decimal(text) => text.to_string(),
            Value::Text(text) | Value::Date(text) | Value::Time(text) => quoted(text),
            Value::Timestamp(text) => quoted(&text.replace('T', " ")),
            Value::Number(_) | Value::Null | Value::List(_) => return None,
        };
        Some(format!("CAST({text} AS {})", type_of(value)))
    }
    fn bound(&self, _index: usize, value: &Value) -> Option<String> {
        match value {
            Value::Number(number) if !number.is_finite() || !(1e-300..=1e300).contains(&number.abs()) => None,
            value => Some(format!("CAST(? AS {})", type_of(value))),
        }
    }
    fn native(&self, kind: Type) -> bool {
        kind != Type::Boolean
    }
    fn column_type(&self, kind: Type) -> &'static str {
        match kind {
            Type::Integer => "BIGINT",
            Type::Number => "DOUBLE",
            Type::Decimal => "DECIMAL(31, 6)",
            Type::Text => "VARCHAR(2000)",
            Type::Boolean => "SMALLINT",
            Type::Date => "DATE",
            Type::Time => "TIME",
            Type::Timestamp => "TIMESTAMP",
            Type::Binary => "VARCHAR(2000) FOR BIT DATA",
        }
    }
    fn zoned_timestamp(&self) -> Option<(&'static str, &'static str)> {
        None
    }
    fn numbers(&self, count: u64) -> String {
        format!(
            "SELECT ROW_NUMBER() OVER () AS \"N\" FROM SYS.SYSCOLUMNS A, SYS.SYSCOLUMNS B, SYS.SYSCOLUMNS C, SYS.SYSSCHEMAS D \
             FETCH FIRST {count} ROWS ONLY"
        )
    }
    fn slow_read(&self, mark: &str) -> String {
        slow_read(mark)
    }
    fn slow_insert(&self, table: &str, mark: &str) -> String {
        format!("INSERT INTO {table} {}", slow_read(mark))
    }
    async fn running(&self, mark: &str) -> bool {
        running(mark).await
    }
    fn insert_returning(&self, _table: &str) -> Option<String> {
        None
    }
    fn guards_reads(&self) -> bool {
        false
    }
    async fn fragile(&self) -> Option<Fragile> {
        let link = Proxy::to(sound_link()).await;
        Some(Fragile { database: Arc::new(Odbc::new(options(link.address()))), link })
    }
    fn unreachable(&self) -> (Arc<dyn Database>, Vec<&'static str>) {
        (Arc::new(Odbc::new(options(([127, 0, 0, 1], 1).into()))), vec![PASSWORD])
    }
}
