//! Durable work: what a `queue` step cuts a flow into, and what runs the second half from disk.
//!
//! Invariants
//! 1. A caller is told of a job only after its item is durable; whatever becomes of the caller then, the item stays.
//! 2. Room is there before an item is made; what an item needs at its end (emitted items too) is there before it ends.
//! 3. An attempt ends its item, hands it back, or loses its lease: nothing it does after that has an effect.
//! 4. No worker waits for the target of one lane while another lane could be served.
//!
//! It refuses: deciding what a key means, and what became of an interrupted write (`once` does).

mod claim;
mod codec;
mod content;
mod state;

use bytes::Bytes;
use spillgate_queue::{JobId, JobState, Store};

pub(crate) use claim::Claim;
pub(crate) use state::Durability;

/// How the store behind durable flows is.
#[derive(Clone, Debug)]
pub enum Durable {
    /// It is being opened.
    Recovering,
    /// It would not open; what was said.
    Failed(String),
    /// It serves; see [`Store::health`].
    Serving(Store),
}

/// What a caller sees of its job.
#[derive(Clone, Debug)]
pub struct JobView {
    /// Which.
    pub id: JobId,
    /// Where it stands.
    pub state: JobState,
    /// JSON: the result of `succeeded`, a problem object of other ends. `None`: there is none, or see `outcome_gone`.
    pub outcome: Option<Bytes>,
    /// There was one, and it is no longer kept.
    pub outcome_gone: bool,
}
