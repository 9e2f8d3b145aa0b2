//! The one table of functions an expression may call, and what each costs.

use crate::cost::{Shape, weight};

/// How a call is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// `f(x)`.
    Global,
    /// `x.f(y)`.
    Member,
    /// Both.
    Both,
}

/// Names, how they are called, and how many arguments they take (the receiver among them).
const FUNCTIONS: &[(&str, Style, &[usize])] = &[
    ("size", Style::Both, &[1]),
    ("int", Style::Global, &[1]),
    ("uint", Style::Global, &[1]),
    ("double", Style::Global, &[1]),
    ("string", Style::Global, &[1]),
    ("bytes", Style::Global, &[1]),
    ("bool", Style::Global, &[1]),
    ("type", Style::Global, &[1]),
    ("dyn", Style::Global, &[1]),
    ("contains", Style::Member, &[2]),
    ("startsWith", Style::Member, &[2]),
    ("endsWith", Style::Member, &[2]),
    ("matches", Style::Both, &[2]),
    ("lowerAscii", Style::Member, &[1]),
    ("upperAscii", Style::Member, &[1]),
    ("trim", Style::Member, &[1]),
    ("reverse", Style::Member, &[1]),
    ("substring", Style::Member, &[2, 3]),
    ("charAt", Style::Member, &[2]),
    ("indexOf", Style::Member, &[2, 3]),
    ("lastIndexOf", Style::Member, &[2, 3]),
    ("replace", Style::Member, &[3, 4]),
    ("split", Style::Member, &[2, 3]),
    ("join", Style::Member, &[1, 2]),
];

/// Names of types, as in `type(x) == int`.
pub(crate) const TYPES: &[&str] = &["bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type"];

/// Whether this call exists; else what to say.
pub(crate) fn known(name: &str, member: bool, arguments: usize) -> Result<(), String> {
    let Some((_, style, counts)) = FUNCTIONS.iter().find(|(known, ..)| *known == name) else {
        return Err(format!("there is no function `{name}`"));
    };
    match style {
        Style::Global if member => return Err(format!("`{name}` is called as {name}(x)")),
        Style::Member if !member => return Err(format!("`{name}` is called as x.{name}(…)")),
        _ => {}
    }
    if counts.contains(&arguments) { Ok(()) } else { Err(format!("`{name}` takes another number of arguments")) }
}

/// Steps of one call over arguments of these shapes (the receiver first), and a bound on its result.
pub(crate) fn cost(name: &str, arguments: &[Shape]) -> (u64, Shape) {
    let bytes = |index: usize| arguments.get(index).map_or(0, |shape| shape.bytes);
    let first = bytes(0);
    let text = |length: u64| Shape::text(length);
    match name {
        "int" | "uint" | "double" | "bool" | "contains" | "startsWith" | "endsWith" => (1 + first / 16, Shape::default()),
        "string" => (2 + first / 16, text(first.max(32))),
        "bytes" => (1 + first / 16, text(first)),
        "dyn" => (arguments.first().map_or(1, weight), arguments.first().cloned().unwrap_or_default()),
        "lowerAscii" | "upperAscii" | "trim" | "reverse" | "substring" | "charAt" => (1 + first / 4, text(first)),
        "indexOf" | "lastIndexOf" => (1 + (first.saturating_mul(1 + bytes(1) / 4)) / 4, Shape::default()),
        "replace" => {
            let length = first.saturating_add((first + 1).saturating_mul(bytes(2)));
            (1 + (first + length) / 8, text(length))
        }
        "split" => (1 + first, Shape { bytes: 0, len: first + 1, item: Some(Box::new(text(first))) }),
        "join" => {
            let (len, item) = arguments.first().map_or((0, 0), |list| (list.len, list.item.as_ref().map_or(0, |item| item.bytes)));
            let length = len.saturating_mul(item.saturating_add(bytes(1)));
            (1 + len + length / 8, text(length))
        }
        // `size`, `type`; `matches` is charged by its pattern where that is known.
        _ => (1, Shape::default()),
    }
}

/// Most bytes of a `matches` pattern.
const MAX_PATTERN_BYTES: usize = 256;
/// Most copies that the counted repetitions of a pattern may ask for.
const MAX_PATTERN_REPEATS: u64 = 1_000;

/// Steps to compile a pattern and, per byte of text, to run it; an error where it is too large.
pub(crate) fn pattern_cost(pattern: &str) -> Result<(u64, u64), String> {
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err(format!("a pattern has at most {MAX_PATTERN_BYTES} bytes"));
    }
    let counts = pattern.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    let numbers = counts.filter_map(|count| count.split(',').filter_map(|number| number.trim().parse::<u64>().ok()).max());
    let repeats = numbers.fold(1u64, |product, number| product.saturating_mul(number.max(1)));
    if repeats > MAX_PATTERN_REPEATS {
        return Err(format!("the repetitions of a pattern multiply to at most {MAX_PATTERN_REPEATS}"));
    }
    let classes = pattern.matches('\\').count() as u64 + pattern.matches("(?").count() as u64;
    let size = pattern.len() as u64 * 20 + classes * 500;
    Ok((20 + size.saturating_mul(repeats.min(64)), 1 + pattern.len() as u64 / 16))
}
