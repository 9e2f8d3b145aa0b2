//! A store at its limit: items of ten lanes until each is refused, then items that come and go, while another thread looks at the
//! files and at the store's own numbers all the time.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use futures_util::future::join_all;
use spillgate_queue::{LaneName, Store};

use super::super::Settings;
use super::pile::{ITEM_BYTES, Pile, finish, lanes, noise, take, try_append};
use crate::figure::{Asked, Figure, print_figures};
use crate::folder::Folder;

const LANES: usize = 10;
/// Items that a lane appends, or takes and ends, at once.
const AT_ONCE: u64 = 16;
/// Between two looks.
const LOOK: Duration = Duration::from_millis(1);

/// The most that was seen at any look.
#[derive(Default)]
struct Seen {
    /// Blocks allocated to the files of the folder.
    blocks: u64,
    /// Lengths of the files.
    lengths: u64,
    /// `disk_used`.
    used: u64,
    looks: u64,
}

/// Runs it.
pub(super) fn run(settings: &Settings) -> Result<Vec<Figure>> {
    let limit = settings.sizes.limit;
    let folder = Folder::new("limit")?;
    let files = folder.path.join("store");
    let pile = Pile::open(&files, limit)?;
    let (lanes, item) = (lanes(LANES), noise(ITEM_BYTES));
    let (filled, while_filling) = watched(&pile.store, &files, || {
        while append_everywhere(&pile, &lanes, &item)? > 0 {}
        Ok(live_bytes(&pile.store))
    })?;
    let (churned, while_churning) = watched(&pile.store, &files, || churn(&pile, &lanes, &item, settings.sizes.churn))?;

    let of_limit = |bytes: u64| bytes as f64 / limit as f64;
    let most = |seen: &Seen, case: &str| {
        let largest = seen.blocks.max(seen.lengths).max(seen.used);
        Figure::value("limit", format!("most disk at any sample, {case}"), "limit", of_limit(largest)).asked(Asked::AtMost(1.0)).more(
            format!(
                "{} samples of files (blocks {:.4}, lengths {:.4}) and of the store's own number ({:.4})",
                seen.looks,
                of_limit(seen.blocks),
                of_limit(seen.lengths),
                of_limit(seen.used)
            ),
        )
    };
    let figures = vec![
        most(&while_filling, "while it fills"),
        Figure::value("limit", "live content when every lane is refused", "limit", of_limit(filled)).asked(Asked::AtLeast(0.85)),
        most(&while_churning, "while items come and go"),
        Figure::value("limit", "live content after that", "limit", of_limit(churned.live)),
        Figure::value("limit", "items that came and went at the limit", "items/s", churned.per_second)
            .more(format!("{} refused calls meanwhile, {} items moved", churned.refused, churned.moved)),
    ];
    print_figures(&format!("A store of {} MiB at its limit, items of 1 KiB in {LANES} lanes", limit >> 20), "", &figures);
    Ok(figures)
}

struct Churned {
    per_second: f64,
    refused: u64,
    moved: u64,
    live: u64,
}

/// Lanes take and end items and append others, always until they are refused.
fn churn(pile: &Pile, lanes: &[LaneName], item: &Bytes, length: Duration) -> Result<Churned> {
    let before = pile.store.status();
    let (started, mut refused) = (Instant::now(), 0);
    while started.elapsed() < length {
        let ends = lanes.iter().map(|lane| take_and_finish(&pile.store, lane));
        pile.runtime.block_on(join_all(ends)).into_iter().collect::<Result<()>>()?;
        refused += LANES as u64 - append_everywhere(pile, lanes, item)?;
    }
    let seconds = started.elapsed().as_secs_f64();
    while append_everywhere(pile, lanes, item)? > 0 {}
    let after = pile.store.status();
    Ok(Churned {
        per_second: (after.ended - before.ended) as f64 / seconds,
        refused,
        moved: after.moved - before.moved,
        live: live_bytes(&pile.store),
    })
}

async fn take_and_finish(store: &Store, lane: &LaneName) -> Result<()> {
    let most = usize::try_from(AT_ONCE)?;
    let taken = take(store, lane, most).await?;
    let ends = taken.into_iter().map(|item| finish(store, item.lease, Duration::ZERO));
    join_all(ends).await.into_iter().collect()
}

/// Each lane appends some, or a single one where there is no room for so many: how many lanes were not refused.
fn append_everywhere(pile: &Pile, lanes: &[LaneName], item: &Bytes) -> Result<u64> {
    let appends = lanes.iter().map(async |lane| {
        let some = try_append(&pile.store, lane, AT_ONCE, item).await?.is_ok();
        anyhow::Ok(some || try_append(&pile.store, lane, 1, item).await?.is_ok())
    });
    let appended: Vec<bool> = pile.runtime.block_on(join_all(appends)).into_iter().collect::<Result<_>>()?;
    Ok(appended.into_iter().filter(|appended| *appended).count() as u64)
}

fn live_bytes(store: &Store) -> u64 {
    store.lanes(None).iter().map(|lane| lane.bytes).sum()
}

/// Does something while another thread looks.
fn watched<T>(store: &Store, folder: &Path, work: impl FnOnce() -> Result<T>) -> Result<(T, Seen)> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut seen = Seen::default();
            loop {
                let last = done.load(Ordering::Acquire);
                look(store, folder, &mut seen)?;
                if last {
                    return anyhow::Ok(seen);
                }
                std::thread::sleep(LOOK);
            }
        });
        let worked = work();
        done.store(true, Ordering::Release);
        let seen = looking.join().map_err(|_| anyhow::anyhow!("the looking thread panicked"))??;
        Ok((worked?, seen))
    })
}

fn look(store: &Store, folder: &Path, seen: &mut Seen) -> Result<()> {
    let (mut blocks, mut lengths) = (0, 0);
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        // A file may go away between its name and its numbers.
        let Ok(metadata) = entry?.metadata() else { continue };
        // The kernel always counts blocks of 512 bytes here.
        blocks += metadata.blocks() * 512;
        lengths += metadata.len();
    }
    seen.blocks = seen.blocks.max(blocks);
    seen.lengths = seen.lengths.max(lengths);
    seen.used = seen.used.max(store.status().disk_used);
    seen.looks += 1;
    Ok(())
}
