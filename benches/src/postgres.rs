//! A Postgres server of one scenario: its own data folder, its own port, gone with the value.

use std::fs::File;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::folder::Folder;
use crate::process::free_address;

const START_LIMIT: Duration = Duration::from_secs(30);

/// A running server.
pub(crate) struct Postgres {
    child: Child,
    port: u16,
    _folder: Folder,
}

impl Postgres {
    /// Makes a data folder and starts a server on it, as a user of its own when run by root, which Postgres refuses.
    pub(crate) fn start() -> Result<Self> {
        let programs = programs()?;
        let folder = Folder::new("server")?;
        let data = folder.path.join("data");
        let account = unprivileged()?;
        if let Some((user, group)) = account {
            chown(&folder.path, Some(user), Some(group))?;
        }
        let made = as_account(&programs.join("initdb"), account)
            .args(["--auth=trust", "--username=bench", "--no-sync", "--locale=C.UTF-8", "-D"])
            .arg(&data)
            .stdout(Stdio::null())
            .status()?;
        ensure!(made.success(), "initdb ended with {made}");
        let port = free_address()?.port();
        let log = File::create(folder.path.join("postgres.log"))?;
        let child = as_account(&programs.join("postgres"), account)
            .arg("-D")
            .arg(&data)
            .args(["-c", "listen_addresses=127.0.0.1", "-c", &format!("port={port}"), "-c", "unix_socket_directories="])
            .args(["-c", "fsync=off", "-c", "max_connections=200"])
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let postgres = Postgres { child, port, _folder: folder };
        postgres.wait_until_ready()?;
        Ok(postgres)
    }
    /// How clients reach it.
    pub(crate) fn url(&self) -> String {
        format!("postgres://bench@127.0.0.1:{}/postgres?sslmode=disable", self.port)
    }
    /// Runs statements.
    pub(crate) fn run_script(&self, sql: &str) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&self.url(), tokio_postgres::NoTls).await?;
            let driving = tokio::spawn(connection);
            client.batch_execute(sql).await?;
            drop(client);
            Ok(driving.await??)
        })
    }
    fn wait_until_ready(&self) -> Result<()> {
        let started = Instant::now();
        while self.run_script("SELECT 1").is_err() {
            if started.elapsed() > START_LIMIT {
                bail!("Postgres did not start within {START_LIMIT:?}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // An interrupt asks for a fast shutdown, which takes its children along; a kill would leave them.
        let _sent = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status();
        let _status = self.child.wait();
    }
}

fn programs() -> Result<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .context("no Postgres server is installed: see deploy/test-tools.sh")?
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .filter(|folder| folder.join("initdb").is_file())
        .collect();
    found.sort();
    found.pop().context("no Postgres server is installed: see deploy/test-tools.sh")
}

/// User and group to run as: nobody's but Postgres' own when this is root.
fn unprivileged() -> Result<Option<(u32, u32)>> {
    if std::fs::metadata("/proc/self")?.uid() != 0 {
        return Ok(None);
    }
    let accounts = std::fs::read_to_string("/etc/passwd")?;
    let fields = accounts.lines().find_map(|line| line.strip_prefix("postgres:")).context("no account `postgres`")?;
    let mut ids = fields.split(':').skip(1);
    let mut id = || ids.next().and_then(|id| id.parse().ok()).context("the account `postgres` has no number");
    Ok(Some((id()?, id()?)))
}

fn as_account(program: &Path, account: Option<(u32, u32)>) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).current_dir("/");
    if let Some((user, group)) = account {
        command.uid(user).gid(group);
    }
    command
}
