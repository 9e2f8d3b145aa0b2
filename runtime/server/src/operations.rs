//! What the admin face asks of the server: reloads, the audit, pauses and limits that outlive a restart.

use std::sync::Arc;
use std::time::SystemTime;

use spillgate_admin::{AuditEntry, Change, Operations, Standing};
use spillgate_config::Fault;
use spillgate_control::PausedLane;
use spillgate_model::{Work, wall};
use spillgate_queue::LaneName;

use crate::keeping::Keeping;
use crate::overrides::KeptOverrides;
use crate::reload::Reloader;

/// The server as its operators see it.
pub(crate) struct Operator {
    pub(crate) reloader: Arc<Reloader>,
    pub(crate) keeping: Arc<Keeping>,
    pub(crate) overrides: KeptOverrides,
}

impl Operations for Operator {
    fn standing(&self) -> Standing {
        let mut remarks = self.keeping.remarks();
        remarks.extend(self.overrides.unkept_promises());
        Standing { remarks, ..self.reloader.standing() }
    }

    fn reload(&self) -> Work<'_, Result<String, Vec<Fault>>> {
        Box::pin(self.reloader.reload())
    }

    fn record(&self, change: Change) -> Work<'_, Result<(), String>> {
        Box::pin(async move {
            let control = self.keeping.control().await?;
            control.record(as_entry(change)).map_err(|error| error.to_string())?;
            control.kept().await.map_err(|error| error.to_string())
        })
    }

    fn audit(&self, after: u64, most: usize) -> Work<'_, Result<Vec<AuditEntry>, String>> {
        Box::pin(async move { Ok(self.keeping.control().await?.audit(after, most).into_iter().map(as_page).collect()) })
    }

    fn overrides_read(&self) -> Work<'_, Result<(), String>> {
        Box::pin(self.keeping.is_read())
    }

    fn keep_override(&self, tenant: &str) -> Work<'_, Result<(), String>> {
        let tenant = tenant.to_owned();
        Box::pin(async move {
            let control = self.keeping.control().await?;
            self.overrides.keep(&control, &tenant).map_err(|error| error.to_string())?;
            control.kept().await.map_err(|error| error.to_string())
        })
    }

    fn keep_pause(&self, lane: &LaneName, paused: bool) -> Work<'_, Result<(), String>> {
        let lane = PausedLane { queue: lane.queue.to_string(), tenant: lane.tenant.to_string() };
        Box::pin(async move {
            let control = self.keeping.control().await?;
            control.set_paused(&lane, paused).map_err(|error| error.to_string())?;
            control.kept().await.map_err(|error| error.to_string())
        })
    }
}

fn as_entry(change: Change) -> spillgate_control::AuditEntry {
    let Change { who, remote, action, subject, from, to, outcome } = change;
    let at_ms = wall::milliseconds(SystemTime::now());
    spillgate_control::AuditEntry { number: 0, at_ms, who, remote: remote.to_string(), action, subject, from, to, outcome }
}

fn as_page(entry: spillgate_control::AuditEntry) -> AuditEntry {
    let spillgate_control::AuditEntry { number, at_ms, who, remote, action, subject, from, to, outcome } = entry;
    // An address that is none (edited by hand) is shown as the unspecified one.
    let remote = remote.parse().unwrap_or(std::net::IpAddr::from([0, 0, 0, 0]));
    AuditEntry { number, at_ms, change: Change { who, remote, action, subject, from, to, outcome } }
}
