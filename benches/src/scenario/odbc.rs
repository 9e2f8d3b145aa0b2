//! IBM's driver over Derby through the wire shim: bare loops beside the connector crate in this process and the whole
//! product over HTTP.
//!
//! Derby, a Java program, and the shim serve all sides alike and take most of the CPU here; figures of different
//! machines tell little, ratios tell what the product's way to the driver costs.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use spillgate_test_support::derby::Derby;
use spillgate_test_support::odbc::db2_connection;
use spillgate_test_support::shim::Shim;

use super::Settings;
use crate::bare::{self, Question, Reader};
use crate::connector::Sessions;
use crate::duel::median;
use crate::fleet::{self, TRUCKS};
use crate::folder::Folder;
use crate::load::{self, Load, Window};
use crate::process::{Server, fetch};
use crate::product::{self, Database, Flow, KEY};
use crate::report::{LoopComparison, print_loops};
use spillgate_test_support::client::get;

/// Sessions, threads and callers of a lookup.
const THREADS: usize = 8;
const BATCH_ROWS: usize = 500;

/// One comparison: so many bare loops beside so many callers.
struct Duel {
    case: &'static str,
    question: Question,
    sides: usize,
    paths: Vec<String>,
    rows_per_call: f64,
    /// How many windows make one: a call counts when it ends, so long calls need long windows.
    windows: u32,
}

/// Runs it.
pub(crate) fn run(settings: &Settings) -> Result<Vec<LoopComparison>> {
    let folder = Folder::new("odbc")?;
    let derby = Derby::start();
    for statement in fleet::derby_schema() {
        derby.run(&statement);
    }
    let shim = Shim::to(derby.address());
    let connection = db2_connection(shim.address());
    let database = Database { driver: "odbc", connection: connection.clone(), connections: THREADS, more: "" };
    let server = product::start(&settings.product, &folder.path, settings.workers, &database, &flows())?;
    let one = Duel {
        case: "IBM's driver: one row by key",
        question: Question { sql: fleet::one("?"), by_key: true, batch_rows: 2 },
        sides: THREADS,
        paths: (1..=TRUCKS).step_by(7).map(|id| format!("/api/trucks/{id}")).collect(),
        rows_per_call: 1.0,
        windows: 1,
    };
    let all = Duel {
        case: "IBM's driver: ten thousand rows at once",
        question: Question { sql: fleet::all(), by_key: false, batch_rows: BATCH_ROWS },
        sides: 1,
        paths: vec!["/api/trucks".to_owned()],
        rows_per_call: TRUCKS as f64,
        windows: 3,
    };
    assert_same_answer(&server, &connection, &one.question)?;
    [one, all].into_iter().map(|duel| compare(&server, &connection, &duel, settings)).collect()
}

fn flows() -> Vec<Flow> {
    vec![
        Flow { name: "truck", path: "/trucks/{id}", sql: fleet::one(":id"), columns: "", max_rows: 1, max_bytes: "64KiB" },
        Flow { name: "trucks", path: "/trucks", sql: fleet::all(), columns: "", max_rows: 10_000, max_bytes: "16MiB" },
    ]
}

fn compare(server: &Server, connection: &str, duel: &Duel, settings: &Settings) -> Result<LoopComparison> {
    let (warm_up, length) = (settings.pace.warm_up, settings.pace.window * duel.windows);
    let mut readers: Vec<Reader> = (0..duel.sides).map(|_| Reader::open(connection, &duel.question)).collect::<Result<_>>()?;
    let requests = duel.paths.iter().map(|path| get(path, KEY)).collect();
    let load = Load { requests, expects: 200, callers: duel.sides, pause: Duration::ZERO, warm_up, window: length };
    let mut sessions = Sessions::open(connection, duel.sides, settings.workers)?;
    let (mut bare_rows, mut connector_rows, mut product_rows) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..settings.pace.rounds {
        bare_rows.push(bare::rows_per_second(&mut readers, &duel.question, Window::after(warm_up, length))?);
        connector_rows.push(sessions.rows_per_second(&duel.question, Window::after(warm_up, length))?);
        let round = load::run(server, &load)?;
        ensure!(round.failed == 0, "{}: {} calls failed: {:?}", duel.case, round.failed, round.failure);
        product_rows.push(round.per_second() * duel.rows_per_call);
    }
    let ratio = |rows: &[f64]| median(rows.iter().zip(&bare_rows).map(|(mine, theirs)| mine / theirs));
    let comparison = LoopComparison {
        case: duel.case.to_owned(),
        unit: "rows",
        threads: duel.sides,
        connector_ratio: ratio(&connector_rows),
        product_ratio: ratio(&product_rows),
        connector_per_second: median(connector_rows.iter().copied()),
        bare_per_second: median(bare_rows.iter().copied()),
        product_per_second: median(product_rows.iter().copied()),
    };
    print_loops(&comparison);
    Ok(comparison)
}

#[derive(Deserialize)]
#[serde(rename_all = "UPPERCASE")]
struct Truck {
    plate: String,
    driver: Option<String>,
    odometer: String,
}

#[derive(Deserialize)]
struct Reply {
    rows: Vec<Truck>,
}

/// Both give the same texts, NULL among them. Doubles and timestamps are written differently by the driver itself.
fn assert_same_answer(server: &Server, connection: &str, question: &Question) -> Result<()> {
    let mut reader = Reader::open(connection, question)?;
    for id in 1..=20 {
        let mut bare = Vec::new();
        reader.ask(Some(id), |batch| {
            bare.extend([1, 2, 4].map(|column| batch.column(column).get(0).map(|text| String::from_utf8_lossy(text).into_owned())));
        })?;
        let (status, body) = fetch(server.address, &format!("/api/trucks/{id}"), KEY)?;
        ensure!(status == 200, "truck {id} was answered {status}: {}", String::from_utf8_lossy(&body));
        let truck = serde_json::from_slice::<Reply>(&body)?.rows.pop().context("no row")?;
        ensure!(bare == [Some(truck.plate), truck.driver, Some(truck.odometer)], "truck {id}: the bare loop read {bare:?}");
    }
    Ok(())
}
