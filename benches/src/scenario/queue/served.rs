//! The whole product with a durable flow: a note is appended to a queue, then one row is read by key; and the lookup alone, as a
//! direct flow.
//!
//! The queue belongs to tenant `bench`; tenant `flood` has a share of its own, which may be small.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rusqlite::Connection;
use serde::Deserialize;

use super::super::Settings;
use super::pile::{ITEM_BYTES, noise};
use crate::fleet::{self, TRUCKS};
use crate::folder::Folder;
use crate::process::{Server, fetch, free_address, send};
use crate::product::{self, Database, KEY, More, truck_flows};
use spillgate_test_support::client::post;

/// Key of the tenant that floods.
pub(super) const FLOOD_KEY: &str = "flood-key-of-forty-characters-0123456789";
const ADMIN_KEY: &str = "admin-key-of-forty-characters-0123456789";
/// Where notes go.
pub(super) const NOTES: &str = "/api/notes";
const COLUMNS: &str = r#"columns = { id = "integer", plate = "text", driver = "text", active = "boolean", odometer = "decimal", speed = "number", seen = "timestamp" }"#;

/// The running product.
pub(super) struct Served {
    pub(super) server: Server,
    admin: SocketAddr,
}

/// Who asks.
#[derive(Clone, Copy)]
pub(super) enum Tenant {
    Bench,
    Flood,
}

impl Tenant {
    fn name(self) -> &'static str {
        match self {
            Tenant::Bench => "bench",
            Tenant::Flood => "flood",
        }
    }
    fn key(self) -> &'static str {
        match self {
            Tenant::Bench => KEY,
            Tenant::Flood => FLOOD_KEY,
        }
    }
}

/// A folder with the table of trucks in it, and the database there.
pub(super) fn folder_with_trucks(name: &str) -> Result<Folder> {
    let folder = Folder::new(name)?;
    Connection::open(folder.path.join("fleet.db"))?.execute_batch(&fleet::sqlite_schema()?)?;
    Ok(folder)
}

/// Serves what stands in `folder`, with a store of so many bytes; `flood` is the share of the tenant that floods, if there is one.
pub(super) fn serve(settings: &Settings, folder: &Path, disk_limit: u64, flood: &str, ready: &str) -> Result<Served> {
    let file = folder.join("fleet.db");
    let connection = file.to_str().context("the path of the folder is not UTF-8")?.to_owned();
    let database = Database { driver: "sqlite", connection, connections: settings.connections, more: "" };
    let more = More {
        tenant: share(&format!("bytes = \"{disk_limit}B\", items = 10_000_000, disk = \"{disk_limit}B\"")),
        sections: sections(disk_limit, flood),
        flows: vec![("note", note_flow())],
    };
    let (listen, admin) = (free_address()?, free_address()?);
    let mut command =
        product::prepare(&settings.product, folder, settings.workers, &database, &truck_flows(COLUMNS), &more, (listen, admin))?;
    command.env("BENCH_ADMIN_KEY", ADMIN_KEY).env("BENCH_FLOOD_KEY", FLOOD_KEY);
    Ok(Served { server: Server::start(&mut command, listen, ready, &folder.join("product.log"))?, admin })
}

fn share(limits: &str) -> String {
    format!("queued = {{ {limits} }}\n")
}

fn sections(disk_limit: u64, flood: &str) -> String {
    let flood = if flood.is_empty() { "items = 10" } else { flood };
    format!(
        r#"
[admin.bench]
keys = ["env:BENCH_ADMIN_KEY"]

[store]
disk_limit = "{disk_limit}B"
disk_reserve = "1MiB"

[queue.notes]
items = 10_000_000
bytes = "{disk_limit}B"
max_item = "64KiB"
workers = 4

[tenant.flood]
keys = ["env:BENCH_FLOOD_KEY"]
class = "agent"
rate = {{ rate = "1000000/s", burst = 1000000 }}
in_flight = 1024
{flood}
"#,
        flood = share(flood)
    )
}

fn note_flow() -> String {
    format!(
        r#"name = "note"
about = "Measured by the bench."
http = "POST /notes"
effect = "write"

[input.id]
type = "integer"
min = 1
max = 1000000
about = "A truck."
[input.note]
type = "text"
max_length = 4000
about = "What is noted."

[[step]]
queue = "notes"
expires = "1h"

[[step]]
name = "truck"
database = "fleet"
sql = """{}"""
{COLUMNS}
max_rows = 1
max_bytes = "64KiB"
when = "input.note != ''"
"#,
        fleet::one(":id")
    )
}

/// Requests that append a note of 1 KiB each.
pub(super) fn notes(tenant: Tenant) -> Vec<Vec<u8>> {
    let hexadecimal: String = noise(ITEM_BYTES / 2 - 16).iter().map(|byte| format!("{byte:02x}")).collect();
    let body = |id| format!(r#"{{"id":{id},"note":"{hexadecimal}"}}"#);
    (1..=TRUCKS).step_by(37).map(|id| post(NOTES, tenant.key(), &body(id))).collect()
}

#[derive(Deserialize)]
struct Accepted {
    job: Job,
}

#[derive(Deserialize)]
struct Job {
    state: String,
    href: String,
}

impl Served {
    /// Appends one note: where its job is seen.
    pub(super) fn append_one(&self, tenant: Tenant) -> Result<String> {
        let (status, body) = send(self.server.address, &notes(tenant)[0])?;
        ensure!(status == 202, "a note was answered {status}: {}", String::from_utf8_lossy(&body));
        Ok(serde_json::from_slice::<Accepted>(&body)?.job.href)
    }
    /// Stops or resumes workers, or empties the lane: `pause`, `resume`, `purge`.
    pub(super) fn steer(&self, tenant: Tenant, what: &str) -> Result<()> {
        let path = format!("/admin/v1/queues/notes/lanes/{}/{what}", tenant.name());
        let (status, body) = send(self.admin, &post(&path, ADMIN_KEY, "{}"))?;
        ensure!(matches!(status, 200..=204), "{what} was answered {status}: {}", String::from_utf8_lossy(&body));
        Ok(())
    }
    /// Waits until a job has ended well.
    pub(super) fn wait_for(&self, href: &str, limit: Duration) -> Result<()> {
        let started = Instant::now();
        loop {
            let (status, body) = fetch(self.server.address, href, KEY)?;
            ensure!(status == 200, "{href} was answered {status}: {}", String::from_utf8_lossy(&body));
            match serde_json::from_slice::<Accepted>(&body)?.job.state.as_str() {
                "succeeded" => return Ok(()),
                "queued" | "running" => ensure!(started.elapsed() < limit, "{href} did not end within {limit:?}"),
                other => anyhow::bail!("{href} ended as {other}: {}", String::from_utf8_lossy(&body)),
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
