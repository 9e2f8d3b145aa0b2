//! How exact values become JSON, in one place for every face.
//!
//! Rules (contract: HTTP face): integers are numbers while exact in a double (|v| <= 2^53-1) and strings beyond; decimals,
//! dates, times and timestamps are strings; doubles are numbers, NaN and infinities strings; binary is base64; NULL null.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::datum::Datum;
use crate::rows::{Cell, Rows};
use crate::value::Type;

/// The largest integer every reader of JSON holds exactly.
pub const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

/// The most bytes a double takes.
pub(crate) const NUMBER_BYTES: usize = 26;

/// Appends `{"COLUMN":cell,…}` for each row, with brackets around.
pub fn write_rows(rows: &Rows, out: &mut Vec<u8>) {
    RowsWriter::new(rows).write(rows, usize::MAX, out);
}

/// Writes rows as [`write_rows`] does, a piece at a time: a large result is never held as text as a whole.
#[derive(Debug)]
pub struct RowsWriter {
    keys: Keys,
    opened: bool,
    next: usize,
}

impl RowsWriter {
    /// Starts before the first row. The same `rows` must be given to each [`RowsWriter::write`].
    pub fn new(rows: &Rows) -> Self {
        RowsWriter { keys: Keys::of(rows), opened: false, next: 0 }
    }

    /// Appends rows until `out` holds at least `enough` bytes. True: the last row and the closing bracket are written.
    pub fn write(&mut self, rows: &Rows, enough: usize, out: &mut Vec<u8>) -> bool {
        if !self.opened {
            self.opened = true;
            out.push(b'[');
        }
        for row in rows.iter().skip(self.next) {
            if out.len() >= enough {
                return false;
            }
            if self.next > 0 {
                out.push(b',');
            }
            self.next += 1;
            for (position, cell) in row.iter().enumerate() {
                out.extend_from_slice(self.keys.get(position));
                write_cell(rows, *cell, out);
            }
            out.push(b'}');
        }
        out.push(b']');
        true
    }
}

/// What stands before each cell of a row (`{"A":`, `,"B":`), escaped once, in one buffer.
#[derive(Debug)]
struct Keys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Keys {
    fn of(rows: &Rows) -> Self {
        let columns = rows.columns();
        let length: usize = columns.iter().map(|column| column.name.len() + 4).sum();
        let mut keys = Keys { bytes: Vec::with_capacity(length), ends: Vec::with_capacity(columns.len()) };
        for (position, column) in columns.iter().enumerate() {
            keys.bytes.push(if position == 0 { b'{' } else { b',' });
            write_text(&column.name, &mut keys.bytes);
            keys.bytes.push(b':');
            keys.ends.push(keys.bytes.len());
        }
        keys
    }
    fn get(&self, position: usize) -> &[u8] {
        let start = position.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[position]]
    }
}

fn write_cell(rows: &Rows, cell: Cell, out: &mut Vec<u8>) {
    match cell {
        Cell::Null => out.extend_from_slice(b"null"),
        Cell::Boolean(value) => write_boolean(value, out),
        Cell::Integer(value) => write_integer(value, out),
        Cell::Number(value) => write_number(value, out),
        Cell::Slice { kind: Type::Binary, .. } => write_binary(rows.slice(cell), out),
        Cell::Slice { .. } => write_text(rows.text(cell), out),
    }
}

/// Appends a tree.
pub fn write_datum(datum: &Datum, out: &mut Vec<u8>) {
    match datum {
        Datum::Null => out.extend_from_slice(b"null"),
        Datum::Boolean(value) => write_boolean(*value, out),
        Datum::Integer(value) => write_integer(*value, out),
        Datum::Number(value) => write_number(*value, out),
        Datum::Text(text) => write_text(text, out),
        Datum::Binary(bytes) => write_binary(bytes, out),
        Datum::List(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_datum(item, out);
            }
            out.push(b']');
        }
        Datum::Map(entries) => {
            out.push(b'{');
            for (index, (key, value)) in entries.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_text(key, out);
                out.push(b':');
                write_datum(value, out);
            }
            out.push(b'}');
        }
    }
}

fn write_boolean(value: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(if value { b"true" } else { b"false" });
}

/// Appends an integer: a number while exact in a double, a string beyond.
pub fn write_integer(value: i64, out: &mut Vec<u8>) {
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(value).as_bytes();
    if value.unsigned_abs() <= MAX_SAFE_INTEGER {
        out.extend_from_slice(digits);
    } else {
        out.push(b'"');
        out.extend_from_slice(digits);
        out.push(b'"');
    }
}

fn write_number(value: f64, out: &mut Vec<u8>) {
    if value.is_finite() {
        out.extend_from_slice(zmij::Buffer::new().format_finite(value).as_bytes());
    } else if value.is_nan() {
        out.extend_from_slice(b"\"NaN\"");
    } else {
        out.extend_from_slice(if value > 0.0 { b"\"Infinity\"" } else { b"\"-Infinity\"" });
    }
}

fn write_binary(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    let written = STANDARD.encode_slice(bytes, &mut out[start..]).unwrap_or(0); // the room was made on the line above
    out.truncate(start + written);
    out.push(b'"');
}

/// What [`write_integer`] makes of it, in bytes.
pub(crate) fn integer_bytes(value: i64) -> usize {
    let magnitude = value.unsigned_abs();
    let quotes = if magnitude > MAX_SAFE_INTEGER { 2 } else { 0 };
    magnitude.checked_ilog10().unwrap_or(0) as usize + 1 + usize::from(value < 0) + quotes
}

/// What [`write_text`] makes of it, in bytes.
pub(crate) fn text_bytes(text: &str) -> usize {
    escaped_bytes(text.as_bytes())
}

/// The same for text that was checked before.
pub(crate) fn escaped_bytes(bytes: &[u8]) -> usize {
    let more = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 1,
        0..0x20 => 5,
        _ => 0,
    };
    bytes.len() + 2 + bytes.iter().map(|byte| more(*byte)).sum::<usize>()
}

/// The most bytes that [`write_datum`] makes of a tree.
pub fn datum_bytes(datum: &Datum) -> usize {
    match datum {
        Datum::Null => 4,
        Datum::Boolean(_) => 5,
        Datum::Integer(value) => integer_bytes(*value),
        Datum::Number(_) => NUMBER_BYTES,
        Datum::Text(text) => text_bytes(text),
        Datum::Binary(bytes) => bytes.len().div_ceil(3) * 4 + 2,
        Datum::List(items) => items.iter().map(|item| datum_bytes(item) + 1).sum::<usize>() + 2,
        Datum::Map(entries) => entries.iter().map(|(key, value)| text_bytes(key) + datum_bytes(value) + 2).sum::<usize>() + 2,
    }
}

/// Appends a JSON string. Runs without a special byte are copied whole.
pub fn write_text(text: &str, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut copied = 0;
    for (index, byte) in bytes.iter().enumerate() {
        if *byte >= 0x20 && *byte != b'"' && *byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&bytes[copied..index]);
        copied = index + 1;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            control => {
                out.extend_from_slice(b"\\u00");
                out.push(HEX[usize::from(control >> 4)]);
                out.push(HEX[usize::from(control & 15)]);
            }
        }
    }
    out.extend_from_slice(&bytes[copied..]);
    out.push(b'"');
}
