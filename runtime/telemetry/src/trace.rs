//! W3C trace context: what comes with a call and what goes on to whom it calls.

use spillgate_model::chance;

/// Where a call stands in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// Of the whole trace; never 0.
    pub trace_id: u128,
    /// Of this call's own span; never 0.
    pub span_id: u64,
    /// The caller's span; 0 where the trace starts here.
    pub parent_id: u64,
    /// Whether the caller records this trace.
    pub sampled: bool,
}

impl TraceContext {
    /// A trace that starts here.
    pub fn start() -> Self {
        let trace_id = (u128::from(random()) << 64) | u128::from(random());
        TraceContext { trace_id, span_id: random(), parent_id: 0, sampled: true }
    }

    /// A span of our own below the caller's, from its `traceparent` header. `None`: not well-formed, so it is as if
    /// none had come (W3C Trace Context, section 3.2).
    pub fn below(traceparent: &str) -> Option<Self> {
        let (head, rest) = traceparent.split_at_checked(55)?;
        let mut parts = head.split('-');
        let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        if version.len() != 2 || trace.len() != 32 || parent.len() != 16 || flags.len() != 2 || parts.next().is_some() {
            return None;
        }
        let version = lower_hex(version)?;
        // Later versions may add fields behind a dash; version 0 may not, and 255 is forbidden.
        if version == 255 || !(rest.is_empty() || (version > 0 && rest.starts_with('-'))) {
            return None;
        }
        let trace_id = lower_hex(trace)?;
        let parent_id = u64::try_from(lower_hex(parent)?).ok()?;
        let sampled = lower_hex(flags)? & 1 == 1;
        (trace_id != 0 && parent_id != 0).then(|| TraceContext { trace_id, span_id: random(), parent_id, sampled })
    }

    /// The header for whom this call calls.
    pub fn traceparent(&self) -> String {
        format!("00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, u8::from(self.sampled))
    }
}

fn lower_hex(text: &str) -> Option<u128> {
    let lower = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    lower.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

/// Not 0, which names no span.
fn random() -> u64 {
    chance::drawn().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_callers_trace_goes_on() {
        let trace = TraceContext::below(HEADER).expect("well-formed");
        assert_eq!((trace.parent_id, trace.sampled), (0x00f0_67aa_0ba9_02b7, true));
        let next = TraceContext::below(&trace.traceparent()).expect("our own is well-formed");
        assert_eq!((next.trace_id, next.parent_id), (trace.trace_id, trace.span_id));
        assert!(TraceContext::below(&format!("01{}-later", &HEADER[2..])).is_some());
    }

    #[test]
    fn a_malformed_trace_is_as_if_none_had_come() {
        let malformed = [
            String::new(),
            HEADER.to_uppercase(),
            HEADER.replace("4bf9", "+bf9"),
            format!("{HEADER}-more"),
            format!("ff{}", &HEADER[2..]),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01".into(),
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01".into(),
            "é".repeat(40),
            "-".repeat(55),
        ];
        for header in &malformed {
            assert_eq!(TraceContext::below(header), None, "{header}");
        }
    }
}
