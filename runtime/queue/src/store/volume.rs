//! The watch over the volume: its free space, and files that could not be made yet.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::store::StoreError;
use crate::store::shared::Shared;

/// How often free space is looked at.
pub(crate) const PERIOD: Duration = Duration::from_millis(250);
/// Files are made again every so many looks.
const GROW_EVERY: u64 = 4;

/// Looks at the volume once; `number` counts the looks.
pub(crate) fn look(shared: &Shared, number: u64) {
    // A volume that does not answer is taken to be as it was: a write will tell.
    if let Ok(free) = shared.files.free_bytes() {
        shared.volume_free.store(free, Ordering::Relaxed);
        shared.core().judge_health(free, shared.disk_reserve);
    }
    if !number.is_multiple_of(GROW_EVERY) {
        return;
    }
    if let Some(name) = shared.files.removed() {
        // What would be acknowledged from now on would be gone with the process.
        let detail = format!("{name} was removed while the store was open");
        shared.core().poison(detail.clone());
        shared.end(&StoreError::Failed(detail));
        shared.wake_writer();
        return;
    }
    crate::store::catalog::flush(shared);
    if shared.files.is_incomplete() {
        let (made, _) = shared.files.make_missing();
        let mut core = shared.core();
        made.into_iter().for_each(|(number, extents)| core.extents.add_file(number as usize, extents));
    }
    let short = shared.core().extents_short();
    if short > 0 && !shared.files.is_incomplete() {
        // What waits must be worked on and ended: the little that this takes is taken from beyond the limit and given back.
        if let Ok((number, extents)) = shared.files.make_spare(short) {
            shared.core().extents.add_file(number as usize, extents);
        }
        return;
    }
    for number in shared.files.beyond_limit() {
        if !shared.core().give_back_file(number as usize) || shared.files.remove(number).is_err() {
            return;
        }
    }
    if !shared.files.beyond_limit().is_empty() {
        return;
    }
    // Where the system does not take it back, it is not used all the same.
    match shared.files.too_long() {
        Some((number, extents)) if shared.core().give_back_end(number as usize, extents) => {
            let _ = shared.files.shorten(number, extents);
        }
        Some(_) => {}
        None => {
            let _ = shared.files.shorten_head();
        }
    }
}

/// Looks until the store is closed.
pub(crate) fn run(shared: &Shared) {
    let mut number = 1;
    while !shared.is_closing() {
        look(shared, number);
        number += 1;
        let core = shared.core();
        let waited = shared.watch.wait_timeout_while(core, PERIOD, |_| !shared.is_closing());
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}
