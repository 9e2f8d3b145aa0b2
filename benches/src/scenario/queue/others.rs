//! The same work on other stores: items come and go first in, first out, a hundred of each made durable together, over a standing
//! backlog. It shows whether files of our own still are the better choice.
//!
//! Each store reads the hundred oldest items, then commits their removal with a hundred new ones. What the queue does beyond that
//! (limits, leases, states, exact charges) it does here too; the others have none of it.

mod rivals;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use bytes::Bytes;
use futures_util::future::{join, join_all};
use spillgate_queue::{LaneName, Lease};

use super::super::Settings;
use super::pile::{ITEM_BYTES, Pile, append, finish, lanes, noise, room_for, take};
use crate::duel::median;
use crate::figure::{Figure, print_figures};
use crate::folder::Folder;

use rivals::{Fjall, Queue, Redb, Sled};

/// Items that come, and that go, in one commit.
const AT_ONCE: usize = 100;

/// A store with a backlog.
trait Rival {
    /// Appends so many items durably.
    fn fill(&mut self, items: u64) -> Result<()>;
    /// Reads the oldest items, then appends as many and removes those, durably.
    fn turn(&mut self) -> Result<()>;
    /// Bytes of disk it takes now.
    fn disk_bytes(&self) -> Result<u64>;
}

/// Runs it.
pub(super) fn run(settings: &Settings) -> Result<Vec<Figure>> {
    let sizes = settings.sizes;
    let backlog = (sizes.pile / 10).next_multiple_of(AT_ONCE as u64);
    let folder = Folder::new("others")?;
    let at = |name: &str| folder.path.join(name);
    let mut all: [(&str, Box<dyn Rival>); 4] = [
        ("spillgate", Box::new(Ours::open(&at("ours"), backlog)?)),
        ("fjall 3.1", Box::new(Queue::<Fjall>::open(&at("fjall"))?)),
        ("redb 4.6", Box::new(Queue::<Redb>::open(&at("redb"))?)),
        ("sled 0.34", Box::new(Queue::<Sled>::open(&at("sled"))?)),
    ];
    for (_, rival) in &mut all {
        rival.fill(backlog)?;
    }
    let mut values: [Vec<f64>; 4] = Default::default();
    for _ in 0..sizes.rounds {
        for ((_, rival), values) in all.iter_mut().zip(&mut values) {
            let (started, mut turns) = (Instant::now(), 0);
            while started.elapsed() < sizes.window {
                rival.turn()?;
                turns += 1;
            }
            values.push((turns * AT_ONCE) as f64 / started.elapsed().as_secs_f64());
        }
    }
    let live = backlog * ITEM_BYTES as u64;
    let mut figures = Vec::new();
    for ((name, rival), of_this) in all.iter().zip(&values) {
        let more = format!("{:.2} bytes of disk for each live byte", rival.disk_bytes()? as f64 / live as f64);
        let case = format!("{name}: items that came and went");
        figures.push(match *name {
            "spillgate" => Figure::value("others", case, "items/s", median(of_this.iter().copied())).more(more),
            _ => Figure::beside("others", case, "items/s", of_this, &values[0]).more(more),
        });
    }
    print_figures(&format!("Other stores: {backlog} items of 1 KiB wait, {AT_ONCE} come and go a commit"), "spillgate's queue", &figures);
    Ok(figures)
}

/// Bytes of blocks allocated below a folder.
fn allocated(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { allocated(&entry.path())? } else { metadata.blocks() * 512 };
    }
    Ok(bytes)
}

struct Ours {
    pile: Pile,
    lane: LaneName,
    item: Bytes,
}

impl Ours {
    fn open(folder: &Path, backlog: u64) -> Result<Self> {
        let pile = Pile::open(folder, room_for(backlog * 2, ITEM_BYTES, 1))?;
        Ok(Ours { pile, lane: lanes(1).remove(0), item: noise(ITEM_BYTES) })
    }
}

impl Rival for Ours {
    fn fill(&mut self, items: u64) -> Result<()> {
        self.pile.fill(std::slice::from_ref(&self.lane), items, &self.item)
    }
    fn turn(&mut self) -> Result<()> {
        let store = &self.pile.store;
        let taken = self.pile.runtime.block_on(take(store, &self.lane, AT_ONCE))?;
        ensure!(taken.len() == AT_ONCE, "{} items were handed out", taken.len());
        let leases: Vec<Lease> = taken.into_iter().map(|item| item.lease).collect();
        let ends = join_all(leases.into_iter().map(|lease| finish(store, lease, std::time::Duration::ZERO)));
        let (appended, ended) = self.pile.runtime.block_on(join(append(store, &self.lane, AT_ONCE as u64, &self.item), ends));
        appended?;
        ended.into_iter().collect()
    }
    /// Extents in use: the files are a fixed size, allocated for all lanes.
    fn disk_bytes(&self) -> Result<u64> {
        Ok(self.pile.store.status().disk_used)
    }
}
