//! `spillgate init DIR`: a server file, a first flow, and a small database to run it on.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};

const SERVER: &str = include_str!("init/server.toml");
const FLOW: &str = include_str!("init/greeting.toml");
const DATABASE: &str = "CREATE TABLE GREETING (LANGUAGE TEXT PRIMARY KEY, WORDS TEXT NOT NULL);
INSERT INTO GREETING VALUES ('en', 'Good morning'), ('de', 'Guten Morgen'), ('fr', 'Bonjour');";

/// Writes the files. Refuses a folder that has a server file already: nothing is ever overwritten.
pub(crate) fn run(dir: &Path) -> anyhow::Result<ExitCode> {
    let server = dir.join("server.toml");
    if server.exists() {
        bail!("{} is there already; nothing was written", server.display());
    }
    fs::create_dir_all(dir.join("flows")).with_context(|| format!("{} cannot be made", dir.display()))?;
    let database = dir.join("example.db");
    if !database.exists() {
        let connection = rusqlite::Connection::open(&database).with_context(|| format!("{} cannot be made", database.display()))?;
        connection.execute_batch(DATABASE).context("the example's database cannot be filled")?;
    }
    let flow = dir.join("flows/greeting.toml");
    if !flow.exists() {
        fs::write(&flow, FLOW).with_context(|| format!("{} cannot be written", flow.display()))?;
    }
    // Last, so that a folder with a server file is a whole one.
    fs::write(&server, SERVER).with_context(|| format!("{} cannot be written", server.display()))?;
    let shown = server.display();
    println!(
        "\
Wrote {shown} and {}. Next:

  spillgate check --config {shown}
  spillgate test  --config {shown}
  spillgate serve --config {shown}
  spillgate call greeting language=fr --key first-key",
        flow.display()
    );
    Ok(ExitCode::SUCCESS)
}
