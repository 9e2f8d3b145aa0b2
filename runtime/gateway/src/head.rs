//! What a request's head says, read in one pass over its headers.

use std::time::Duration;

use http::request::Parts;
use spillgate_model::{Code, Refusal, limits};
use spillgate_telemetry::TraceContext;

use crate::prefer;

/// Longest run name.
pub(crate) const RUN_BYTES: usize = 128;

/// The headers that mean something here.
#[derive(Debug, Default)]
pub(crate) struct Head<'a> {
    /// `Authorization`, as it came.
    pub(crate) authorization: Option<&'a [u8]>,
    /// `Spillgate-Deadline-Ms`.
    pub(crate) deadline: Option<Duration>,
    /// `Spillgate-Run`.
    pub(crate) run: Option<&'a str>,
    /// `traceparent`; malformed is as if none had come.
    pub(crate) trace: Option<TraceContext>,
    /// A `Content-Encoding` other than `identity`.
    pub(crate) encoded: bool,
    /// `Idempotency-Key`.
    pub(crate) key: Option<&'a str>,
    /// `Prefer: wait=N`.
    pub(crate) wait: Option<Duration>,
    /// `Spillgate-Depth`.
    pub(crate) depth: Option<u8>,
}

impl<'a> Head<'a> {
    /// Reads and bounds the head.
    pub(crate) fn read(parts: &'a Parts) -> Result<Self, Refusal> {
        let mut head = Head::default();
        let mut bytes = parts.uri.path_and_query().map_or(0, |target| target.as_str().len());
        for (name, value) in &parts.headers {
            let (name, value) = (name.as_str(), value.as_bytes());
            bytes += name.len() + value.len() + 4;
            match name {
                "authorization" => once(&mut head.authorization, name, value)?,
                "spillgate-deadline-ms" => once(&mut head.deadline, name, milliseconds(value)?)?,
                "spillgate-run" => once(&mut head.run, name, visible(name, value, RUN_BYTES)?)?,
                "spillgate-depth" => once(&mut head.depth, name, depth(value)?)?,
                "idempotency-key" => once(&mut head.key, name, visible(name, value, limits::KEY_BYTES)?)?,
                "prefer" if head.wait.is_none() => head.wait = prefer::wait(value)?,
                "traceparent" => head.trace = std::str::from_utf8(value).ok().and_then(TraceContext::below),
                "content-encoding" => head.encoded = !value.eq_ignore_ascii_case(b"identity"),
                // A body with two lengths, or in a form nobody undoes, is read differently by whoever stands in front.
                "transfer-encoding" if !value.eq_ignore_ascii_case(b"chunked") || parts.headers.contains_key("content-length") => {
                    return Err(Refusal::new(Code::Malformed, "Send the body with Content-Length, or chunked and nothing else."));
                }
                _ => {}
            }
        }
        if bytes > limits::HEAD_BYTES {
            let mut refusal = Refusal::new(Code::Malformed, format!("The head is larger than {} bytes.", limits::HEAD_BYTES));
            refusal.status = Some(431);
            let used = u64::try_from(bytes).unwrap_or(u64::MAX);
            return Err(refusal.policy("head_bytes", limits::HEAD_BYTES as u64, used));
        }
        Ok(head)
    }
}

/// A header that came twice has no single meaning: whoever stands in front may have read the other one.
fn once<T>(place: &mut Option<T>, name: &str, value: T) -> Result<(), Refusal> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Refusal::new(Code::Malformed, format!("The header {name} came twice."))),
    }
}

fn milliseconds(value: &[u8]) -> Result<Duration, Refusal> {
    let digits = std::str::from_utf8(value).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let milliseconds = digits.and_then(|text| text.parse().ok());
    milliseconds
        .map(Duration::from_millis)
        .ok_or_else(|| Refusal::new(Code::Malformed, "Spillgate-Deadline-Ms is a whole number of milliseconds."))
}

fn visible<'a>(name: &str, value: &'a [u8], most: usize) -> Result<&'a str, Refusal> {
    let fits = (1..=most).contains(&value.len()) && value.iter().all(u8::is_ascii_graphic);
    let text = std::str::from_utf8(value).ok().filter(|_| fits);
    text.ok_or_else(|| Refusal::new(Code::Malformed, format!("The header {name} has 1 to {most} visible ASCII characters.")))
}

fn depth(value: &[u8]) -> Result<u8, Refusal> {
    let digits = std::str::from_utf8(value).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let depth = digits.and_then(|text| text.parse().ok());
    depth.ok_or_else(|| Refusal::new(Code::Malformed, "Spillgate-Depth is a whole number from 0 to 255."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(headers: &[(&str, &str)]) -> Parts {
        let request = headers.iter().fold(http::Request::get("/api/x?y=z"), |request, (name, value)| request.header(*name, *value));
        request.body(()).expect("well-formed").into_parts().0
    }

    fn code(headers: &[(&str, &str)]) -> Option<Code> {
        Head::read(&parts(headers)).err().map(|refusal| refusal.code)
    }

    #[test]
    fn what_means_something_is_read_and_the_rest_left_alone() {
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let headers = [
            ("Authorization", "Bearer k"),
            ("Spillgate-Deadline-Ms", "1500"),
            ("Spillgate-Run", "run-7"),
            ("traceparent", trace),
            ("Idempotency-Key", "order-7"),
            ("Prefer", "respond-async"),
            ("Prefer", "wait=5"),
            ("Spillgate-Depth", "255"),
        ];
        let parts = parts(&headers);
        let head = Head::read(&parts).expect("well-formed");
        assert_eq!(
            (head.authorization, head.deadline, head.run),
            (Some(&b"Bearer k"[..]), Some(Duration::from_millis(1_500)), Some("run-7"))
        );
        assert_eq!(head.trace.map(|trace| trace.trace_id), Some(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736));
        assert_eq!((head.key, head.wait, head.depth), (Some("order-7"), Some(Duration::from_secs(5)), Some(255)));
        assert!(!head.encoded);
    }

    #[test]
    fn a_header_with_no_single_meaning_is_refused() {
        let long = "r".repeat(RUN_BYTES + 1);
        for headers in [
            [("spillgate-deadline-ms", "-1")],
            [("spillgate-deadline-ms", "1.5")],
            [("spillgate-deadline-ms", "")],
            [("spillgate-deadline-ms", "99999999999999999999")],
            [("spillgate-run", "")],
            [("spillgate-run", "two words")],
            [("spillgate-run", &long)],
            [("idempotency-key", "")],
            [("idempotency-key", "two words")],
            [("idempotency-key", &"k".repeat(limits::KEY_BYTES + 1))],
            [("spillgate-depth", "256")],
            [("spillgate-depth", "-1")],
            [("spillgate-depth", "")],
            [("prefer", "wait=soon")],
        ] {
            assert_eq!(code(&headers), Some(Code::Malformed), "{headers:?}");
        }
        for (name, value) in [
            ("authorization", "Bearer a"),
            ("idempotency-key", "k"),
            ("spillgate-run", "r"),
            ("spillgate-deadline-ms", "5"),
            ("spillgate-depth", "1"),
        ] {
            assert_eq!(code(&[(name, value)]), None, "{name}");
            assert_eq!(code(&[(name, value), (name, value)]), Some(Code::Malformed), "{name} twice");
        }
        assert_eq!(code(&[("idempotency-key", &"k".repeat(limits::KEY_BYTES))]), None);
        for coding in ["gzip, chunked", "identity"] {
            assert_eq!(code(&[("transfer-encoding", coding)]), Some(Code::Malformed), "{coding}");
        }
        assert_eq!(code(&[("content-length", "2"), ("transfer-encoding", "chunked")]), Some(Code::Malformed));
        assert_eq!(code(&[("transfer-encoding", "Chunked")]), None);
        assert_eq!(code(&[("traceparent", "nonsense"), ("content-encoding", "identity")]), None);
    }
}
