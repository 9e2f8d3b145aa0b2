//! The floor of the ODBC driver: threads that do nothing but execute a prepared statement and look at each value, through
//! odbc-api and IBM's driver, each on a connection of its own.
//!
//! What it does as the product does: the same statement and bound value, prepared once, columns bound, batches of rows.
//! What it does not do: types (each value is read as text and looked at), limits, deadlines, cancelling, pools, HTTP.

use std::hint::black_box;
use std::time::Instant;

use anyhow::{Context, Result};
use odbc_api::buffers::ColumnarBuffer;
use odbc_api::handles::StatementConnection;
use odbc_api::{Connection, ConnectionOptions, Cursor, Prepared};
use spillgate_test_support::narrow::NarrowText;

use crate::fleet::{COLUMN_COUNT, TRUCKS};
use crate::load::Window;

/// Longer than any value of the table.
const MAX_TEXT: usize = 80;

/// A statement and how it is asked.
pub(crate) struct Question {
    /// Its text, with `?` for the key.
    pub(crate) sql: String,
    /// Whether it has a key; then each call asks for another truck.
    pub(crate) by_key: bool,
    /// Rows fetched at once.
    pub(crate) batch_rows: usize,
}

/// A connection with its prepared statement and the buffer its rows come into.
pub(crate) struct Reader {
    prepared: Prepared<StatementConnection<Connection<'static>>>,
    rows: ColumnarBuffer<NarrowText>,
}

impl Reader {
    /// Connects and prepares.
    pub(crate) fn open(connection: &str, question: &Question) -> Result<Self> {
        let connection = odbc_api::environment()?.connect_with_connection_string(connection, ConnectionOptions::default())?;
        let prepared = connection.into_prepared(&question.sql)?;
        let column = |number| (number, NarrowText::new(question.batch_rows, MAX_TEXT));
        Ok(Reader { prepared, rows: ColumnarBuffer::new((1..=COLUMN_COUNT).map(column).collect()) })
    }
    /// Asks once and shows each batch; gives the number of rows.
    pub(crate) fn ask(&mut self, key: Option<i64>, mut show: impl FnMut(&ColumnarBuffer<NarrowText>)) -> Result<u64> {
        let cursor = match key {
            Some(key) => self.prepared.execute(&key)?,
            None => self.prepared.execute(())?,
        };
        let mut batches = cursor.context("the statement has no result")?.bind_buffer(&mut self.rows)?;
        let mut read = 0;
        while let Some(batch) = batches.fetch()? {
            show(batch);
            read += batch.num_rows() as u64;
        }
        Ok(read)
    }
    fn count_rows(&mut self, by_key: bool, first: i64, window: Window) -> Result<u64> {
        let mut counted = 0;
        let mut key = first;
        loop {
            key = key % TRUCKS + 1;
            let read = self.ask(by_key.then_some(key), look_at)?;
            let now = Instant::now();
            if now >= window.end {
                return Ok(counted);
            }
            counted += if now >= window.begin { read } else { 0 };
        }
    }
}

/// Rows a second that so many threads read together.
pub(crate) fn rows_per_second(readers: &mut [Reader], question: &Question, window: Window) -> Result<f64> {
    let counted: Result<Vec<u64>> = std::thread::scope(|scope| {
        let loops: Vec<_> = readers
            .iter_mut()
            .zip((0..TRUCKS).step_by(97))
            .map(|(reader, first)| scope.spawn(move || reader.count_rows(question.by_key, first, window)))
            .collect();
        loops.into_iter().map(|running| running.join().map_err(|_| anyhow::anyhow!("a bare loop panicked"))?).collect()
    });
    Ok(counted?.iter().sum::<u64>() as f64 / window.length().as_secs_f64())
}

fn look_at(batch: &ColumnarBuffer<NarrowText>) {
    for column in 0..batch.num_cols() {
        for row in 0..batch.num_rows() {
            black_box(batch.column(column).get(row));
        }
    }
}

#[cfg(test)]
mod tests {
    use spillgate_test_support::derby::Derby;
    use spillgate_test_support::odbc::db2_connection;
    use spillgate_test_support::shim::Shim;

    use super::*;
    use crate::fleet;

    #[test]
    fn a_bare_loop_reads_every_row_and_tells_null_from_text() {
        let derby = Derby::start();
        for statement in fleet::derby_schema() {
            derby.run(&statement);
        }
        let shim = Shim::to(derby.address());
        let question = Question { sql: fleet::all(), by_key: false, batch_rows: 300 };
        let mut reader = Reader::open(&db2_connection(shim.address()), &question).expect("IBM's driver connects");
        let (mut nulls, mut plates) = (0, 0);
        let read = reader.ask(None, |batch| {
            for row in 0..batch.num_rows() {
                plates += i64::from(batch.column(1).get(row).is_some_and(|plate| plate.starts_with(b"FR-")));
                nulls += i64::from(batch.column(2).get(row).is_none());
            }
        });
        assert_eq!((read.expect("it reads"), plates, nulls), (10_000, TRUCKS, TRUCKS / 5));
    }
}
