//! Limits that operators set over those of tenants: kept by name of the tenant, as the JSON they were set in.

use std::sync::{Arc, Mutex, PoisonError};

use spillgate_config::{Override, Overrides, conflicts};
use spillgate_control::{Control, Kind, NotKept};
use spillgate_engine::Engine;

/// Keeps what is in force. Whoever changed it last, what the engine has is what is written.
pub(crate) struct KeptOverrides {
    engine: Engine,
    /// Held from reading the engine to the record in memory.
    keeping: Mutex<()>,
}

impl KeptOverrides {
    pub(crate) fn new(engine: Engine) -> Self {
        KeptOverrides { engine, keeping: Mutex::new(()) }
    }

    /// Keeps what is set for this tenant now, or that nothing is.
    pub(crate) fn keep(&self, control: &Control, tenant: &str) -> Result<(), NotKept> {
        let _one_at_a_time = self.keeping.lock().unwrap_or_else(PoisonError::into_inner);
        match self.engine.live().overrides.get(tenant) {
            Some(set) => control.put(Kind::Override, tenant, set.json()),
            None => {
                control.forget(Kind::Override, tenant);
                Ok(())
            }
        }
    }

    /// Seats that are promised and the files, as they are now, do not have: a sentence each.
    pub(crate) fn unkept_promises(&self) -> Vec<String> {
        let live = self.engine.live();
        if live.overrides.is_empty() {
            return Vec::new();
        }
        let said = |conflict| format!("limits that were set no longer fit the files, whose seats are in force: {conflict}");
        conflicts(&live.plan, &live.overrides).into_iter().map(said).collect()
    }
}

/// Puts what was kept in force. A record that cannot be read (of another version, or edited by hand) stays as it is, without effect: a
/// sentence for each.
pub(crate) fn put_in_force(engine: &Engine, control: &Control) -> Vec<String> {
    let (mut overrides, mut unread) = (Overrides::new(), Vec::new());
    for (tenant, json) in control.all(Kind::Override) {
        match Override::read(&json) {
            Ok(set) => drop(overrides.insert(Arc::from(tenant), Arc::new(set))),
            Err(problems) => unread.push(format!(
                "limits that were set for the tenant {tenant} cannot be read, those of the file are in force: {}",
                problems.join("; ")
            )),
        }
    }
    if !overrides.is_empty() {
        let set = overrides.len();
        let Ok(()) = engine.change_overrides(|_| Ok::<_, std::convert::Infallible>(overrides));
        tracing::info!(set, "limits that operators set for tenants are in force");
    }
    unread
}
