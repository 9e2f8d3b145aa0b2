//! Durable appends of 1 KiB, acknowledged after the sync, beside a plain loop that writes the same bytes and syncs as often into a
//! file allocated beforehand, as the store's are.
//!
//! Items of a batch go round the lanes, one call for each lane. Two ways, in the same rounds:
//!
//! * *stepped*: a batch is submitted whole, then the store's writer does one round in the same thread. Batches are exact, nothing
//!   runs beside anything: what the store itself costs. A file that grows is measured beside it, too.
//! * *threads*: the store as it serves, two batches under way, its writer on a thread of its own that takes what is there. How many
//!   items came to a sync is counted, and the floor of each round takes exactly as many syncs.

use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use futures_util::future::join_all;
use spillgate_queue::testing::ByHand;
use spillgate_queue::{LaneName, Store};

use super::super::Settings;
use super::pile::{ITEM_BYTES, Pile, append, lanes, noise, options, room_for};
use crate::duel::median;
use crate::figure::{Asked, Figure, print_figures};
use crate::folder::Folder;
use crate::plain::PlainFile;

/// At most so much is written in a round, so that no round is a test of the machine's memory.
const ROUND_BYTES: u64 = 64 << 20;
/// `store.disk_limit` where nothing is said: it decides how large the store's files are, and so how many of them a batch touches.
const USUAL_DISK_LIMIT: u64 = 2 << 30;
/// Batches that are submitted and not yet durable, with threads.
const UNDER_WAY: u64 = 2;
/// Rounds of the writer in which a batch must have become durable.
const STEPS: usize = 100;

/// Lanes, items in a batch, what is asked of the ratio.
const SHAPES: [(usize, usize, Option<f64>); 6] =
    [(1, 16, Some(0.7)), (1, 256, Some(0.7)), (100, 16, Some(0.45)), (100, 256, Some(0.2)), (1000, 16, None), (1000, 256, None)];

/// Runs it.
pub(super) fn run(settings: &Settings) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (lanes, items, asked) in SHAPES {
        let shape = Shape { lanes, items };
        let asked = |figure: Figure| match asked {
            Some(ratio) => figure.asked(Asked::RatioAtLeast(ratio)),
            None => figure,
        };
        figures.extend(measure(settings, shape)?.map(asked));
    }
    let floor = "a plain loop, the same bytes and as many syncs, file allocated beforehand";
    print_figures("Durable appends of 1 KiB", floor, &figures);
    Ok(figures)
}

#[derive(Clone, Copy)]
struct Shape {
    lanes: usize,
    /// Of a batch.
    items: usize,
}

/// What was measured of one way, round by round.
#[derive(Default)]
struct Way {
    values: Vec<f64>,
    floors: Vec<f64>,
    syncs: u64,
}

fn measure(settings: &Settings, shape: Shape) -> Result<[Figure; 2]> {
    let sizes = settings.sizes;
    let folder = Folder::new(&format!("append-{}-{}", shape.lanes, shape.items))?;
    let at = |name: &str| folder.path.join(name);
    let item = noise(ITEM_BYTES);
    let batches = batches_of(&folder.path, &noise(ITEM_BYTES * shape.items), sizes.window)?;
    let items = batches * shape.items as u64;
    let all = items * (sizes.rounds as u64 + 1);

    let mut plain = PlainFile::allocated(&at("plain"), 2 * all * ITEM_BYTES as u64)?;
    let disk_limit = room_for(all, ITEM_BYTES, shape.lanes).max(USUAL_DISK_LIMIT);
    let by_hand = ByHand::open(options(&at("stepped"), disk_limit)?)?;
    let pile = Pile::open(&at("threads"), disk_limit)?;
    let turn = Turn { lanes: lanes(shape.lanes), next: Cell::new(0) };
    // Each lane gets its first extent before anything counts.
    pile.fill(&turn.lanes, shape.lanes as u64, &item)?;
    step_batches(&by_hand, &turn, shape.lanes, &item, 1)?;

    let (mut stepped, mut threads, mut growing) = (Way::default(), Way::default(), Vec::new());
    let per_second = |time: Duration| items as f64 / time.as_secs_f64();
    for _ in 0..sizes.rounds {
        let syncs = stepped.round(items, &mut plain, by_hand.store(), || step_batches(&by_hand, &turn, shape.items, &item, batches))?;
        let piece = noise(usize::try_from(items * ITEM_BYTES as u64 / syncs)?);
        growing.push(per_second(PlainFile::growing(&at("growing"))?.append_batches(&piece, syncs)?));
        threads.round(items, &mut plain, &pile.store, || {
            let under_way = (0..UNDER_WAY).map(|_| append_batches(&pile.store, &turn, shape.items, &item, batches / UNDER_WAY));
            pile.runtime.block_on(join_all(under_way)).into_iter().collect()
        })?;
    }

    let grown = median(stepped.values.iter().zip(&growing).map(|(value, floor)| value / floor));
    let per_sync = |way: &Way| format!("{:.1} items a sync", (items * sizes.rounds as u64) as f64 / way.syncs as f64);
    let more = format!("{}; a growing file {:.0} items/s, ratio {grown:.2}", per_sync(&stepped), median(growing.into_iter()));
    let lanes = format!("{} lane{}", shape.lanes, if shape.lanes == 1 { "" } else { "s" });
    Ok([
        Figure::beside("append", format!("{lanes}, batches of {}, stepped", shape.items), "items/s", &stepped.values, &stepped.floors)
            .more(more),
        Figure::beside(
            "append",
            format!("{lanes}, {UNDER_WAY} batches of {} under way, threads", shape.items),
            "items/s",
            &threads.values,
            &threads.floors,
        )
        .more(per_sync(&threads)),
    ])
}

impl Way {
    /// One round of the store and then of the floor: how many syncs each took.
    fn round(&mut self, items: u64, plain: &mut PlainFile, store: &Store, work: impl FnOnce() -> Result<()>) -> Result<u64> {
        let (before, started) = (store.status().syncs, Instant::now());
        work()?;
        self.values.push(items as f64 / started.elapsed().as_secs_f64());
        let syncs = store.status().syncs - before;
        let piece = noise(usize::try_from(items * ITEM_BYTES as u64 / syncs)?);
        self.floors.push(items as f64 / plain.append_batches(&piece, syncs)?.as_secs_f64());
        self.syncs += syncs;
        Ok(syncs)
    }
}

/// Batches that fill a round of the plain loop.
fn batches_of(folder: &Path, batch: &[u8], window: Duration) -> Result<u64> {
    const TRIED: u64 = 30;
    let mut plain = PlainFile::allocated(&folder.join("tried"), TRIED * batch.len() as u64)?;
    let tried = plain.append_batches(batch, TRIED)?;
    let fitting = u64::try_from(window.as_nanos() * u128::from(TRIED) / tried.as_nanos().max(1))?;
    Ok(fitting.clamp(TRIED, ROUND_BYTES / batch.len() as u64).next_multiple_of(UNDER_WAY))
}

/// Lanes, and whose turn it is.
struct Turn {
    lanes: Vec<LaneName>,
    next: Cell<usize>,
}

impl Turn {
    /// The lanes of the next batch, each with its number of items.
    fn take(&self, items: usize) -> impl Iterator<Item = (&LaneName, u64)> {
        let count = self.lanes.len();
        let first = self.next.replace((self.next.get() + items) % count);
        (0..items.min(count)).map(move |place| {
            let share = items / count + usize::from(place < items % count);
            (&self.lanes[(first + place) % count], share as u64)
        })
    }
}

/// One batch, submitted whole.
async fn append_batch(store: &Store, turn: &Turn, items: usize, item: &Bytes) -> Result<()> {
    let appends = turn.take(items).map(|(lane, share)| append(store, lane, share, item));
    join_all(appends).await.into_iter().collect()
}

/// One batch after the other.
async fn append_batches(store: &Store, turn: &Turn, items: usize, item: &Bytes, batches: u64) -> Result<()> {
    for _ in 0..batches {
        append_batch(store, turn, items, item).await?;
    }
    Ok(())
}

/// The same, with the writer stepped after each submission.
fn step_batches(by_hand: &ByHand, turn: &Turn, items: usize, item: &Bytes, batches: u64) -> Result<()> {
    for _ in 0..batches {
        by_hand.run(STEPS, append_batch(by_hand.store(), turn, items, item)).context("a batch did not become durable")??;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_go_round_the_lanes() {
        let turn = Turn { lanes: lanes(3), next: Cell::new(0) };
        let shares = |items| -> Vec<(String, u64)> { turn.take(items).map(|(lane, share)| (lane.tenant.to_string(), share)).collect() };
        let expected = |shares: &[(usize, u64)]| -> Vec<(String, u64)> {
            shares.iter().map(|(lane, share)| (format!("tenant-{lane:04}"), *share)).collect()
        };
        assert_eq!(shares(2), expected(&[(0, 1), (1, 1)]));
        assert_eq!(shares(5), expected(&[(2, 2), (0, 2), (1, 1)]));
        assert_eq!(shares(3), expected(&[(1, 1), (2, 1), (0, 1)]));
    }
}
