//! Replies: JSON pages, text pages, and refusals from the one table of codes.

use axum::body::Body;
use axum::response::Response;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, StatusCode};
use serde::Serialize;
use spillgate_model::{Code, Refusal, problem};

/// On every reply.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("spillgate-request-id");

/// A page that is true now.
pub(crate) fn text(kind: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A JSON page.
pub(crate) fn json(page: &impl Serialize) -> Response {
    match serde_json::to_vec(page) {
        Ok(body) => text("application/json", body),
        Err(error) => {
            tracing::error!(%error, "a page could not be written");
            refusal(&Refusal::new(Code::Internal, "The page could not be written."), "")
        }
    }
}

/// A refusal.
pub(crate) fn refusal(refusal: &Refusal, request_id: &str) -> Response {
    let mut response = text(problem::MEDIA_TYPE, problem::body(refusal, refusal.retry_after_ms(), request_id));
    *response.status_mut() = StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Some(milliseconds) = refusal.retry_after_ms() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(milliseconds.div_ceil(1_000)));
    }
    if refusal.code == Code::Unauthenticated {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// A JSON page, or why there is none.
pub(crate) fn result<T: Serialize>(page: Result<T, &Refusal>, request_id: &str) -> Response {
    match page {
        Ok(page) => json(&page),
        Err(error) => refusal(error, request_id),
    }
}

/// Another method is needed.
pub(crate) fn method_not_allowed(detail: &str, allow: &'static str, request_id: &str) -> Response {
    let mut response = refusal(&Refusal::new(Code::MethodNotAllowed, detail), request_id);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
    response
}
