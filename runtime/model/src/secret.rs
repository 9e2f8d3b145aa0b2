//! A text that never leaves the process.

use std::fmt;

/// A secret from `env:` or `file:`. `Debug` and `Display` show `***`; only [`Secret::expose`] gives the text.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

impl Secret {
    /// Wraps a text.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Secret(text.into())
    }
    /// The text. Every call site hands it to a driver or a hash, never to a formatter.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("***")
    }
}
impl fmt::Display for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("***")
    }
}
