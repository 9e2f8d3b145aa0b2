//! Memory a driver writes rows to and reads parameters from.
//!
//! Invariants
//! 1. Storage is aligned to eight bytes, zeroed when made, and never moves or shrinks while it is bound.
//! 2. A value is given only when its length fits its buffer; a longer one is [`Field::Cut`].

use odbc_api::sys::{CDataType, NULL_DATA, SqlDataType};

/// `SQL_ROW_ERROR`
const ROW_ERROR: u16 = 5;

/// How wide the driver writes length indicators. IBM's `libdb2.so` is built with 32 bits (case B3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    Bits32,
    Bits64,
}

impl Layout {
    const fn bytes(self) -> usize {
        match self {
            Layout::Bits32 => 4,
            Layout::Bits64 => 8,
        }
    }
    /// The indicator at `index` of an array this driver wrote.
    pub(crate) fn indicator(self, array: &[u8], index: usize) -> i64 {
        let at = index * self.bytes();
        match self {
            Layout::Bits32 => i64::from(i32::from_ne_bytes(array_of(&array[at..]))),
            Layout::Bits64 => i64::from_ne_bytes(array_of(&array[at..])),
        }
    }
}

fn array_of<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[..N]);
    array
}

/// Zeroed bytes, aligned to eight.
pub(super) struct Storage(Box<[u64]>);

impl Storage {
    pub(super) fn new(bytes: usize) -> Storage {
        Storage(vec![0; bytes.div_ceil(8).max(1)].into())
    }
    pub(super) fn len(&self) -> usize {
        self.0.len() * 8
    }
    pub(super) fn pointer(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the words are initialised and any byte of them is a valid u8; the length is theirs.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.len()) }
    }
    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the borrow is exclusive; any bytes make valid words.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.len()) }
    }
}

/// One value of a rowset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field<'a> {
    Null,
    /// The whole value, in the C type of its column.
    Bytes(&'a [u8]),
    /// The value is longer than its buffer.
    Cut,
}

/// Memory for one column of a rowset.
pub(crate) struct Column {
    pub(super) c_type: CDataType,
    /// Bytes of one value, terminator included.
    pub(super) width: usize,
    terminator: usize,
    pub(super) values: Storage,
    pub(super) indicators: Storage,
}

impl Column {
    /// Room for `rows` values of `width` bytes, terminator not counted. Integers, doubles and bits have a fixed width.
    pub(crate) fn new(c_type: CDataType, width: usize, rows: usize) -> Column {
        let terminator = terminator(c_type);
        let width = (width + terminator).next_multiple_of(2);
        // Indicators are laid out for the wider form, whichever the driver writes.
        Column { c_type, width, terminator, values: Storage::new(width * rows), indicators: Storage::new(rows * 8) }
    }
    /// The value of a row the driver has fetched.
    pub(crate) fn field(&self, row: usize, layout: Layout) -> Field<'_> {
        let indicator = layout.indicator(self.indicators.bytes(), row);
        if indicator == NULL_DATA as i64 {
            return Field::Null;
        }
        let start = row * self.width;
        match usize::try_from(indicator) {
            Ok(length) if length <= self.width - self.terminator => Field::Bytes(&self.values.bytes()[start..start + length]),
            // Longer than its buffer, or of a length the driver does not know (`SQL_NO_TOTAL`).
            _ => Field::Cut,
        }
    }
    /// The raw indicators, for the self-test that finds out their layout.
    pub(crate) fn indicators(&self) -> &[u8] {
        self.indicators.bytes()
    }
    /// Fills the indicators with a pattern no driver writes.
    pub(crate) fn spoil_indicators(&mut self) {
        self.indicators.bytes_mut().fill(0x5A);
    }
}

/// Bytes a driver puts behind text of this C type.
fn terminator(c_type: CDataType) -> usize {
    match c_type {
        CDataType::WChar => 2,
        CDataType::Char => 1,
        _ => 0,
    }
}

/// Memory for several rows of a result.
pub(crate) struct Rowset {
    pub(crate) columns: Vec<Column>,
    pub(super) rows: usize,
    /// Written by the driver at each fetch: 32 or 64 bits wide, so cleared before and read as the low half.
    pub(super) fetched: Box<u64>,
    /// One 16-bit status a row.
    pub(super) statuses: Storage,
}

impl Rowset {
    /// `rows` is what each column was made for.
    pub(crate) fn new(columns: Vec<Column>, rows: usize) -> Rowset {
        Rowset { columns, rows, fetched: Box::new(0), statuses: Storage::new(rows * 2) }
    }
    /// Whether the driver could not give this row: a value out of range, for instance. What stands in its buffers is nothing.
    pub(crate) fn failed(&self, row: usize) -> bool {
        self.statuses.bytes().get(row * 2..row * 2 + 2).is_none_or(|status| status == ROW_ERROR.to_ne_bytes())
    }
    /// Rows it has room for.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }
    /// Bytes it holds.
    pub(crate) fn bytes(&self) -> usize {
        self.columns.iter().map(|column| column.values.len() + column.indicators.len()).sum()
    }
}

/// One bound parameter.
pub(crate) struct Parameter {
    pub(super) c_type: CDataType,
    pub(super) sql_type: SqlDataType,
    pub(super) size: usize,
    pub(super) digits: i16,
    pub(super) value: Storage,
    /// A driver with 32-bit indicators reads its low half, which says the same: lengths are small, and NULL is all ones.
    pub(super) indicator: Box<i64>,
    /// Whether the driver was told of this type, size and address.
    pub(super) bound: bool,
}

impl Parameter {
    /// One that is not set yet.
    pub(crate) fn empty() -> Parameter {
        Parameter {
            c_type: CDataType::Char,
            sql_type: SqlDataType::VARCHAR,
            size: 1,
            digits: 0,
            value: Storage::new(8),
            indicator: Box::new(NULL_DATA as i64),
            bound: false,
        }
    }
    /// Makes it NULL of a type.
    pub(crate) fn set_null(&mut self, sql_type: SqlDataType, size: usize, digits: i16) {
        self.describe(CDataType::Char, sql_type, size, digits);
        *self.indicator = NULL_DATA as i64;
    }
    /// Makes it these bytes of a C type, for an SQL type of this size and scale.
    pub(crate) fn set(&mut self, c_type: CDataType, sql_type: SqlDataType, size: usize, digits: i16, bytes: &[u8]) {
        self.describe(c_type, sql_type, size, digits);
        if bytes.len() > self.value.len() {
            self.value = Storage::new(bytes.len().next_power_of_two());
            self.bound = false;
        }
        self.value.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        *self.indicator = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
    }
    fn describe(&mut self, c_type: CDataType, sql_type: SqlDataType, size: usize, digits: i16) {
        if (self.c_type, self.sql_type, self.size, self.digits) != (c_type, sql_type, size, digits) {
            (self.c_type, self.sql_type, self.size, self.digits) = (c_type, sql_type, size, digits);
            self.bound = false;
        }
    }
    /// Bytes it holds.
    pub(crate) fn bytes(&self) -> usize {
        self.value.len()
    }
}
