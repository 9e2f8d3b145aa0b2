//! What is measured, a scenario a file. Each owns its servers and its folder and leaves nothing behind.

pub(crate) mod cap;
pub(crate) mod demo;
pub(crate) mod isolation;
pub(crate) mod odbc;
pub(crate) mod postgres;
pub(crate) mod queue;
pub(crate) mod sqlite;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use spillgate_test_support::postgres::Postgres;

use crate::duel::{Arms, Case, Pace, compare};
use crate::fleet::{DEPOTS, TRUCKS, postgres_schema};
use crate::folder::Folder;
use crate::process::{Server, free_address};
use crate::product::{self, Database, truck_flows};
use crate::report::{Comparison, print_comparisons};

/// What every scenario needs to know.
pub(crate) struct Settings {
    /// The product's binary.
    pub(crate) product: PathBuf,
    /// Rounds and callers.
    pub(crate) pace: Pace,
    /// How large and how often, where the durable queue is measured.
    pub(crate) sizes: queue::Sizes,
    /// How long, where isolation is measured.
    pub(crate) scale: isolation::Scale,
    /// Connections to the database, the same for both sides.
    pub(crate) connections: usize,
    /// Workers of both sides' runtimes.
    pub(crate) workers: usize,
}

/// Starts the floor as a process of its own.
fn start_floor(kind: &str, connection: &str, settings: &Settings, folder: &Folder) -> Result<Server> {
    let listen = free_address()?;
    let mut command = Command::new(std::env::current_exe().context("where is this program?")?);
    command
        .args(["floor", kind, "--listen", &listen.to_string(), "--connections", &settings.connections.to_string()])
        .env("BENCH_DATABASE", connection)
        .env("TOKIO_WORKER_THREADS", settings.workers.to_string());
    Server::start(&mut command, listen, "/healthz", &folder.path.join("floor.log"))
}

/// The lookup and the list of trucks, on both sides.
fn compare_trucks(
    title: &str,
    kind: &str,
    database: &Database,
    columns: &'static str,
    settings: &Settings,
    folder: &Folder,
) -> Result<Vec<Comparison>> {
    let arms = Arms {
        floor: start_floor(kind, &database.connection, settings, folder)?,
        product: product::start(&settings.product, &folder.path, settings.workers, database, &truck_flows(columns))?,
    };
    let one =
        Case { name: format!("{title}: one row by key"), paths: (1..=TRUCKS).step_by(7).map(|id| format!("/api/trucks/{id}")).collect() };
    let list = Case {
        name: format!("{title}: a list of a hundred rows"),
        paths: (1..=DEPOTS).map(|depot| format!("/api/depots/{depot}/trucks")).collect(),
    };
    let mut comparisons = Vec::new();
    for case in [one, list] {
        let compared = compare(&arms, &case, &settings.pace)?;
        print_comparisons(&compared);
        comparisons.extend(compared);
    }
    Ok(comparisons)
}

/// A Postgres server of this scenario with the table of trucks in it.
fn postgres_with_trucks() -> Result<Postgres> {
    let postgres = Postgres::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(&postgres.url(), tokio_postgres::NoTls).await?;
        let driving = tokio::spawn(connection);
        client.batch_execute(&postgres_schema()?).await?;
        drop(client);
        anyhow::Ok(driving.await??)
    })?;
    Ok(postgres)
}
