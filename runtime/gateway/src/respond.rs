//! The only place where outcomes become replies: one pass into one buffer, sent as it is.
//!
//! Invariants
//! 1. Every reply has a `Spillgate-Request-Id`; every refusal is `application/problem+json` from the one table of codes.
//! 2. A call is over when its reply is made: what it had in flight is given back before the first byte is sent, so a
//!    caller that waits for its reply is never refused for it. Its memory is given back with the last byte.

use std::sync::Arc;
use std::time::Duration;

use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use hyper::body::Bytes;
use spillgate_admission::Permit;
use spillgate_engine::Outcome;
use spillgate_model::{Code, Datum, Refusal, Rows, json};

use crate::problem::{self, Delay};
use crate::reply_body::{Cover, ReplyBody, WHOLE_BYTES};
use crate::stack::Ended;
use crate::trail::{Facts, Trail};

const REQUEST_ID: HeaderName = HeaderName::from_static("spillgate-request-id");
const STALE: HeaderName = HeaderName::from_static("spillgate-stale");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");

/// A refusal, with what only HTTP needs beside it.
#[derive(Debug)]
pub(crate) struct Denied {
    pub(crate) refusal: Box<Refusal>,
    /// `Allow`, for `method_not_allowed`.
    pub(crate) allow: Option<String>,
}

impl From<Refusal> for Denied {
    fn from(refusal: Refusal) -> Self {
        Denied { refusal: Box::new(refusal), allow: None }
    }
}

/// Makes the reply, and ends the trail. `closing`: the server drains, so the connection is closed after it.
pub(crate) fn respond(trail: Trail<'_>, ended: Result<Ended, Denied>, closing: bool) -> Response<ReplyBody> {
    let mut response = match ended {
        Ok(Ended::Flow { outcome, waited, permit }) => flow_reply(trail, outcome, waited, permit),
        Ok(Ended::Page(page)) => {
            let mut response = reply(&trail, page.status, page.kind, page.body);
            response.headers_mut().extend(page.header.map(|(name, value)| (Some(name), value)));
            trail.forget();
            response
        }
        Err(denied) => refused(trail, &denied, Duration::ZERO),
    };
    if closing {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn flow_reply(trail: Trail<'_>, outcome: Outcome, wait: Duration, permit: Arc<Permit>) -> Response<ReplyBody> {
    let facts = Facts { status: 200, wait, ..Facts::default() };
    match outcome {
        Outcome::Rows { rows, next, affected, stale } => {
            let facts = Facts { rows: rows.len() as u64, truncated: rows.truncated(), ..facts };
            let cover = cover(permit);
            let body = if rows.held_bytes() > WHOLE_BYTES {
                let mut tail = Vec::new();
                rows_tail(&rows, next.as_deref(), affected, stale, &mut tail);
                ReplyBody::rows(ROWS_HEAD, rows, tail, cover)
            } else {
                ReplyBody::whole(rows_body(&rows, next.as_deref(), affected, stale), cover)
            };
            success(trail, body, facts, stale)
        }
        Outcome::Value { value, stale } => {
            let buffer = value_body(&value);
            drop(value);
            success(trail, ReplyBody::whole(buffer, cover(permit)), facts, stale)
        }
        Outcome::Job(_) => {
            drop(permit);
            let refusal = Box::new(Refusal::new(Code::Internal, "Durable replies are not made yet."));
            refused(trail, &Denied { refusal, allow: None }, wait)
        }
        Outcome::Refused(refusal) => {
            drop(permit);
            refused(trail, &Denied { refusal, allow: None }, wait)
        }
    }
}

fn reply(trail: &Trail<'_>, status: StatusCode, kind: HeaderValue, body: impl Into<ReplyBody>) -> Response<ReplyBody> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, kind);
    insert(&mut response, REQUEST_ID, trail.id.as_bytes());
    response
}

/// Inserts a value that is visible ASCII by construction.
fn insert(response: &mut Response<ReplyBody>, name: HeaderName, value: &[u8]) {
    if let Ok(value) = HeaderValue::from_bytes(value) {
        response.headers_mut().insert(name, value);
    }
}

fn success(trail: Trail<'_>, body: ReplyBody, facts: Facts, stale: Option<Duration>) -> Response<ReplyBody> {
    let facts = Facts { bytes: body.length(), stale: stale.is_some(), ..facts };
    let mut response = reply(&trail, StatusCode::OK, JSON, body);
    if let Some(age) = stale {
        response.headers_mut().insert(STALE, HeaderValue::from(age.as_secs()));
    }
    trail.end(facts);
    response
}

fn cover(permit: Arc<Permit>) -> Cover {
    Arc::try_unwrap(permit).map(Permit::into_memory)
}

/// `{"rows":[…],"row_count":n,"truncated":false}` with `next`, `affected` and `stale_seconds` where they say something.
pub(crate) fn rows_body(rows: &Rows, next: Option<&str>, affected: Option<u64>, stale: Option<Duration>) -> Vec<u8> {
    let mut out = Vec::with_capacity(likely_bytes(rows, next));
    out.extend_from_slice(ROWS_HEAD);
    json::write_rows(rows, &mut out);
    rows_tail(rows, next, affected, stale, &mut out);
    out
}

/// What stands before and after the rows.
const ROWS_HEAD: &[u8] = b"{\"rows\":";

fn rows_tail(rows: &Rows, next: Option<&str>, affected: Option<u64>, stale: Option<Duration>, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"row_count\":");
    write_count(rows.len() as u64, out);
    out.extend_from_slice(if rows.truncated() { b",\"truncated\":true" } else { b",\"truncated\":false" });
    if let Some(affected) = affected {
        out.extend_from_slice(b",\"affected\":");
        write_count(affected, out);
    }
    if let Some(next) = next {
        out.extend_from_slice(b",\"next\":");
        json::write_text(next, out);
    }
    if let Some(age) = stale {
        out.extend_from_slice(b",\"stale_seconds\":");
        write_count(age.as_secs(), out);
    }
    out.push(b'}');
}

/// Names, quotes and separators of each row, and what the cells hold: seldom too little, so the buffer is made once.
fn likely_bytes(rows: &Rows, next: Option<&str>) -> usize {
    let names: usize = rows.columns().iter().map(|column| column.name.len() + 4).sum();
    128 + next.map_or(0, str::len) + rows.len() * (names + 2) + rows.held_bytes()
}

pub(crate) fn value_body(value: &Datum) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    json::write_datum(value, &mut out);
    out
}

fn write_count(count: u64, out: &mut Vec<u8>) {
    json::write_integer(i64::try_from(count).unwrap_or(i64::MAX), out);
}

fn refused(trail: Trail<'_>, denied: &Denied, wait: Duration) -> Response<ReplyBody> {
    let refusal = &*denied.refusal;
    let delay = Delay::of(refusal, trail.number);
    let body = problem::body(refusal, delay, &trail.id);
    let facts = Facts { code: Some(refusal.code), status: refusal.status(), bytes: body.len() as u64, wait, ..Facts::default() };
    let status = StatusCode::from_u16(facts.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = reply(&trail, status, PROBLEM, Bytes::from(body));
    if let Some(delay) = delay {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(delay.seconds()));
    }
    if let Some(allow) = &denied.allow {
        insert(&mut response, ALLOW, allow.as_bytes());
    }
    if refusal.code == Code::Unauthenticated {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    let limits = trail.tenant().map(|(view, tenant)| view.live.tenants[tenant].limits);
    if let Some((policy, state)) = limits.and_then(|limits| problem::rate_limit(refusal, &limits, delay)) {
        insert(&mut response, RATE_LIMIT_POLICY, policy.as_bytes());
        insert(&mut response, RATE_LIMIT, state.as_bytes());
    }
    if let Some(internal) = &refusal.internal {
        trail.failed(refusal.code, internal);
    }
    trail.end(facts);
    response
}

#[cfg(test)]
mod tests {
    use spillgate_model::{Column, RowsBuilder, Type};

    use super::*;

    fn rows(max_rows: usize) -> Rows {
        let column = |name: &str, kind| Column { name: name.into(), kind };
        let columns = [column("ID", Type::Integer), column("a \"b\"", Type::Text)];
        let mut builder = RowsBuilder::new(columns.into(), max_rows, 1_000);
        for id in 1..=2 {
            builder.integer(id);
            builder.text(Type::Text, "x\ny").expect("it fits");
            builder.end_row();
        }
        builder.finish()
    }

    fn text(body: Vec<u8>) -> String {
        String::from_utf8(body).expect("JSON is UTF-8")
    }

    #[test]
    fn c5_a_reply_says_whether_it_is_whole() {
        let all = r#"{"rows":[{"ID":1,"a \"b\"":"x\ny"},{"ID":2,"a \"b\"":"x\ny"}],"row_count":2,"truncated":false}"#;
        assert_eq!(text(rows_body(&rows(2), None, None, None)), all);
        let cut = r#"{"rows":[{"ID":1,"a \"b\"":"x\ny"}],"row_count":1,"truncated":true}"#;
        assert_eq!(text(rows_body(&rows(1), None, None, None)), cut);
    }

    #[test]
    fn a_reply_has_next_affected_and_age_where_they_say_something() {
        let empty = Rows::default();
        assert_eq!(text(rows_body(&empty, None, Some(3), None)), r#"{"rows":[],"row_count":0,"truncated":false,"affected":3}"#);
        let body = text(rows_body(&empty, Some("a\"b"), None, Some(Duration::from_millis(2_900))));
        assert_eq!(body, r#"{"rows":[],"row_count":0,"truncated":false,"next":"a\"b","stale_seconds":2}"#);
    }

    #[test]
    fn a_reply_is_built_in_one_allocation() {
        let many = {
            let columns = [Column { name: "A_RATHER_LONG_COLUMN_NAME".into(), kind: Type::Integer }];
            let mut builder = RowsBuilder::new(columns.into(), 1_000, 1 << 20);
            for id in 0..1_000 {
                builder.integer(4_000_000_000 + id);
                builder.end_row();
            }
            builder.finish()
        };
        let body = rows_body(&many, None, None, None);
        assert_eq!(body.capacity(), likely_bytes(&many, None), "it was not grown");
        assert!(body.capacity() < 2 * body.len(), "far too large: {} for {}", body.capacity(), body.len());
    }
}
