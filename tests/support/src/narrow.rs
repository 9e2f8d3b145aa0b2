//! A column for bare loops over odbc-api with IBM's driver, whose usual build writes length indicators 32 bits apart.
//!
//! It is what somebody would write by hand who knows that build, and nothing of the product: figures of the product are
//! compared with loops over it.

use std::ffi::c_void;

use odbc_api::buffers::{ColumnBuffer, Indicator};
use odbc_api::handles::{CData, CDataMut};
use odbc_api::sys::CDataType;

const NULL: i32 = -1;

/// Text of up to `max_length` bytes for each row of a batch.
pub struct NarrowText {
    values: Vec<u8>,
    indicators: Vec<i32>,
    /// With the zero behind the text.
    width: usize,
}

impl NarrowText {
    /// Room for `rows` texts of at most `max_length` bytes.
    pub fn new(rows: usize, max_length: usize) -> Self {
        let width = max_length + 1;
        NarrowText { values: vec![0; rows * width], indicators: vec![NULL; rows], width }
    }
    /// The text of a row, none for NULL. Panics on a row outside the batch and on text that did not fit.
    pub fn get(&self, row: usize) -> Option<&[u8]> {
        let length = match self.indicators[row] {
            NULL => return None,
            length => usize::try_from(length).expect("the driver says how long the text is"),
        };
        assert!(length < self.width, "a text of {length} bytes does not fit");
        Some(&self.values[row * self.width..row * self.width + length])
    }
}

// SAFETY: both pointers lead into vectors that are never resized, so they stay valid while the column lives.
#[allow(unsafe_code)]
unsafe impl CData for NarrowText {
    fn cdata_type(&self) -> CDataType {
        CDataType::Char
    }
    fn indicator_ptr(&self) -> *const isize {
        self.indicators.as_ptr().cast()
    }
    fn value_ptr(&self) -> *const c_void {
        self.values.as_ptr().cast()
    }
    fn buffer_length(&self) -> isize {
        isize::try_from(self.width).expect("a width within memory")
    }
}

// SAFETY: every bit pattern the driver may write is a valid value; this type is bound for drivers that write 32-bit
// indicators only, so they stay within their vector.
#[allow(unsafe_code)]
unsafe impl CDataMut for NarrowText {
    fn mut_indicator_ptr(&mut self) -> *mut isize {
        self.indicators.as_mut_ptr().cast()
    }
    fn mut_value_ptr(&mut self) -> *mut c_void {
        self.values.as_mut_ptr().cast()
    }
}

// SAFETY: the capacity is that of both vectors. Truncation is found by `get`, which refuses the value; this column is
// never bound as a parameter.
#[allow(unsafe_code)]
unsafe impl ColumnBuffer for NarrowText {
    fn capacity(&self) -> usize {
        self.indicators.len()
    }
    fn has_truncated_values(&self, rows: usize) -> Option<Indicator> {
        let longest = self.indicators.iter().take(rows).copied().max()?;
        let longest = usize::try_from(longest).ok()?;
        (longest >= self.width).then_some(Indicator::Length(longest))
    }
}

// SAFETY: a slice of `rows` fetched rows gives access to those rows only through `get`, whose memory is always initialised.
#[allow(unsafe_code)]
unsafe impl odbc_api::buffers::Slice for NarrowText {
    type Slice<'a> = &'a NarrowText;

    fn slice(&self, _valid_rows: usize) -> &NarrowText {
        self
    }
}
