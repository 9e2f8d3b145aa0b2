//! `spillgate call`: calls a flow by its name, as a tenant. How the flow is called is read from `/openapi.json`.

use std::process::ExitCode;

use anyhow::{Context as _, anyhow, bail};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};

use crate::{cli, wiring};

/// Most bytes of a reply that are read.
const REPLY_BYTES: usize = 1 << 30;
/// All but the unreserved characters of RFC 3986.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

pub(crate) type HttpsClient = Client<hyper_rustls::HttpsConnector<hyper_util::client::legacy::connect::HttpConnector>, Full<Bytes>>;

/// Prints the reply's body, which of a flow that queues is the job; exit 0 for a status below 400.
pub(crate) fn run(options: &cli::Call) -> anyhow::Result<ExitCode> {
    wiring::install_tls_provider();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(call(options))
}

async fn call(options: &cli::Call) -> anyhow::Result<ExitCode> {
    let key = read_key(&options.key)?;
    let client = client()?;
    let base = options.url.trim_end_matches('/');
    let asked = Asked { method: Method::GET, url: format!("{base}/openapi.json"), headers: Vec::new(), body: None };
    let (status, document) = send(&client, &key, asked).await?;
    if status >= 400 {
        println!("{}", String::from_utf8_lossy(&document));
        return Ok(ExitCode::from(1));
    }
    let document: Value = serde_json::from_slice(&document).context("the server's /openapi.json is not JSON")?;
    let (method, path, operation) = find(&document, &options.flow)?;
    let (target, body) = request(&path, operation, &options.inputs)?;
    let asked = Asked { method, url: format!("{base}{target}"), headers: headers(options), body };
    let (status, reply) = send(&client, &key, asked).await?;
    println!("{}", String::from_utf8_lossy(&reply));
    Ok(if status < 400 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Speaks HTTP and HTTPS.
pub(crate) fn client() -> anyhow::Result<HttpsClient> {
    let connector = hyper_rustls::HttpsConnectorBuilder::new().with_native_roots()?.https_or_http().enable_http1().build();
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}

/// A key as the command line has it: `env:NAME`, `file:PATH`, or itself.
pub(crate) fn read_key(written: &str) -> anyhow::Result<String> {
    if let Some(name) = written.strip_prefix("env:") {
        return std::env::var(name).map_err(|_| anyhow!("no key: set {name}, or give one with --key"));
    }
    if let Some(path) = written.strip_prefix("file:") {
        return Ok(std::fs::read_to_string(path).with_context(|| format!("the key file {path} cannot be read"))?.trim().to_owned());
    }
    Ok(written.to_owned())
}

/// What the call says beside its inputs.
fn headers(options: &cli::Call) -> Vec<(&'static str, String)> {
    let key = options.idempotency_key.clone().map(|key| ("idempotency-key", key));
    let wait = options.wait.map(|seconds| ("prefer", format!("wait={seconds}")));
    key.into_iter().chain(wait).collect()
}

/// One request.
pub(crate) struct Asked {
    pub(crate) method: Method,
    pub(crate) url: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Option<Value>,
}

/// Sends it: the status and the whole body.
pub(crate) async fn send(client: &HttpsClient, key: &str, asked: Asked) -> anyhow::Result<(u16, Bytes)> {
    let Asked { method, url, headers, body } = asked;
    let uri: Uri = url.parse().with_context(|| format!("{url} is not a URL"))?;
    let mut request = Request::builder().method(method).uri(uri).header("authorization", format!("Bearer {key}"));
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let bytes = match body {
        Some(body) => {
            request = request.header("content-type", "application/json");
            Bytes::from(serde_json::to_vec(&body)?)
        }
        None => Bytes::new(),
    };
    let reply = client.request(request.body(Full::new(bytes))?).await.with_context(|| format!("{url} does not answer"))?;
    let status = reply.status().as_u16();
    let body = Limited::new(reply.into_body(), REPLY_BYTES).collect().await.map_err(|error| anyhow!("the reply broke off: {error}"))?;
    Ok((status, body.to_bytes()))
}

/// The operation of that name: its method, path and description.
fn find<'a>(document: &'a Value, flow: &str) -> anyhow::Result<(Method, String, &'a Value)> {
    let mut names = Vec::new();
    for (path, item) in document["paths"].as_object().into_iter().flatten() {
        for (method, operation) in item.as_object().into_iter().flatten() {
            let Some(name) = operation["operationId"].as_str() else { continue };
            if name == flow {
                return Ok((method.to_uppercase().parse()?, path.clone(), operation));
            }
            names.push(name);
        }
    }
    bail!("no flow {flow:?} for this key; it may call: {}", names.join(", "))
}

/// Text as a segment of a path, or as a part of a query string.
pub(crate) fn encode(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

/// Puts the inputs where the operation has them: path, query, or JSON body. Values go as text; the server reads them
/// by the input's type, and answers with every field that does not fit.
fn request(path: &str, operation: &Value, inputs: &[String]) -> anyhow::Result<(String, Option<Value>)> {
    let place_of = |name: &str| {
        operation["parameters"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|parameter| parameter["name"] == name)
            .and_then(|parameter| parameter["in"].as_str())
    };
    let has_body = operation.get("requestBody").is_some();
    let (mut path, mut query, mut body) = (path.to_owned(), Vec::new(), Map::new());
    for input in inputs {
        let (name, value) = input.split_once('=').ok_or_else(|| anyhow!("{input:?} is not NAME=VALUE"))?;
        match place_of(name) {
            Some("path") => path = path.replace(&format!("{{{name}}}"), &encode(value)),
            None if has_body => add(&mut body, name, value, operation),
            _ => query.push(format!("{}={}", encode(name), encode(value))),
        }
    }
    if let Some(start) = path.find('{') {
        bail!("the input {} is needed", path[start..].split('/').next().unwrap_or_default().trim_matches(['{', '}']));
    }
    let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
    Ok((path + &query, has_body.then_some(Value::Object(body))))
}

/// Adds one input to a JSON body. A repeated name makes a list; booleans and nulls of non-text inputs are JSON's own.
fn add(body: &mut Map<String, Value>, name: &str, text: &str, operation: &Value) {
    let schema = &operation["requestBody"]["content"]["application/json"]["schema"]["properties"][name];
    let is_list = schema["type"] == "array";
    let is_text = if is_list { &schema["items"] } else { schema }["type"] == "string";
    let value = match text {
        "true" | "false" | "null" if !is_text => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
        // `number` inputs take JSON numbers as well as their text, so text is right for all the others.
        _ => json!(text),
    };
    match body.get_mut(name) {
        Some(Value::Array(items)) => items.push(value),
        Some(first) => *first = json!([first.take(), value]),
        None if is_list => _ = body.insert(name.to_owned(), json!([value])),
        None => _ = body.insert(name.to_owned(), value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_go_where_the_operation_has_them() {
        let get = json!({ "parameters": [{ "name": "id", "in": "path" }, { "name": "status", "in": "query" }] });
        let inputs = ["id=a/b".to_owned(), "status=x y".to_owned()];
        assert_eq!(request("/api/t/{id}", &get, &inputs).expect("a request"), ("/api/t/a%2Fb?status=x%20y".to_owned(), None));
        assert!(request("/api/t/{id}", &get, &[]).expect_err("id is missing").to_string().contains("input id is needed"));
        let schema = json!({ "properties": { "note": { "type": "string" }, "ids": { "type": "array", "items": { "type": "integer" } } } });
        let post = json!({ "requestBody": { "content": { "application/json": { "schema": schema } } } });
        let inputs = ["note=true".to_owned(), "ids=1".to_owned(), "ids=2".to_owned(), "urgent=true".to_owned()];
        let (_, body) = request("/api/t", &post, &inputs).expect("a request");
        assert_eq!(body, Some(json!({ "note": "true", "ids": ["1", "2"], "urgent": true })));
    }
}
