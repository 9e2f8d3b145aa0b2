//! A boxed future, the form in which traits at crate boundaries return work.

use std::future::Future;
use std::pin::Pin;

/// Work that borrows for `'a`. Dropping it is how a caller gives up: every trait says what that means.
pub type Work<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
