//! Two hundred agents on a two-second statement, and an interactive tenant at twenty calls a second: beside them, and alone.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use spillgate_test_support::client::get;
use spillgate_test_support::load::{Agents, Pause, Samples, Steady};
use spillgate_test_support::rig::{QUICK, Rig, key, tenant};

use super::super::Settings;
use super::served::{Served, serve};
use crate::figure::{Asked, Figure, print_figures};
use crate::folder::Folder;

const SLOW: Duration = Duration::from_secs(2);
const SEATS: u32 = 8;
/// What one tenant may hold when nothing is written.
const AGENT_SEATS: u32 = SEATS - 2;
const AGENTS: usize = 200;
const PER_SECOND: f64 = 20.0;

/// Runs it on each database.
pub(super) fn run(settings: &Settings) -> Result<Vec<Figure>> {
    let databases: [fn(&Path) -> Rig; 3] = [|_| Rig::postgres(SLOW), |folder| Rig::sqlite(folder, SLOW, AGENT_SEATS), |_| Rig::db2(SLOW)];
    let mut figures = Vec::new();
    for database in databases {
        let folder = Folder::new("pile-up")?;
        figures.extend(measure(settings, &folder, &database(&folder.path))?);
    }
    let title = format!("{AGENTS} agents on a statement of {SLOW:?}, beside a tenant at {PER_SECOND} calls/s; {SEATS} seats");
    print_figures(&title, "the same tenant alone", &figures);
    Ok(figures)
}

fn measure(settings: &Settings, folder: &Folder, rig: &Rig) -> Result<Vec<Figure>> {
    let scale = settings.scale;
    let sections = [
        rig.database("main", &format!("pool = {{ max = {SEATS} }}")),
        tenant("agents", "agent", "in_flight = 256"),
        tenant("office", "interactive", ""),
    ];
    let served = serve(settings, folder, &sections, &rig.flows("main"))?;
    office(&served, scale.warm_up);
    let (mut alone, mut beside, mut seats, mut work) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..scale.rounds {
        alone.extend(office(&served, scale.window).0);
        let agents = Agents {
            address: served.address(),
            requests: vec![rig.slow_call(&key("agents"))],
            count: AGENTS,
            patience: Duration::from_secs(60),
            pause: Pause::AsTold(Duration::from_millis(200)),
        };
        let agents = agents.start();
        std::thread::sleep(scale.warm_up + SLOW);
        let (watch, from) = (served.watch_seats("agents"), Instant::now());
        beside.extend(office(&served, scale.window).0);
        seats.push(watch.mean()? / f64::from(AGENT_SEATS));
        work.extend(agents.end().ended_within(from, Instant::now()).0);
    }
    let (alone, beside, work) = (Samples(alone), Samples(beside), Samples(work));
    let millis = |samples: &Samples, per_mille| [samples.latency(per_mille).as_secs_f64() * 1e3];
    let case = |what: &str| format!("{}: {what}", rig.name);
    let used = crate::duel::median(seats.into_iter());
    Ok(vec![
        Figure::beside("pile-up", case("p99"), "ms", &millis(&beside, 990), &millis(&alone, 990)).asked(Asked::RatioAtMost(1.5)),
        Figure::beside("pile-up", case("p50"), "ms", &millis(&beside, 500), &millis(&alone, 500)),
        Figure::value("pile-up", case("refused or failed"), "calls", (beside.len() - beside.well()) as f64)
            .asked(Asked::AtMost(0.0))
            .more(format!("beside: {beside}")),
        Figure::value("pile-up", case("seats in use of those agents may hold"), "seats", used)
            .asked(Asked::AtLeast(0.95))
            .more(format!("agents: {work}")),
    ])
}

fn office(served: &Served, length: Duration) -> Samples {
    let requests = vec![get(QUICK, &key("office"))];
    let calls = Steady { address: served.address(), requests, per_second: PER_SECOND, patience: Duration::from_secs(20) }.start();
    std::thread::sleep(length);
    calls.end()
}
