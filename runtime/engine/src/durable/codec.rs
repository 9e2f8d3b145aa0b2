//! Bytes of items: numbers as variable-length integers, everything else behind its length.
//!
//! Reading never panics, never recurses deeper than [`DEPTH`] and makes nothing that is not a small multiple of what it read.

use std::collections::BTreeMap;
use std::sync::Arc;

use spillgate_model::{Cell, Column, Datum, Rows, RowsBuilder, Type, Value, limits};

/// Deepest nesting of a value.
pub(super) const DEPTH: usize = 128;

/// What cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unreadable;

/// Appends to a buffer.
#[derive(Default)]
pub(super) struct Writer {
    pub(super) out: Vec<u8>,
}

impl Writer {
    pub(super) fn byte(&mut self, byte: u8) {
        self.out.push(byte);
    }
    /// Seven bits a byte, lowest first.
    pub(super) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.out.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.out.push(number.to_le_bytes()[0]);
    }
    fn integer(&mut self, value: i64) {
        // Small numbers of either sign become small.
        self.number(((value << 1) ^ (value >> 63)).cast_unsigned());
    }
    fn double(&mut self, value: f64) {
        self.out.extend_from_slice(&value.to_bits().to_le_bytes());
    }
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.out.extend_from_slice(bytes);
    }
    pub(super) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }
    pub(super) fn optional(&mut self, text: Option<&str>) {
        self.byte(u8::from(text.is_some()));
        if let Some(text) = text {
            self.text(text);
        }
    }
    pub(super) fn fixed(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    pub(super) fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.byte(b'0'),
            Value::Boolean(value) => self.fixed(&[b'b', u8::from(*value)]),
            Value::Integer(value) => {
                self.byte(b'i');
                self.integer(*value);
            }
            Value::Number(value) => {
                self.byte(b'n');
                self.double(*value);
            }
            Value::Decimal(text) => self.tagged(Type::Decimal, text.as_bytes()),
            Value::Text(text) => self.tagged(Type::Text, text.as_bytes()),
            Value::Date(text) => self.tagged(Type::Date, text.as_bytes()),
            Value::Time(text) => self.tagged(Type::Time, text.as_bytes()),
            Value::Timestamp(text) => self.tagged(Type::Timestamp, text.as_bytes()),
            Value::Binary(bytes) => self.tagged(Type::Binary, bytes),
            Value::List(items) => {
                self.byte(b'l');
                self.number(items.len() as u64);
                items.iter().for_each(|item| self.value(item));
            }
        }
    }
    fn tagged(&mut self, kind: Type, bytes: &[u8]) {
        self.byte(tag(kind));
        self.bytes(bytes);
    }

    /// False: it is nested too deeply to be read again.
    #[must_use]
    pub(super) fn datum(&mut self, datum: &Datum, depth: usize) -> bool {
        match datum {
            Datum::Null => self.byte(b'0'),
            Datum::Boolean(value) => self.fixed(&[b'b', u8::from(*value)]),
            Datum::Integer(value) => {
                self.byte(b'i');
                self.integer(*value);
            }
            Datum::Number(value) => {
                self.byte(b'n');
                self.double(*value);
            }
            Datum::Text(text) => self.tagged(Type::Text, text.as_bytes()),
            Datum::Binary(bytes) => self.tagged(Type::Binary, bytes),
            Datum::List(_) | Datum::Map(_) if depth == 0 => return false,
            Datum::List(items) => {
                self.byte(b'l');
                self.number(items.len() as u64);
                return items.iter().all(|item| self.datum(item, depth - 1));
            }
            Datum::Map(entries) => {
                self.byte(b'm');
                self.number(entries.len() as u64);
                return entries.iter().all(|(key, value)| {
                    self.text(key);
                    self.datum(value, depth - 1)
                });
            }
        }
        true
    }

    pub(super) fn rows(&mut self, rows: &Rows) {
        self.byte(u8::from(rows.truncated()));
        self.number(rows.columns().len() as u64);
        for column in rows.columns().iter() {
            self.byte(tag(column.kind));
            self.text(&column.name);
        }
        self.number(rows.len() as u64);
        for cell in rows.iter().flatten() {
            match cell {
                Cell::Null => self.byte(b'0'),
                Cell::Boolean(value) => self.fixed(&[b'b', u8::from(*value)]),
                Cell::Integer(value) => {
                    self.byte(b'i');
                    self.integer(*value);
                }
                Cell::Number(value) => {
                    self.byte(b'n');
                    self.double(*value);
                }
                Cell::Slice { kind, .. } => self.tagged(*kind, rows.slice(*cell)),
            }
        }
    }
}

fn tag(kind: Type) -> u8 {
    match kind {
        Type::Integer => b'i',
        Type::Number => b'n',
        Type::Decimal => b'd',
        Type::Text => b'x',
        Type::Boolean => b'b',
        Type::Date => b'a',
        Type::Time => b'c',
        Type::Timestamp => b's',
        Type::Binary => b'y',
    }
}

fn kind(tag: u8) -> Result<Type, Unreadable> {
    Type::ALL.into_iter().find(|kind| self::tag(*kind) == tag).ok_or(Unreadable)
}

/// Reads what is left.
pub(super) struct Reader<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn byte(&mut self) -> Result<u8, Unreadable> {
        let (byte, rest) = self.rest.split_first().ok_or(Unreadable)?;
        self.rest = rest;
        Ok(*byte)
    }
    pub(super) fn flag(&mut self) -> Result<bool, Unreadable> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Unreadable),
        }
    }
    pub(super) fn number(&mut self) -> Result<u64, Unreadable> {
        let (mut number, mut shift) = (0u64, 0u32);
        loop {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if shift > 63 || (shift == 63 && part > 1) {
                return Err(Unreadable);
            }
            number |= part << shift;
            if byte < 0x80 {
                return Ok(number);
            }
            shift += 7;
        }
    }
    fn integer(&mut self) -> Result<i64, Unreadable> {
        let number = self.number()?;
        Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }
    fn double(&mut self) -> Result<f64, Unreadable> {
        Ok(f64::from_bits(u64::from_le_bytes(self.fixed()?)))
    }
    pub(super) fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Unreadable> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(Unreadable)?;
        self.rest = rest;
        Ok(*bytes)
    }
    /// How many things follow: each takes a byte at least.
    pub(super) fn count(&mut self) -> Result<usize, Unreadable> {
        usize::try_from(self.number()?).ok().filter(|count| *count <= self.rest.len()).ok_or(Unreadable)
    }
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Unreadable> {
        let length = self.count()?;
        let (bytes, rest) = self.rest.split_at(length);
        self.rest = rest;
        Ok(bytes)
    }
    pub(super) fn text(&mut self) -> Result<&'a str, Unreadable> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Unreadable)
    }
    pub(super) fn optional(&mut self) -> Result<Option<&'a str>, Unreadable> {
        if self.flag()? { self.text().map(Some) } else { Ok(None) }
    }

    pub(super) fn value(&mut self) -> Result<Value, Unreadable> {
        match self.byte()? {
            b'l' => {
                let count = self.count()?;
                (0..count).map(|_| self.plain()).collect::<Result<Box<[Value]>, Unreadable>>().map(Value::List)
            }
            tag => self.tagged(tag),
        }
    }
    fn plain(&mut self) -> Result<Value, Unreadable> {
        let tag = self.byte()?;
        self.tagged(tag)
    }
    fn tagged(&mut self, tag: u8) -> Result<Value, Unreadable> {
        Ok(match tag {
            b'0' => Value::Null,
            b'b' => Value::Boolean(self.flag()?),
            b'i' => Value::Integer(self.integer()?),
            b'n' => Value::Number(self.double()?),
            b'd' => Value::Decimal(self.text()?.into()),
            b'x' => Value::Text(self.text()?.into()),
            b'a' => Value::Date(self.text()?.into()),
            b'c' => Value::Time(self.text()?.into()),
            b's' => Value::Timestamp(self.text()?.into()),
            b'y' => Value::Binary(self.bytes()?.into()),
            _ => return Err(Unreadable),
        })
    }

    pub(super) fn datum(&mut self, depth: usize) -> Result<Datum, Unreadable> {
        Ok(match self.byte()? {
            b'0' => Datum::Null,
            b'b' => Datum::Boolean(self.flag()?),
            b'i' => Datum::Integer(self.integer()?),
            b'n' => Datum::Number(self.double()?),
            b'x' => Datum::Text(Arc::from(self.text()?)),
            b'y' => Datum::Binary(Arc::from(self.bytes()?)),
            b'l' if depth > 0 => {
                let count = self.count()?;
                Datum::List((0..count).map(|_| self.datum(depth - 1)).collect::<Result<_, _>>()?)
            }
            b'm' if depth > 0 => {
                let count = self.count()?;
                let entry = |_| Ok((Arc::from(self.text()?), self.datum(depth - 1)?));
                Datum::Map(Arc::new((0..count).map(entry).collect::<Result<BTreeMap<_, _>, Unreadable>>()?))
            }
            _ => return Err(Unreadable),
        })
    }

    pub(super) fn rows(&mut self) -> Result<Rows, Unreadable> {
        let truncated = self.flag()?;
        let width = self.count()?;
        let column = |_| Ok(Column { kind: kind(self.byte()?)?, name: self.text()?.into() });
        let columns = (0..width).map(column).collect::<Result<Arc<[Column]>, Unreadable>>()?;
        let count = self.count()?;
        if width == 0 && count > 0 {
            return Err(Unreadable);
        }
        let most = usize::try_from(limits::MAX_BYTES).unwrap_or(usize::MAX);
        let mut builder = RowsBuilder::new(columns, limits::MAX_ROWS, most);
        for _ in 0..count {
            for _ in 0..width {
                self.cell(&mut builder)?;
            }
            builder.end_row();
        }
        let mut rows = builder.finish();
        rows.set_truncated(truncated);
        // A row that the builder's own limits took back would be missing.
        if rows.len() == count { Ok(rows) } else { Err(Unreadable) }
    }
    fn cell(&mut self, builder: &mut RowsBuilder) -> Result<(), Unreadable> {
        let pushed = match self.byte()? {
            b'0' => {
                builder.null();
                Ok(())
            }
            b'b' => {
                builder.boolean(self.flag()?);
                Ok(())
            }
            b'i' => {
                builder.integer(self.integer()?);
                Ok(())
            }
            b'n' => {
                builder.number(self.double()?);
                Ok(())
            }
            b'y' => builder.binary(self.bytes()?),
            tag => builder.text(kind(tag)?, self.text()?),
        };
        pushed.map_err(|_| Unreadable)
    }
}
