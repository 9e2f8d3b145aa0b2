//! How long a lane with more than a million items takes to empty, and until its disk is free again.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::super::Settings;
use super::pile::{ITEM_BYTES, Pile, lanes, noise, room_for};
use crate::duel::median;
use crate::figure::{Asked, Figure, print_figures};
use crate::folder::Folder;

/// Disk that is not free by then is reported as such.
const FREE_LIMIT: Duration = Duration::from_secs(10);

/// Runs it.
pub(super) fn run(settings: &Settings) -> Result<Vec<Figure>> {
    let items = settings.sizes.pile;
    let folder = Folder::new("purge")?;
    let lane = lanes(1);
    let (mut purged, mut freed) = (Vec::new(), Vec::new());
    let pile = Pile::open(&folder.path.join("store"), room_for(items, ITEM_BYTES, 1))?;
    for _ in 0..settings.sizes.slow_rounds {
        pile.fill(&lane, items, &noise(ITEM_BYTES))?;
        let filled = pile.store.status();
        let started = Instant::now();
        let count = pile.runtime.block_on(pile.store.purge(&lane[0], false))?;
        purged.push(started.elapsed().as_secs_f64());
        ensure!(count == items, "{count} items purged, {items} were there");
        // Extents in use but for a few: the lane's tail and its journal stay.
        while pile.store.status().disk_used > filled.disk_used / 100 && started.elapsed() < FREE_LIMIT {
            std::thread::sleep(Duration::from_millis(1));
        }
        freed.push(started.elapsed().as_secs_f64());
    }
    let figures = vec![
        Figure::value("purge", format!("{items} items of 1 KiB in one lane: purged"), "s", median(purged.into_iter()))
            .asked(Asked::AtMost(0.2)),
        Figure::value("purge", "99 of 100 bytes of its disk free again", "s", median(freed.into_iter())),
    ];
    print_figures("Purge", "", &figures);
    Ok(figures)
}
