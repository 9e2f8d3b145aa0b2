//! The floor of durable appends over HTTP: axum and one thread that writes what has come in meanwhile to a plain file with one
//! `fdatasync` for all of it.

use std::path::Path;
use std::sync::mpsc;

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::sync::oneshot;

use crate::plain::PlainFile;

/// More than the callers that are measured, so that a sender never blocks.
const WAITING: usize = 4096;
/// Allocated beforehand; more than a run appends.
const FILE_BYTES: u64 = 2 << 30;

const REFUSAL: &str = r#"{"type":"about:blank","title":"The queue is full","status":429,"code":"queue_full","detail":"Tenant flood has as many waiting items as it may have.","scope":"tenant","retryable":"after","retry_after_ms":1000,"advice":"Wait as long as retry_after_ms says, then send the same call again. Splitting the task or switching tools will not help.","policy":{"name":"tenant.queued.items","limit":32,"used":32}}"#;

struct Append {
    content: Bytes,
    durable: oneshot::Sender<u64>,
}

type Appends = mpsc::SyncSender<Append>;

/// The endpoint.
pub(super) fn routes(path: &str) -> Result<Router> {
    let file = PlainFile::allocated(Path::new(path), FILE_BYTES)?;
    let (appends, waiting) = mpsc::sync_channel(WAITING);
    std::thread::Builder::new().name("append".into()).spawn(move || write(file, &waiting))?;
    Ok(Router::new().route("/api/notes", post(append)).with_state(appends))
}

/// Endpoints that refuse, with a reply about as long as the product's.
pub(super) fn refusing() -> Router {
    let refusal = || (StatusCode::TOO_MANY_REQUESTS, [(CONTENT_TYPE, "application/problem+json")], REFUSAL);
    Router::new()
        .route("/api/notes", post(move |_content: Bytes| async move { refusal() }))
        .route("/api/slow", get(move || async move { refusal() }))
}

async fn append(State(appends): State<Appends>, content: Bytes) -> Response {
    match appended(&appends, content).await {
        Ok(number) => {
            let body = format!(r#"{{"job":{{"id":"1-{number:x}","state":"queued","href":"/api/jobs/1-{number:x}"}}}}"#);
            (StatusCode::ACCEPTED, [(CONTENT_TYPE, "application/json")], body).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn appended(appends: &Appends, content: Bytes) -> Result<u64> {
    let (durable, told) = oneshot::channel();
    appends.try_send(Append { content, durable }).ok().context("more calls waiting than are measured")?;
    Ok(told.await?)
}

fn write(mut file: PlainFile, waiting: &mpsc::Receiver<Append>) -> Result<()> {
    let mut number = 0;
    let mut batch = Vec::new();
    while let Ok(first) = waiting.recv() {
        let mut durable = Vec::new();
        batch.clear();
        for append in std::iter::once(first).chain(waiting.try_iter()) {
            batch.extend_from_slice(&append.content);
            durable.push(append.durable);
        }
        file.append(&batch)?;
        for caller in durable {
            number += 1;
            let _caller_gone = caller.send(number);
        }
    }
    Ok(())
}
