//! Ten times the load that a pool can serve: what is still served, and what each refusal costs beside a bare server that refuses
//! everything with a fixed reply.

use std::time::{Duration, Instant};

use anyhow::Result;
use spillgate_test_support::client::get;
use spillgate_test_support::load::{Samples, Steady};
use spillgate_test_support::rig::{Rig, SLOW, key, tenant};

use super::super::{Settings, start_floor};
use super::served::serve;
use crate::duel::median;
use crate::figure::{Asked, Figure, print_figures};
use crate::folder::Folder;
use crate::process::Server;

const STATEMENT: Duration = Duration::from_millis(50);
const SEATS: u32 = 8;
const TENANTS: usize = 4;
/// Statements a second when every seat is always taken.
const CAPACITY: f64 = SEATS as f64 * 20.0;
const TIMES: f64 = 10.0;

/// Runs it.
pub(super) fn run(settings: &Settings) -> Result<Vec<Figure>> {
    let scale = settings.scale;
    let folder = Folder::new("overload")?;
    let rig = Rig::postgres(STATEMENT);
    let tenants: Vec<String> = (0..TENANTS).map(|number| format!("tenant-{number}")).collect();
    let mut sections = vec![rig.database("main", &format!("pool = {{ max = {SEATS} }}"))];
    sections.extend(tenants.iter().map(|name| tenant(name, "agent", "")));
    let served = serve(settings, &folder, &sections, &rig.flows("main"))?;
    let bare = start_floor("refuse", "", settings, &folder)?;

    let offer = |server: &Server, per_second| offer(server, &tenants, per_second, scale.warm_up, scale.window);
    offer(&served.server, CAPACITY / 2.0)?;
    let (mut once, mut tenfold, mut refusal_cpu, mut bare_cpu) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut refused = Vec::new();
    for _ in 0..scale.rounds {
        let normal = offer(&served.server, CAPACITY)?;
        let flood = offer(&served.server, CAPACITY * TIMES)?;
        let floor = offer(&bare, CAPACITY * TIMES)?;
        once.push(normal.goodput());
        tenfold.push(flood.goodput());
        // What the served calls cost is known from the load that is served whole.
        let cpu_of_served = normal.cpu.as_secs_f64() / normal.calls.len().max(1) as f64 * flood.calls.well() as f64;
        let refusals = flood.calls.len() - flood.calls.well();
        refusal_cpu.push((flood.cpu.as_secs_f64() - cpu_of_served) / refusals.max(1) as f64 * 1e6);
        bare_cpu.push(floor.cpu.as_secs_f64() / floor.calls.len().max(1) as f64 * 1e6);
        refused.extend(flood.calls.0);
    }
    let refused = Samples(refused);
    let best = once.iter().copied().fold(0.0, f64::max);
    let figures = vec![
        Figure::beside("overload", format!("served at {TIMES} times the load"), "calls/s", &[median(tenfold.into_iter())], &[best])
            .asked(Asked::RatioAtLeast(0.95))
            .more("floor: the best of the rounds at 1 time the load"),
        Figure::beside("overload", "CPU of a refusal", "us", &refusal_cpu, &bare_cpu)
            .asked(Asked::RatioAtMost(1.5))
            .more("floor: a bare server that answers 429 at the same rate"),
        Figure::value("overload", "median of a refusal", "ms", refused.refusal_latency(500).as_secs_f64() * 1e3)
            .asked(Asked::AtMost(5.0))
            .more(refused.to_string()),
    ];
    print_figures(&format!("{TIMES} times the load that {SEATS} seats serve ({CAPACITY} statements/s of {STATEMENT:?})"), "", &figures);
    Ok(figures)
}

/// What came of a load.
struct Offered {
    calls: Samples,
    cpu: Duration,
    length: Duration,
}

impl Offered {
    fn goodput(&self) -> f64 {
        self.calls.well() as f64 / self.length.as_secs_f64()
    }
}

fn offer(server: &Server, tenants: &[String], per_second: f64, warm_up: Duration, window: Duration) -> Result<Offered> {
    let requests = tenants.iter().map(|tenant| get(SLOW, &key(tenant))).collect();
    let calls = Steady { address: server.address, requests, per_second, patience: Duration::from_secs(20) }.start();
    std::thread::sleep(warm_up);
    let (from, before) = (Instant::now(), server.cpu()?);
    std::thread::sleep(window);
    let (to, after) = (Instant::now(), server.cpu()?);
    let calls = calls.end().ended_within(from, to);
    Ok(Offered { calls, cpu: after.saturating_sub(before), length: to - from })
}
