//! What a caller sends and what becomes of it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use proptest::prelude::{Just, Strategy, any, prop_assert, prop_oneof, proptest};
use spillgate_config::plan::{Class, DEFAULT_REPEAT_BUDGET, Effect, Endpoint, Limit, Origin, PageKey, PagePlan, QueuedPlan, RunPlan};
use spillgate_model::units::Rate;

use super::*;

fn limit<T>(value: T) -> Limit<T> {
    Limit { value, origin: Origin::Default }
}

fn flow(method: &'static str, path: &str, inputs: Vec<Input>) -> Flow {
    Flow {
        name: "trucks".into(),
        about: String::new(),
        http: Some(Endpoint { method, path: path.into() }),
        queue: None,
        idempotency: None,
        unique: None,
        schedule: None,
        effect: Effect::Read,
        deadline: limit(Duration::from_secs(1)),
        breaker: None,
        cache: None,
        page: None,
        inputs: inputs.into(),
        steps: Vec::new(),
        tests: Vec::new(),
        version: 0,
        memory: 0,
        file: Arc::new(PathBuf::new()),
    }
}

fn tenant() -> TenantPlan {
    let company = Value::Text("ACME".into());
    TenantPlan {
        name: "dispatch-agent".into(),
        keys: Vec::new(),
        class: Class::Agent,
        attributes: BTreeMap::from([(Arc::from("company"), company)]),
        rate: limit(Rate { calls: 1, period: Duration::from_secs(1), burst: 1 }),
        in_flight: limit(1),
        queued: QueuedPlan::default(),
        memory: limit(1),
        weight: limit(1),
        seats: Vec::new(),
        repeat_budget: limit(DEFAULT_REPEAT_BUDGET),
        run: RunPlan::default(),
        flows: vec!["*".into()],
        origin: Origin::Default,
    }
}

fn post(inputs: Vec<Input>, body: &str) -> Result<Intake, Refusal> {
    read(&flow("POST", "/trucks", inputs), &tenant(), &Given { body: Some(body.as_bytes()), ..Given::default() })
}

fn get(inputs: Vec<Input>, query: &str) -> Result<Intake, Refusal> {
    read(&flow("GET", "/trucks", inputs), &tenant(), &Given { query: Some(query), ..Given::default() })
}

/// The one value `json` becomes as the only input.
fn one(kind: Type, json: &str) -> Result<Value, String> {
    let read = post(vec![Input::new("x", kind)], &format!("{{\"x\":{json}}}"));
    read.map(|intake| intake.values[0].clone()).map_err(|refusal| problems(&refusal))
}

/// The one value `text` becomes in a query string.
fn query_one(kind: Type, text: &str) -> Result<Value, String> {
    let read = get(vec![Input::new("x", kind)], &format!("x={text}"));
    read.map(|intake| intake.values[0].clone()).map_err(|refusal| problems(&refusal))
}

fn problems(refusal: &Refusal) -> String {
    let lines = refusal.fields.iter().map(|field| format!("{} {}", field.name, field.problem));
    lines.collect::<Vec<_>>().join("; ")
}

#[test]
fn c1_integers_beyond_a_double_are_exact_however_they_are_written() {
    for digits in ["9007199254740993", "-7000000000000000001", "9223372036854775807", "-9223372036854775808", "0"] {
        let exact = Ok(Value::Integer(digits.parse().expect("64 bits")));
        assert_eq!(one(Type::Integer, digits), exact);
        assert_eq!(one(Type::Integer, &format!("\"{digits}\"")), exact);
        assert_eq!(query_one(Type::Integer, digits), exact);
    }
}

#[test]
fn c1_an_integer_is_digits_and_nothing_else() {
    for json in [
        "1.0",
        "1e3",
        "1E3",
        "9223372036854775808",
        "-9223372036854775809",
        "true",
        "[1]",
        "{}",
        "\"\"",
        "\"1 \"",
        "\"+1\"",
        "\"0x1\"",
        "\"-\"",
        "\"null\"",
    ] {
        let problem = one(Type::Integer, json).expect_err(json);
        assert!(problem.contains("expected an integer"), "{json}: {problem}");
    }
    for text in ["1.0", "1e3", "", "%2B1", "null", "+1"] {
        assert!(query_one(Type::Integer, text).is_err(), "{text}");
    }
}

#[test]
fn c2_omitted_null_and_the_text_null_are_three_things() {
    let inputs = || {
        let mut count = Input::new("count", Type::Integer);
        count.default = Value::Integer(0);
        vec![count, Input::new("note", Type::Text)]
    };
    let values = |body: &str| post(inputs(), body).map(|intake| intake.values.to_vec());
    assert_eq!(values("{}"), Ok(vec![Value::Integer(0), Value::Null]));
    assert_eq!(values(r#"{"count":null,"note":null}"#), Ok(vec![Value::Null, Value::Null]));
    assert_eq!(values(r#"{"note":"null"}"#), Ok(vec![Value::Integer(0), Value::Text("null".into())]));
    assert!(values(r#"{"count":"null"}"#).is_err(), "the text null is no integer");
    let query = |query: &str| get(inputs(), query).map(|intake| intake.values.to_vec());
    assert_eq!(query(""), Ok(vec![Value::Integer(0), Value::Null]));
    assert_eq!(query("note=null"), Ok(vec![Value::Integer(0), Value::Text("null".into())]));
    assert_eq!(query("note="), Ok(vec![Value::Integer(0), Value::Text("".into())]));
}

#[test]
fn a_required_input_is_neither_omitted_nor_null() {
    let mut id = Input::new("id", Type::Integer);
    id.required = true;
    assert_eq!(problems(&post(vec![id.clone()], "{}").expect_err("omitted")), "id is required");
    assert_eq!(problems(&post(vec![id], r#"{"id":null}"#).expect_err("null")), "id is required and may not be null");
}

#[test]
fn all_bad_fields_are_named_at_once() {
    let mut id = Input::new("id", Type::Integer);
    id.required = true;
    let inputs = vec![id, Input::new("since", Type::Date), Input::new("driver", Type::Text)];
    let refusal = post(inputs, r#"{"since":"2026-02-30","driver":7,"drivr":"x","zzz":1}"#).expect_err("four faults");
    assert_eq!(refusal.code, Code::InvalidInput);
    let names: Vec<&str> = refusal.fields.iter().map(|field| field.name.as_str()).collect();
    assert_eq!(names, ["drivr", "zzz", "id", "since", "driver"]);
    assert!(refusal.fields[0].problem.contains("did you mean driver?"), "{}", refusal.fields[0].problem);
    assert_eq!(refusal.detail, "5 fields do not fit: drivr, zzz, id, since, driver.");
}

#[test]
fn b1_decimals_keep_every_digit() {
    let long = format!("-0.{}", "1".repeat(31));
    for digits in ["-123.45", "0.10", "9999999999999999999999999999999", &long] {
        let exact = Ok(Value::Decimal(digits.into()));
        assert_eq!(one(Type::Decimal, digits), exact);
        assert_eq!(one(Type::Decimal, &format!("\"{digits}\"")), exact);
    }
    assert_eq!(one(Type::Decimal, "\"+5.0\""), Ok(Value::Decimal("5.0".into())));
    for json in ["1e3", "\"1e3\"", "\"1,5\"", "\".5\"", "\"5.\"", "\"-\"", "\"\"", "\"1.2.3\"", "\"+-1\"", "\"NaN\"", "true"] {
        assert!(one(Type::Decimal, json).is_err(), "{json}");
    }
}

#[test]
fn numbers_are_finite_and_written_as_json_writes_them() {
    assert_eq!(one(Type::Number, "-1.5e3"), Ok(Value::Number(-1500.0)));
    assert_eq!(one(Type::Number, "\"0.5\""), Ok(Value::Number(0.5)));
    for json in ["1e999", "\"NaN\"", "\"inf\"", "\"+1\"", "\".5\"", "\"01\"", "\" 1\"", "null1"] {
        assert!(one(Type::Number, json).is_err(), "{json}");
    }
}

#[test]
fn text_that_looks_like_something_stays_text() {
    for text in ["12e3", "007", "true", "null", "2026-01-01", "1.50", ""] {
        assert_eq!(one(Type::Text, &format!("\"{text}\"")), Ok(Value::Text(text.into())));
        assert_eq!(query_one(Type::Text, text), Ok(Value::Text(text.into())));
    }
    assert_eq!(one(Type::Text, r#""\u00e9\n\ud83d\ude9a""#), Ok(Value::Text("é\n🚚".into())));
    for json in ["7", "true", "[]", r#""\ud800""#, r#""a\u0000b""#] {
        assert!(one(Type::Text, json).is_err(), "{json}");
    }
}

#[test]
fn booleans_are_true_and_false() {
    assert_eq!(one(Type::Boolean, "true"), Ok(Value::Boolean(true)));
    assert_eq!(query_one(Type::Boolean, "false"), Ok(Value::Boolean(false)));
    for json in ["1", "\"true\"", "\"yes\""] {
        assert!(one(Type::Boolean, json).is_err(), "{json}");
    }
    assert!(query_one(Type::Boolean, "1").is_err());
}

#[test]
fn c6_dates_and_timestamps_exist_and_no_zone_is_added() {
    let timestamp = |text: &str| one(Type::Timestamp, &format!("\"{text}\""));
    assert_eq!(timestamp("2026-03-08 02:30:00"), Ok(Value::Timestamp("2026-03-08T02:30:00".into())));
    for kept in ["2026-03-08T02:30:00.123456789012", "2026-03-08T02:30:00Z", "2026-03-08T02:30:00.5-05:30"] {
        assert_eq!(timestamp(kept), Ok(Value::Timestamp(kept.into())));
    }
    for text in [
        "2026-03-08",
        "2026-03-08T24:00:00",
        "2026-03-08T02:60:00",
        "2026-03-08T02:30:60",
        "2026-03-08T02:30:00.",
        "2026-03-08T02:30:00.1234567890123",
        "2026-03-08T02:30:00+1:00",
        "2026-03-08T02:30:00+24:00",
        "2026-03-08x02:30:00",
        "é026-03-08T02:30:00",
    ] {
        assert!(timestamp(text).is_err(), "{text}");
    }
    assert_eq!(one(Type::Date, "\"2024-02-29\""), Ok(Value::Date("2024-02-29".into())));
    for text in ["2026-02-29", "1900-02-29", "2026-00-01", "2026-13-01", "2026-01-00", "0000-01-01", "26-01-01", "2026-1-1", "2026/01/01"] {
        assert!(one(Type::Date, &format!("\"{text}\"")).is_err(), "{text}");
    }
    assert_eq!(query_one(Type::Timestamp, "2026-03-08+02:30:00"), Ok(Value::Timestamp("2026-03-08T02:30:00".into())));
}

#[test]
fn binary_is_base64_with_padding() {
    assert_eq!(one(Type::Binary, "\"AP8=\""), Ok(Value::Binary(Box::from([0_u8, 255]))));
    for json in ["\"AP8\"", "\"A\"", "\"*\"", "12"] {
        assert!(one(Type::Binary, json).is_err(), "{json}");
    }
}

#[test]
fn an_identity_bound_input_comes_from_the_tenant_alone() {
    let inputs = || {
        let mut company = Input::new("company", Type::Text);
        company.from_tenant = Some("company".into());
        vec![company]
    };
    assert_eq!(post(inputs(), "{}").expect("filled in").values[0], Value::Text("ACME".into()));
    for sent in [r#"{"company":"OTHER"}"#, r#"{"company":"ACME"}"#, r#"{"company":null}"#] {
        assert!(problems(&post(inputs(), sent).expect_err(sent)).starts_with("company is set from"), "{sent}");
    }
    assert!(get(inputs(), "company=OTHER").is_err());
}

#[test]
fn a_field_has_one_place_and_comes_once() {
    let inputs = || {
        let mut id = Input::new("id", Type::Integer);
        (id.required, id.in_path) = (true, true);
        vec![id, Input::new("note", Type::Text)]
    };
    let flow_of = |method| flow(method, "/trucks/{id}/position", inputs());
    let (reader, writer) = (flow_of("GET"), flow_of("PUT"));
    let template = PathTemplate::new(&reader);
    let path = Some((&template, "/trucks/7/position"));
    let values = |flow: &Flow, given: &Given<'_>| read(flow, &tenant(), given).map(|intake| intake.values.to_vec());
    let seven = vec![Value::Integer(7), Value::Null];
    assert_eq!(values(&reader, &Given { path, ..Given::default() }), Ok(seven.clone()));
    assert_eq!(values(&writer, &Given { path, body: Some(b"  "), ..Given::default() }), Ok(seven));
    for given in [
        Given { path, query: Some("id=7"), ..Given::default() },
        Given { path, query: Some("note=a&note=b"), ..Given::default() },
        Given { path, body: Some(br#"{"id":7}"#), ..Given::default() },
        Given { path, body: Some(br#"{"note":"a","n\u006fte":"a"}"#), ..Given::default() },
    ] {
        assert!(values(&writer, &given).is_err(), "{given:?}");
        assert!(values(&reader, &given).is_err(), "{given:?}");
    }
    let refusal = read(&writer, &tenant(), &Given { path, query: Some("note=a"), ..Given::default() }).expect_err("a query on a write");
    assert_eq!(problems(&refusal), "note send it in the JSON body; this flow reads no query string");
}

#[test]
fn paths_and_queries_are_percent_decoded_once() {
    let mut part = Input::new("part", Type::Text);
    part.in_path = true;
    let flow = flow("GET", "/parts/{part}", vec![part, Input::new("note", Type::Text)]);
    let template = PathTemplate::new(&flow);
    let read = |path, query| read(&flow, &tenant(), &Given { path: Some((&template, path)), query: Some(query), body: None });
    let values = read("/parts/a%2Fb+c%2525", "n%6Fte=x+y%2Bz").expect("decoded").values;
    assert_eq!(*values, [Value::Text("a/b+c%25".into()), Value::Text("x y+z".into())]);
    for (path, query) in [("/parts/%zz", ""), ("/parts/%ff", ""), ("/parts/%", ""), ("/parts/a", "note=%e9")] {
        assert!(problems(&read(path, query).expect_err("broken")).contains("not percent-encoded UTF-8"), "{path} {query}");
    }
    assert_eq!(read("/parts/a", "%ff=1").expect_err("a broken name").code, Code::Malformed);
}

#[test]
fn lists_are_json_lists_or_repeated_keys_within_bounds() {
    let inputs = || {
        let mut ids = Input::new("ids", Type::Integer);
        (ids.list, ids.min, ids.max_length) = (true, Some(Value::Integer(1)), Some(3));
        vec![ids]
    };
    let expected = Value::List(Box::from([Value::Integer(1), Value::Integer(2)]));
    assert_eq!(post(inputs(), r#"{"ids":[1, "2"]}"#).expect("a JSON list").values[0], expected);
    assert_eq!(get(inputs(), "ids=1&ids=2").expect("repeated").values[0], expected);
    assert_eq!(get(inputs(), "ids=1").expect("once").values[0], Value::List(Box::from([Value::Integer(1)])));
    assert_eq!(get(inputs(), "").expect("omitted").values[0], Value::Null);
    for body in
        [r#"{"ids":[]}"#, r#"{"ids":1}"#, r#"{"ids":[[1]]}"#, r#"{"ids":[null]}"#, r#"{"ids":[1,2,3,4]}"#, r#"{"ids":[1],"ids":[2]}"#]
    {
        assert!(post(inputs(), body).is_err(), "{body}");
    }
    let refusal = post(inputs(), r#"{"ids":[0,5,"x"]}"#).expect_err("two bad items");
    assert!(problems(&refusal).starts_with("ids[0] must be at least 1; ids[2] expected an integer"), "{}", problems(&refusal));
    let mut endless = inputs();
    endless[0].max_length = None;
    let many = "1,".repeat(limits::LIST_ITEMS) + "1";
    assert_eq!(problems(&post(endless, &format!("{{\"ids\":[{many}]}}")).expect_err("1,001")), "ids has more than 1000 items");
}

#[test]
fn bounds_are_kept_to_the_digit() {
    let mut price = Input::new("price", Type::Decimal);
    (price.min, price.max) = (Some(Value::Decimal("-0.10".into())), Some(Value::Decimal("99999999999999999999.99".into())));
    let accepts = |text: &str| post(vec![price.clone()], &format!("{{\"price\":{text}}}")).is_ok();
    for inside in ["-0.1", "-0.100", "0", "-0", "0000.5", "99999999999999999999.990", "99999999999999999999"] {
        assert!(accepts(&format!("\"{inside}\"")), "{inside}");
    }
    for outside in ["-0.11", "-0.1001", "-1", "99999999999999999999.991", "100000000000000000000"] {
        assert!(!accepts(outside), "{outside}");
    }
    let mut code = Input::new("code", Type::Text);
    (code.min_length, code.max_length) = (Some(2), Some(3));
    assert!(post(vec![code.clone()], r#"{"code":"éàü"}"#).is_ok(), "characters, not bytes");
    assert!(post(vec![code.clone()], r#"{"code":"x"}"#).is_err());
    assert!(post(vec![code], r#"{"code":"xxxx"}"#).is_err());
    let mut state = Input::new("state", Type::Text);
    state.one_of = vec![Value::Text("open".into()), Value::Text("done".into())];
    assert!(post(vec![state.clone()], r#"{"state":"done"}"#).is_ok());
    assert_eq!(problems(&post(vec![state], r#"{"state":"gone"}"#).expect_err("not listed")), "state must be one of open, done");
}

#[test]
fn c3_a_table_name_is_a_value_of_a_list_or_refused() {
    let mut table = Input::new("table", Type::Text);
    table.one_of = vec![Value::Text("TRUCK".into()), Value::Text("TRIP".into())];
    for quote in ["\\\"", "'", "]", "`"] {
        let body = format!("{{\"table\":\"x{quote} WHERE 1=0 UNION SELECT v FROM vault --\"}}");
        let refusal = post(vec![table.clone()], &body).expect_err("not in the list");
        assert_eq!(refusal.fields[0].name, "table");
        assert!(!refusal.to_string().contains("vault"), "what came is not repeated");
    }
}

#[test]
fn paged_flows_take_cursor_and_size() {
    let mut paged = flow("GET", "/trucks", Vec::new());
    let key = vec![PageKey { column: "ID".into(), descending: false }];
    paged.page = Some(PagePlan { key, size: 100, max: 500, step: 0 });
    let page = |query| read(&paged, &tenant(), &Given { query: Some(query), ..Given::default() }).map(|intake| intake.page);
    let read = page("cursor=abc%3D&size=500").expect("both");
    assert_eq!((read.cursor.as_deref(), read.size), (Some("abc="), Some(500)));
    assert_eq!(page("").map(|page| (page.cursor, page.size)), Ok((None, None)));
    for query in ["size=0", "size=501", "size=x", "size=-1", "size=1&size=1", "cursor=a&cursor=b", "sise=1"] {
        assert!(page(query).is_err(), "{query}");
    }
    assert!(get(Vec::new(), "size=1").is_err(), "a flow without pages has no size");
}

#[test]
fn what_is_no_json_object_is_malformed() {
    for body in ["[]", "1", "\"x\"", "{", "{\"x\":}", "{\"x\":1}x", "{\"x\":01}", "{\"x\":\"\u{1}\"}", "{x:1}", "nul"] {
        assert_eq!(post(vec![Input::new("x", Type::Integer)], body).expect_err(body).code, Code::Malformed, "{body}");
    }
    let deep = format!("{{\"x\":{}1{}}}", "[".repeat(200_000), "]".repeat(200_000));
    assert!(problems(&post(vec![Input::new("x", Type::Integer)], &deep).expect_err("deep")).contains("found a list"));
    let wide: Vec<String> = (0..2_000).map(|index| format!("\"f{index}\":1")).collect();
    assert_eq!(post(Vec::new(), &format!("{{{}}}", wide.join(","))).expect_err("wide").code, Code::Malformed);
}

fn every_kind() -> Vec<Input> {
    let scalars = Type::ALL.into_iter().map(|kind| Input::new(kind.name(), kind));
    let lists = Type::ALL.into_iter().map(|kind| {
        let mut list = Input::new(&format!("{}s", kind.name()), kind);
        list.list = true;
        list
    });
    scalars.chain(lists).collect()
}

/// Bytes that get further than chance would: fields with the right names.
fn nearly_json() -> impl Strategy<Value = Vec<u8>> {
    let name = prop_oneof![Just("integer"), Just("decimal"), Just("timestamp"), Just("binarys"), Just("dates"), Just("x")];
    let value = prop_oneof![
        "[-+.eE0-9]{0,40}",
        "\"[-+.:TZ 0-9]{0,40}\"",
        "\"(\\\\u[0-9a-f]{4}|é){0,6}\"",
        "\\[(\"[0-9T:-]{0,20}\",?){0,4}\\]",
        Just("null".to_owned()),
    ];
    (name, value).prop_map(|(name, value)| format!("{{\"{name}\":{value}}}").into_bytes())
}

proptest! {
    #[test]
    fn intake_never_panics(body in prop_oneof![proptest::collection::vec(any::<u8>(), 0..300), nearly_json()], text in "\\PC{0,80}") {
        let given = Given { body: Some(&body), ..Given::default() };
        let _ = read(&flow("POST", "/trucks", every_kind()), &tenant(), &given);
        let reader = flow("GET", "/trucks/{integer}", every_kind());
        let template = PathTemplate::new(&reader);
        let given = Given { path: Some((&template, &text)), query: Some(&text), body: None };
        if let Err(refusal) = read(&reader, &tenant(), &given) {
            prop_assert!(refusal.fields.len() <= limits::INPUTS_PER_FLOW);
        }
    }

    #[test]
    fn integers_are_themselves_and_nothing_else_is_one(number in any::<i64>(), text in "[-+.eE0-9 ]{0,24}") {
        prop_assert!(one(Type::Integer, &number.to_string()) == Ok(Value::Integer(number)));
        if let Ok(Value::Integer(read)) = one(Type::Integer, &format!("\"{text}\"")) {
            let digits = text.trim_start_matches('-').trim_start_matches('0');
            let digits = if digits.is_empty() { "0" } else { digits };
            prop_assert!(read.unsigned_abs().to_string() == digits, "{text} became {read}");
        }
    }

    #[test]
    fn dates_that_are_taken_are_the_calendars(year in 1_u16..=9_999, month in 0_u8..=13, day in 0_u8..=32) {
        let text = format!("{year:04}-{month:02}-{day:02}");
        let taken = one(Type::Date, &format!("\"{text}\"")).is_ok();
        let lengths = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
        let length = lengths.get(usize::from(month).wrapping_sub(1)).map_or(0, |days| days + u8::from(leap && month == 2));
        prop_assert!(taken == (1..=length).contains(&day), "{text}");
    }
}
