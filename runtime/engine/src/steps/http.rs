//! `http` steps: one request to an allowed host, bounded in time and size, never redirected.
//!
//! A call that names its run names it to the service too, one hop further on: agents that call each other in a ring through it are
//! ended by the budget of their run.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Method, Request, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use spillgate_admission::{Reservation, RetryBudget};
use spillgate_config::plan::HttpStep;
use spillgate_model::refusal::DEFAULT_RETRY_AFTER;
use spillgate_model::{Code, Datum, Refusal, json};

use super::Context;
use super::retry::{Target, Tries};
use crate::Call;
use crate::verdict::{Cause, Failed, Fallible};

/// Connections kept open, and for how long.
const IDLE_PER_HOST: usize = 8;
const IDLE: Duration = Duration::from_secs(30);
/// Most bytes of the head of an answer.
const HEAD_BYTES: usize = 64 * 1024;

const RUN: HeaderName = HeaderName::from_static("spillgate-run");
const DEPTH: HeaderName = HeaderName::from_static("spillgate-depth");
/// The largest depth that a call can name.
const DEEPEST: u32 = 255;

type Pooled = hyper_util::client::legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// The client of all `http` steps; made when a plan first has one.
#[derive(Default)]
pub(crate) struct Client {
    pooled: OnceLock<Result<Pooled, String>>,
}

impl Client {
    fn get(&self) -> Result<&Pooled, Box<Failed>> {
        let made = self.pooled.get_or_init(|| {
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let connector =
                hyper_rustls::HttpsConnectorBuilder::new().with_provider_and_native_roots(provider).map_err(|error| error.to_string())?;
            let connector = connector.https_or_http().enable_http1().build();
            let mut client = hyper_util::client::legacy::Client::builder(TokioExecutor::new());
            client.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE).pool_max_idle_per_host(IDLE_PER_HOST);
            client.http1_max_buf_size(HEAD_BYTES);
            Ok(client.build(connector))
        });
        made.as_ref().map_err(|problem| {
            Failed::refused(
                Refusal::new(Code::UpstreamError, "This server has no certificates to check services with.").internal(problem.clone()),
            )
        })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Client")
    }
}

/// A request ready to be sent. Its headers may be secrets: `Debug` shows none.
pub(crate) struct PreparedHttp {
    method: Method,
    uri: Uri,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// `host:port`, as the allow-list names it.
    host: String,
    retries: RetryBudget,
}

impl fmt::Debug for PreparedHttp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "PreparedHttp({} {})", self.method, self.host)
    }
}

impl PreparedHttp {
    pub(crate) fn new(plan: &HttpStep, allowed: &[String], tenants: usize) -> Result<Self, String> {
        let method = Method::from_bytes(plan.method.as_bytes()).map_err(|_| format!("{} is no method", plan.method))?;
        let uri: Uri = plan.url.parse().map_err(|_| "the url cannot be read".to_owned())?;
        let host = host_and_port(&uri).ok_or("the url has no host")?;
        if !allowed.contains(&host) {
            return Err(format!("{host} is not among http_hosts"));
        }
        let mut headers = Vec::with_capacity(plan.headers.len());
        for (name, value) in &plan.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("{name} is no header name"))?;
            let mut value = HeaderValue::from_str(value.expose()).map_err(|_| format!("the value of header {name} cannot be sent"))?;
            value.set_sensitive(true);
            headers.push((name, value));
        }
        Ok(PreparedHttp { method, uri, headers, host, retries: RetryBudget::new(tenants) })
    }

    fn request(&self, call: &Call, body: Option<&Datum>) -> Result<Request<Full<Bytes>>, http::Error> {
        let mut bytes = Vec::new();
        let mut request = Request::builder().method(&self.method).uri(&self.uri);
        if let Some(headers) = request.headers_mut() {
            headers.extend(self.headers.iter().cloned());
            if let Some(run) = call.flowfile.run.as_deref().and_then(|run| HeaderValue::from_str(run).ok()) {
                headers.entry(RUN).or_insert(run);
                headers.entry(DEPTH).or_insert(call.depth.saturating_add(1).min(DEEPEST).into());
            }
            headers.entry(ACCEPT).or_insert(HeaderValue::from_static("application/json"));
            if body.is_some() {
                headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
            }
        }
        if let Some(body) = body {
            json::write_datum(body, &mut bytes);
        }
        request.body(Full::new(bytes.into()))
    }

    /// What each that sends it may retry.
    pub(super) fn target(&self) -> Target<'_> {
        Target::service(&self.retries)
    }

    /// Whether the same request may be sent twice without harm.
    pub(super) fn repeatable(&self) -> bool {
        self.method == Method::GET || self.method == Method::HEAD
    }
}

fn host_and_port(uri: &Uri) -> Option<String> {
    let port = uri.port_u16().or_else(|| match uri.scheme_str()? {
        "https" => Some(443),
        "http" => Some(80),
        _ => None,
    })?;
    Some(format!("{}:{port}", uri.host()?.to_ascii_lowercase()))
}

/// Sends the request, with its tries.
pub(super) async fn call(
    context: &Context<'_>,
    mut tries: Tries<'_>,
    plan: &HttpStep,
    prepared: &PreparedHttp,
    body: Option<Datum>,
) -> Fallible<(Datum, Reservation)> {
    // Asked again where it is sent: the plan of this call says who may be called.
    if !context.call.live.plan.server.http_hosts.contains(&prepared.host) {
        return Err(Failed::refused(Refusal::new(Code::UpstreamError, "The service of this step is not among http_hosts.")));
    }
    let client = context.inner.http.get()?;
    loop {
        let sent = tokio::time::timeout(plan.timeout, send(context, client, plan, prepared, body.as_ref())).await;
        let result = sent.unwrap_or_else(|_| Err(failed("The service did not answer in time.", prepared.repeatable(), String::new())));
        match result {
            Ok(value) => return Ok(value),
            Err(failed) => tries.again(failed).await?,
        }
    }
}

async fn send(
    context: &Context<'_>,
    client: &Pooled,
    plan: &HttpStep,
    prepared: &PreparedHttp,
    body: Option<&Datum>,
) -> Fallible<(Datum, Reservation)> {
    let request =
        prepared.request(context.call, body).map_err(|error| failed("The request could not be made.", false, error.to_string()))?;
    let response = client.request(request).await.map_err(|error| {
        // Where no connection was made nothing was sent.
        let again = error.is_connect() || prepared.repeatable();
        failed("The service could not be reached.", again, error.to_string())
    })?;
    let (parts, incoming) = response.into_parts();
    let mut bytes = Vec::new();
    let mut incoming = std::pin::pin!(incoming);
    while let Some(frame) = incoming.frame().await {
        let frame = frame.map_err(|error| failed("The answer of the service was cut off.", prepared.repeatable(), error.to_string()))?;
        if let Some(data) = frame.data_ref() {
            if bytes.len() + data.len() > plan.max_bytes {
                return Err(failed("The answer of the service is larger than the step allows.", false, String::new()));
            }
            bytes.extend_from_slice(data);
        }
    }
    if parts.status.is_server_error() {
        let detail = format!("The service answered with status {}.", parts.status.as_u16());
        return Err(failed(&detail, prepared.repeatable(), String::new()));
    }
    let grown = context.reserve_tree(super::json::most_bytes(&bytes))?;
    answer(&parts, &bytes).map(|value| (value, grown))
}

/// `{status, headers, body}`.
fn answer(parts: &http::response::Parts, bytes: &[u8]) -> Fallible<Datum> {
    let mut headers = BTreeMap::new();
    for (name, value) in &parts.headers {
        if let Ok(value) = value.to_str() {
            headers.insert(Arc::from(name.as_str()), Datum::Text(Arc::from(value)));
        }
    }
    let kind = parts.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let body = if bytes.is_empty() {
        Datum::Null
    } else if kind == "application/json" || kind.ends_with("+json") {
        super::json::parse(bytes).map_err(|problem| failed("The answer of the service is not the JSON it says it is.", false, problem))?
    } else {
        match std::str::from_utf8(bytes) {
            Ok(text) => Datum::Text(Arc::from(text)),
            Err(_) => Datum::Binary(Arc::from(bytes)),
        }
    };
    let status = Datum::Integer(i64::from(parts.status.as_u16()));
    let value = [("status", status), ("headers", Datum::Map(Arc::new(headers))), ("body", body)];
    Ok(Datum::Map(Arc::new(value.into_iter().map(|(name, value)| (Arc::from(name), value)).collect())))
}

fn failed(detail: &str, again: bool, internal: String) -> Box<Failed> {
    let refusal = Refusal::new(Code::UpstreamError, detail).internal(internal);
    let refusal = if again { refusal.retry_after(DEFAULT_RETRY_AFTER) } else { refusal };
    Box::new(Failed { refusal, again, cause: Cause::Said })
}
