//! Reads a request's body under its cap and before its deadline.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use spillgate_model::{Code, Refusal, Scope, limits};
use tokio::time::Instant;

/// The most bytes the body can have, known before it is read.
pub(crate) fn most_bytes(body: &Incoming) -> u64 {
    body.size_hint().upper().unwrap_or(limits::BODY_BYTES)
}

/// The refusal of a body that says, or turns out, to be too large.
pub(crate) fn too_large(bytes: u64) -> Refusal {
    let detail = format!("A body has at most {} bytes.", limits::BODY_BYTES);
    Refusal::new(Code::TooLarge, detail).policy("body_bytes", limits::BODY_BYTES, bytes)
}

/// The whole body. One frame, the usual case, is not copied.
pub(crate) async fn read(body: Incoming, deadline: Instant) -> Result<Bytes, Refusal> {
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    tokio::time::timeout_at(deadline, collect(body)).await.unwrap_or_else(|_| {
        let mut refusal = Refusal::new(Code::DeadlineExceeded, "The body did not arrive before the deadline.");
        refusal.scope = Scope::Caller;
        Err(refusal)
    })
}

async fn collect(mut body: Incoming) -> Result<Bytes, Refusal> {
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Refusal::new(Code::Malformed, "The body broke off."))?;
        let Ok(data) = frame.into_data() else { continue };
        let bytes = (first.len() + whole.len() + data.len()) as u64;
        if bytes > limits::BODY_BYTES {
            return Err(too_large(bytes));
        }
        if first.is_empty() && whole.is_empty() {
            first = data;
        } else {
            whole.extend_from_slice(&std::mem::take(&mut first));
            whole.extend_from_slice(&data);
        }
    }
    Ok(if whole.is_empty() { first } else { whole.freeze() })
}
