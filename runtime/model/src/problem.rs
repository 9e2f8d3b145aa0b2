//! Refusals as problem details (RFC 9457), the same on every face, and a help page per code.

use crate::code::{Code, Retryable, Scope};
use crate::json;
use crate::refusal::Refusal;
use crate::wall;

/// Media type of a problem.
pub const MEDIA_TYPE: &str = "application/problem+json";
/// Where the help pages stand; a problem's `type` is a path below it.
pub const PAGES: &str = "/problems/";

/// The problem object. `retry_after_ms`: how long this caller is told to wait.
pub fn body(refusal: &Refusal, retry_after_ms: Option<u64>, request_id: &str) -> Vec<u8> {
    debug_assert_eq!(refusal.retryable, retry_after_ms.is_some(), "what may be sent again says when: {refusal}");
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
    match retry_after_ms {
        Some(milliseconds) => count(&mut out, "retry_after_ms", milliseconds),
        None => out.extend_from_slice(b",\"retry_after_ms\":null"),
    }
    text(&mut out, "advice", refusal.advice());
    text(&mut out, "request_id", request_id);
    if let Some(policy) = &refusal.policy {
        out.extend_from_slice(b",\"policy\":{\"name\":");
        json::write_text(policy.name, &mut out);
        count(&mut out, "limit", policy.limit);
        count(&mut out, "used", policy.used);
        out.push(b'}');
    }
    if let Some(milliseconds) = refusal.valid_until_ms {
        text(&mut out, "valid_until", &wall::timestamp(milliseconds.get()));
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

/// The code whose help page stands at `path`.
pub fn code_of_page(path: &str) -> Option<Code> {
    let name = path.strip_prefix(PAGES)?;
    Code::ALL.iter().copied().find(|code| code.name() == name)
}

/// The help page of a code, in Markdown.
pub fn page(code: Code) -> String {
    let again = match code.retryable() {
        Retryable::No => "No. The same call will fail again.",
        Retryable::After if code.final_advice().is_none() => "Yes, after `retry_after_ms`.",
        Retryable::After | Retryable::ByCase => "The reply's `retryable` says so for the case at hand.",
    };
    let (name, title, advice) = (code.name(), code.title(), code.advice());
    let scopes = [Some(code.scope()), code.other_advice().map(|(scope, _)| scope)].into_iter().flatten();
    let (status, scope) = (code.status(), scopes.map(Scope::name).collect::<Vec<_>>().join(" or "));
    let finally = code.final_advice().map(|advice| format!("\nWhere `retryable` is false: {advice}\n"));
    let elsewhere = code.other_advice().map(|(scope, advice)| format!("\nWhere `scope` is {}: {advice}\n", scope.name()));
    let otherwise: String = [finally, elsewhere].into_iter().flatten().collect();
    format!(
        "# {name}\n\n{title}.\n\n* Status: {status}\n* Scope: {scope}\n* May the same call be sent again? {again}\n\n{advice}\n{otherwise}"
    )
}

/// All codes, in Markdown.
pub fn index() -> String {
    let lines = Code::ALL.iter().map(|code| format!("* [{0}]({PAGES}{0}) ({1}): {2}\n", code.name(), code.status(), code.title()));
    format!("# Problems\n\n{}", lines.collect::<String>())
}
