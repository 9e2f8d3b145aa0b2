//! The product with the databases, tenants and flows of one scene, and what its own metrics say meanwhile.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, ensure};
use spillgate_test_support::server::Options;

use super::super::Settings;
use crate::folder::Folder;
use crate::process::{Server, fetch, free_address};

const ADMIN_KEY: &str = "operator-key-1";

/// The running product.
pub(super) struct Served {
    pub(super) server: Server,
    admin: SocketAddr,
}

/// Writes the sections and flows into the folder and serves them.
pub(super) fn serve(settings: &Settings, folder: &Folder, sections: &[String], flows: &[(&str, String)]) -> Result<Served> {
    let (listen, admin) = (free_address()?, free_address()?);
    let server = format!("{}\n[admin.operator]\nkeys = [\"{ADMIN_KEY}\"]\n", sections.concat());
    let flows: Vec<(&str, &str)> = flows.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let options = Options { binary: "", server: &server, flows: &flows, environment: &[] };
    options.write(&folder.path, [&listen.to_string(), &admin.to_string()]);
    let mut command = Command::new(&settings.product);
    command.args(["serve", "--config"]).arg(folder.path.join("server.toml"));
    command.env("TOKIO_WORKER_THREADS", settings.workers.to_string());
    Ok(Served { server: Server::start(&mut command, listen, "/healthz", &folder.path.join("product.log"))?, admin })
}

impl Served {
    pub(super) fn address(&self) -> SocketAddr {
        self.server.address
    }
    /// Looks at the seats that a tenant holds at the database `main`, a few times a second.
    pub(super) fn watch_seats(&self, tenant: &str) -> Watch {
        let (admin, done) = (self.admin, Arc::new(AtomicBool::new(false)));
        let series = format!("spillgate_database_tenant_seats{{database=\"main\",tenant=\"{tenant}\"}}");
        let told = done.clone();
        let looking = std::thread::spawn(move || {
            let mut seen = Vec::new();
            while !told.load(Ordering::Acquire) {
                seen.push(gauge(admin, &series)?);
                std::thread::sleep(LOOK);
            }
            Ok(seen)
        });
        Watch { done, looking }
    }
}

/// Between two looks: seldom enough to cost nothing.
const LOOK: Duration = Duration::from_millis(200);

/// Looks until it is told to end.
pub(super) struct Watch {
    done: Arc<AtomicBool>,
    looking: JoinHandle<Result<Vec<f64>>>,
}

impl Watch {
    /// The mean of what was seen.
    pub(super) fn mean(self) -> Result<f64> {
        self.done.store(true, Ordering::Release);
        let seen = self.looking.join().map_err(|_| anyhow::anyhow!("the looking thread panicked"))??;
        Ok(seen.iter().sum::<f64>() / seen.len().max(1) as f64)
    }
}

/// A tenant that never had a seat has no series.
fn gauge(admin: SocketAddr, series: &str) -> Result<f64> {
    let (status, page) = fetch(admin, "/metrics", ADMIN_KEY)?;
    ensure!(status == 200, "the metrics page is answered {status}");
    let page = String::from_utf8_lossy(&page);
    Ok(page.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok()).unwrap_or_default())
}
