//! Equal tenants that flood with unequal crowds and unequal statements: what each gets of the connections' time, and how long a
//! newcomer's single call waits.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use spillgate_test_support::client::get;
use spillgate_test_support::load::{Agents, Pause, call_once, jain};
use spillgate_test_support::rig::{Rig, SLOW, flow, key, tenant};

use super::super::Settings;
use super::served::serve;
use crate::figure::{Asked, Figure, print_figures};
use crate::folder::Folder;

const SEATS: u32 = 8;
/// Statements of two lengths; tenants with the short one get as much time by more of them.
const LONG: Duration = Duration::from_millis(200);
const SHORT: Duration = Duration::from_millis(100);
/// Between two calls of newcomers.
const NEWCOMER: Duration = Duration::from_millis(500);

/// Runs it.
pub(super) fn run(settings: &Settings) -> Result<Vec<Figure>> {
    let scale = settings.scale;
    let folder = Folder::new("fairness")?;
    let rig = Rig::postgres(LONG);
    let short = flow("short", "GET /short", "read", "50s", "main", &format!("SELECT pg_sleep({})::text AS slept", SHORT.as_secs_f64()));
    let [quick, slow] = rig.flows("main");
    let residents: Vec<String> = (0..scale.tenants).map(|number| format!("resident-{number}")).collect();
    let calls = usize::try_from((scale.window * 2).as_millis() / NEWCOMER.as_millis())?;
    let newcomers: Vec<String> = (0..calls).map(|number| format!("newcomer-{number}")).collect();
    let mut sections = vec![rig.database("main", &format!("pool = {{ max = {SEATS}, fast_only = 0 }}"))];
    sections.extend(residents.iter().chain(&newcomers).map(|name| tenant(name, "agent", "")));
    let served = serve(settings, &folder, &sections, &[quick, slow, ("short.toml", short)])?;

    let crowds: Vec<_> = residents
        .iter()
        .enumerate()
        .map(|(number, tenant)| {
            let (path, took) = if number % 2 == 0 { (SLOW, LONG) } else { ("/api/short", SHORT) };
            let agents = Agents {
                address: served.address(),
                requests: vec![get(path, &key(tenant))],
                count: 2 + number % 4,
                patience: Duration::from_secs(60),
                pause: Pause::Fixed(Duration::from_millis(100)),
            };
            (agents.start(), took)
        })
        .collect();
    std::thread::sleep(scale.warm_up + LONG * 20);
    let from = Instant::now();
    let mut waits = Vec::new();
    for newcomer in &newcomers {
        let asked = Instant::now();
        let (status, body) = call_once(served.address(), &get(SLOW, &key(newcomer)))?;
        ensure!(status == 200, "a newcomer was answered {status}: {}", String::from_utf8_lossy(&body));
        waits.push(asked.elapsed().saturating_sub(LONG));
        std::thread::sleep(NEWCOMER.saturating_sub(asked.elapsed()));
    }
    let to = Instant::now();
    let mut held = Vec::new();
    let mut ends = Vec::new();
    for (crowd, took) in crowds {
        let samples = crowd.end().ended_within(from, to);
        held.push(samples.well() as f64 * took.as_secs_f64());
        ends.extend(samples.0);
    }
    waits.sort_unstable();
    let statements = |wait: &Duration| wait.as_secs_f64() / LONG.as_secs_f64();
    let most = waits.last().map_or(0.0, statements);
    let median = waits.get(waits.len() / 2).map_or(0.0, statements);
    let use_of_seats = held.iter().sum::<f64>() / (to - from).as_secs_f64() / f64::from(SEATS);
    let figures = vec![
        Figure::value("fairness", "Jain's index of connection-seconds", "", jain(&held))
            .asked(Asked::AtLeast(0.98))
            .more(format!("seats in use {use_of_seats:.2}; {}", spillgate_test_support::load::Samples(ends))),
        Figure::value("fairness", "the longest a newcomer's call waited", "stmts", most)
            .asked(Asked::AtMost(2.0))
            .more(format!("half of {} waited at most {median:.2}", waits.len())),
    ];
    print_figures(&format!("{} equal tenants flood {SEATS} seats", residents.len()), "", &figures);
    Ok(figures)
}
