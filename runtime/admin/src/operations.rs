//! What the admin face asks of the server that owns it.

use spillgate_config::Fault;
use spillgate_model::Work;

/// How the configuration stands.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// Version of the plan that runs.
    pub applied: String,
    /// Faults of the last reload, if it was refused; empty once a good one was applied.
    pub faults: Vec<Fault>,
    /// Keys the last reload wanted changed that need a restart.
    pub kept: Vec<String>,
}

/// Implemented by the server. Each is safe to call at once from several requests.
pub trait Operations: Send + Sync + 'static {
    /// Reads, proves and applies the configuration. The version that runs now, or every fault, which changed nothing.
    /// Called on a task of its own: a caller that hangs up does not stop it halfway.
    fn reload(&self) -> Work<'_, Result<String, Vec<Fault>>>;
    /// How the last reload went.
    fn standing(&self) -> Standing;
}
