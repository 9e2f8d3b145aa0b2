//! The product beside axum and tokio-postgres.

use anyhow::Result;

use super::{Settings, compare_trucks, postgres_with_trucks};
use crate::folder::Folder;
use crate::product::Database;
use crate::report::Comparison;

/// Runs it.
pub(crate) fn run(settings: &Settings) -> Result<Vec<Comparison>> {
    let folder = Folder::new("postgres")?;
    let postgres = postgres_with_trucks()?;
    let database = Database { driver: "postgres", connection: postgres.url(), connections: settings.connections, more: "" };
    compare_trucks("Postgres", "postgres", &database, "", settings, &folder)
}
