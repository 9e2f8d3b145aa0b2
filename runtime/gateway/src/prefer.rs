//! `Prefer: wait=N` (RFC 7240): how long a caller would like to wait for the end of its job.
//!
//! Preferences that mean nothing here are passed over, as the RFC wants it; of several `wait` the first one counts. A `wait`
//! that is no number of seconds is refused: taken and ignored, its caller would wait for nothing.

use std::time::Duration;

use spillgate_model::{Code, Refusal};

/// The longest wait, whatever a flow's deadline.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The `wait` of one `Prefer` field, if it has one.
pub(crate) fn wait(field: &[u8]) -> Result<Option<Duration>, Refusal> {
    let wait = parts(field, b',').find_map(|preference| {
        // Parameters after a semicolon say nothing about `wait`.
        let preference = parts(preference, b';').next()?;
        let split = preference.iter().position(|byte| *byte == b'=').unwrap_or(preference.len());
        let (name, value) = preference.split_at(split);
        name.trim_ascii().eq_ignore_ascii_case(b"wait").then(|| value.strip_prefix(b"=").unwrap_or_default().trim_ascii())
    });
    wait.map(seconds).transpose()
}

/// Splits at a separator that does not stand in a quoted string.
fn parts(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(move |byte| {
        let ends = !quoted && *byte == separator;
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ => {}
        }
        ends
    })
}

fn seconds(value: &[u8]) -> Result<Duration, Refusal> {
    let word = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(value);
    let digits = std::str::from_utf8(word).ok().filter(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()));
    let refusal = || Refusal::new(Code::Malformed, "Prefer: wait=N takes a whole number of seconds.");
    // More seconds than there are numbers for is longer than any wait.
    digits.map(|text| Duration::from_secs(text.parse().unwrap_or(u64::MAX))).ok_or_else(refusal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_found_wherever_it_stands() {
        for (field, expected) in [
            ("wait=5", Some(5)),
            ("WAIT = 5", Some(5)),
            ("wait=\"5\"", Some(5)),
            ("respond-async, wait=10", Some(10)),
            ("respond-async; x=\"a, wait=3\", wait=7;foo=bar", Some(7)),
            ("x=\"\\\", wait=1\", wait=2", Some(2)),
            ("wait=1, wait=9", Some(1)),
            ("wait=0", Some(0)),
            ("wait=99999999999999999999999", Some(u64::MAX)),
            ("respond-async", None),
            ("waiting=5", None),
            ("x=wait", None),
            ("", None),
            (",,;", None),
        ] {
            let found = wait(field.as_bytes()).expect("well-formed");
            assert_eq!(found, expected.map(Duration::from_secs), "{field}");
        }
    }

    #[test]
    fn a_wait_that_is_no_number_of_seconds_is_refused() {
        for field in ["wait", "wait=", "wait=-1", "wait=1.5", "wait=5s", "wait=\"\"", "wait=soon"] {
            assert_eq!(wait(field.as_bytes()).expect_err(field).code, Code::Malformed);
        }
    }
}
