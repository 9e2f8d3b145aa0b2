//! Once: keys, business keys, and what became of a write that was cut off.

use bytes::Bytes;
use spillgate_model::Refusal;
use spillgate_queue::{Key, Unique};

use crate::Call;
use crate::steps::Context;

/// Under which keys an item is appended.
#[derive(Debug, Default)]
pub(crate) struct Once {
    /// The caller's and the derived one.
    pub(crate) keys: Vec<Key>,
    pub(crate) unique: Option<Unique>,
}

/// The keys of a call, from what its caller sent and what its flow says.
pub(crate) fn of_call(_call: &Call) -> Result<Once, Box<Refusal>> {
    Ok(Once::default())
}

/// What became of a write that an attempt started and never told the end of.
#[derive(Debug)]
pub(crate) enum Found {
    /// It was done. The job's result, where it can be told.
    Done(Option<Bytes>),
    /// It is proven that it was not: the item is run again.
    NotDone,
    /// Nobody can tell.
    Unknown(Box<Refusal>),
    /// It cannot be found out now, such as while the database is down: asked again later.
    Later(Box<Refusal>),
}

/// Finds out, by the flow's record or `verify`; without either it is unknown. The context has a claim.
pub(crate) async fn look_into(_context: &Context<'_>) -> Found {
    let detail = "The attempt was cut off after its write was sent, and the flow has nothing that tells whether it was done.";
    Found::Unknown(Box::new(Refusal::new(spillgate_model::Code::OutcomeUnknown, detail)))
}
