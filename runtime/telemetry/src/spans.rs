//! Spans: one a call, to an OTLP/HTTP collector (JSON).
//!
//! Invariants
//! 1. No call waits for the collector: its span goes into a queue of [`QUEUE`] or is dropped and counted.
//! 2. Every request to the collector ends within [`SEND_TIMEOUT`]; what it does not take is dropped and counted, never kept.
//! 3. A trace whose caller does not record it is not exported.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};

use crate::access::{AccessRecord, TEXT_BYTES};
use crate::collector::Collector;
use crate::instrument::Counter;
use crate::throttle::Throttle;
use crate::trace::TraceContext;
use crate::unpoisoned;

/// Spans that wait to be sent.
const QUEUE: usize = 2_048;
/// Spans of one request.
const BATCH: usize = 512;
/// How long a span waits for company.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// One request to the collector.
pub(crate) const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// The queue's end that calls see.
pub(crate) struct Spans {
    queue: SyncSender<Message>,
    shared: Arc<Shared>,
    scope: InstrumentationScope,
}

enum Message {
    Span(Box<SpanData>),
    Close,
}

struct Shared {
    state: Mutex<State>,
    ended: Condvar,
    dropped: Arc<Counter>,
}

#[derive(Default)]
struct State {
    closing: bool,
    ended: bool,
}

impl Spans {
    /// Starts the thread that sends to `base` + `/v1/traces`.
    pub(crate) fn start(base: &str, version: &'static str, dropped: Arc<Counter>, held_back: &Arc<Counter>) -> Result<Self, String> {
        let url = format!("{}/v1/traces", base.trim_end_matches('/'));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
        let mut exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Collector::new(base)?)
            .with_endpoint(url)
            .with_protocol(Protocol::HttpJson)
            .with_timeout(SEND_TIMEOUT)
            .build()
            .map_err(|error| error.to_string())?;
        let attributes = [KeyValue::new("service.name", "spillgate"), KeyValue::new("service.version", version)];
        exporter.set_resource(&Resource::builder_empty().with_attributes(attributes).build());
        let (queue, spans) = sync_channel(QUEUE);
        let shared = Arc::new(Shared { state: Mutex::default(), ended: Condvar::new(), dropped });
        let sender = Sender { exporter, runtime, shared: shared.clone(), throttle: Throttle::new(held_back) };
        thread::Builder::new().name("spans".into()).spawn(move || sender.run(&spans)).map_err(|error| error.to_string())?;
        Ok(Spans { queue, shared, scope: InstrumentationScope::builder("spillgate").with_version(version).build() })
    }

    /// Queues the span of a call that ended at `now`.
    pub(crate) fn append(&self, record: &AccessRecord<'_>, now: SystemTime) {
        let trace = record.trace.unwrap_or_else(TraceContext::start);
        if !trace.sampled {
            return;
        }
        let span = Box::new(self.span(record, trace, now));
        if self.queue.try_send(Message::Span(span)).is_err() {
            self.shared.dropped.increment();
        }
    }

    /// Sends what waits and ends the thread; waits `limit` at most.
    pub(crate) fn close(&self, limit: Duration) -> bool {
        let mut state = unpoisoned(self.shared.state.lock());
        state.closing = true;
        // Where the queue is full, the thread is awake and sees `closing` after its batch.
        drop(self.queue.try_send(Message::Close));
        unpoisoned(self.shared.ended.wait_timeout_while(state, limit, |state| !state.ended)).0.ended
    }

    fn span(&self, record: &AccessRecord<'_>, trace: TraceContext, now: SystemTime) -> SpanData {
        let text = |value: &str| value[..value.floor_char_boundary(TEXT_BYTES)].to_owned();
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let mut attributes = vec![
            KeyValue::new("http.request.method", text(record.method)),
            KeyValue::new("http.response.status_code", i64::from(record.status)),
            KeyValue::new("client.address", record.remote.to_string()),
            KeyValue::new("spillgate.request_id", text(record.request_id)),
            KeyValue::new("spillgate.tenant", text(record.tenant)),
            KeyValue::new("spillgate.flow", text(record.flow)),
            KeyValue::new("spillgate.code", record.code),
            KeyValue::new("spillgate.wait_us", number(u64::try_from(record.wait.as_micros()).unwrap_or(u64::MAX))),
            KeyValue::new("spillgate.rows", number(record.rows)),
            KeyValue::new("spillgate.bytes", number(record.bytes)),
            KeyValue::new("spillgate.truncated", record.truncated),
            KeyValue::new("spillgate.stale", record.stale),
        ];
        attributes.extend(record.run.map(|run| KeyValue::new("spillgate.run", text(run))));
        let context = (TraceId::from(trace.trace_id), SpanId::from(trace.span_id));
        SpanData {
            span_context: SpanContext::new(context.0, context.1, TraceFlags::SAMPLED, false, TraceState::default()),
            parent_span_id: SpanId::from(trace.parent_id),
            parent_span_is_remote: trace.parent_id != 0,
            span_kind: SpanKind::Server,
            name: text(record.flow).into(),
            start_time: now.checked_sub(record.duration).unwrap_or(now),
            end_time: now,
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: if record.status >= 500 { Status::error(record.code) } else { Status::Unset },
            instrumentation_scope: self.scope.clone(),
        }
    }
}

/// The queue's other end: the thread that sends.
struct Sender {
    exporter: SpanExporter,
    runtime: tokio::runtime::Runtime,
    shared: Arc<Shared>,
    throttle: Throttle,
}

impl Sender {
    fn run(self, spans: &Receiver<Message>) {
        while !unpoisoned(self.shared.state.lock()).closing {
            self.send(gather(spans, true));
        }
        loop {
            let rest = gather(spans, false);
            if rest.is_empty() {
                break;
            }
            self.send(rest);
        }
        unpoisoned(self.shared.state.lock()).ended = true;
        self.shared.ended.notify_all();
    }

    fn send(&self, batch: Vec<SpanData>) {
        let spans = batch.len();
        if spans == 0 {
            return;
        }
        let result = self.runtime.block_on(self.exporter.export(batch));
        if let Err(error) = result {
            self.shared.dropped.add(u64::try_from(spans).unwrap_or(u64::MAX));
            if let Some(held_back) = self.throttle.pass() {
                tracing::warn!(spans, %error, held_back, "spans not taken by the collector");
            }
        }
    }
}

/// A batch. With `wait`: sleeps until there is one, then gives further spans a moment to come.
fn gather(spans: &Receiver<Message>, wait: bool) -> Vec<SpanData> {
    let mut batch = Vec::new();
    let mut until = None;
    while batch.len() < BATCH {
        let received = match until {
            _ if !wait => spans.try_recv().ok(),
            None => spans.recv().ok(),
            Some(until) => spans.recv_timeout(Instant::saturating_duration_since(&until, Instant::now())).ok(),
        };
        match received {
            Some(Message::Span(span)) => batch.push(*span),
            Some(Message::Close) if !wait => {}
            Some(Message::Close) | None => break,
        }
        until = until.or_else(|| Instant::now().checked_add(FLUSH_EVERY));
    }
    batch
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;
    use crate::access::tests::record;

    /// A collector on loopback that takes one request, answers with `status`, and gives the request's line and body.
    fn collector(status: &'static str) -> (String, thread::JoinHandle<(String, serde_json::Value)>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let serve = move || {
            let (mut stream, _) = listener.accept().expect("the exporter connects");
            let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
            let mut first = String::new();
            reader.read_line(&mut first).expect("a request line");
            let mut length = 0;
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).expect("a header");
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().expect("a length");
                }
                if line == "\r\n" {
                    break;
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).expect("the body");
            write!(stream, "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}").expect("the reply");
            (first, serde_json::from_slice(&body).expect("JSON"))
        };
        (url, thread::spawn(serve))
    }

    fn start(url: &str) -> (Spans, Arc<Counter>) {
        let dropped = Arc::new(Counter::default());
        (Spans::start(url, "1.2.3", dropped.clone(), &Arc::default()).expect("starts"), dropped)
    }

    #[test]
    fn a_collector_gets_the_span_of_a_call() {
        let (url, request) = collector("200 OK");
        let (spans, dropped) = start(&url);
        spans.append(&record(), SystemTime::UNIX_EPOCH + Duration::from_secs(1_793_000_000));
        assert!(spans.close(Duration::from_secs(10)));
        let (first, body) = request.join().expect("the collector got a request");
        assert_eq!(first, "POST /v1/traces HTTP/1.1\r\n");
        let resource = &body["resourceSpans"][0];
        assert!(resource["resource"].to_string().contains("1.2.3"), "{body}");
        let span = &resource["scopeSpans"][0]["spans"][0];
        assert_eq!((&span["name"], &span["traceId"]), (&"truck_position".into(), &"4bf92f3577b34da6a3ce929d0e0e4736".into()));
        assert_eq!((&span["parentSpanId"], &span["endTimeUnixNano"]), (&"00f067aa0ba902b7".into(), &"1793000000000000000".into()));
        assert!(span["attributes"].to_string().contains("dispatch-agent"), "{span}");
        assert_eq!(dropped.value(), 0);
    }

    #[test]
    fn a_trace_its_caller_does_not_record_is_not_sent() {
        let (spans, dropped) = start("http://127.0.0.1:9");
        let trace = record().trace.map(|trace| TraceContext { sampled: false, ..trace });
        spans.append(&AccessRecord { trace, ..record() }, SystemTime::UNIX_EPOCH);
        assert!(spans.close(Duration::from_secs(10)));
        assert_eq!(dropped.value(), 0, "nothing was sent to where nobody listens");
    }

    #[test]
    fn what_a_collector_does_not_take_is_counted() {
        let (url, request) = collector("503 Service Unavailable");
        let (spans, dropped) = start(&url);
        spans.append(&record(), SystemTime::UNIX_EPOCH);
        assert!(spans.close(Duration::from_secs(10)));
        request.join().expect("the collector got a request");
        assert_eq!(dropped.value(), 1);
    }

    #[test]
    fn a_flood_beyond_the_queue_is_dropped_and_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let (spans, dropped) = start(&url);
        (0..BATCH + 1).for_each(|_| spans.append(&record(), SystemTime::UNIX_EPOCH));
        let silent = listener.accept().expect("the exporter connects and waits for a reply");
        (0..QUEUE + BATCH).for_each(|_| spans.append(&record(), SystemTime::UNIX_EPOCH));
        assert!(dropped.value() >= 1, "the queue is bounded");
        assert!(!spans.close(Duration::from_millis(1)), "the end waits only so long");
        drop((silent, listener));
        assert!(spans.close(Duration::from_secs(20)));
    }

    #[test]
    fn a_url_that_is_none_is_an_error_at_start() {
        for url in ["collector:4318", "ftp://collector", "http://", "not a url"] {
            assert!(Spans::start(url, "1", Arc::default(), &Arc::default()).is_err(), "{url}");
        }
    }
}
