//! The product as a user would set it up: server file, flow files, the release binary, everything on.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::fleet;
use crate::process::{Server, free_address};

/// The key every caller sends.
pub(crate) const KEY: &str = "bench-key-of-forty-characters-0123456789";

/// A database as the server file writes it.
pub(crate) struct Database {
    /// `driver`.
    pub(crate) driver: &'static str,
    /// What `connection` reads from the environment.
    pub(crate) connection: String,
    /// Most connections.
    pub(crate) connections: usize,
    /// Further keys of the section, a line each.
    pub(crate) more: &'static str,
}

/// A flow with one `sql` step.
pub(crate) struct Flow {
    /// `name`.
    pub(crate) name: &'static str,
    /// Path below `/api`, with at most one part in braces: an integer.
    pub(crate) path: &'static str,
    /// Its statement.
    pub(crate) sql: String,
    /// `columns`, or nothing.
    pub(crate) columns: &'static str,
    /// `max_rows`.
    pub(crate) max_rows: usize,
    /// `max_bytes`.
    pub(crate) max_bytes: &'static str,
}

/// The two flows over the table of trucks.
pub(crate) fn truck_flows(columns: &'static str) -> Vec<Flow> {
    vec![
        Flow { name: "truck", path: "/trucks/{id}", sql: fleet::one(":id"), columns, max_rows: 1, max_bytes: "64KiB" },
        Flow {
            name: "trucks_of_depot",
            path: "/depots/{depot}/trucks",
            sql: fleet::list(":depot"),
            columns,
            max_rows: 100,
            max_bytes: "64KiB",
        },
    ]
}

/// Files beyond databases and flows over it.
#[derive(Default)]
pub(crate) struct More {
    /// Further keys of the tenant, a line each.
    pub(crate) tenant: String,
    /// Further sections of the server file.
    pub(crate) sections: String,
    /// Further flow files: name and text.
    pub(crate) flows: Vec<(&'static str, String)>,
}

/// Writes the files into `folder` and serves them. The access record and the log go to a file there.
pub(crate) fn start(program: &Path, folder: &Path, workers: usize, database: &Database, flows: &[Flow]) -> Result<Server> {
    let listen = free_address()?;
    let mut command = prepare(program, folder, workers, database, flows, &More::default(), (listen, free_address()?))?;
    Server::start(&mut command, listen, "/healthz", &folder.join("product.log"))
}

/// Writes the files: what is left is to start the command. Addresses: of the listener and of the admin's.
pub(crate) fn prepare(
    program: &Path,
    folder: &Path,
    workers: usize,
    database: &Database,
    flows: &[Flow],
    more: &More,
    addresses: (SocketAddr, SocketAddr),
) -> Result<Command> {
    let flows_folder = folder.join("flows");
    fs::create_dir_all(&flows_folder).with_context(|| format!("cannot create {}", flows_folder.display()))?;
    let written = flows.iter().map(|flow| (flow.name, flow_file(flow))).chain(more.flows.iter().cloned());
    for (name, text) in written {
        fs::write(flows_folder.join(format!("{name}.toml")), text)?;
    }
    let config = folder.join("spillgate.toml");
    fs::write(&config, server_file(addresses, database, more))?;
    let mut command = Command::new(program);
    command
        .args(["serve", "--config"])
        .arg(&config)
        .env("BENCH_KEY", KEY)
        .env("BENCH_DATABASE", &database.connection)
        .env("TOKIO_WORKER_THREADS", workers.to_string());
    Ok(command)
}

/// Limits are all there and all far away: what is measured is the way through them, not a refusal.
fn server_file((listen, admin): (SocketAddr, SocketAddr), database: &Database, more: &More) -> String {
    let Database { driver, connections, more: database_more, .. } = database;
    let More { tenant, sections, .. } = more;
    format!(
        r#"[server]
listen = "{listen}"
admin_listen = "{admin}"
data_dir = "data"
flows = "flows"
memory = "256MiB"

[database.fleet]
driver = "{driver}"
connection = "env:BENCH_DATABASE"
access = "read-only"
pool = {{ max = {connections}, line = 1024 }}
statement_timeout = "60s"
{database_more}

[tenant.bench]
keys = ["env:BENCH_KEY"]
class = "agent"
rate = {{ rate = "1000000/s", burst = 1000000 }}
in_flight = 1024
memory = "192MiB"
{tenant}

{sections}
"#
    )
}

fn flow_file(flow: &Flow) -> String {
    let Flow { name, path, sql, columns, max_rows, max_bytes } = flow;
    let input = match path.split_once('{').and_then(|(_, rest)| rest.split_once('}')) {
        Some((name, _)) => format!("[input.{name}]\ntype = \"integer\"\nmin = 1\nmax = 1000000\nabout = \"Its number.\"\n"),
        None => String::new(),
    };
    format!(
        r#"name = "{name}"
about = "Measured by the bench."
http = "GET {path}"
effect = "read"
deadline = "60s"

{input}
[[step]]
name = "{name}"
database = "fleet"
sql = """{sql}"""
{columns}
max_rows = {max_rows}
max_bytes = "{max_bytes}"
"#
    )
}
