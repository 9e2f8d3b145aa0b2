//! How fast waiting items are worked off: taken and ended through the store, and end to end by the workers of the whole product,
//! each item with one lookup in SQLite.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures_util::future::join_all;

use super::super::Settings;
use super::pile::{ITEM_BYTES, Pile, finish, lanes, noise, room_for, take};
use super::served::{Tenant, folder_with_trucks, notes, serve};
use crate::duel::median;
use crate::figure::{Figure, print_figures};
use crate::folder::Folder;
use crate::plain::PlainFile;
use spillgate_test_support::client::Client;

/// As results are kept where nothing else is said.
const KEEP: Duration = Duration::from_secs(24 * 3600);
/// What an end costs the floor on disk.
const END_BYTES: usize = 32;
/// Callers that fill the queue.
const FILLERS: usize = 64;
const DRAIN_LIMIT: Duration = Duration::from_secs(300);

/// Runs it.
pub(super) fn run(settings: &Settings) -> Result<Vec<Figure>> {
    let mut figures: Vec<Figure> = [16, 256].into_iter().map(|at_once| through_the_store(settings, at_once)).collect::<Result<_>>()?;
    figures.push(through_the_product(settings)?);
    print_figures("Drain", "a plain loop that reads the same bytes, writes 32 for each and syncs once a batch", &figures);
    Ok(figures)
}

fn through_the_store(settings: &Settings, at_once: usize) -> Result<Figure> {
    let rounds = settings.sizes.rounds as u64;
    let items = (settings.sizes.pile / 20 / rounds).next_multiple_of(at_once as u64);
    let folder = Folder::new("drain")?;
    let lane = lanes(1);
    let pile = Pile::open(&folder.path.join("store"), room_for(items * rounds, ITEM_BYTES, 1))?;
    pile.fill(&lane, items * rounds, &noise(ITEM_BYTES))?;
    let mut plain = Plain::with(&folder.path, items * rounds)?;
    let per_second = |time: Duration| items as f64 / time.as_secs_f64();
    let (mut values, mut floors) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        floors.push(per_second(plain.drain(items, at_once)?));
        let started = Instant::now();
        let mut left = items;
        while left > 0 {
            let taken = pile.runtime.block_on(take(&pile.store, &lane[0], at_once))?;
            ensure!(taken.len() == at_once, "{left} items are left, {} were handed out", taken.len());
            left -= taken.len() as u64;
            let ends = taken.into_iter().map(|item| finish(&pile.store, item.lease, KEEP));
            pile.runtime.block_on(join_all(ends)).into_iter().collect::<Result<()>>()?;
        }
        values.push(per_second(started.elapsed()));
    }
    Ok(Figure::beside("drain", format!("store: taken and ended, {at_once} at once, one lane"), "items/s", &values, &floors))
}

/// The floor's two files.
struct Plain {
    items: PlainFile,
    ends: PlainFile,
    offset: u64,
}

impl Plain {
    fn with(folder: &Path, items: u64) -> Result<Self> {
        let mut plain = Plain {
            items: PlainFile::allocated(&folder.join("plain-items"), items * ITEM_BYTES as u64)?,
            ends: PlainFile::allocated(&folder.join("plain-ends"), items * END_BYTES as u64)?,
            offset: 0,
        };
        // In large pieces: written is what will be read, nothing more.
        let piece = noise(ITEM_BYTES * 1024);
        for start in (0..items).step_by(1024) {
            let count = usize::try_from(1024.min(items - start))?;
            plain.items.append(&piece[..count * ITEM_BYTES])?;
        }
        Ok(plain)
    }
    fn drain(&mut self, items: u64, at_once: usize) -> Result<Duration> {
        let mut content = vec![0; ITEM_BYTES * at_once];
        let started = Instant::now();
        for _ in 0..items / at_once as u64 {
            self.items.read(&mut content, self.offset)?;
            self.offset += content.len() as u64;
            self.ends.append(&content[..END_BYTES * at_once])?;
        }
        Ok(started.elapsed())
    }
}

fn through_the_product(settings: &Settings) -> Result<Figure> {
    let items = settings.sizes.drained;
    let folder = folder_with_trucks("drain-http")?;
    let served = serve(settings, &folder.path, room_for(items * 2, ITEM_BYTES, 1), "", "/readyz?for=durable")?;
    let mut values = Vec::new();
    for _ in 0..settings.sizes.slow_rounds {
        served.append_one(Tenant::Bench)?;
        served.steer(Tenant::Bench, "pause")?;
        append_notes(served.server.address, items)?;
        let last = served.append_one(Tenant::Bench)?;
        let started = Instant::now();
        served.steer(Tenant::Bench, "resume")?;
        served.wait_for(&last, DRAIN_LIMIT)?;
        values.push(items as f64 / started.elapsed().as_secs_f64());
    }
    let case = format!("product: {items} items, 4 workers, a lookup in SQLite each");
    Ok(Figure::value("drain", case, "items/s", median(values.into_iter())))
}

fn append_notes(address: std::net::SocketAddr, items: u64) -> Result<()> {
    let requests = notes(Tenant::Bench);
    let each = items / FILLERS as u64;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let fillers = (0..FILLERS).map(async |_| {
        let mut client = Client::connect(address).await?;
        for number in 0..each {
            let request = &requests[usize::try_from(number)? % requests.len()];
            let (status, body) = client.call(request).await?;
            ensure!(status == 202, "a note was answered {status}: {}", String::from_utf8_lossy(body));
        }
        anyhow::Ok(())
    });
    runtime.block_on(join_all(fillers)).into_iter().collect()
}
