//! Five million rows asked, 150 allowed, on the only connection: memory, the mark `truncated`, and when the connection
//! is free again.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use rusqlite::Connection;
use serde::Deserialize;

use super::{Settings, postgres_with_trucks};
use crate::duel::median;
use crate::fleet;
use crate::folder::Folder;
use crate::product::{self, Database, Flow, KEY, truck_flows};
use crate::report::{RowCap, print_row_cap};
use spillgate_test_support::client::{Client, get};

const ASKED: u64 = 5_000_000;
const ALLOWED: usize = 150;
const NOTE: &str = "'a note long enough to be noticed when it is kept by mistake'";

#[derive(Deserialize)]
struct Reply {
    row_count: u64,
    truncated: bool,
}

/// Runs it on Postgres and SQLite.
pub(crate) fn run(settings: &Settings) -> Result<Vec<RowCap>> {
    let folder = Folder::new("cap-postgres")?;
    let postgres = postgres_with_trucks()?;
    let streamed = format!("SELECT generate_series(1, {ASKED}) AS id, {NOTE} AS note");
    let over_postgres = measure("Postgres", "postgres", postgres.url(), streamed, settings, &folder)?;
    drop(postgres);

    let folder = Folder::new("cap-sqlite")?;
    let file = folder.path.join("fleet.db");
    Connection::open(&file)?.execute_batch(&fleet::sqlite_schema()?)?;
    let connection = file.to_str().context("the path of the folder is not UTF-8")?.to_owned();
    let streamed = format!("SELECT a.id AS id, {NOTE} AS note FROM trucks a, trucks b LIMIT {ASKED}");
    let over_sqlite = measure("SQLite", "sqlite", connection, streamed, settings, &folder)?;
    Ok(vec![over_postgres, over_sqlite])
}

fn measure(
    name: &'static str,
    driver: &'static str,
    connection: String,
    streamed: String,
    settings: &Settings,
    folder: &Folder,
) -> Result<RowCap> {
    let database = Database { driver, connection, connections: 1, more: "" };
    let columns = r#"columns = { id = "integer", note = "text" }"#;
    let mut flows = truck_flows("");
    flows.truncate(1);
    flows.push(Flow { name: "five_million", path: "/five-million", sql: streamed, columns, max_rows: ALLOWED, max_bytes: "64KiB" });
    let server = product::start(&settings.product, &folder.path, settings.workers, &database, &flows)?;
    let mut calls = Calls::connect(server.address)?;

    let usual: Vec<f64> = (0..50).map(|_| Ok(calls.get("/api/trucks/1")?.0)).collect::<Result<_>>()?;
    let before_bytes = server.resident_bytes()?;
    server.reset_peak()?;
    let (capped_call_millis, body) = calls.get("/api/five-million")?;
    let (next_call_millis, _) = calls.get("/api/trucks/1")?;
    let reply: Reply = serde_json::from_slice(&body)?;
    let cap = RowCap {
        database: name,
        rows_asked: ASKED,
        rows_given: reply.row_count,
        truncated: reply.truncated,
        before_bytes,
        peak_bytes: server.peak_bytes()?,
        capped_call_millis,
        next_call_millis,
        usual_call_millis: median(usual.into_iter()),
    };
    print_row_cap(&cap);
    Ok(cap)
}

/// Calls one after the other on one connection.
struct Calls {
    runtime: tokio::runtime::Runtime,
    client: Client,
}

impl Calls {
    fn connect(address: SocketAddr) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = runtime.block_on(Client::connect(address))?;
        Ok(Calls { runtime, client })
    }
    /// Milliseconds it took, and the body.
    fn get(&mut self, path: &str) -> Result<(f64, Vec<u8>)> {
        let request = get(path, KEY);
        let started = Instant::now();
        let (status, body) = self.runtime.block_on(self.client.call(&request))?;
        let millis = started.elapsed().as_secs_f64() * 1e3;
        ensure!(status == 200, "{path} was answered {status}: {}", String::from_utf8_lossy(body));
        Ok((millis, body.to_vec()))
    }
}
