//! The product beside axum and rusqlite.

use anyhow::{Context, Result};
use rusqlite::Connection;

use super::{Settings, compare_trucks};
use crate::fleet;
use crate::folder::Folder;
use crate::product::Database;
use crate::report::Comparison;

/// SQLite keeps no decimals and no timestamps; the flow says what the text is.
const COLUMNS: &str = r#"columns = { id = "integer", plate = "text", driver = "text", active = "boolean", odometer = "decimal", speed = "number", seen = "timestamp" }"#;

/// Runs it.
pub(crate) fn run(settings: &Settings) -> Result<Vec<Comparison>> {
    let folder = Folder::new("sqlite")?;
    let file = folder.path.join("fleet.db");
    Connection::open(&file)?.execute_batch(&fleet::sqlite_schema()?)?;
    let connection = file.to_str().context("the path of the folder is not UTF-8")?.to_owned();
    let database = Database { driver: "sqlite", connection, connections: settings.connections, more: "" };
    compare_trucks("SQLite", "sqlite", &database, COLUMNS, settings, &folder)
}
