//! The access record: one JSON line a call.
//!
//! Invariants
//! 1. No call ever waits for a log to be written: a record goes into a bounded buffer or is dropped and counted.
//! 2. A line is whole or not there; text from outside cannot end it early or fake another one.
//! 3. A record has a bounded size: texts from outside are cut at [`TEXT_BYTES`].

use std::cell::RefCell;
use std::io::Write as _;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use spillgate_model::json::{write_integer, write_text};

use crate::trace::TraceContext;
use crate::writer::LineWriter;

/// Most bytes of a text in a record.
pub const TEXT_BYTES: usize = 256;

/// What is written about a call.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct AccessRecord<'a> {
    pub request_id: &'a str,
    pub trace: Option<TraceContext>,
    pub tenant: &'a str,
    pub run: Option<&'a str>,
    pub flow: &'a str,
    pub method: &'a str,
    pub status: u16,
    /// `ok`, `hung_up` or a code's name.
    pub code: &'static str,
    pub duration: Duration,
    /// Time spent waiting for seats.
    pub wait: Duration,
    pub rows: u64,
    pub bytes: u64,
    pub truncated: bool,
    pub stale: bool,
    pub remote: IpAddr,
}

/// What a thread keeps between records.
struct Scratch {
    line: Vec<u8>,
    clock: ClockText,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = const { RefCell::new(Scratch { line: Vec::new(), clock: ClockText::new() }) };
}

/// Writes `record` as it ended at `now`.
pub(crate) fn append(record: &AccessRecord<'_>, now: SystemTime, writer: &LineWriter) {
    SCRATCH.with_borrow_mut(|Scratch { line, clock }| {
        line.clear();
        encode(record, clock.at(now), line);
        writer.append(line);
    });
}

fn encode(record: &AccessRecord<'_>, time: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"ts\":\"");
    out.extend_from_slice(time);
    out.push(b'"');
    text(out, b",\"request_id\":", record.request_id);
    if let Some(trace) = record.trace {
        out.extend_from_slice(b",\"trace_id\":\"");
        hex(out, trace.trace_id);
        out.push(b'"');
    }
    text(out, b",\"tenant\":", record.tenant);
    if let Some(run) = record.run {
        text(out, b",\"run\":", run);
    }
    text(out, b",\"flow\":", record.flow);
    text(out, b",\"method\":", record.method);
    number(out, b",\"status\":", u64::from(record.status));
    text(out, b",\"code\":", record.code);
    number(out, b",\"duration_us\":", microseconds(record.duration));
    number(out, b",\"wait_us\":", microseconds(record.wait));
    number(out, b",\"rows\":", record.rows);
    number(out, b",\"bytes\":", record.bytes);
    out.extend_from_slice(if record.truncated { b",\"truncated\":true" } else { b",\"truncated\":false" });
    out.extend_from_slice(if record.stale { b",\"stale\":true" } else { b",\"stale\":false" });
    out.extend_from_slice(b",\"remote\":\"");
    address(out, record.remote);
    out.extend_from_slice(b"\"}\n");
}

fn text(out: &mut Vec<u8>, key: &[u8], value: &str) {
    out.extend_from_slice(key);
    write_text(&value[..value.floor_char_boundary(TEXT_BYTES)], out);
}

fn number(out: &mut Vec<u8>, key: &[u8], value: u64) {
    out.extend_from_slice(key);
    write_integer(i64::try_from(value).unwrap_or(i64::MAX), out);
}

fn hex(out: &mut Vec<u8>, value: u128) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in value.to_be_bytes() {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
}

fn address(out: &mut Vec<u8>, address: IpAddr) {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            for (index, octet) in address.octets().into_iter().enumerate() {
                if index > 0 {
                    out.push(b'.');
                }
                out.extend_from_slice(itoa::Buffer::new().format(octet).as_bytes());
            }
        }
        // Writing to a vector cannot fail.
        IpAddr::V6(address) => drop(write!(out, "{address}")),
    }
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// `2026-11-30T01:02:03.004Z`, formatted anew only when the second changes.
struct ClockText {
    second: u64,
    text: [u8; 24],
}

impl ClockText {
    const fn new() -> Self {
        ClockText { second: 0, text: *b"1970-01-01T00:00:00.000Z" }
    }

    fn at(&mut self, now: SystemTime) -> &[u8] {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        if since.as_secs() != self.second {
            self.second = since.as_secs();
            let second = i64::try_from(self.second).ok().and_then(|second| jiff::Timestamp::from_second(second).ok());
            let whole = second.unwrap_or(jiff::Timestamp::MAX).to_string();
            // Years past 9999 are not representable above, so the date and time are always 19 bytes.
            if let Some(date_and_time) = whole.as_bytes().get(..19) {
                self.text[..19].copy_from_slice(date_and_time);
            }
        }
        let mut left = since.subsec_millis();
        for digit in self.text[20..23].iter_mut().rev() {
            *digit = b'0' + u8::try_from(left % 10).unwrap_or(0);
            left /= 10;
        }
        &self.text
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    pub(crate) fn record() -> AccessRecord<'static> {
        AccessRecord {
            request_id: "r-1",
            trace: TraceContext::below("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
            tenant: "dispatch-agent",
            run: Some("run-7"),
            flow: "truck_position",
            method: "GET",
            status: 200,
            code: "ok",
            duration: Duration::from_nanos(1_234_567),
            wait: Duration::from_micros(8),
            rows: 1,
            bytes: 96,
            truncated: false,
            stale: false,
            remote: IpAddr::V4(Ipv4Addr::new(10, 0, 200, 7)),
        }
    }

    fn encoded(record: &AccessRecord<'_>) -> String {
        let mut line = Vec::new();
        let now = UNIX_EPOCH + Duration::from_millis(1_793_000_000_042);
        encode(record, ClockText::new().at(now), &mut line);
        String::from_utf8(line).expect("JSON is UTF-8")
    }

    #[test]
    fn a_record_is_one_json_line_with_these_names() {
        let expected = concat!(
            r#"{"ts":"2026-10-26T07:33:20.042Z","request_id":"r-1","trace_id":"4bf92f3577b34da6a3ce929d0e0e4736","#,
            r#""tenant":"dispatch-agent","run":"run-7","flow":"truck_position","method":"GET","status":200,"code":"ok","#,
            r#""duration_us":1234,"wait_us":8,"rows":1,"bytes":96,"truncated":false,"stale":false,"remote":"10.0.200.7"}"#,
            "\n"
        );
        assert_eq!(encoded(&record()), expected);
    }

    #[test]
    fn text_from_outside_stays_in_its_line() {
        let run = "x\"}\n{\"fake\":true}\u{7f}é".repeat(100);
        let remote = IpAddr::V6(Ipv6Addr::LOCALHOST);
        let line = encoded(&AccessRecord { run: Some(&run), trace: None, remote, ..record() });
        assert_eq!(line.matches('\n').count(), 1);
        let read: serde_json::Value = serde_json::from_str(&line).expect("well-formed");
        let shown = read["run"].as_str().expect("a text");
        assert!(run.starts_with(shown) && (TEXT_BYTES - 4..=TEXT_BYTES).contains(&shown.len()));
        assert_eq!((read.get("trace_id"), &read["remote"]), (None, &serde_json::json!("::1")));
    }

    #[test]
    fn the_cached_second_follows_the_clock_both_ways() {
        let mut clock = ClockText::new();
        for milliseconds in [0, 999, 1_000, 1_793_000_000_042, 1_793_000_000_041, 5] {
            let now = UNIX_EPOCH + Duration::from_millis(milliseconds);
            let expected = jiff::Timestamp::try_from(now).expect("in range");
            assert_eq!(std::str::from_utf8(clock.at(now)).expect("ASCII"), format!("{expected:.3}"));
        }
    }
}
