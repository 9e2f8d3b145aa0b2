//! What the admin face asks of the server that owns it.

use std::net::IpAddr;

use spillgate_config::Fault;
use spillgate_model::Work;
use spillgate_queue::LaneName;

/// How the configuration stands.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// Version of the plan that runs.
    pub applied: String,
    /// Faults of the last reload, if it was refused; empty once a good one was applied.
    pub faults: Vec<Fault>,
    /// Keys the last reload wanted changed that need a restart.
    pub kept: Vec<String>,
    /// What is wrong with the operator state on disk, a sentence each; empty: nothing.
    pub remarks: Vec<String>,
}

/// Something an operator changed, or tried to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The admin's name.
    pub who: String,
    /// Where the request came from.
    pub remote: IpAddr,
    /// One word: `reload`, `purge`, `pause`, `resume`, `replay`, `resolve`, `limit`, `unlimit`.
    pub action: String,
    /// What it was done to, as its path below `/admin/v1/` (`queues/bookings/lanes/agent`, `jobs/2f-1a`); empty: the server.
    pub subject: String,
    /// How it was before, where that can be said.
    pub from: Option<String>,
    /// How it is now, or was meant to be.
    pub to: Option<String>,
    /// `done`, or the code and detail of the refusal.
    pub outcome: String,
}

/// A change with its place in the audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// From 1, in order, never used twice.
    pub number: u64,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// What changed.
    pub change: Change,
}

/// Implemented by the server. Each is safe to call at once from several requests.
pub trait Operations: Send + Sync + 'static {
    /// Reads, proves and applies the configuration. The version that runs now, or every fault, which changed nothing.
    /// Called on a task of its own: a caller that hangs up does not stop it halfway.
    fn reload(&self) -> Work<'_, Result<String, Vec<Fault>>>;
    /// How the last reload went.
    fn standing(&self) -> Standing;
    /// Puts a change into the audit, durably. The text says why it could not be.
    fn record(&self, change: Change) -> Work<'_, Result<(), String>>;
    /// Entries of the audit with numbers above `after`, oldest first, at most `most`. Bounded: the oldest entries are dropped.
    fn audit(&self, after: u64, most: usize) -> Work<'_, Result<Vec<AuditEntry>, String>>;
    /// Answers when the limits that operators had set before the last stop are in force. The text says why that is not so yet.
    fn overrides_read(&self) -> Work<'_, Result<(), String>>;
    /// Keeps across restarts what is set over the limits of this tenant now, or that nothing is.
    fn keep_override(&self, tenant: &str) -> Work<'_, Result<(), String>>;
    /// Keeps across restarts that a lane is paused, or is not any more; the store itself is told by the face. The server tells
    /// the store what was kept when it opens it.
    fn keep_pause(&self, lane: &LaneName, paused: bool) -> Work<'_, Result<(), String>>;
}
