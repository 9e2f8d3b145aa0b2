//! The unit that travels through a flow.

use std::sync::Arc;
use std::time::Instant;

use crate::value::Value;

/// One call on its way through a flow. A direct flow's flowfile lives in memory and ends with its reply.
#[derive(Clone, Debug)]
pub struct Flowfile {
    /// Request id: shown to the caller, in the log, and to the database where it has a place for it.
    pub id: Arc<str>,
    /// Who calls.
    pub tenant: Arc<str>,
    /// The agent run, if the caller named one.
    pub run: Option<Arc<str>>,
    /// Typed inputs in the order the flow declares them; identity-bound ones filled in.
    pub input: Arc<[Value]>,
    /// When the work must be over.
    pub deadline: Instant,
}
