//! Paths that are no flows: health, help, and the document of what a caller may see.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::header::{ALLOW, CACHE_CONTROL, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, StatusCode};
use hyper::body::Bytes;
use spillgate_engine::{Durable, query as query_string};
use spillgate_model::{Code, Refusal};
use spillgate_queue::Health;

use crate::respond::Denied;
use crate::view::View;
use crate::{Inner, problem};

/// A reply that no flow made.
pub(crate) struct Page {
    pub(crate) status: StatusCode,
    pub(crate) kind: HeaderValue,
    pub(crate) body: Bytes,
    pub(crate) header: Option<(HeaderName, HeaderValue)>,
}

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const MARKDOWN: HeaderValue = HeaderValue::from_static("text/markdown; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

impl Page {
    fn of(status: StatusCode, kind: HeaderValue, body: impl Into<Bytes>) -> Self {
        Page { status, kind, body: body.into(), header: Some((CACHE_CONTROL, HeaderValue::from_static("no-store"))) }
    }
}

/// A page for everybody, if the path is one.
pub(crate) fn open(gateway: &Inner, parts: &Parts) -> Result<Option<Page>, Denied> {
    let path = parts.uri.path();
    // Nearly every request is a call: one comparison sends it on.
    if path.starts_with("/api/") {
        return Ok(None);
    }
    let page = match path {
        "/healthz" => Page::of(StatusCode::OK, TEXT, "ok\n"),
        "/readyz" => readiness(gateway, parts.uri.query()),
        "/problems" => Page::of(StatusCode::OK, MARKDOWN, problem::index()),
        _ => {
            let name = path.strip_prefix(problem::PAGES);
            match name.and_then(|name| Code::ALL.iter().find(|code| code.name() == name)) {
                Some(code) => Page::of(StatusCode::OK, MARKDOWN, problem::page(*code)),
                None => return Ok(None),
            }
        }
    };
    readable(&parts.method).map(|()| Some(page))
}

/// A page for whoever has a key, if the path is one.
pub(crate) fn keyed(view: &Arc<View>, tenant: usize, parts: &Parts) -> Result<Option<Page>, Denied> {
    if parts.uri.path() != "/openapi.json" {
        return Ok(None);
    }
    readable(&parts.method)?;
    let mut page = Page::of(StatusCode::OK, JSON, view.openapi(tenant));
    // It differs by key and changes with a reload.
    page.header = Some((CACHE_CONTROL, HeaderValue::from_static("private, no-cache")));
    Ok(Some(page))
}

fn readable(method: &Method) -> Result<(), Denied> {
    if method == Method::GET || method == Method::HEAD {
        return Ok(());
    }
    let allow = format!("{}, {}", Method::GET, Method::HEAD);
    let refusal = Refusal::new(Code::MethodNotAllowed, format!("This path is read with {allow} ({ALLOW})."));
    Err(Denied { allow: Some(allow), ..refusal.into() })
}

/// `ok`, or `degraded` with reasons: direct flows serve while a database or the store is down, so both are ready. Asked for
/// durable work, a store that takes none is not ready.
fn readiness(gateway: &Inner, query: Option<&str>) -> Page {
    let draining = gateway.draining.load(Ordering::Relaxed);
    if draining {
        return readiness_page(StatusCode::SERVICE_UNAVAILABLE, "draining", &["this server is stopping".to_owned()]);
    }
    let store = store_reason(&gateway.engine.store());
    let for_durable = query_string::values(query.unwrap_or_default(), "for").any(|value| value.as_deref() == Some("durable"));
    if let (true, Some(reason)) = (for_durable, &store) {
        return readiness_page(StatusCode::SERVICE_UNAVAILABLE, "unavailable", std::slice::from_ref(reason));
    }
    let view = gateway.views.current(&gateway.engine);
    let databases = view.live.databases.iter().map(|database| database.status());
    let unreachable = databases.filter(|status| status.reachable == Some(false));
    let mut reasons: Vec<String> = unreachable.map(|status| format!("database {} cannot be reached", status.name)).collect();
    // Where no flow needs a store, nobody misses it.
    reasons.extend(store.filter(|_| view.durable));
    reasons.extend(gateway.engine.unserved().reasons());
    reasons.extend((gateway.readiness)());
    readiness_page(StatusCode::OK, if reasons.is_empty() { "ok" } else { "degraded" }, &reasons)
}

/// Why the store takes no work; nothing that only operators may read.
fn store_reason(store: &Durable) -> Option<String> {
    let health = match store {
        Durable::Absent => return Some("no flow of this server needs a store".to_owned()),
        Durable::Recovering => return Some("the store of durable work is being opened".to_owned()),
        Durable::Failed(_) => return Some("the store of durable work could not be opened".to_owned()),
        Durable::Serving(store) => store.health(),
    };
    match health {
        Health::Serving => None,
        Health::DiskLow { free, reserve } => {
            Some(format!("the volume of the store is low on space: {free} bytes are free, {reserve} are to be left"))
        }
        // What failed names files: that is for operators.
        Health::Failed { .. } => Some("the store of durable work has stopped: /admin/v1/queues on the admin listener says why".to_owned()),
    }
}

fn readiness_page(status: StatusCode, word: &str, reasons: &[String]) -> Page {
    let body = serde_json::json!({ "status": word, "reasons": reasons });
    Page::of(status, JSON, body.to_string())
}
