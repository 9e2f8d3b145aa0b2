//! Keyset cursors: where a page ended, signed, so that only who got it can go on, and only with the same input.
//!
//! A cursor is base64url of a 32-byte HMAC-SHA-256 and the key values it covers. The signature also covers the flow's
//! version, the tenant, and the other inputs; a cursor that is touched, foreign, or used with other inputs is `invalid_input`.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use spillgate_config::plan::PagePlan;
use spillgate_model::refusal::BadField;
use spillgate_model::{Cell, Code, Refusal, Rows, Type, Value};

use crate::PageRequest;

const SIGNATURE_BYTES: usize = 32;
/// Longest cursor that is looked at.
const MAX_CURSOR_BYTES: usize = 16 * 1024;

/// What a cursor is bound to.
pub(crate) struct Binding<'a> {
    pub(crate) key: &'a [u8; 32],
    pub(crate) flow_version: u64,
    pub(crate) tenant: &'a str,
    pub(crate) inputs: &'a [Value],
}

/// The page a call asks for.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) size: usize,
    /// Key values of the row before it; none for the first page.
    pub(crate) after: Option<Vec<Value>>,
}

/// Reads what the caller asked for.
pub(crate) fn read(request: &PageRequest, plan: &PagePlan, binding: &Binding<'_>) -> Result<Page, Box<Refusal>> {
    let size = request.size.unwrap_or(plan.size);
    if size == 0 || size > plan.max {
        return Err(bad("size", format!("must be from 1 to {}", plan.max)));
    }
    let after =
        match &request.cursor {
            None => None,
            Some(cursor) => Some(open(cursor, plan, binding).ok_or_else(|| {
                bad("cursor", "is not one that this flow gave to this caller for this input; start again without it".into())
            })?),
        };
    Ok(Page { size, after })
}

/// The cursor that goes on after the last row of `rows`.
pub(crate) fn next(rows: &Rows, plan: &PagePlan, binding: &Binding<'_>) -> Result<String, Box<Refusal>> {
    let inexact = |detail: String| Box::new(Refusal::new(Code::ValueInexact, detail));
    let last = rows.len().checked_sub(1).map(|last| rows.row(last)).ok_or_else(|| inexact("A page without rows has no end.".into()))?;
    let mut values = Vec::new();
    for key in &plan.key {
        let position = position(rows, &key.column)
            .ok_or_else(|| inexact(format!("The result has no column {}, which the page key names.", key.column)))?;
        match last[position] {
            Cell::Null => {
                return Err(inexact(format!("Column {} of the page key is NULL: where the page ends cannot be told exactly.", key.column)));
            }
            cell => values.push(value_of(rows, cell)),
        }
    }
    let mut payload = Vec::new();
    values.iter().for_each(|value| encode(value, &mut payload));
    let mut cursor = signature(&payload, binding).finalize().into_bytes().to_vec();
    cursor.extend_from_slice(&payload);
    Ok(URL_SAFE_NO_PAD.encode(cursor))
}

fn position(rows: &Rows, name: &str) -> Option<usize> {
    let columns = rows.columns();
    let exact = columns.iter().position(|column| *column.name == *name);
    exact.or_else(|| columns.iter().position(|column| column.name.eq_ignore_ascii_case(name)))
}

fn open(cursor: &str, plan: &PagePlan, binding: &Binding<'_>) -> Option<Vec<Value>> {
    if cursor.len() > MAX_CURSOR_BYTES {
        return None;
    }
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    let (given, payload) = bytes.split_at_checked(SIGNATURE_BYTES)?;
    // Compared in constant time.
    signature(payload, binding).verify_slice(given).ok()?;
    let mut rest = payload;
    let mut values = Vec::with_capacity(plan.key.len());
    while !rest.is_empty() {
        values.push(decode(&mut rest)?);
    }
    (values.len() == plan.key.len()).then_some(values)
}

fn signature(payload: &[u8], binding: &Binding<'_>) -> Hmac<Sha256> {
    // HMAC fills a short key up with zeros to its block; done here, no length can be wrong.
    let mut block = [0; 64];
    block[..binding.key.len()].copy_from_slice(binding.key);
    let mut mac = Hmac::<Sha256>::new(&block.into());
    let mut covered = b"spillgate cursor 1".to_vec();
    covered.extend_from_slice(&binding.flow_version.to_be_bytes());
    encode_bytes(b't', binding.tenant.as_bytes(), &mut covered);
    covered.extend_from_slice(&(binding.inputs.len() as u64).to_be_bytes());
    binding.inputs.iter().for_each(|value| encode(value, &mut covered));
    mac.update(&covered);
    mac.update(payload);
    mac
}

/// Appends a value so that no two different ones are written alike.
pub(crate) fn encode(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(b'0'),
        Value::Boolean(value) => out.extend_from_slice(&[b'b', u8::from(*value)]),
        Value::Integer(value) => encode_bytes(b'i', &value.to_be_bytes(), out),
        Value::Number(value) => encode_bytes(b'n', &value.to_bits().to_be_bytes(), out),
        Value::Decimal(text) => encode_bytes(b'd', text.as_bytes(), out),
        Value::Text(text) => encode_bytes(b'x', text.as_bytes(), out),
        Value::Date(text) => encode_bytes(b'a', text.as_bytes(), out),
        Value::Time(text) => encode_bytes(b'c', text.as_bytes(), out),
        Value::Timestamp(text) => encode_bytes(b's', text.as_bytes(), out),
        Value::Binary(bytes) => encode_bytes(b'y', bytes, out),
        Value::List(items) => {
            out.push(b'l');
            out.extend_from_slice(&(items.len() as u64).to_be_bytes());
            items.iter().for_each(|item| encode(item, out));
        }
    }
}

fn encode_bytes(tag: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(tag);
    out.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
    out.extend_from_slice(bytes);
}

fn decode(rest: &mut &[u8]) -> Option<Value> {
    let (tag, after) = rest.split_first()?;
    if *tag == b'b' {
        let (value, after) = after.split_first()?;
        *rest = after;
        return Some(Value::Boolean(*value != 0));
    }
    let (length, after) = after.split_at_checked(8)?;
    let length = usize::try_from(u64::from_be_bytes(length.try_into().ok()?)).ok()?;
    let (bytes, after) = after.split_at_checked(length)?;
    *rest = after;
    let text = || std::str::from_utf8(bytes).ok().map(Box::from);
    Some(match tag {
        b'i' => Value::Integer(i64::from_be_bytes(bytes.try_into().ok()?)),
        b'n' => Value::Number(f64::from_bits(u64::from_be_bytes(bytes.try_into().ok()?))),
        b'd' => Value::Decimal(text()?),
        b'x' => Value::Text(text()?),
        b'a' => Value::Date(text()?),
        b'c' => Value::Time(text()?),
        b's' => Value::Timestamp(text()?),
        b'y' => Value::Binary(bytes.into()),
        _ => return None,
    })
}

fn value_of(rows: &Rows, cell: Cell) -> Value {
    match cell {
        Cell::Null => Value::Null,
        Cell::Boolean(value) => Value::Boolean(value),
        Cell::Integer(value) => Value::Integer(value),
        Cell::Number(value) => Value::Number(value),
        Cell::Slice { kind: Type::Binary, .. } => Value::Binary(rows.slice(cell).into()),
        Cell::Slice { kind, .. } => {
            let text = rows.text(cell).into();
            match kind {
                Type::Decimal => Value::Decimal(text),
                Type::Date => Value::Date(text),
                Type::Time => Value::Time(text),
                Type::Timestamp => Value::Timestamp(text),
                _ => Value::Text(text),
            }
        }
    }
}

fn bad(name: &str, problem: String) -> Box<Refusal> {
    let detail = format!("`{name}` {problem}.");
    Box::new(Refusal::new(Code::InvalidInput, detail).fields(vec![BadField { name: name.into(), problem }]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use spillgate_config::plan::PageKey;
    use spillgate_model::{Column, RowsBuilder};
    use std::sync::Arc;

    fn plan() -> PagePlan {
        let key = |column: &str| PageKey { column: column.into(), descending: false };
        PagePlan { key: vec![key("SEEN"), key("ID")], size: 2, max: 10, step: 0 }
    }

    fn rows(seen: Option<&str>) -> Rows {
        let column = |name: &str, kind| Column { name: name.into(), kind };
        let mut rows = RowsBuilder::new(Arc::from([column("ID", Type::Integer), column("SEEN", Type::Timestamp)]), 9, 9_999);
        rows.integer(i64::MAX);
        match seen {
            Some(seen) => rows.text(Type::Timestamp, seen).expect("small"),
            None => rows.null(),
        }
        rows.end_row();
        rows.finish()
    }

    fn binding<'a>(tenant: &'a str, inputs: &'a [Value], version: u64) -> Binding<'a> {
        Binding { key: &[7; 32], flow_version: version, tenant, inputs }
    }

    fn ask(cursor: &str, binding: &Binding<'_>) -> Result<Page, Box<Refusal>> {
        read(&PageRequest { cursor: Some(cursor.into()), size: None }, &plan(), binding)
    }

    #[test]
    fn a_cursor_goes_on_exactly_where_the_page_ended() {
        let inputs = [Value::Text("x".into())];
        let cursor = next(&rows(Some("2026-01-02T03:04:05.123456789012")), &plan(), &binding("a", &inputs, 1)).expect("a cursor");
        let page = ask(&cursor, &binding("a", &inputs, 1)).expect("its own");
        assert_eq!(page.after, Some(vec![Value::Timestamp("2026-01-02T03:04:05.123456789012".into()), Value::Integer(i64::MAX)]));
    }

    #[test]
    fn a_cursor_that_is_touched_foreign_or_of_another_input_is_refused() {
        let inputs = [Value::Text("x".into()), Value::Text("y".into())];
        let cursor = next(&rows(Some("2026-01-02T00:00:00")), &plan(), &binding("a", &inputs, 1)).expect("a cursor");
        let moved = [Value::Text("xy".into()), Value::Text(String::new().into())];
        for other in [binding("b", &inputs, 1), binding("a", &inputs, 2), binding("a", &moved, 1), binding("a", &inputs[..1], 1)] {
            assert_eq!(ask(&cursor, &other).expect_err("foreign").fields[0].name, "cursor");
        }
        for position in 0..cursor.len() {
            let mut touched = cursor.clone().into_bytes();
            touched[position] = if touched[position] == b'A' { b'B' } else { b'A' };
            let touched = String::from_utf8(touched).expect("ascii");
            // The last letter may carry unused bits; base64 refuses those that are set.
            assert!(ask(&touched, &binding("a", &inputs, 1)).is_err(), "position {position}");
        }
        for garbage in ["", "x", "AAAA", "!!", &"A".repeat(20_000)] {
            assert!(ask(garbage, &binding("a", &inputs, 1)).is_err());
        }
    }

    #[test]
    fn a_null_in_the_key_is_an_error_that_names_the_column() {
        let refusal = next(&rows(None), &plan(), &binding("a", &[], 1)).expect_err("no order among NULLs");
        assert_eq!(refusal.code, Code::ValueInexact);
        assert!(refusal.detail.contains("SEEN"), "{}", refusal.detail);
    }

    #[test]
    fn a_size_beyond_the_flows_is_refused() {
        for size in [0, 11] {
            let request = PageRequest { cursor: None, size: Some(size) };
            assert_eq!(read(&request, &plan(), &binding("a", &[], 1)).expect_err("too many").fields[0].name, "size");
        }
    }
}
