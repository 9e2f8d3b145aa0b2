//! Durable appends through the whole product over HTTP, beside an axum handler with a plain file and group `fdatasync`, and both
//! beside the plain loop with as many items a sync as there are callers.
//!
//! The lane is paused, so that what is measured is appending alone.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use super::super::{Settings, start_floor};
use super::pile::{ITEM_BYTES, noise};
use super::served::{Served, Tenant, folder_with_trucks, notes, serve};
use crate::duel::summary;
use crate::figure::{Figure, print_figures};
use crate::folder::Folder;
use crate::load::{self, Load, Round};
use crate::plain::PlainFile;
use crate::process::Server;
use crate::report::{Comparison, print_comparisons};

const CALLERS: [usize; 3] = [16, 64, 256];
const DISK_LIMIT: u64 = 3 << 30;
const PLAIN_BATCHES: u64 = 100;

/// Runs it.
pub(super) fn run(settings: &Settings) -> Result<Vec<Figure>> {
    let folder = folder_with_trucks("append-http")?;
    let file = folder.path.join("appended");
    let floor = start_floor("append", &file.to_string_lossy(), settings, &folder)?;
    let served = serve(settings, &folder.path, DISK_LIMIT, "", "/readyz?for=durable")?;
    served.append_one(Tenant::Bench)?;
    served.steer(Tenant::Bench, "pause")?;
    let (mut figures, mut comparisons) = (Vec::new(), Vec::new());
    for callers in CALLERS {
        let (comparison, compared) = compare(settings, &folder, &floor, &served, callers)?;
        comparisons.push(comparison);
        figures.extend(compared);
        served.steer(Tenant::Bench, "purge")?;
    }
    print_comparisons(&comparisons);
    print_figures("Durable appends of 1 KiB over HTTP", "as each line says", &figures);
    Ok(figures)
}

fn compare(settings: &Settings, folder: &Folder, floor: &Server, served: &Served, callers: usize) -> Result<(Comparison, [Figure; 2])> {
    let sizes = settings.sizes;
    let requests: Arc<[Vec<u8>]> = notes(Tenant::Bench).into();
    let load = Load { requests, expects: 202, callers, pause: Duration::ZERO, warm_up: sizes.window / 4, window: sizes.window };
    let batch = noise(ITEM_BYTES * callers);
    let plain_bytes = PLAIN_BATCHES * sizes.rounds as u64 * batch.len() as u64;
    let mut plain = PlainFile::allocated(&folder.path.join("plain"), plain_bytes)?;
    let (mut loops, mut floors, mut products) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..sizes.rounds {
        let looped = plain.append_batches(&batch, PLAIN_BATCHES)?;
        loops.push((PLAIN_BATCHES * callers as u64) as f64 / looped.as_secs_f64());
        floors.push(load::run(floor, &load)?);
        products.push(load::run(&served.server, &load)?);
    }
    let comparison = summary("Durable appends of 1 KiB over HTTP", callers, (floor, &floors), (&served.server, &products))?;
    let per_second = |rounds: &[Round]| -> Vec<f64> { rounds.iter().map(Round::per_second).collect() };
    let (floors, products) = (per_second(&floors), per_second(&products));
    let figures = [
        Figure::beside("append_http", format!("{callers} callers, beside axum and a plain file"), "calls/s", &products, &floors),
        Figure::beside("append_http", format!("{callers} callers, beside the plain loop"), "calls/s", &products, &loops),
    ];
    Ok((comparison, figures))
}
