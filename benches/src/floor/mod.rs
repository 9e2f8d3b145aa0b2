//! The floors: the same endpoints written by hand, one for each database and one for durable appends, as small as they can
//! honestly be.
//!
//! What a floor does as the product does: the same statements with bound values, prepared once on each connection; as
//! many connections; one statement at a time on a connection, which is checked out for it; tokio's multi-thread
//! runtime with as many workers; TCP_NODELAY; the same JSON, byte for byte.
//!
//! What a floor does not do: keys and tenants, input checks beyond the parse of a path part, limits of any kind (rate,
//! in flight, memory, rows), deadlines and cancelling, metrics, access records, request ids, refusals, reload,
//! lost connections. An error ends in a bare 500.

use std::io::Write;
use std::net::SocketAddr;

use anyhow::Result;
use axum::http::{StatusCode, header::CONTENT_TYPE};
use axum::response::Response;
use axum::routing::get;
use axum::serve::ListenerExt;
use serde::Serialize;
use tokio::net::TcpListener;

mod append;
mod exact;
mod postgres;
mod sqlite;

pub(crate) use exact::{Decimal, Timestamp};

/// A truck, borrowed from where the driver put it.
#[derive(Serialize)]
pub(crate) struct Truck<'a> {
    pub(crate) id: i64,
    pub(crate) plate: &'a str,
    pub(crate) driver: Option<&'a str>,
    pub(crate) active: bool,
    pub(crate) odometer: Decimal<'a>,
    pub(crate) speed: f64,
    pub(crate) seen: Timestamp<'a>,
}

/// The reply's body, written row by row.
pub(crate) struct Body {
    bytes: Vec<u8>,
    rows: usize,
}

impl Body {
    pub(crate) fn new() -> Self {
        Body { bytes: b"{\"rows\":[".to_vec(), rows: 0 }
    }
    pub(crate) fn push(&mut self, truck: &Truck<'_>) -> Result<()> {
        if self.rows > 0 {
            self.bytes.push(b',');
        }
        self.rows += 1;
        Ok(serde_json::to_writer(&mut self.bytes, truck)?)
    }
    pub(crate) fn finish(mut self) -> Result<Vec<u8>> {
        write!(self.bytes, "],\"row_count\":{},\"truncated\":false}}", self.rows)?;
        Ok(self.bytes)
    }
}

/// Which floor.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Kind {
    /// axum and tokio-postgres.
    Postgres,
    /// axum and rusqlite, its connections on threads of their own.
    Sqlite,
    /// axum and a plain file with group `fdatasync`.
    Append,
    /// axum that refuses everything with a fixed reply.
    Refuse,
}

/// Serves a floor until the process is ended.
pub(crate) fn serve(kind: Kind, listen: SocketAddr, connection: &str, connections: usize) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let routes = match kind {
            Kind::Postgres => postgres::routes(connection, connections).await?,
            Kind::Sqlite => sqlite::routes(connection, connections)?,
            Kind::Append => append::routes(connection)?,
            Kind::Refuse => append::refusing(),
        };
        let routes = routes.route("/healthz", get(|| async { "ok" }));
        let listener = TcpListener::bind(listen).await?.tap_io(|stream| {
            let _only_slower_without = stream.set_nodelay(true);
        });
        Ok(axum::serve(listener, routes).await?)
    })
}

/// 200 with the body, or a bare 500.
fn respond(body: Result<Vec<u8>>) -> Response {
    let mut response = Response::new(axum::body::Body::empty());
    match body {
        Ok(bytes) => {
            response.headers_mut().insert(CONTENT_TYPE, axum::http::HeaderValue::from_static("application/json"));
            *response.body_mut() = axum::body::Body::from(bytes);
        }
        Err(_) => *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR,
    }
    response
}
