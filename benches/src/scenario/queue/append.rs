//! Durable appends of 1 KiB, acknowledged after the sync, beside a plain loop that writes the same bytes and syncs as often.
//!
//! A batch is submitted whole and awaited whole: its items go round the lanes, one call for each lane. The floor writes a batch
//! with one call into a file allocated beforehand, as the store's are; a file that grows is measured in the same rounds.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use futures_util::future::join_all;
use spillgate_queue::LaneName;

use super::super::Settings;
use super::pile::{ITEM_BYTES, Pile, append, lanes, noise, room_for};
use crate::duel::median;
use crate::figure::{Asked, Figure, print_figures};
use crate::folder::Folder;
use crate::plain::PlainFile;

/// At most so much is written in a round, so that no round is a test of the machine's memory.
const ROUND_BYTES: u64 = 64 << 20;

/// Lanes, items in a batch, what is asked of the ratio.
const SHAPES: [(usize, usize, Option<f64>); 6] =
    [(1, 16, Some(0.7)), (1, 256, Some(0.7)), (100, 16, Some(0.45)), (100, 256, Some(0.2)), (1000, 16, None), (1000, 256, None)];

/// Runs it.
pub(super) fn run(settings: &Settings) -> Result<Vec<Figure>> {
    let figures = SHAPES.into_iter().map(|(lanes, items, asked)| {
        let figure = measure(settings, lanes, items)?;
        Ok(match asked {
            Some(ratio) => figure.asked(Asked::RatioAtLeast(ratio)),
            None => figure,
        })
    });
    let figures: Vec<Figure> = figures.collect::<Result<_>>()?;
    print_figures("Durable appends of 1 KiB", "a plain loop, one write and one fdatasync a batch, file allocated beforehand", &figures);
    Ok(figures)
}

fn measure(settings: &Settings, lane_count: usize, in_a_batch: usize) -> Result<Figure> {
    let sizes = settings.sizes;
    let folder = Folder::new(&format!("append-{lane_count}-{in_a_batch}"))?;
    let item = noise(ITEM_BYTES);
    let batch = noise(ITEM_BYTES * in_a_batch);
    let batches = batches_of(&folder.path, &batch, sizes.window)?;
    let rounds = sizes.rounds as u64 + 1;
    let items = batches * in_a_batch as u64;

    let mut plain = PlainFile::allocated(&folder.path.join("plain"), rounds * items * ITEM_BYTES as u64)?;
    let pile = Pile::open(&folder.path.join("store"), room_for(rounds * items, ITEM_BYTES, lane_count))?;
    let mut turn = Turn { lanes: lanes(lane_count), next: 0 };
    // Each lane gets its first extent before anything counts.
    pile.fill(&turn.lanes, lane_count as u64, &item)?;

    let before = pile.store.status();
    let (mut floors, mut values, mut growing) = (Vec::new(), Vec::new(), Vec::new());
    let per_second = |time: Duration| items as f64 / time.as_secs_f64();
    for _ in 0..sizes.rounds {
        floors.push(per_second(plain.append_batches(&batch, batches)?));
        let started = Instant::now();
        for _ in 0..batches {
            append_batch(&pile, &mut turn, in_a_batch, &item)?;
        }
        values.push(per_second(started.elapsed()));
        growing.push(per_second(PlainFile::growing(&folder.path.join("growing"))?.append_batches(&batch, batches)?));
    }
    let after = pile.store.status();

    let case = format!("{lane_count} lane{}, {in_a_batch} items a sync", if lane_count == 1 { "" } else { "s" });
    let syncs = (after.syncs - before.syncs) as f64 / (batches * sizes.rounds as u64) as f64;
    let grown: Vec<f64> = values.iter().zip(&growing).map(|(value, floor)| value / floor).collect();
    let more = format!(
        "{syncs:.2} syncs a batch of ours; a growing file {:.0} items/s, ratio {:.2}",
        median(growing.into_iter()),
        median(grown.into_iter())
    );
    Ok(Figure::beside("append", case, "items/s", &values, &floors).more(more))
}

/// Batches that fill a round of the plain loop.
fn batches_of(folder: &Path, batch: &[u8], window: Duration) -> Result<u64> {
    const TRIED: u64 = 30;
    let mut plain = PlainFile::allocated(&folder.join("tried"), TRIED * batch.len() as u64)?;
    let tried = plain.append_batches(batch, TRIED)?;
    let fitting = u64::try_from(window.as_nanos() * u128::from(TRIED) / tried.as_nanos().max(1))?;
    Ok(fitting.clamp(TRIED, ROUND_BYTES / batch.len() as u64))
}

/// Lanes, and whose turn it is.
struct Turn {
    lanes: Vec<LaneName>,
    next: usize,
}

impl Turn {
    /// The lanes of the next batch, each with its number of items.
    fn take(&mut self, items: usize) -> impl Iterator<Item = (&LaneName, u64)> {
        let (first, count) = (self.next, self.lanes.len());
        self.next = (first + items) % count;
        let lanes = &self.lanes;
        (0..items.min(count)).map(move |place| {
            let share = items / count + usize::from(place < items % count);
            (&lanes[(first + place) % count], share as u64)
        })
    }
}

fn append_batch(pile: &Pile, turn: &mut Turn, in_a_batch: usize, item: &Bytes) -> Result<()> {
    let appends = turn.take(in_a_batch).map(|(lane, share)| append(&pile.store, lane, share, item));
    pile.runtime.block_on(join_all(appends)).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_go_round_the_lanes() {
        let mut turn = Turn { lanes: lanes(3), next: 0 };
        let mut shares = |items| -> Vec<(String, u64)> { turn.take(items).map(|(lane, share)| (lane.tenant.to_string(), share)).collect() };
        let expected = |shares: &[(usize, u64)]| -> Vec<(String, u64)> {
            shares.iter().map(|(lane, share)| (format!("tenant-{lane:04}"), *share)).collect()
        };
        assert_eq!(shares(2), expected(&[(0, 1), (1, 1)]));
        assert_eq!(shares(5), expected(&[(2, 2), (0, 2), (1, 1)]));
        assert_eq!(shares(3), expected(&[(1, 1), (2, 1), (0, 1)]));
    }
}
