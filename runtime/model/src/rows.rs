//! A bounded result: columns, cells, and one buffer of bytes the cells point into.
//!
//! Invariants
//! 1. `cells.len()` is a multiple of `columns.len()`; a row is complete or not there.
//! 2. Every slice of a cell lies within `bytes`; text-like slices are UTF-8 (checked when pushed).
//! 3. A builder never holds more rows than `max_rows`, nor more bytes than `max_bytes`, neither as they are held nor as they
//!    will be written: the row that would pass a limit is taken back whole and the result is marked `truncated`.
//!
//! Two growing buffers a result instead of one allocation a cell: this is the hot path.

use std::sync::Arc;

use crate::json;
use crate::value::Type;

/// A column as the database names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Name, untouched.
    pub name: Box<str>,
    /// Type of its cells (null aside).
    pub kind: Type,
}

/// One cell. `Slice` points into the bytes of its [`Rows`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Cell {
    Null,
    Boolean(bool),
    Integer(i64),
    Number(f64),
    /// Decimal, text, date, time, timestamp (canonical text) or binary (raw bytes): the type says which.
    Slice {
        kind: Type,
        start: u32,
        length: u32,
    },
}

/// A bounded result.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    columns: Arc<[Column]>,
    cells: Vec<Cell>,
    bytes: Vec<u8>,
    truncated: bool,
}

impl Rows {
    /// Columns in the order of the statement.
    pub fn columns(&self) -> &Arc<[Column]> {
        &self.columns
    }
    /// Number of rows.
    pub fn len(&self) -> usize {
        if self.columns.is_empty() { 0 } else { self.cells.len() / self.columns.len() }
    }
    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }
    /// Whether there were more rows than the limits let through.
    pub fn truncated(&self) -> bool {
        self.truncated
    }
    /// The cells of one row. Panics when there is no such row: callers iterate up to [`Rows::len`].
    pub fn row(&self, index: usize) -> &[Cell] {
        let width = self.columns.len();
        &self.cells[index * width..(index + 1) * width]
    }
    /// All rows in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[Cell]> {
        self.cells.chunks_exact(self.columns.len().max(1))
    }
    /// The bytes of a slice cell; empty for the others.
    pub fn slice(&self, cell: Cell) -> &[u8] {
        match cell {
            Cell::Slice { start, length, .. } => &self.bytes[start as usize..start as usize + length as usize],
            _ => &[],
        }
    }
    /// The text of a text-like slice cell; empty for the others.
    pub fn text(&self, cell: Cell) -> &str {
        std::str::from_utf8(self.slice(cell)).unwrap_or_default()
    }
    /// Bytes held, for the memory budget.
    pub fn held_bytes(&self) -> usize {
        self.cells.len() * size_of::<Cell>() + self.bytes.len()
    }
    /// Keeps the first `count` rows (paging reads one row more than it shows).
    pub fn keep(&mut self, count: usize) {
        self.cells.truncate(count * self.columns.len());
    }
    /// Says whether there were more rows than these.
    pub fn set_truncated(&mut self, truncated: bool) {
        self.truncated = truncated;
    }
}

/// Why a row was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowEnd {
    /// Taken; go on.
    More,
    /// A limit is reached: the row was not kept, the result is truncated, stop reading.
    Full,
}

/// One value, or the first row, is larger than the whole result may be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a value of column {column} is larger than {max_bytes} bytes")]
pub struct ValueTooLarge {
    /// Its column.
    pub column: Box<str>,
    /// The limit.
    pub max_bytes: usize,
}

/// Builds [`Rows`] under two limits. Push the cells of a row left to right, then [`RowsBuilder::end_row`].
#[derive(Debug)]
pub struct RowsBuilder {
    rows: Rows,
    max_rows: usize,
    max_bytes: usize,
    over_bytes: bool,
    row_start_cell: usize,
    row_start_byte: usize,
    /// What a row takes as JSON beside its cells: names and marks.
    frame_bytes: usize,
    /// The rows as JSON, the one in hand included; for doubles the most they can take.
    written_bytes: usize,
}

impl RowsBuilder {
    /// `max_bytes` bounds cells and their bytes ([`Rows::held_bytes`]), and also what they will take as JSON, where long names
    /// and escapes make more of them; it is at most 2 GiB by configuration.
    pub fn new(columns: Arc<[Column]>, max_rows: usize, max_bytes: usize) -> Self {
        let width = columns.len();
        // `"NAME":` and a mark before it, for each; the two closing ones.
        let frame_bytes = 2 + columns.iter().map(|column| json::text_bytes(&column.name) + 2).sum::<usize>();
        RowsBuilder {
            rows: Rows { columns, cells: Vec::with_capacity(width * max_rows.min(4)), bytes: Vec::new(), truncated: false },
            max_rows,
            max_bytes,
            over_bytes: false,
            row_start_cell: 0,
            row_start_byte: 0,
            frame_bytes,
            written_bytes: frame_bytes,
        }
    }
    /// Columns in the order of the statement.
    pub fn columns(&self) -> &Arc<[Column]> {
        &self.rows.columns
    }
    /// Rows taken so far.
    pub fn len(&self) -> usize {
        self.rows.len()
    }
    /// Whether no row was taken yet.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
    /// Bytes that a single value may still have in this row; readers that learn a length first ask before they copy.
    pub fn room_bytes(&self) -> usize {
        self.max_bytes.saturating_sub(self.rows.held_bytes())
    }
    /// Pushes NULL.
    pub fn null(&mut self) {
        self.plain(Cell::Null, 4);
    }
    /// Pushes a boolean.
    pub fn boolean(&mut self, value: bool) {
        self.plain(Cell::Boolean(value), 5);
    }
    /// Pushes an integer.
    pub fn integer(&mut self, value: i64) {
        self.plain(Cell::Integer(value), json::integer_bytes(value));
    }
    /// Pushes a double.
    pub fn number(&mut self, value: f64) {
        self.plain(Cell::Number(value), json::NUMBER_BYTES);
    }
    fn plain(&mut self, cell: Cell, written: usize) {
        self.rows.cells.push(cell);
        self.written_bytes += written;
    }
    /// Pushes text of a text-like type.
    pub fn text(&mut self, kind: Type, value: &str) -> Result<(), ValueTooLarge> {
        self.write(kind, |bytes| bytes.extend_from_slice(value.as_bytes()))
    }
    /// Pushes binary.
    pub fn binary(&mut self, value: &[u8]) -> Result<(), ValueTooLarge> {
        self.write(Type::Binary, |bytes| bytes.extend_from_slice(value))
    }
    /// Pushes text that `format` writes in place (dates, decimals): no allocation of its own.
    pub fn formatted(&mut self, kind: Type, value: impl std::fmt::Display) -> Result<(), ValueTooLarge> {
        self.write(kind, |bytes| {
            use std::io::Write as _;
            let _infallible = write!(bytes, "{value}");
        })
    }
    fn write(&mut self, kind: Type, append: impl FnOnce(&mut Vec<u8>)) -> Result<(), ValueTooLarge> {
        let start = self.rows.bytes.len();
        append(&mut self.rows.bytes);
        let length = self.rows.bytes.len() - start;
        self.written_bytes += written_bytes(kind, &self.rows.bytes[start..]);
        let first_row = self.row_start_cell == 0;
        let over = self.rows.held_bytes() > self.max_bytes || self.written_bytes > self.max_bytes;
        if length > self.max_bytes || (first_row && over) {
            let index = self.rows.cells.len() - self.row_start_cell;
            let column = self.rows.columns.get(index).map(|column| column.name.clone()).unwrap_or_default();
            self.rows.bytes.truncate(start);
            return Err(ValueTooLarge { column, max_bytes: self.max_bytes });
        }
        // Past the limit in a later row: that row will be cut, so what it holds is dropped at once.
        let kept = if self.rows.bytes.len() > self.max_bytes {
            self.over_bytes = true;
            self.rows.bytes.truncate(start);
            0
        } else {
            length
        };
        // Both fit in 32 bits: max_bytes is at most 1 GiB and the buffer never stays above it.
        #[allow(clippy::cast_possible_truncation)]
        self.rows.cells.push(Cell::Slice { kind, start: start as u32, length: kept as u32 });
        Ok(())
    }
    /// Ends a row. When it passes a limit it is taken back and the result is truncated.
    pub fn end_row(&mut self) -> RowEnd {
        debug_assert_eq!(self.rows.cells.len() - self.row_start_cell, self.rows.columns.len(), "a row is complete");
        let over_bytes = self.over_bytes || self.rows.held_bytes() > self.max_bytes || self.written_bytes > self.max_bytes;
        if self.rows.len() > self.max_rows || over_bytes {
            self.rows.cells.truncate(self.row_start_cell);
            self.rows.bytes.truncate(self.row_start_byte);
            self.rows.truncated = true;
            return RowEnd::Full;
        }
        self.row_start_cell = self.rows.cells.len();
        self.row_start_byte = self.rows.bytes.len();
        self.written_bytes += self.frame_bytes;
        RowEnd::More
    }
    /// The result.
    pub fn finish(self) -> Rows {
        self.rows
    }
}

/// What a slice takes as JSON. Only text has letters that are written as more than themselves.
fn written_bytes(kind: Type, bytes: &[u8]) -> usize {
    match kind {
        Type::Binary => bytes.len().div_ceil(3) * 4 + 2,
        Type::Text => json::escaped_bytes(bytes),
        _ => bytes.len() + 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One column of this name and type, filled with `value` until it is full: its rows, and their length as JSON.
    fn filled(name: &str, kind: Type, value: &str, max_bytes: usize) -> (Rows, usize) {
        let columns = [Column { name: name.into(), kind }];
        let mut builder = RowsBuilder::new(columns.into(), usize::MAX, max_bytes);
        loop {
            match kind {
                Type::Binary => builder.binary(value.as_bytes()).expect("it fits"),
                Type::Text => builder.text(kind, value).expect("it fits"),
                Type::Integer => builder.integer(i64::MIN),
                _ => builder.null(),
            }
            if builder.end_row() == RowEnd::Full {
                break;
            }
        }
        let rows = builder.finish();
        let mut written = Vec::new();
        json::write_rows(&rows, &mut written);
        (rows, written.len())
    }

    #[test]
    fn promise_11_a_result_takes_no_more_than_its_bytes_when_it_is_written() {
        let long = "n".repeat(200);
        for (name, kind, value) in [
            (long.as_str(), Type::Number, ""),
            ("\u{1}\"", Type::Integer, ""),
            ("X", Type::Text, "\u{1}\u{2}\u{3}\u{1f}"),
            ("X", Type::Text, "a\"b\\c\nd\u{7f}é"),
            ("X", Type::Binary, "four"),
        ] {
            let (rows, written) = filled(name, kind, value, 10_000);
            assert!(rows.truncated() && written <= 10_000 + 2, "{kind:?}: {written} bytes");
            assert!(rows.held_bytes() <= 10_000 && !rows.is_empty());
            assert!(written > 6_000 || rows.held_bytes() > 9_900, "{kind:?}: cut far too early, at {written} bytes");
        }
    }

    #[test]
    fn a_value_that_only_fits_unwritten_is_named() {
        let columns = [Column { name: "X".into(), kind: Type::Text }];
        let mut builder = RowsBuilder::new(columns.into(), 9, 1_000);
        let error = builder.text(Type::Text, &"\u{1}".repeat(500)).expect_err("3000 bytes as JSON");
        assert_eq!(&*error.column, "X");
    }
}
