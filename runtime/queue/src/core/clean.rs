//! Cleaning.

use std::io;

use crate::core::Core;
use crate::core::lookup::{Plan, Record};

/// What to read.
#[derive(Debug)]
pub(crate) struct Cleaning {
    pub(crate) plan: Plan,
}

impl Core {
    pub(crate) fn wants_cleaning(&self) -> bool {
        false
    }
    pub(crate) fn next_cleaning(&mut self) -> Option<Cleaning> {
        None
    }
    pub(crate) fn cleaned(&mut self, _task: Cleaning, _records: io::Result<Vec<Record>>) {}
    pub(crate) fn sweep(&mut self) {
        let now = self.now;
        self.keys.sweep(now);
        self.uniques.sweep(now);
    }
}
