//! The HTTP client that spans are sent with: the workspace's hyper, one connection, bounded replies.

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_http::{HttpClient, HttpError};
use rustls::ClientConfig;
use spillgate_model::Work;

use crate::spans::SEND_TIMEOUT;

/// Bytes of a reply that are read at most.
const REPLY_BYTES: usize = 64 * 1024;

/// Sends requests to a collector.
#[derive(Debug)]
pub(crate) struct Collector {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl Collector {
    /// `base`: `http://` or `https://`, with a host.
    pub(crate) fn new(base: &str) -> Result<Self, String> {
        let url: Uri = base.parse().map_err(|_| "it is not a URL".to_owned())?;
        let tls = match url.scheme_str() {
            Some("http") => tls(false),
            Some("https") => tls(true),
            _ => Err("it must begin with http:// or https://".to_owned()),
        };
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls?).https_or_http().enable_http1().build();
        Ok(Collector { client: Client::builder(TokioExecutor::new()).pool_max_idle_per_host(1).build(connector) })
    }
}

/// The system's roots, read only where they are needed.
fn tls(used: bool) -> Result<ClientConfig, String> {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    let builder = match used {
        true => builder.with_native_roots().map_err(|error| error.to_string())?,
        false => builder.with_root_certificates(rustls::RootCertStore::empty()),
    };
    Ok(builder.with_no_client_auth())
}

impl HttpClient for Collector {
    fn send_bytes<'client, 'sending>(&'client self, request: Request<Bytes>) -> Work<'sending, Result<Response<Bytes>, HttpError>>
    where
        'client: 'sending,
        Self: 'sending,
    {
        let exchange = async move {
            let reply = self.client.request(request.map(Full::new)).await?;
            let (parts, body) = reply.into_parts();
            let body = Limited::new(body, REPLY_BYTES).collect().await?.to_bytes();
            Ok(Response::from_parts(parts, body))
        };
        Box::pin(async move { tokio::time::timeout(SEND_TIMEOUT, exchange).await? })
    }
}
