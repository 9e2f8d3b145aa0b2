//! Refusals on the wire: problem details (RFC 9457), `Retry-After`, `RateLimit` fields, and a help page per code.

use std::time::Duration;

use spillgate_admission::TenantLimits;
use spillgate_model::{Code, Refusal, Retryable, json};

/// Where the help pages stand; a problem's `type` is a path below it.
pub(crate) const PAGES: &str = "/problems/";

/// How long a caller is told to wait, jitter added: those that were refused together do not come back together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delay {
    milliseconds: u64,
}

impl Delay {
    /// Up to a fifth longer than the refusal says; `seed` is any number that differs between calls.
    pub(crate) fn of(refusal: &Refusal, seed: u64) -> Option<Self> {
        let wait = refusal.retry_after?;
        let shortest = u64::try_from(wait.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX);
        let longer = (shortest / 5).saturating_add(1);
        Some(Delay { milliseconds: shortest.saturating_add(mixed(seed) % longer) })
    }
    /// For `Retry-After`: never earlier than the milliseconds.
    pub(crate) fn seconds(self) -> u64 {
        Duration::from_millis(self.milliseconds.saturating_add(999)).as_secs()
    }
}

/// The finalizer of `SplitMix64`: neighbours far apart.
fn mixed(seed: u64) -> u64 {
    let mut value = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The problem object.
pub(crate) fn body(refusal: &Refusal, delay: Option<Delay>, request_id: &str) -> Vec<u8> {
    let code = refusal.code;
    let mut out = Vec::with_capacity(512 + refusal.detail.len());
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(PAGES.as_bytes());
    out.extend_from_slice(code.name().as_bytes());
    out.push(b'"');
    text(&mut out, "title", code.title());
    count(&mut out, "status", u64::from(refusal.status()));
    text(&mut out, "code", code.name());
    text(&mut out, "detail", &refusal.detail);
    text(&mut out, "scope", refusal.scope.name());
    out.extend_from_slice(if refusal.retryable { b",\"retryable\":true" } else { b",\"retryable\":false" });
    match delay {
        Some(delay) => count(&mut out, "retry_after_ms", delay.milliseconds),
        None => out.extend_from_slice(b",\"retry_after_ms\":null"),
    }
    text(&mut out, "advice", code.advice());
    text(&mut out, "request_id", request_id);
    if let Some(policy) = &refusal.policy {
        out.extend_from_slice(b",\"policy\":{\"name\":");
        json::write_text(policy.name, &mut out);
        count(&mut out, "limit", policy.limit);
        count(&mut out, "used", policy.used);
        out.push(b'}');
    }
    if !refusal.fields.is_empty() {
        out.extend_from_slice(b",\"errors\":[");
        for (index, field) in refusal.fields.iter().enumerate() {
            out.extend_from_slice(if index == 0 { b"{\"field\":" } else { b",{\"field\":" });
            json::write_text(&field.name, &mut out);
            text(&mut out, "problem", &field.problem);
            out.push(b'}');
        }
        out.push(b']');
    }
    out.push(b'}');
    out
}

fn key(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

fn text(out: &mut Vec<u8>, name: &str, value: &str) {
    key(out, name);
    json::write_text(value, out);
}

fn count(out: &mut Vec<u8>, name: &str, value: u64) {
    key(out, name);
    json::write_integer(i64::try_from(value).unwrap_or(i64::MAX), out);
}

/// `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-11) where a quota of the tenant spoke.
pub(crate) fn rate_limit(refusal: &Refusal, limits: &TenantLimits, delay: Option<Delay>) -> Option<(String, String)> {
    let policy = match refusal.code {
        Code::RateExceeded => format!("\"rate\";q={};w={}", limits.rate.calls, limits.rate.period.as_secs()),
        Code::InFlightExceeded => format!("\"in_flight\";q={};qu=\"concurrent-requests\"", limits.in_flight),
        _ => return None,
    };
    let name = policy.split(';').next().unwrap_or_default();
    // The window never ends after Retry-After, which rules where both are there.
    let state = format!("{name};r=0;t={}", delay.map_or(0, Delay::seconds));
    Some((policy, state))
}

/// The help page of a code, in Markdown.
pub(crate) fn page(code: Code) -> String {
    let again = match code.retryable() {
        Retryable::No => "No. The same call will fail again.",
        Retryable::After => "Yes, after `retry_after_ms`.",
        Retryable::ByCase => "The reply's `retryable` says so for the case at hand.",
    };
    let (name, title, advice) = (code.name(), code.title(), code.advice());
    let (status, scope) = (code.status(), code.scope().name());
    format!("# {name}\n\n{title}.\n\n* Status: {status}\n* Scope: {scope}\n* May the same call be sent again? {again}\n\n{advice}\n")
}

/// All codes, in Markdown.
pub(crate) fn index() -> String {
    let lines = Code::ALL.iter().map(|code| format!("* [{0}]({PAGES}{0}) ({1}): {2}\n", code.name(), code.status(), code.title()));
    format!("# Problems\n\n{}", lines.collect::<String>())
}
