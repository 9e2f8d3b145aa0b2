//! Finds out how wide a driver writes its length indicators, before a single value is believed (case B3).
//!
//! Four rows with known values, NULL and '' among them, are fetched at once. Laid out as 64 bits or as 32 bits their indicators
//! must say exactly what is known; if they do in neither form, nobody may use this driver.

use std::rc::Rc;

use odbc_api::sys::CDataType;
use spillgate_connector::{DatabaseError, Failure, Scrub};

use crate::driver::{Column, Connection, Diagnostics, Field, Layout, Rowset, Statement};
use crate::errors::{While, failure};

const VALUES: [Option<&str>; 4] = [Some("one"), Some("three"), Some(""), None];
/// Db2 wants a table to select from; others do not have that one.
const FROM_FORMS: [&str; 2] = [" FROM SYSIBM.SYSDUMMY1", ""];
const LETTERS: usize = 10;

/// The layout of this connection's driver.
pub(crate) fn find_layout(connection: &Rc<Connection>, scrub: &Scrub) -> Result<Layout, DatabaseError> {
    let mut refused = Diagnostics::default();
    for from in FROM_FORMS {
        match fetch(connection, from) {
            Ok(statement) => return judge(&statement).ok_or_else(unfit),
            Err(diagnostics) => refused = diagnostics,
        }
    }
    Err(failure(&refused, While::Connecting, scrub))
}

fn fetch(connection: &Rc<Connection>, from: &str) -> Result<Statement, Diagnostics> {
    let selects: Vec<String> = (1..)
        .zip(VALUES)
        .map(|(number, value)| {
            let literal = value.map_or_else(|| "NULL".to_owned(), |text| format!("'{text}'"));
            format!("SELECT {number} AS N, CAST({literal} AS VARCHAR({LETTERS})) AS V{from}")
        })
        .collect();
    let mut statement = Statement::new(connection)?;
    statement.execute_direct(&format!("{} ORDER BY 1", selects.join(" UNION ALL ")))?;
    let mut columns = vec![Column::new(CDataType::SBigInt, 8, VALUES.len()), Column::new(CDataType::WChar, LETTERS * 2, VALUES.len())];
    for column in &mut columns {
        column.spoil_indicators();
    }
    statement.bind_rowset(Rowset::new(columns, VALUES.len()))?;
    match statement.fetch(VALUES.len())? {
        rows if rows == VALUES.len() => Ok(statement),
        rows => Err(Diagnostics::own("HY000", format!("{rows} rows came where there are {}", VALUES.len()))),
    }
}

fn judge(statement: &Statement) -> Option<Layout> {
    let column = &statement.rowset()?.columns[1];
    let expected = VALUES.map(|value| value.map_or(-1, |text| i64::try_from(text.len() * 2).unwrap_or(0)));
    let layout = recognise(column.indicators(), &expected)?;
    let exact = (0..VALUES.len()).all(|row| match (column.field(row, layout), VALUES[row]) {
        (Field::Null, None) => true,
        (Field::Bytes(bytes), Some(text)) => bytes.chunks(2).eq(text.encode_utf16().map(u16::to_ne_bytes).collect::<Vec<_>>()),
        _ => false,
    });
    exact.then_some(layout)
}

fn recognise(indicators: &[u8], expected: &[i64]) -> Option<Layout> {
    [Layout::Bits64, Layout::Bits32]
        .into_iter()
        .find(|layout| expected.iter().enumerate().all(|(row, expected)| layout.indicator(indicators, row) == *expected))
}

fn unfit() -> DatabaseError {
    let advice = "the ODBC driver writes length indicators in neither 32 nor 64 bits, so NULLs and lengths cannot be told. \
                  With IBM's Db2 driver load libdb2.so or libdb2o.so of a 64-bit installation";
    DatabaseError::new(Failure::Unfit, advice, advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b3_either_layout_is_recognised_and_nothing_else() {
        let expected = [6_i64, 10, 0, -1];
        let wide: Vec<u8> = expected.iter().flat_map(|value| value.to_ne_bytes()).collect();
        let mut narrow: Vec<u8> = [6_i32, 10, 0, -1].iter().flat_map(|value| value.to_ne_bytes()).collect();
        narrow.resize(wide.len(), 0x5A);
        assert_eq!(recognise(&wide, &expected), Some(Layout::Bits64));
        assert_eq!(recognise(&narrow, &expected), Some(Layout::Bits32));
        assert_eq!(recognise(&[0x5A; 32], &expected), None);
        // A driver that writes 32 bits eight bytes apart.
        let mut apart = vec![0x5A; 32];
        for (row, value) in [6_i32, 10, 0, -1].iter().enumerate() {
            apart[row * 8..row * 8 + 4].copy_from_slice(&value.to_ne_bytes());
        }
        assert_eq!(recognise(&apart, &expected), None);
    }
}
