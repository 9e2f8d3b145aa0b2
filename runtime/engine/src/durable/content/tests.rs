use std::collections::BTreeMap;

use proptest::prelude::{Just, Strategy, any, prop_assert_eq, prop_oneof, proptest};
use spillgate_model::json::{write_datum, write_rows};
use spillgate_model::{Column, Datum, Rows, RowsBuilder};

use super::*;

fn inputs() -> Vec<GivenInput> {
    let values = [
        Value::Null,
        Value::Integer(i64::MIN),
        Value::Integer(i64::MAX),
        Value::Integer(-1),
        Value::Number(-0.0),
        Value::Number(f64::MIN_POSITIVE / 3.0),
        Value::Decimal("-0.0000000000000000000000000000001".into()),
        Value::Text("null".into()),
        Value::Boolean(true),
        Value::Date("2026-02-28".into()),
        Value::Time("23:59:59.123456789012".into()),
        Value::Timestamp("2026-01-02T03:04:05.123456789012".into()),
        Value::Binary([0, 255, 10].into()),
        Value::List([Value::Integer(300), Value::Null, Value::Decimal("12.50".into())].into()),
    ];
    let one = |(index, value)| GivenInput {
        name: format!("input{index}").into(),
        kind: Type::ALL[index % Type::ALL.len()],
        list: matches!(value, Value::List(_)),
        from_tenant: (index == 0).then(|| "company".into()),
        value,
    };
    values.into_iter().enumerate().map(one).collect()
}

fn rows() -> Rows {
    let column = |name: &str, kind| Column { name: name.into(), kind };
    let columns = [column("ID", Type::Integer), column("PRICE", Type::Decimal), column("SEAL", Type::Binary), column("X", Type::Number)];
    let mut builder = RowsBuilder::new(columns.into(), 10, 10_000);
    for id in [i64::MIN, 0, i64::MAX] {
        builder.integer(id);
        builder.text(Type::Decimal, "99999999999999999999999.10").expect("it fits");
        builder.binary(&[1, 0, 2]).expect("it fits");
        builder.number(f64::NAN);
        builder.end_row();
    }
    for _ in 0..4 {
        builder.null();
    }
    builder.end_row();
    let mut rows = builder.finish();
    rows.set_truncated(true);
    rows
}

fn content() -> Content {
    let map: BTreeMap<Arc<str>, Datum> = [(Arc::from("a"), Datum::List(Arc::from([Datum::Integer(-7), Datum::Null])))].into();
    let carried = |step: &str| Carried { step: step.into(), last: false, ran: true, rows: None, affected: None, value: None, error: None };
    Content {
        begins: Begins::BehindCut,
        origin: Origin::Emitted,
        depth: 3,
        flow: "book".into(),
        tenant: "one".into(),
        id: "r-1".into(),
        run: Some("run".into()),
        key: Some("k".into()),
        stand_in: None,
        trace: TraceContext::below("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        inputs: inputs(),
        carried: vec![
            Carried { rows: Some(Arc::new(rows())), affected: Some(u64::MAX), last: true, ..carried("read") },
            Carried { value: Some(Datum::Map(Arc::new(map))), ..carried("map") },
            Carried { value: Some(Datum::Null), error: Some(Code::DatabaseError), ..carried("failed") },
            Carried { ran: false, ..carried("left out") },
        ],
    }
}

/// Everything of it that can be compared.
fn shown(content: &Content) -> String {
    let mut out = format!("{content:?}").into_bytes();
    for carried in &content.carried {
        if let Some(rows) = &carried.rows {
            write_rows(rows, &mut out);
        }
        if let Some(value) = &carried.value {
            write_datum(value, &mut out);
        }
    }
    String::from_utf8(out).expect("text")
}

#[test]
fn promise_8_what_an_item_holds_comes_back_exactly() {
    let content = content();
    let bytes = content.encode().expect("not too deep");
    assert_eq!(shown(&Content::decode(&bytes).expect("an item")), shown(&content));
}

#[test]
fn what_stands_in_for_a_key_comes_back_and_version_1_has_none() {
    let without_key = Content { key: None, stand_in: Some(u128::MAX - 7), ..content() };
    let bytes = without_key.encode().expect("not too deep");
    let read = Content::decode(&bytes).expect("an item");
    assert_eq!(shown(&read), shown(&without_key));
    assert_eq!(read.record_key().as_deref(), Some("job:fffffffffffffffffffffffffffffff8"));
    assert_eq!(content().record_key().as_deref(), Some("k"), "a caller's own key is what it sent");
    // The bytes of version 1 are these without the number.
    let number = (u128::MAX - 7).to_le_bytes();
    let at = bytes.windows(number.len()).position(|window| window == number).expect("it is written as it is");
    let mut first = [&bytes[..at], &bytes[at + number.len()..]].concat();
    first[0] = 1;
    let read = Content::decode(&first).expect("an item of version 1");
    assert_eq!(shown(&read), shown(&Content { stand_in: None, ..without_key }));
    assert_eq!(read.record_key(), None);
}

/// Items as they were written: what stands in a store today must be read by every later version.
const FORM_1: &str = include_str!("frozen/form-1.hex");
const FORM_2: &str = include_str!("frozen/form-2.hex");
const FORM_2_WITH_KEY: &str = include_str!("frozen/form-2-with-key.hex");

fn frozen(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.lines().filter(|line| !line.starts_with('#')).flat_map(str::chars).filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] << 4 | pair[1]).expect("two digits")).collect()
}

#[test]
fn promise_8_items_of_every_form_there_ever_was_are_read_as_they_were_meant() {
    let trace = TraceContext {
        trace_id: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736,
        span_id: 0x0102_0304_0506_0708,
        parent_id: 0x00f0_67aa_0ba9_02b7,
        sampled: true,
    };
    let meant = |key: Option<&str>, stand_in| Content { key: key.map(Arc::from), stand_in, trace: Some(trace), ..content() };
    let forms = [(FORM_1, meant(None, None)), (FORM_2, meant(None, Some(u128::MAX - 7))), (FORM_2_WITH_KEY, meant(Some("k"), None))];
    for (text, meant) in forms {
        let read = Content::decode(&frozen(text)).expect("an item");
        assert_eq!(shown(&read), shown(&meant), "{}", text.lines().next().unwrap_or_default());
    }
}

#[test]
fn what_is_written_today_is_form_2_byte_by_byte() {
    for text in [FORM_2, FORM_2_WITH_KEY] {
        let bytes = frozen(text);
        assert_eq!(Content::decode(&bytes).expect("an item").encode().expect("not too deep"), bytes, "a new form needs a new number");
    }
}

#[test]
fn an_item_is_compact() {
    let mut content = content();
    (content.carried, content.trace) = (Vec::new(), None);
    content.inputs.truncate(4);
    // Names, values, and a few bytes for each.
    assert!(content.encode().expect("not too deep").len() < 110);
}

#[test]
fn every_other_version_is_named_and_every_cut_is_unreadable() {
    let mut bytes = content().encode().expect("not too deep");
    for length in 1..bytes.len() {
        assert_eq!(Content::decode(&bytes[..length]).map(|_| ()), Err(NoContent::Unreadable), "{length}");
    }
    bytes[0] = 9;
    assert_eq!(Content::decode(&bytes).map(|_| ()), Err(NoContent::Version(9)));
    assert_eq!(Content::decode(&[]).map(|_| ()), Err(NoContent::Unreadable));
}

#[test]
fn nesting_that_could_not_be_read_again_is_not_written() {
    let nested = |depth: usize| (0..depth).fold(Datum::Null, |inner, _| Datum::List(Arc::from([inner])));
    let with = |value| {
        let mut content = content();
        content.carried[1].value = Some(value);
        content.encode()
    };
    let deepest = with(nested(DEPTH)).expect("as deep as allowed");
    assert!(Content::decode(&deepest).is_ok());
    assert_eq!(with(nested(DEPTH + 1)), Err(TooDeep));
}

proptest! {
    #[test]
    fn bytes_of_any_kind_are_read_without_a_panic(
        mut bytes in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..200),
            (any::<proptest::sample::Index>(), any::<u8>()).prop_map(|(place, byte)| {
                let mut bytes = content().encode().expect("not too deep");
                let place = place.index(bytes.len());
                bytes[place] = byte;
                bytes
            }),
            Just(Vec::new()),
        ]
    ) {
        if let Ok(content) = Content::decode(&bytes) {
            let again = content.encode().expect("what was read can be written");
            prop_assert_eq!(shown(&Content::decode(&again).expect("an item")), shown(&content));
        }
        if let Some(first) = bytes.first_mut() {
            *first = VERSION;
        }
        let _no_panic = Content::decode(&bytes);
    }
}
