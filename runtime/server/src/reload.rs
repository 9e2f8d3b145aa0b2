//! Takes new configuration while the server runs: one reload at a time, whoever asked.
//!
//! Invariants
//! 1. A configuration with a fault changes nothing that runs; its faults are kept for the admin face until a good one
//!    is applied (promise 9).
//! 2. Keys that cannot change while running keep their old values, and the reload says so.
//! 3. Files are read off the async workers; no lock is held while they are.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use spillgate_admin::Standing;
use spillgate_config::{Fault, Plan};
use spillgate_engine::Engine;
use spillgate_telemetry::{Telemetry, happened};

use crate::keeping::Keeping;
use crate::last_good;
use crate::serve::Addresses;

/// Owns reloading.
pub(crate) struct Reloader {
    config: PathBuf,
    addresses: Addresses,
    engine: Engine,
    telemetry: Telemetry,
    keeping: Arc<Keeping>,
    standing: Mutex<Standing>,
    turn: tokio::sync::Mutex<()>,
}

impl Reloader {
    pub(crate) fn new(config: PathBuf, addresses: Addresses, engine: Engine, telemetry: Telemetry, keeping: Arc<Keeping>) -> Arc<Self> {
        let standing = Standing { applied: engine.live().plan.version.clone(), ..Standing::default() };
        let (standing, turn) = (Mutex::new(standing), tokio::sync::Mutex::new(()));
        Arc::new(Reloader { config, addresses, engine, telemetry, keeping, standing, turn })
    }

    fn apply(&self, mut plan: Plan) -> Result<(String, Vec<String>), Vec<Fault>> {
        let running = self.engine.live().plan.clone();
        let kept = keep_fixed(&running, &mut plan);
        if plan.same_as(&running) {
            return Ok((running.version.clone(), kept));
        }
        let plan = Arc::new(plan);
        self.engine
            .apply(plan.clone())
            .map_err(|problems| problems.iter().map(|problem| whole_file(&self.config, problem)).collect::<Vec<_>>())?;
        Ok((plan.version.clone(), kept))
    }

    /// Waits for a reload that runs, then does its own.
    pub(crate) async fn reload(&self) -> Result<String, Vec<Fault>> {
        let _turn = self.turn.lock().await;
        let (config, addresses) = (self.config.clone(), self.addresses);
        let loaded = tokio::task::spawn_blocking(move || load(&config, addresses))
            .await
            .unwrap_or_else(|panic| Err(vec![whole_file(&self.config, &panic.to_string())]));
        let before = self.engine.live();
        let outcome = self.settle(loaded.and_then(|plan| self.apply(plan)));
        let now = self.engine.live();
        if !Arc::ptr_eq(&before, &now) {
            // Told first, kept then: nobody waits for the disk to hear of it.
            let _told_by_the_log = tokio::task::spawn_blocking(move || last_good::save(&now.plan)).await;
            // Opening a store may take long: nobody who asked for the reload waits for it.
            let keeping = self.keeping.clone();
            tokio::spawn(async move { keeping.open().await });
        }
        outcome
    }

    /// How the last reload went.
    pub(crate) fn standing(&self) -> Standing {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps and tells how it went.
    fn settle(&self, outcome: Result<(String, Vec<String>), Vec<Fault>>) -> Result<String, Vec<Fault>> {
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome {
            Ok((version, kept)) => {
                if version != standing.applied || !standing.faults.is_empty() {
                    happened::reload_applied(&self.telemetry, &version);
                }
                for key in &kept {
                    tracing::warn!(key, "this key cannot change while the server runs; the old value is kept until a restart");
                }
                *standing = Standing { applied: version.clone(), kept, ..Standing::default() };
                Ok(version)
            }
            Err(faults) => {
                if faults != standing.faults {
                    let shown: Vec<String> = faults.iter().map(ToString::to_string).collect();
                    happened::reload_refused(&self.telemetry, &shown);
                }
                standing.faults.clone_from(&faults);
                Err(faults)
            }
        }
    }
}

/// Reads and proves, with the command line's addresses in place of the file's.
pub(crate) fn load(config: &std::path::Path, addresses: Addresses) -> Result<Plan, Vec<Fault>> {
    let mut plan = spillgate_config::load(config)?;
    addresses.put_into(&mut plan);
    Ok(plan)
}

/// Puts the running values of keys that cannot change into `plan`; returns the names of those it wanted changed.
fn keep_fixed(running: &Plan, plan: &mut Plan) -> Vec<String> {
    fn keep<T: PartialEq + Clone>(name: &str, running: &T, wanted: &mut T, kept: &mut Vec<String>) {
        if running != wanted {
            kept.push(name.to_owned());
            wanted.clone_from(running);
        }
    }
    let mut kept = Vec::new();
    let (old, new) = (&running.server, &mut plan.server);
    keep("server.listen", &old.listen, &mut new.listen, &mut kept);
    keep("server.admin_listen", &old.admin_listen, &mut new.admin_listen, &mut kept);
    keep("server.data_dir", &old.data_dir, &mut new.data_dir, &mut kept);
    keep("store.disk_limit", &old.disk_limit, &mut new.disk_limit, &mut kept);
    keep("store.disk_reserve", &old.disk_reserve, &mut new.disk_reserve, &mut kept);
    keep("telemetry.otlp", &old.otlp, &mut new.otlp, &mut kept);
    kept
}

fn whole_file(file: &std::path::Path, message: &str) -> Fault {
    Fault { file: file.to_owned(), line: 1, column: 1, message: message.to_owned() }
}
