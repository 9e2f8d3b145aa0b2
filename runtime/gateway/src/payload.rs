//! Reads a request's body under its cap and before its deadline.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use spillgate_config::Plan;
use spillgate_config::plan::Flow;
use spillgate_model::{Code, Refusal, limits};
use tokio::time::Instant;

use crate::fit;

/// The most bytes a body may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cap {
    bytes: u64,
    /// It is the queue's limit for an item.
    item: bool,
}

impl Cap {
    /// Of a flow's calls. An item may be larger than a direct call, but only with its length told first: it says what room
    /// to keep.
    pub(crate) fn of(flow: &Flow, plan: &Plan, body: &Incoming) -> Cap {
        let told = body.size_hint().upper().is_some();
        match flow.queue.as_ref().map(|cut| plan.queues[cut.queue].max_item.value) {
            Some(bytes) if told || bytes < limits::BODY_BYTES => Cap { bytes, item: true },
            _ => Cap { bytes: limits::BODY_BYTES, item: false },
        }
    }

    /// The most bytes that this body can have, known before it is read.
    pub(crate) fn most_bytes(self, body: &Incoming) -> Result<u64, Refusal> {
        match body.size_hint().upper() {
            Some(bytes) if bytes > self.bytes => Err(self.refusal(bytes)),
            bytes => Ok(bytes.unwrap_or(self.bytes)),
        }
    }

    /// The refusal of a body that says, or turns out, to be too large.
    fn refusal(self, bytes: u64) -> Refusal {
        let limit = self.bytes;
        if self.item {
            let detail = format!("An item of this queue has at most {limit} bytes.");
            return Refusal::new(Code::ItemTooLarge, detail).policy("queue.max_item", limit, bytes);
        }
        Refusal::new(Code::TooLarge, format!("A body has at most {limit} bytes.")).policy("body_bytes", limit, bytes)
    }
}

/// Whether there is a body at all.
pub(crate) fn is_there(body: &Incoming) -> bool {
    body.size_hint().upper() != Some(0)
}

/// The whole body. One frame, the usual case, is not copied.
pub(crate) async fn read(body: Incoming, cap: Cap, deadline: Instant) -> Result<Bytes, Refusal> {
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let late = || fit::too_late("The body did not arrive before the deadline; nothing was done.");
    tokio::time::timeout_at(deadline, collect(body, cap)).await.unwrap_or_else(|_| Err(late()))
}

async fn collect(mut body: Incoming, cap: Cap) -> Result<Bytes, Refusal> {
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Refusal::new(Code::Malformed, "The body broke off."))?;
        let Ok(data) = frame.into_data() else { continue };
        let bytes = (first.len() + whole.len() + data.len()) as u64;
        if bytes > cap.bytes {
            return Err(cap.refusal(bytes));
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
