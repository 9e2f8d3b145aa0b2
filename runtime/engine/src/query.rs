//! Query strings and path segments, on every listener: percent-decoding, and `+` as a space in queries (as forms write it).

use std::borrow::Cow;

/// Names in the order they came; `None` for one that is not percent-encoded UTF-8.
pub fn names(query: &str) -> impl Iterator<Item = Option<Cow<'_, str>>> {
    pairs(query).map(|(name, _)| decode(name, true))
}

/// Values of the pairs with this name; `None` for one that is not percent-encoded UTF-8.
pub fn values<'a>(query: &'a str, name: &str) -> impl Iterator<Item = Option<Cow<'a, str>>> {
    pairs(query).filter(move |(key, _)| decode(key, true).is_some_and(|key| key == name)).map(|(_, value)| decode(value, true))
}

/// A path segment: `+` is a plus there. `None`: it is not percent-encoded UTF-8.
pub fn decode_path(segment: &str) -> Option<Cow<'_, str>> {
    decode(segment, false)
}

fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

fn decode(text: &str, plus_is_space: bool) -> Option<Cow<'_, str>> {
    if !text.bytes().any(|byte| byte == b'%' || (byte == b'+' && plus_is_space)) {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => digit(bytes.next()?)? << 4 | digit(bytes.next()?)?,
            b'+' if plus_is_space => b' ',
            other => other,
        });
    }
    String::from_utf8(decoded).ok().map(Cow::Owned)
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}
