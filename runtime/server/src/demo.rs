//! `spillgate demo`: the fleet example, complete and embedded, on loopback only.
//!
//! The example's files are written into the data folder when they are missing, so that they can be edited while it
//! runs; the database is made and filled once. Half a database is never left: it is filled under another name.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};

use crate::cli;
use crate::serve::{self, Addresses};

/// The files of the example, by their path below the data folder.
pub(crate) const FILES: &[(&str, &str)] = &[
    ("server.toml", include_str!("../../../flows/fleet/server.toml")),
    ("flows/book_trip.toml", include_str!("../../../flows/fleet/flows/book_trip.toml")),
    ("flows/bookings.toml", include_str!("../../../flows/fleet/flows/bookings.toml")),
    ("flows/depots.toml", include_str!("../../../flows/fleet/flows/depots.toml")),
    ("flows/new_bookings.toml", include_str!("../../../flows/fleet/flows/new_bookings.toml")),
    ("flows/note_booking.toml", include_str!("../../../flows/fleet/flows/note_booking.toml")),
    ("flows/trip.toml", include_str!("../../../flows/fleet/flows/trip.toml")),
    ("flows/trip_events.toml", include_str!("../../../flows/fleet/flows/trip_events.toml")),
    ("flows/trips.sql", include_str!("../../../flows/fleet/flows/trips.sql")),
    ("flows/trips.toml", include_str!("../../../flows/fleet/flows/trips.toml")),
    ("flows/truck.toml", include_str!("../../../flows/fleet/flows/truck.toml")),
    ("flows/truck_position.toml", include_str!("../../../flows/fleet/flows/truck_position.toml")),
    ("flows/truck_positions.toml", include_str!("../../../flows/fleet/flows/truck_positions.toml")),
    ("flows/truck_status.toml", include_str!("../../../flows/fleet/flows/truck_status.toml")),
];
const SCHEMA: &str = include_str!("../../../flows/fleet/schema.sql");
const SEED: &str = include_str!("../../../flows/fleet/seed.sql");

/// Runs until it is told to stop.
pub(crate) fn run(options: &cli::Demo) -> anyhow::Result<ExitCode> {
    for address in [options.listen, options.admin_listen] {
        if !address.ip().is_loopback() {
            bail!("the demo has fixed keys and listens on loopback only; {address} is not a loopback address");
        }
    }
    write_files(&options.data)?;
    make_database(&options.data.join("fleet.db"))?;
    let addresses = Addresses { listen: Some(options.listen), admin_listen: Some(options.admin_listen) };
    let config = options.data.join("server.toml");
    serve::run_with(&config, false, addresses, |bound| print_calls(&options.data, bound))
}

fn write_files(data: &Path) -> anyhow::Result<()> {
    for (name, content) in FILES {
        let path = data.join(name);
        if path.exists() {
            continue;
        }
        let folder = path.parent().unwrap_or(data);
        fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
        // Under another name first: a start that is broken off leaves no half file that the next one would keep.
        let unfinished = path.with_extension("unfinished");
        let written = fs::write(&unfinished, content).and_then(|()| fs::rename(&unfinished, &path));
        written.with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(())
}

/// Fills a new database in one transaction under another name and renames it when it is whole.
pub(crate) fn make_database(path: &Path) -> anyhow::Result<()> {
    if path.exists() {
        return Ok(());
    }
    let unfinished = path.with_extension("unfinished");
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("{} is in the way", unfinished.display()));
        }
        _ => {}
    }
    let connection = rusqlite::Connection::open(&unfinished).with_context(|| format!("{} cannot be made", unfinished.display()))?;
    connection
        .execute_batch(&format!("PRAGMA synchronous = OFF; BEGIN; {SCHEMA} {SEED} COMMIT; ANALYZE;"))
        .context("the example's database cannot be filled")?;
    connection.close().map_err(|(_, error)| error).context("the example's database cannot be closed")?;
    fs::rename(&unfinished, path).with_context(|| format!("{} cannot be renamed", unfinished.display()))?;
    Ok(())
}

fn print_calls(data: &Path, bound: &serve::Bound) {
    let (flows, admin) = (bound.listen, bound.admin_listen);
    // As it was started: after `make demo` it is on nobody's PATH.
    let program = std::env::args().next().unwrap_or_else(|| "spillgate".into());
    println!(
        "\
The fleet example answers on http://{flows} (admin on http://{admin}). Try:

  # a point lookup
  curl -s -H 'Authorization: Bearer demo-agent' http://{flows}/api/trucks/7/position
  # a filtered and paged list; send `next` back as `cursor`
  curl -s -H 'Authorization: Bearer demo-agent' 'http://{flows}/api/trips?status=planned&size=3'
  # a join
  curl -s -H 'Authorization: Bearer demo-agent' http://{flows}/api/trips/2005
  # several steps with when, map and route
  curl -s -H 'Authorization: Bearer demo-agent' http://{flows}/api/trucks/7/status
  # durable work: a booking becomes a job (202) that is done from disk, and done once
  curl -s -H 'Authorization: Bearer demo-agent' -H 'Content-Type: application/json' -d '{{\"trip\": 2002, \"reference\": \"ACME-1\", \"pallets\": 3}}' http://{flows}/api/bookings
  # sent again it is the same job; with Prefer: wait=5 its result comes with the reply
  curl -s -H 'Authorization: Bearer demo-agent' -H 'Content-Type: application/json' -H 'Prefer: wait=5' -d '{{\"trip\": 2002, \"reference\": \"ACME-1\", \"pallets\": 3}}' http://{flows}/api/bookings
  # the job itself, by the address that the first call gave (found out here by sending it once more)
  curl -s -H 'Authorization: Bearer demo-agent' http://{flows}$(curl -s -H 'Authorization: Bearer demo-agent' -H 'Content-Type: application/json' -d '{{\"trip\": 2002, \"reference\": \"ACME-1\", \"pallets\": 3}}' http://{flows}/api/bookings | grep -o '/api/jobs/[0-9a-f-]*')
  # a schedule looks for new bookings every five seconds and notes them in the history of their trips
  curl -s -H 'Authorization: Bearer demo-agent' http://{flows}/api/trips/2002/events
  # what this key may call, as OpenAPI 3.1
  curl -s -H 'Authorization: Bearer demo-agent' http://{flows}/openapi.json
  # by name, from another terminal
  SPILLGATE_KEY=demo-agent {program} call truck_position id=7 --url http://{flows}
  # the operator's side; `queues` has each lane, its oldest item, and what its head waits for
  curl -s -H 'Authorization: Bearer demo-admin' http://{admin}/admin/v1/databases
  curl -s -H 'Authorization: Bearer demo-admin' http://{admin}/admin/v1/queues
  curl -s -X POST -H 'Authorization: Bearer demo-admin' http://{admin}/admin/v1/queues/bookings/lanes/dispatch-agent/pause
  curl -s -X POST -H 'Authorization: Bearer demo-admin' http://{admin}/admin/v1/queues/bookings/lanes/dispatch-agent/resume
  curl -s -H 'Authorization: Bearer demo-admin' http://{admin}/metrics

The files are in {}: edit a flow and the next call uses it. Below, one line a call.
",
        data.display()
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_demo_carries_every_file_of_the_example() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("flows/fleet");
        let mut found = BTreeSet::new();
        for folder in ["", "flows"] {
            for entry in fs::read_dir(root.join(folder)).expect("the example is there").flatten() {
                if entry.path().is_file() {
                    found.insert(Path::new(folder).join(entry.file_name()).to_string_lossy().into_owned());
                }
            }
        }
        let carried: BTreeSet<String> =
            FILES.iter().map(|(name, _)| (*name).to_owned()).chain(["schema.sql".into(), "seed.sql".into()]).collect();
        assert_eq!(found, carried);
    }
}
