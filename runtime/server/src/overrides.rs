//! Limits that operators set over those of tenants: kept by name of the tenant, as the JSON they were set in.

use std::sync::{Arc, Mutex, PoisonError};

use spillgate_config::{Override, Overrides};
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
}

/// Puts what was kept in force. A record that cannot be read (of a later version, or edited by hand) stays as it is, without effect.
pub(crate) fn put_in_force(engine: &Engine, control: &Control) {
    let mut overrides = Overrides::new();
    for (tenant, json) in control.all(Kind::Override) {
        match Override::read(&json) {
            Ok(set) => drop(overrides.insert(Arc::from(tenant), Arc::new(set))),
            Err(problems) => {
                tracing::error!(tenant, ?problems, "limits that were set for a tenant cannot be read: those of the file are in force")
            }
        }
    }
    if overrides.is_empty() {
        return;
    }
    let set = overrides.len();
    let Ok(()) = engine.change_overrides(|_| Ok::<_, std::convert::Infallible>(overrides));
    tracing::info!(set, "limits that operators set for tenants are in force");
}
