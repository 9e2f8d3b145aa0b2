//! The conformance suite: what every connector must keep, as tests named after promises.
//!
//! A connector's test brings a [`Fixture`] (a real database and its dialect) and calls [`crate::conformance_suite`] once;
//! that makes one test per promise, so none can be left out. Only what a database really has no notion of is passed over:
//! the fixture says so by `None`.
//!
//! Invariants
//! 1. Everything is asked of the real database; nothing here knows which one it is.
//! 2. Tests share nothing but the database: each makes tables and marks of its own ([`unique`]).
//! 3. An end is believed only when the database's own activity view shows it ([`Fixture::running`]).

mod ending;
mod limits;
mod links;
mod proxy;
mod transactions;
mod values;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use spillgate_model::{Cell, Rows, Type, Value};

use crate::{Access, Database, DatabaseError, DeclaredColumn, ReadLimits, Session, Statement};

pub use ending::{
    c11_a_dropped_read_is_gone_within_a_second, dropped_write_is_rolled_back, f1_read_dropped_at_any_point_leaves_a_clean_session,
};
pub use limits::{
    byte_limit_cuts_at_a_row, c5_row_limit_on_five_million_rows_is_flat_and_frees_the_session, c5_row_limit_says_whether_more_was_there,
    no_rows_still_have_columns, one_value_too_large_is_named,
};
pub use links::{b8_lost_link_is_a_failure, c10_closed_port_is_unreachable_and_tells_no_secret};
pub use proxy::Proxy;
pub use transactions::{
    commit_is_seen_by_others, read_only_session_refuses_writes, refused_statement_leaves_the_session_usable,
    returned_rows_come_with_the_write, rollback_leaves_nothing,
};
pub use values::{
    b1_decimals_keep_every_digit, b10_column_names_are_kept, binary_is_byte_exact, booleans_are_booleans, c1_integers_are_exact,
    c6_zone_less_times_are_not_shifted, columns_convert_exactly_or_fail, every_value_is_bound_exactly, null_and_empty_text_are_two_things,
    numbers_are_exact_doubles, text_is_kept_whole, text_that_looks_like_a_number_stays_text, text_with_a_nul_is_never_cut,
    timestamps_with_a_zone_carry_their_offset,
};

/// A real database and how one speaks to it. Names in double quotes keep their case in every dialect.
pub trait Fixture: Send + Sync + 'static {
    /// The database under test, healthy.
    fn database(&self) -> Arc<dyn Database>;
    /// The marker of the parameter at `index` (from 1): `$1` or `?`.
    fn marker(&self, index: usize) -> String;
    /// What stands after the expressions of a `SELECT` that needs no table: empty, or ` FROM SYSIBM.SYSDUMMY1`.
    #[allow(clippy::wrong_self_convention)] // it is no conversion
    fn from_nothing(&self) -> &'static str;
    /// An SQL expression whose value is this one, in the database's natural type for it. A type that is not native
    /// ([`Fixture::native`]) is written in the type that stands in for it. `None` where it cannot be held at all.
    fn literal(&self, value: &Value) -> Option<String>;
    /// An expression around the marker at `index`, to which this value is bound and which gives it back: `CAST(? AS …)`.
    fn bound(&self, index: usize, value: &Value) -> Option<String>;
    /// Whether values of this type are recognised without `columns` declaring them (SQLite knows no decimals or dates).
    fn native(&self, kind: Type) -> bool;
    /// The column type of a table for values of this type (text of at least 2,000 bytes).
    fn column_type(&self, kind: Type) -> &'static str;
    /// A timestamp with time zone, 2026-03-08 02:30:00 at offset +05:00, and how it is shown.
    fn zoned_timestamp(&self) -> Option<(&'static str, &'static str)>;
    /// A statement giving `count` rows of one integer column `"N"`, 1 upwards, that costs little to start.
    fn numbers(&self, count: u64) -> String;
    /// A read that takes a minute, with the mark in a comment.
    fn slow_read(&self, mark: &str) -> String;
    /// An `INSERT` of an integer into column `"N"` of the table that takes a minute, with the mark in a comment.
    fn slow_insert(&self, table: &str, mark: &str) -> String;
    /// Whether the database's own activity view shows a statement with this mark at work.
    fn running(&self, mark: &str) -> impl Future<Output = bool> + Send;
    /// `INSERT … RETURNING` of `1` into column `"N"`, where the database has it.
    fn insert_returning(&self, table: &str) -> Option<String>;
    /// Whether the database itself refuses a write on a read-only session.
    fn guards_reads(&self) -> bool;
    /// The same database behind a link that can be cut; `None` for an embedded one.
    fn fragile(&self) -> impl Future<Output = Option<Fragile>> + Send;
    /// A database that cannot be reached (a closed port, a missing file), and the secrets of its connection string.
    fn unreachable(&self) -> (Arc<dyn Database>, Vec<&'static str>);
}

/// A database behind a link that can be cut.
pub struct Fragile {
    /// Reaches the healthy database through `link`.
    pub database: Arc<dyn Database>,
    /// What lies between.
    pub link: Proxy,
}

/// A name no other test uses, fit for a table and a comment.
pub fn unique(name: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("{name}_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A statement of this text with an id of its own.
pub fn statement(text: impl Into<String>) -> Statement {
    declared(text, &[])
}

/// A statement that declares columns.
pub fn declared(text: impl Into<String>, columns: &[(&str, Type)]) -> Statement {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let columns = columns.iter().map(|(name, kind)| DeclaredColumn { name: (*name).into(), kind: *kind }).collect();
    Statement { id: NEXT.fetch_add(1, Ordering::Relaxed), text: text.into().into(), columns }
}

/// Limits no test meets by accident.
pub const WIDE: ReadLimits = ReadLimits { max_rows: 1_000, max_bytes: 1 << 20 };

/// One cell as a value.
pub fn value(rows: &Rows, row: usize, column: usize) -> Value {
    match rows.row(row)[column] {
        Cell::Null => Value::Null,
        Cell::Boolean(value) => Value::Boolean(value),
        Cell::Integer(value) => Value::Integer(value),
        Cell::Number(value) => Value::Number(value),
        cell @ Cell::Slice { kind, .. } => {
            let text = || rows.text(cell).into();
            match kind {
                Type::Decimal => Value::Decimal(text()),
                Type::Date => Value::Date(text()),
                Type::Time => Value::Time(text()),
                Type::Timestamp => Value::Timestamp(text()),
                Type::Binary => Value::Binary(rows.slice(cell).into()),
                _ => Value::Text(text()),
            }
        }
    }
}

async fn open(fixture: &impl Fixture, access: Access) -> Box<dyn Session> {
    fixture.database().connect(access).await.expect("a session of the healthy database")
}

async fn read(session: &mut Box<dyn Session>, statement: &Statement, parameters: &[Value]) -> Result<Rows, DatabaseError> {
    session.read(statement, parameters, WIDE).await
}

/// The first cell of the only row.
async fn one(session: &mut Box<dyn Session>, statement: &Statement, parameters: &[Value]) -> Value {
    let rows = read(session, statement, parameters).await.unwrap_or_else(|error| panic!("{}: {error:?}", statement.text));
    assert_eq!(rows.len(), 1, "{}", statement.text);
    value(&rows, 0, 0)
}

/// Runs each statement in one transaction and commits.
async fn run(session: &mut Box<dyn Session>, statements: &[&str]) {
    session.begin().await.expect("begin");
    for text in statements {
        session.write(&statement(*text), &[], WIDE).await.unwrap_or_else(|error| panic!("{text}: {error:?}"));
    }
    session.commit().await.expect("commit");
}

/// Makes a table with these columns and gives its quoted name.
async fn table(fixture: &impl Fixture, session: &mut Box<dyn Session>, columns: &[(&str, Type)]) -> String {
    let name = format!("\"{}\"", unique("T"));
    let columns: Vec<String> = columns.iter().map(|(name, kind)| format!("\"{name}\" {}", fixture.column_type(*kind))).collect();
    run(session, &[&format!("CREATE TABLE {name} ({})", columns.join(", "))]).await;
    name
}

async fn count(session: &mut Box<dyn Session>, table: &str) -> i64 {
    match one(session, &statement(format!("SELECT COUNT(*) AS \"C\" FROM {table}")), &[]).await {
        Value::Integer(count) => count,
        other => panic!("a count is an integer, not {other:?}"),
    }
}

/// Whether the session still answers: nothing left on the wire, no transaction in its way.
async fn answers(fixture: &impl Fixture, session: &mut Box<dyn Session>) {
    assert!(session.usable(), "a session that may be used again says so");
    let asked = statement(format!("SELECT 41 + 1 AS \"C\"{}", fixture.from_nothing()));
    assert_eq!(one(session, &asked, &[]).await, Value::Integer(42));
}

/// Asks until the answer is as wanted; the database's activity view cannot be subscribed to.
async fn until(limit: Duration, wanted: bool, fixture: &impl Fixture, mark: &str) -> bool {
    let start = Instant::now();
    while start.elapsed() < limit {
        if fixture.running(mark).await == wanted {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    fixture.running(mark).await == wanted
}

/// Runs the test `name` once more in a process whose local zone is New York, and says whether this is that process.
/// (A process cannot change its own zone safely.)
pub fn in_new_york(name: &str) -> bool {
    const ZONE: &str = "America/New_York";
    if std::env::var("TZ").is_ok_and(|zone| zone == ZONE) {
        return true;
    }
    // libtest knows a test by its path without the crate's name.
    let name = name.split_once("::").map_or(name, |(_, path)| path);
    let program = std::env::current_exe().expect("the test program");
    let run = std::process::Command::new(program).args(["--exact", name, "--nocapture"]).env("TZ", ZONE).output().expect("a second run");
    let told = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && told.contains("1 passed"), "{name} in {ZONE}: {told}{}", String::from_utf8_lossy(&run.stderr));
    false
}

/// One test per promise against the database that `$fixture()` (an async function giving a [`Fixture`]) brings.
#[macro_export]
macro_rules! conformance_suite {
    ($fixture:path) => {
        $crate::conformance_suite! { @each $fixture:
            c1_integers_are_exact,
            b1_decimals_keep_every_digit,
            text_that_looks_like_a_number_stays_text,
            null_and_empty_text_are_two_things,
            text_is_kept_whole,
            text_with_a_nul_is_never_cut,
            binary_is_byte_exact,
            booleans_are_booleans,
            numbers_are_exact_doubles,
            timestamps_with_a_zone_carry_their_offset,
            every_value_is_bound_exactly,
            columns_convert_exactly_or_fail,
            b10_column_names_are_kept,
            c5_row_limit_says_whether_more_was_there,
            c5_row_limit_on_five_million_rows_is_flat_and_frees_the_session,
            byte_limit_cuts_at_a_row,
            one_value_too_large_is_named,
            no_rows_still_have_columns,
            commit_is_seen_by_others,
            rollback_leaves_nothing,
            returned_rows_come_with_the_write,
            read_only_session_refuses_writes,
            refused_statement_leaves_the_session_usable,
            c11_a_dropped_read_is_gone_within_a_second,
            f1_read_dropped_at_any_point_leaves_a_clean_session,
            dropped_write_is_rolled_back,
            b8_lost_link_is_a_failure,
            c10_closed_port_is_unreachable_and_tells_no_secret,
        }
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn c6_zone_less_times_are_not_shifted() {
            let here = concat!(module_path!(), "::c6_zone_less_times_are_not_shifted");
            let _both_zones = $crate::conformance::in_new_york(here);
            $crate::conformance::c6_zone_less_times_are_not_shifted(&$fixture().await).await;
        }
    };
    (@each $fixture:path: $($promise:ident,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                $crate::conformance::$promise(&$fixture().await).await;
            }
        )*
    };
}
