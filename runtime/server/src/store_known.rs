//! What operator state remembers of the queue store: that there is one, and which numbers it may have given out.
//!
//! A folder that is gone looks like one that never was. Beside operator state that knows of a store it is a loss, which is said, and the
//! new store gives out other numbers: who asks for a job of the old one never gets the answer of another.

use serde_json::json;
use spillgate_control::{Control, Kind};
use spillgate_queue::Store;

/// The one record of its kind.
const NAME: &str = "main";

/// Said until the next start.
pub(crate) const GONE: &str =
    "the store that this operator state knew is gone, and with it all durable work in it: a new one was made, with other numbers of jobs";

/// No lane of it had this number or a higher one.
const NUMBERS_BELOW: &str = "numbers_below";

/// Where the numbers of a new store begin, if there was one before.
pub(crate) fn numbers_below(control: &Control) -> Option<u64> {
    let (_, body) = control.all(Kind::Store).into_iter().find(|(name, _)| name == NAME)?;
    // A record that cannot be read says all the same that there was a store.
    Some(body[NUMBERS_BELOW].as_u64().unwrap_or(0))
}

/// Remembers a store that was opened.
pub(crate) fn remember(control: &Control, store: &Store) {
    if let Err(error) = control.put(Kind::Store, NAME, &json!({ NUMBERS_BELOW: store.numbers_below() })) {
        tracing::warn!(%error, "that there is a store is not kept across a restart");
    }
}
