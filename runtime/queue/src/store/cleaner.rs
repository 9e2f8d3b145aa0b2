//! Cleaning, between two batches: reading what still lives in extents that are to be given back.

use crate::core::lookup::read;
use crate::store::shared::Shared;

/// Steps between two batches: others wait meanwhile.
const STEPS: usize = 8;

/// Does some cleaning: whether there was any.
pub(crate) fn clean(shared: &Shared) -> bool {
    for step in 0..STEPS {
        let Some(task) = shared.core().next_cleaning() else { return step > 0 };
        let records = read(&shared.files, &task.plan);
        shared.core().cleaned(task, records);
    }
    true
}
