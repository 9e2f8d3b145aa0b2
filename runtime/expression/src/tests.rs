use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;

fn map(entries: &[(&str, Datum)]) -> Datum {
    Datum::Map(Arc::new(entries.iter().map(|(key, value)| (Arc::from(*key), value.clone())).collect()))
}

fn text(text: &str) -> Datum {
    Datum::Text(Arc::from(text))
}

fn rows(count: usize) -> Datum {
    let row = |id| map(&[("ID", Datum::Integer(id)), ("NAME", text("truck"))]);
    Datum::List((0..i64::try_from(count).expect("small")).map(row).collect())
}

fn scope(count: usize) -> Scope<'static> {
    let step = map(&[("rows", rows(count)), ("value", Datum::Null), ("error", Datum::Null)]);
    Scope {
        input: vec![
            ("id", Datum::Integer(7)),
            ("name", text("ÄB")),
            ("rate", Datum::Number(0.5)),
            ("raw", Datum::Binary(Arc::from([1u8, 2, 255].as_slice()))),
            ("big", Datum::Integer(i64::MAX)),
            ("ids", Datum::List(Arc::from([Datum::Integer(1), Datum::Integer(2)].as_slice()))),
        ],
        tenant: vec![("name", text("office")), ("company", text("ACME"))],
        steps: vec![("position", step)],
    }
}

fn value(expression: &str) -> Datum {
    let compiled = Expression::compile(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
    compiled.evaluate(&scope(3)).unwrap_or_else(|error| panic!("{expression}: {error}"))
}

fn failure(expression: &str) -> String {
    let compiled = Expression::compile(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
    compiled.evaluate(&scope(3)).expect_err(expression).message
}

#[test]
fn what_flows_write_is_evaluated() {
    for (expression, expected) in [
        ("steps.position.error == null", Datum::Boolean(true)),
        ("steps.position.rows[0].ID", Datum::Integer(0)),
        ("size(steps.position.rows) > 2 ? 'many' : 'few'", text("many")),
        ("steps.position.rows.filter(r, r.ID > 0).map(r, r.ID)", Datum::List(Arc::from([Datum::Integer(1), Datum::Integer(2)]))),
        ("steps.position.rows.exists(r, r.NAME.startsWith('tru')) && input.id == 7", Datum::Boolean(true)),
        ("has(input.id) && !has(input.absent)", Datum::Boolean(true)),
        ("has(steps.position.rows[0].ID)", Datum::Boolean(true)),
        ("'n' + string(input.id)", text("n7")),
        ("int('12') + int(3.0)", Datum::Integer(15)),
        ("double(input.id) * input.rate", Datum::Number(3.5)),
        ("input.name.lowerAscii() + tenant.company", text("ÄbACME")),
        ("'a,b'.split(',').join('-')", text("a-b")),
        ("input.name.matches('^Ä.$')", Datum::Boolean(true)),
        ("2 in input.ids", Datum::Boolean(true)),
        ("type(input.id) == int", Datum::Boolean(true)),
        ("steps['position']['rows'].size()", Datum::Integer(3)),
    ] {
        assert_eq!(value(expression), expected, "{expression}");
    }
    let made = value("{'truck': steps.position.rows[1].ID, 'of': [tenant.name]}");
    assert_eq!(made, map(&[("truck", Datum::Integer(1)), ("of", Datum::List(Arc::from([text("office")])))]));
}

#[test]
fn an_index_below_zero_counts_from_the_end_and_is_null_where_nothing_is() {
    for (expression, expected) in [
        ("steps.position.rows[-1].ID", Datum::Integer(2)),
        ("steps.position.rows[-3].ID", Datum::Integer(0)),
        ("steps.position.rows[-4].ID", Datum::Null),
        ("steps.position.rows[-4]", Datum::Null),
        ("steps.position.rows[-4].ID == null ? 'none' : 'some'", text("none")),
        ("has(steps.position.rows[-1].ID) && !has(steps.position.rows[-1].OTHER)", Datum::Boolean(true)),
        ("has(steps.position.rows[-9].ID)", Datum::Boolean(false)),
        ("steps['position'].rows[-1]['NAME'] + '!'", text("truck!")),
        ("{'last': [input.ids[-1], input.ids[-9]]}", map(&[("last", Datum::List(Arc::from([Datum::Integer(2), Datum::Null].as_slice())))])),
        ("steps.position.rows.map(r, input.ids[-1] + r.ID)[0]", Datum::Integer(2)),
        ("[input.ids].map(l, l[-2])", Datum::List(Arc::from([Datum::Integer(1)].as_slice()))),
        ("size(string(input.ids[-1]))", Datum::Integer(1)),
    ] {
        assert_eq!(value(expression), expected, "{expression}");
    }
    for expression in ["[1, 2][-1]", "steps.position.rows.map(r, r.ID)[-1]", "steps.position.rows[-1][-1]", "input.ids[0][-1]"] {
        let fault = Expression::compile(expression).expect_err(expression);
        assert!(fault.message.contains("counts from the end of a list that is named"), "{expression}: {fault}");
    }
    let paths = Expression::compile("steps.position.rows[-1].ID").expect("an expression").names().paths;
    assert_eq!(paths, ["steps.position.rows"]);
    assert_eq!(Expression::compile("  input.ids[0] + steps.rows[-1]").expect_err("no step").offset, Some(17));
}

#[test]
fn values_are_exact_both_ways() {
    assert_eq!(value("input.big"), Datum::Integer(i64::MAX));
    assert_eq!(value("input.raw"), Datum::Binary(Arc::from([1u8, 2, 255].as_slice())));
    assert_eq!(value("9007199254740993"), Datum::Integer(9_007_199_254_740_993));
    assert_eq!(value("5u"), Datum::Integer(5));
    assert_eq!(failure("18446744073709551615u"), "18446744073709551615 is beyond the integers (64 bits, signed)");
    assert_eq!(failure("input.big + 1"), "the result is beyond 64 bits");
}

#[test]
fn failures_name_what_is_missing_and_show_no_values() {
    assert_eq!(failure("steps.position.rows[0].SPEED"), "there is no `SPEED`; the rows of step position have `ID`, `NAME`");
    assert_eq!(failure("steps.position.rows.map(r, r.id)"), "there is no `id`; the rows of step position have `ID`, `NAME`");
    assert_eq!(failure("input.absent"), "there is no `absent`");
    assert_eq!(failure("steps.position.rows[9]"), "the index is beyond the list");
    assert_eq!(failure("1 / (input.id - 7)"), "division by zero");
    assert_eq!(failure("input.name > input.id"), "`>` does not take (string, int)");
    assert_eq!(failure("{1: 2}"), "the keys of a map in the result are texts");
    let shown = failure("tenant.company - 1") + &failure("tenant.company ? 1 : 2") + &failure("int(tenant.company)");
    assert!(!shown.contains("ACME"), "{shown}");
}

#[test]
fn names_are_the_paths_that_are_read() {
    let paths = |expression: &str| Expression::compile(expression).expect(expression).names().paths;
    assert_eq!(
        paths("steps.a.rows.map(r, r.X + input.id).size() > 0 && has(tenant.company) || steps['b'].error == null"),
        ["input.id", "steps.a.rows", "steps.b.error", "tenant.company"]
    );
    assert_eq!(paths("steps.a.value.x.y[0]"), ["steps.a.value"]);
    assert_eq!(paths("[1].map(x, x)"), [] as [&str; 0]);
}

#[test]
fn what_cannot_be_known_is_refused_with_its_place() {
    for (expression, message, offset) in [
        ("1 + trucks.ID", "unknown name `trucks`: an expression reads `input`, `tenant` and `steps`", Some(4)),
        ("input.size() > 0", "expected `input.NAME`", None),
        ("steps.a.row", "`steps.a` has `rows`, `value` and `error`, not `row`", None),
        ("steps.a", "expected `steps.NAME.rows`, `.value` or `.error`", None),
        ("input[tenant.name]", "expected `input.NAME`", None),
        ("nothing(1)", "there is no function `nothing`", None),
        ("contains('a', 'b')", "`contains` is called as x.contains(…)", None),
        ("'a'.matches(input.name)", "the pattern of `matches` is written as a text literal", None),
        ("'a'.matches('(a{100}){100}')", "the repetitions of a pattern multiply to at most 1000", None),
        ("[1].map(input, 1)", "`input` is taken; name the variable otherwise", None),
        ("Truck{id: 1}", "there is no type `Truck`; a map is written {'key': value}", None),
        ("[1].map(a, [1].map(b, [1].map(c, [1].map(d, 1))))", "macros (map, filter, all, exists) nest at most 3 deep", None),
        ("", "expected an expression, found nothing", None),
    ] {
        let error = Expression::compile(expression).expect_err(expression);
        assert_eq!(error.message, message, "{expression}");
        if offset.is_some() {
            assert_eq!(error.offset, offset, "{expression}");
        }
    }
    let broken = Expression::compile("'ä' +\n  + )").expect_err("not an expression");
    assert!(broken.offset.is_some_and(|offset| offset >= 7), "{broken:?}");
}

#[test]
fn long_and_deep_texts_are_refused_not_crashed_on() {
    let chain = vec!["1"; 8_000].join("+");
    assert!(Expression::compile(&chain).expect_err("too deep").message.contains("deep"));
    assert!(Expression::compile(&"(".repeat(8_000)).is_err());
    assert!(Expression::compile(&format!("{}1{}", "[".repeat(8_000), "]".repeat(8_000))).is_err());
    assert!(Expression::compile(&"-".repeat(16_000)).is_err());
    assert!(Expression::compile(&"!".repeat(16_000)).is_err());
    assert!(Expression::compile(&format!("input.a{}", ".a".repeat(8_000))).is_err());
    assert!(Expression::compile(&"1 ".repeat(10_000)).is_err());
}

#[test]
fn the_deepest_allowed_tree_runs_on_a_small_stack() {
    let deepest = (1..200).map(|length| vec!["1"; length].join("+")).take_while(|chain| Expression::compile(chain).is_ok()).last();
    let compiled = Expression::compile(&deepest.expect("some fit")).expect("it fitted");
    let ran = std::thread::Builder::new().stack_size(1 << 20).spawn(move || compiled.evaluate(&Scope::default()));
    assert!(matches!(ran.expect("a thread").join().expect("no overflow"), Ok(Datum::Integer(sum)) if sum > 50));
    let nested = "[[1]].map(a, a.map(b, [b].map(c, [c, [[[[[[[[[[c]]]]]]]]]]])))";
    let compiled = Expression::compile(nested).expect("three deep");
    let ran = std::thread::Builder::new().stack_size(1 << 20).spawn(move || compiled.evaluate(&Scope::default()));
    assert!(ran.expect("a thread").join().expect("no overflow").is_ok());
}

#[test]
fn the_cost_is_known_before_anything_runs() {
    let compile = |expression: &str| Expression::compile(expression).expect(expression);
    let pairs = compile("steps.position.rows.map(a, steps.position.rows.filter(b, b.ID == a.ID))");
    assert!(pairs.cost(&scope(10)) < LARGE_COST);
    assert!(pairs.cost(&scope(2_000)) > MAX_COST);
    let refused = pairs.evaluate(&scope(2_000)).expect_err("four million comparisons");
    assert!(refused.message.contains("steps"), "{refused}");
    let linear = compile("steps.position.rows.map(r, {'id': r.ID, 'name': r.NAME})");
    assert!(linear.cost(&scope(10_000)) < MAX_COST, "{}", linear.cost(&scope(10_000)));
    assert!(linear.evaluate(&scope(10_000)).is_ok());
    // Doubling: thirty-two times a hundred bytes is nothing, two to the thirtieth is refused.
    let grown = (0..30).fold("input.name".to_owned(), |text, _| format!("[{text}].map(x, x + x)[0]"));
    let grown = Expression::compile(&grown);
    assert!(grown.is_err() || grown.is_ok_and(|grown| grown.evaluate(&scope(1)).is_err()));
    let blown = compile("'x'.replace('x', input.name).replace('', input.long).replace('', input.long).replace('', input.long)");
    let mut long = scope(1);
    long.input.push(("long", text(&"y".repeat(10_000))));
    assert!(blown.cost(&long) > MAX_COST);
}

#[test]
fn the_cost_is_at_least_what_is_read() {
    for expression in ["steps.position.rows", "size(steps.position.rows)", "steps.position.rows == steps.position.rows"] {
        let compiled = Expression::compile(expression).expect(expression);
        assert!(compiled.cost(&scope(8_000)) >= 1_000, "{expression}");
    }
}

/// Texts that are nearly expressions.
fn nearly() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "input.id",
        "input.name",
        "input.ids",
        "steps.position.rows",
        "tenant.name",
        "1",
        "2.5",
        "'a'",
        "b'x'",
        "null",
        "true",
        "[",
        "]",
        "{",
        "}",
        "(",
        ")",
        ".",
        ",",
        ":",
        "?",
        "+",
        "-",
        "*",
        "/",
        "%",
        "==",
        "!=",
        "<",
        ">=",
        "&&",
        "||",
        "!",
        " in ",
        ".map(x, ",
        ".filter(y, ",
        ".all(z, ",
        "x",
        "size(",
        "int(",
        "string(",
        ".matches('a+')",
        ".split('')",
        ".substring(1",
        ".replace('a', 'bb')",
        "has(",
        "[0]",
        "['k']",
        "9223372036854775807",
        "-9223372036854775808",
        "1u",
        "\\",
        "\"",
        "'",
        "\u{e4}",
        "\n",
        "@",
        "`",
        "$",
        "0x",
        "1e400",
        "r'",
        "'''",
        "//",
    ]);
    prop::collection::vec(part, 0..24).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_panics(text in nearly()) {
        if let Ok(compiled) = Expression::compile(&text) {
            let _either = compiled.evaluate(&scope(3));
        }
    }

    #[test]
    fn no_bytes_panic(text in "\\PC{0,60}") {
        let _either = Expression::compile(&text);
    }

    #[test]
    fn data_goes_through_unchanged(datum in data()) {
        let scope = Scope { input: vec![("x", datum.clone())], ..Scope::default() };
        let compiled = Expression::compile("input.x").expect("a path");
        let out = compiled.evaluate(&scope).expect("it is there");
        // NaN is not equal to itself: compare what is written.
        prop_assert_eq!(format!("{out:?}"), format!("{datum:?}"));
    }
}

fn data() -> impl Strategy<Value = Datum> {
    let leaf = prop_oneof![
        Just(Datum::Null),
        any::<bool>().prop_map(Datum::Boolean),
        any::<i64>().prop_map(Datum::Integer),
        any::<f64>().prop_map(Datum::Number),
        ".{0,12}".prop_map(|made| text(&made)),
        prop::collection::vec(any::<u8>(), 0..12).prop_map(|bytes| Datum::Binary(Arc::from(bytes))),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| Datum::List(Arc::from(items))),
            prop::collection::btree_map(".{0,6}".prop_map(Arc::from), inner, 0..4)
                .prop_map(|entries: BTreeMap<Arc<str>, Datum>| Datum::Map(Arc::new(entries))),
        ]
    })
}
