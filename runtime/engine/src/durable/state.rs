//! The store of an engine: attached once, when it has recovered.

use std::sync::OnceLock;

use spillgate_model::{Code, Refusal};
use spillgate_queue::Store;

use super::Durable;

/// What an engine holds of its store. Nothing here costs a direct flow anything.
#[derive(Debug, Default)]
pub(crate) struct Durability {
    opened: OnceLock<Result<Store, String>>,
}

impl Durability {
    /// It is open. False: something was said about it before.
    pub(crate) fn attach(&self, store: Store) -> bool {
        self.opened.set(Ok(store)).is_ok()
    }
    /// It would not open.
    pub(crate) fn failed(&self, detail: String) {
        let _said_before = self.opened.set(Err(detail));
    }
    pub(crate) fn state(&self) -> Durable {
        match self.opened.get() {
            None => Durable::Recovering,
            Some(Ok(store)) => Durable::Serving(store.clone()),
            Some(Err(detail)) => Durable::Failed(detail.clone()),
        }
    }
    /// The store, or why there is none.
    pub(crate) fn store(&self) -> Result<&Store, Refusal> {
        match self.opened.get() {
            Some(Ok(store)) => Ok(store),
            None => Err(Refusal::new(Code::Recovering, "The store of durable work is being opened.")),
            Some(Err(detail)) => Err(Refusal::new(Code::StoreFailed, "The store of durable work cannot be used.").internal(detail.clone())),
        }
    }
}
