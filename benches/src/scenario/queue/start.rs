//! How long a store with a large pile takes to open in a fresh process, beside `cat` of the same files from page cache, and what
//! memory that process comes to.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};

use super::super::Settings;
use super::pile::{ITEM_BYTES, Pile, lanes, noise, room_for};
use super::served;
use crate::figure::{Asked, Figure, print_figures};
use crate::folder::Folder;
use crate::process::peak_bytes_of;

const LANES: usize = 50;
const SMALL_ITEM_BYTES: usize = 200;
const SMALL_MEMORY: u64 = 256 << 20;

/// What the fresh process tells of itself, as JSON.
#[derive(Serialize, Deserialize)]
pub(crate) struct Opened {
    seconds: f64,
    waiting: u64,
    peak_bytes: u64,
}

/// Opens a store in this process, which does nothing else, and tells how that went. `memory`: what its data may come to at most
/// (heap, stacks and other private memory; the kernel refuses more).
pub(crate) fn open_and_tell(folder: &Path, disk_limit: u64, memory: Option<u64>) -> Result<()> {
    if let Some(memory) = memory {
        setrlimit(Resource::Data, Rlimit { current: Some(memory), maximum: Some(memory) })?;
    }
    let started = Instant::now();
    let pile = Pile::open(folder, disk_limit)?;
    let seconds = started.elapsed().as_secs_f64();
    let waiting = pile.store.lanes(None).iter().map(|lane| lane.waiting).sum();
    println!("{}", serde_json::to_string(&Opened { seconds, waiting, peak_bytes: peak_bytes_of("self")? })?);
    Ok(())
}

/// A pile on disk.
struct OnDisk {
    folder: Folder,
    disk_limit: u64,
    items: u64,
}

/// Runs it.
pub(super) fn run(settings: &Settings) -> Result<Vec<Figure>> {
    let mut figures = one_kibibyte(settings)?;
    figures.extend(small_items(settings)?);
    print_figures("Start with a pile", "cat of the same files, from page cache", &figures);
    Ok(figures)
}

fn one_kibibyte(settings: &Settings) -> Result<Vec<Figure>> {
    let pile = make("start", settings.sizes.pile, ITEM_BYTES)?;
    let (mut cats, mut opens, mut peaks) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..settings.sizes.rounds {
        cats.push(cat(&pile.files())?);
        let opened = open_fresh(&pile, None)?;
        opens.push(opened.seconds);
        peaks.push(opened.peak_bytes);
    }
    let (ready, program_peak) = start_program(settings, &pile)?;
    let case = format!("{} items of 1 KiB in {LANES} lanes", pile.items);
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    Ok(vec![
        Figure::beside("start", format!("{case}: store opened"), "s", &opens, &cats)
            .asked(Asked::AtMost(2.0))
            .asked(Asked::RatioAtMost(1.0)),
        Figure::value("start", "  most resident memory", "MiB", mebibytes(peaks.into_iter().max().unwrap_or_default()))
            .asked(Asked::AtMost(128.0)),
        Figure::value("start", "  the whole program ready for durable work", "s", ready).asked(Asked::AtMost(2.0)),
        Figure::value("start", "  its most resident memory", "MiB", mebibytes(program_peak)).asked(Asked::AtMost(128.0)),
    ])
}

fn small_items(settings: &Settings) -> Result<Vec<Figure>> {
    let pile = make("start-small", settings.sizes.small_pile, SMALL_ITEM_BYTES)?;
    let (mut cats, mut opens, mut peak) = (Vec::new(), Vec::new(), 0);
    for _ in 0..settings.sizes.slow_rounds {
        cats.push(cat(&pile.files())?);
        let opened = open_fresh(&pile, Some(SMALL_MEMORY))?;
        opens.push(opened.seconds);
        peak = peak.max(opened.peak_bytes);
    }
    let case = format!("{} items of 200 bytes in {LANES} lanes: store opened", pile.items);
    let more = format!("with at most {} MiB of data, set by the kernel", SMALL_MEMORY >> 20);
    Ok(vec![
        Figure::beside("start", case, "s", &opens, &cats).asked(Asked::AtMost(10.0)).more(more),
        Figure::value("start", "  most resident memory", "MiB", peak as f64 / f64::from(1 << 20)).asked(Asked::AtMost(256.0)),
    ])
}

impl OnDisk {
    fn store(&self) -> PathBuf {
        self.folder.path.join("data").join("store")
    }
    fn files(&self) -> Vec<PathBuf> {
        fs::read_dir(self.store()).into_iter().flatten().flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect()
    }
}

/// Makes the pile, in this process.
fn make(name: &str, items: u64, item_bytes: usize) -> Result<OnDisk> {
    let pile = OnDisk { folder: Folder::new(name)?, disk_limit: room_for(items, item_bytes, LANES), items };
    Pile::open(&pile.store(), pile.disk_limit)?.fill(&lanes(LANES), items, &noise(item_bytes))?;
    Ok(pile)
}

/// Seconds that `cat` takes to read the files.
fn cat(files: &[PathBuf]) -> Result<f64> {
    let started = Instant::now();
    let status = Command::new("cat").args(files).stdout(Stdio::null()).status().context("cannot start cat")?;
    ensure!(status.success(), "cat ended with {status}");
    Ok(started.elapsed().as_secs_f64())
}

fn open_fresh(pile: &OnDisk, memory: Option<u64>) -> Result<Opened> {
    let mut command = Command::new(std::env::current_exe().context("where is this program?")?);
    command.arg("open-store").arg(pile.store()).arg(pile.disk_limit.to_string());
    command.args(memory.map(|bytes| bytes.to_string()));
    let output = command.stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "opening the store ended with {}", output.status);
    let opened: Opened = serde_json::from_slice(&output.stdout)?;
    ensure!(opened.waiting == pile.items, "{} items were found, {} are there", opened.waiting, pile.items);
    Ok(opened)
}

/// Seconds until the program says that it is ready for durable work, and its most resident memory then.
fn start_program(settings: &Settings, pile: &OnDisk) -> Result<(f64, u64)> {
    // The program keeps a little of its limit for itself.
    let disk_limit = pile.disk_limit + (64 << 20);
    let started = Instant::now();
    let served = served::serve(settings, &pile.folder.path, disk_limit, "", "/readyz?for=durable")?;
    let ready = started.elapsed().as_secs_f64();
    Ok((ready, served.server.peak_bytes()?))
}
