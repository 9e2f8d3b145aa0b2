//! `spillgate queue …`: a look into the store of a stopped server, and the one change that may be made to it there.
//!
//! The data folder is locked meanwhile: while a server runs, its admin face answers the same questions.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use serde_json::{Value as Json, json};
use spillgate_queue::LaneName;
use spillgate_queue::disk::{FolderError, RealDisk};
use spillgate_queue::inspect::{self, Damage, InspectedLane, Inspection};

use crate::cli::{Format, LaneFilter, Queue};
use crate::data_dir::DataDir;

/// Does what was asked.
pub(crate) fn run(command: &Queue) -> anyhow::Result<ExitCode> {
    match command {
        Queue::Inspect { data, lanes, format } => show(&open(data, RealDisk::open_to_read)?.disk, lanes, *format),
        Queue::Verify { data, format } => verify(&open(data, RealDisk::open_to_read)?.disk, *format),
        Queue::Export { data, lanes, file } => export(&open(data, RealDisk::open_to_read)?.disk, lanes, file.as_deref()),
        Queue::Purge { data, queue, tenant, dead } => purge(open(data, RealDisk::open_existing)?, queue, tenant, *dead),
    }
}

/// A store whose server is stopped.
struct Stopped {
    disk: RealDisk,
    _folder: DataDir,
}

fn open(data: &Path, disk: fn(PathBuf) -> Result<RealDisk, FolderError>) -> anyhow::Result<Stopped> {
    let folder = DataDir::take_stopped(data)?;
    if !folder.store().is_dir() {
        if spillgate_control::remembers(&folder.control(), spillgate_control::Kind::Store) {
            bail!("the store of {} is gone: there was one, and what was in it is lost unless a backup is put back", data.display());
        }
        bail!("there is no store in {}, and the operator state knows of none", data.display());
    }
    Ok(Stopped { disk: disk(folder.store())?, _folder: folder })
}

fn show(disk: &RealDisk, lanes: &LaneFilter, format: Format) -> anyhow::Result<ExitCode> {
    let mut found = inspect::inspect(disk)?;
    found.lanes.retain(|lane| lanes.takes(&lane.name.queue, &lane.name.tenant));
    match format {
        Format::Json => println!("{}", inspection_as_json(&found)),
        Format::Text => print_inspection(&found),
    }
    Ok(ExitCode::SUCCESS)
}

fn print_inspection(found: &Inspection) {
    let Inspection { version, files, file_bytes, extents_free, extents_open, extents_sealed, quarantined, .. } = found;
    println!("{} files of {}, format {version}", files.len(), size(*file_bytes));
    let aside = quarantined.len();
    println!("extents of 64 KiB: {extents_free} free, {extents_open} being filled, {extents_sealed} full, {aside} set aside");
    if found.lanes.is_empty() {
        println!("\nno lanes");
    } else {
        let head = ["QUEUE", "TENANT", "WAITING", "BYTES", "DEAD", "DISK", "LANE"].map(str::to_owned);
        let rows: Vec<[String; 7]> = std::iter::once(head).chain(found.lanes.iter().map(lane_as_row)).collect();
        println!();
        print_table(&rows);
    }
    let missing = found.missing_files.iter().map(|file| format!("missing: {file}"));
    let damage = quarantined.iter().map(|damage| format!("set aside: {}", damage_as_text(damage)));
    for line in missing.chain(damage).chain(found.remarks.iter().map(|remark| format!("remark: {remark}"))) {
        println!("{line}");
    }
}

fn lane_as_row(lane: &InspectedLane) -> [String; 7] {
    let name = &lane.name;
    [
        name.queue.to_string(),
        name.tenant.to_string(),
        lane.waiting.to_string(),
        size(lane.bytes),
        lane.dead.to_string(),
        size(lane.disk),
        format!("{:x}", lane.number),
    ]
}

/// Names to the left, numbers to the right.
fn print_table<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    for row in rows {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let width = width(column);
            if column < 2 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        println!("{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
}

fn inspection_as_json(found: &Inspection) -> Json {
    let lane = |lane: &InspectedLane| {
        json!({
            "queue": &*lane.name.queue, "tenant": &*lane.name.tenant, "number": format!("{:x}", lane.number),
            "waiting": lane.waiting, "bytes": lane.bytes, "dead": lane.dead, "disk": lane.disk,
        })
    };
    json!({
        "version": found.version,
        "files": found.files,
        "file_bytes": found.file_bytes,
        "extents": { "free": found.extents_free, "open": found.extents_open, "sealed": found.extents_sealed },
        "quarantined": found.quarantined.iter().map(damage_as_json).collect::<Vec<_>>(),
        "missing_files": found.missing_files,
        "remarks": found.remarks,
        "lanes": found.lanes.iter().map(lane).collect::<Vec<_>>(),
    })
}

/// Exit 1 if there is a fault. Faults are printed as they are found: a large store takes its time.
fn verify(disk: &RealDisk, format: Format) -> anyhow::Result<ExitCode> {
    let mut faults = Vec::new();
    let verified = inspect::verify(disk, &mut |damage| match format {
        Format::Text => println!("{}", damage_as_text(&damage)),
        Format::Json => faults.push(damage_as_json(&damage)),
    })?;
    match format {
        Format::Text => println!(
            "{} records in {} extents read, {}: {}",
            verified.records,
            verified.extents,
            size(verified.bytes),
            if verified.faults == 0 { "no faults".to_owned() } else { format!("{} faults", verified.faults) }
        ),
        Format::Json => {
            println!("{}", json!({ "extents": verified.extents, "records": verified.records, "bytes": verified.bytes, "faults": faults }))
        }
    }
    Ok(ExitCode::from(u8::from(verified.faults > 0)))
}

fn export(disk: &RealDisk, lanes: &LaneFilter, file: Option<&Path>) -> anyhow::Result<ExitCode> {
    if !lanes.takes_all() && !inspect::inspect(disk)?.lanes.iter().any(|lane| lanes.takes(&lane.name.queue, &lane.name.tenant)) {
        bail!("the store has no such lane; `spillgate queue inspect` shows those there are");
    }
    let out: Box<dyn Write> = match file {
        Some(path) => {
            // What callers sent is in it: for its owner only, like the store itself.
            let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
            Box::new(made.with_context(|| format!("{} cannot be made", path.display()))?)
        }
        None => Box::new(io::stdout().lock()),
    };
    let mut lines = ChosenLines { lanes, out: BufWriter::new(out), line: Vec::new(), written: 0 };
    let exported = inspect::export(disk, &mut lines)?;
    lines.out.flush().context("the output cannot be written")?;
    let all = exported.waiting + exported.dead;
    eprintln!("{} of {all} items written, dead letters among them: {}", lines.written, exported.dead);
    if exported.damaged > 0 {
        eprintln!("{} items have content that cannot be read; their lines say so", exported.damaged);
    }
    Ok(ExitCode::from(u8::from(exported.damaged > 0)))
}

/// Passes on the lines of the lanes that were asked for.
struct ChosenLines<'a, W: Write> {
    lanes: &'a LaneFilter,
    out: W,
    /// As much of a line as came so far.
    line: Vec<u8>,
    written: u64,
}

impl<W: Write> ChosenLines<'_, W> {
    fn end_line(&mut self) -> io::Result<()> {
        let chosen = self.lanes.takes_all() || {
            let item: Json = serde_json::from_slice(&self.line)?;
            self.lanes.takes(item["queue"].as_str().unwrap_or_default(), item["tenant"].as_str().unwrap_or_default())
        };
        if chosen {
            self.out.write_all(&self.line)?;
            self.written += 1;
        }
        self.line.clear();
        Ok(())
    }
}

impl<W: Write> Write for ChosenLines<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                self.end_line()?;
            }
        }
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn purge(stopped: Stopped, queue: &str, tenant: &str, dead_too: bool) -> anyhow::Result<ExitCode> {
    let lane = LaneName { queue: queue.into(), tenant: tenant.into() };
    let ended = inspect::purge(Arc::new(stopped.disk), &lane, dead_too)?;
    println!("{ended} items of queue {queue}, tenant {tenant} ended as purged");
    Ok(ExitCode::SUCCESS)
}

fn damage_as_text(damage: &Damage) -> String {
    let extent = damage.extent.map(|extent| format!(", extent {extent}")).unwrap_or_default();
    let offset = damage.offset.map(|offset| format!(", at byte {offset}")).unwrap_or_default();
    format!("{}{extent}{offset}: {}", damage.file, damage.reason)
}

fn damage_as_json(damage: &Damage) -> Json {
    json!({ "file": damage.file, "extent": damage.extent, "offset": damage.offset, "reason": damage.reason })
}

/// A size for reading, to three digits.
fn size(bytes: u64) -> String {
    let units = [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let Some((unit, one)) = units.into_iter().find(|(_, one)| bytes >= *one) else { return format!("{bytes} B") };
    let tenths = u128::from(bytes) * 10 / u128::from(one);
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_is_cut_to_the_lanes_that_were_asked_for() {
        let lanes = LaneFilter { queue: Some("bookings".into()), tenant: None };
        let mut lines = ChosenLines { lanes: &lanes, out: Vec::new(), line: Vec::new(), written: 0 };
        for piece in
            ["{\"queue\":\"book", "ings\",\"tenant\":\"a\"}\n{\"queue\":\"events\"", ",\"tenant\":\"a\"}\n", "{\"queue\":\"bookings\"}\n"]
        {
            lines.write_all(piece.as_bytes()).expect("written");
        }
        assert_eq!((lines.written, lines.out), (2, b"{\"queue\":\"bookings\",\"tenant\":\"a\"}\n{\"queue\":\"bookings\"}\n".to_vec()));
    }

    #[test]
    fn sizes_are_for_reading() {
        let shown = [0, 1023, 1024, 65_536, 1_700_000, 3 << 30].map(size);
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "64.0 KiB", "1.6 MiB", "3.0 GiB"]);
    }
}
