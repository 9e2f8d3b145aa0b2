//! The only place where outcomes become replies: one pass into one buffer, sent as it is.
//!
//! Invariants
//! 1. Every reply has a `Spillgate-Request-Id`; every refusal is `application/problem+json` from the one table of codes.
//! 2. A call is over when its reply is made: what it had in flight is given back before the first byte is sent, so a
//!    caller that waits for its reply is never refused for it. Its memory is given back with the last byte.

use std::sync::Arc;
use std::time::Duration;

use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use hyper::body::Bytes;
use spillgate_admission::Permit;
use spillgate_engine::Outcome;
use spillgate_engine::reply::{ROWS_HEAD, rows_body, rows_tail, value_body};
use spillgate_model::{Code, Refusal};

use crate::consequences;
use crate::job_reply::{self, JobReply};
use crate::jobs::Asked;
use crate::problem::{self, Delay};
use crate::reply_body::{Cover, ReplyBody, WHOLE_BYTES};
use crate::stack::Ended;
use crate::trail::{Facts, Trail};

const REQUEST_ID: HeaderName = HeaderName::from_static("spillgate-request-id");
const RECOVERED: HeaderName = HeaderName::from_static("spillgate-recovered");
const STALE: HeaderName = HeaderName::from_static("spillgate-stale");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
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
        Ok(Ended::Flow { outcome, waited, permit, wait }) => {
            let wait = wait.filter(|_| matches!(outcome, Outcome::Job(_)));
            applied(flow_reply(trail, outcome, waited, permit), wait)
        }
        Ok(Ended::Job { asked, job, memory, waited }) => {
            let made = match asked {
                Asked::Look => job_reply::of_look(&job, &trail.id),
                Asked::Cancel => job_reply::of_cancel(&job, &trail.id),
            };
            applied(job_reply(trail, made, Duration::ZERO, memory.map(Ok)), waited)
        }
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
        Outcome::Kept(body) => success(trail, ReplyBody::whole(body.into(), cover(permit)), facts, None),
        Outcome::Job(job) => {
            let made = job_reply::of_call(&job, &trail.id);
            // The stored result and its copy are not held both while the reply is sent.
            drop(job);
            job_reply(trail, made, wait, Some(cover(permit)))
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

/// The first success after a failure says that it has passed: who waits for that need not ask.
fn say_recovered(response: &mut Response<ReplyBody>, trail: &Trail<'_>) {
    if !trail.recovered.is_empty() {
        insert(response, RECOVERED, consequences::recovered(&trail.recovered).as_bytes());
    }
}

fn success(trail: Trail<'_>, body: ReplyBody, facts: Facts, stale: Option<Duration>) -> Response<ReplyBody> {
    let facts = Facts { bytes: body.length(), stale: stale.is_some(), ..facts };
    let mut response = reply(&trail, StatusCode::OK, JSON, body);
    if let Some(age) = stale {
        response.headers_mut().insert(STALE, HeaderValue::from(age.as_secs()));
    }
    say_recovered(&mut response, &trail);
    trail.end(facts);
    response
}

/// What a job came to: its reply, or the problem it ended with. `cover` is the memory its result was read under.
fn job_reply(trail: Trail<'_>, made: JobReply, wait: Duration, cover: Option<Cover>) -> Response<ReplyBody> {
    let facts = Facts { code: made.problem, status: made.status, bytes: made.body.len() as u64, wait, ..Facts::default() };
    let body = match cover {
        Some(cover) => ReplyBody::whole(made.body, cover),
        None => Bytes::from(made.body).into(),
    };
    let status = StatusCode::from_u16(made.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = reply(&trail, status, if made.problem.is_some() { PROBLEM } else { JSON }, body);
    say_recovered(&mut response, &trail);
    if let Some(location) = &made.location {
        insert(&mut response, LOCATION, location.as_bytes());
    }
    if let Some(milliseconds) = made.retry_after_ms {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(milliseconds.div_ceil(1_000)));
    }
    trail.end(facts);
    response
}

/// Says how long the end of a job was waited for at most.
fn applied(mut response: Response<ReplyBody>, wait: Option<Duration>) -> Response<ReplyBody> {
    if let Some(wait) = wait {
        insert(&mut response, PREFERENCE_APPLIED, format!("wait={}", wait.as_secs()).as_bytes());
    }
    response
}

fn cover(permit: Arc<Permit>) -> Cover {
    Arc::try_unwrap(permit).map(Permit::into_memory)
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
