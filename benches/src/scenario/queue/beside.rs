//! What a direct flow's callers notice of a queue at its limit that refuses another tenant's appends as fast as they come.
//!
//! Four arms in turn: the lookup alone; beside refused appends; beside the same calls sent to a bare server that refuses them with
//! a fixed reply (what the machine and the load generator cost, whatever refuses); and the refused appends at full speed, where all
//! CPUs are taken.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::super::{Settings, start_floor};
use super::served::{Served, Tenant, folder_with_trucks, notes, serve};
use crate::duel::{median, p99};
use crate::figure::{Asked, Figure, print_figures};
use crate::fleet::TRUCKS;
use crate::load::{self, Load};
use crate::process::Server;
use crate::product::KEY;
use spillgate_test_support::client::get;

const DISK_LIMIT: u64 = 256 << 20;
const CALLERS: usize = 16;
/// What each caller of the direct flow waits between two calls: the machine is busy, not exhausted.
const CALLER_PAUSE: Duration = Duration::from_millis(5);
const HAMMERS: usize = 16;
const HAMMER_PAUSE: Duration = Duration::from_millis(5);
/// Waiting items of the tenant that floods: all it may have.
const SHARE: u64 = 32;

/// Runs it.
pub(super) fn run(settings: &Settings) -> Result<Vec<Figure>> {
    let folder = folder_with_trucks("beside")?;
    let bare = start_floor("refuse", "", settings, &folder)?;
    let served = serve(settings, &folder.path, DISK_LIMIT, &format!("items = {SHARE}"), "/readyz?for=durable")?;
    served.append_one(Tenant::Flood)?;
    served.steer(Tenant::Flood, "pause")?;
    let full = (0..=SHARE).any(|_| served.append_one(Tenant::Flood).is_err());
    ensure!(full, "the queue takes more than {SHARE} items");
    let figures = compare(settings, &bare, &served)?;
    print_figures("p99 of a direct flow beside a queue that refuses", "the same callers alone", &figures);
    Ok(figures)
}

/// How the others call.
#[derive(Clone, Copy)]
struct Hammer<'a> {
    server: &'a Server,
    pause: Duration,
}

fn compare(settings: &Settings, bare: &Server, served: &Served) -> Result<Vec<Figure>> {
    let sizes = settings.sizes;
    let window = sizes.window * 3;
    let lookups: Arc<[Vec<u8>]> = (1..=TRUCKS).step_by(7).map(|id| get(&format!("/api/trucks/{id}"), KEY)).collect();
    let direct = Load { requests: lookups, expects: 200, callers: CALLERS, pause: CALLER_PAUSE, warm_up: sizes.window / 4, window };
    let flood: Arc<[Vec<u8>]> = notes(Tenant::Flood).into();
    let paced = Hammer { server: &served.server, pause: HAMMER_PAUSE };
    let elsewhere = Hammer { server: bare, pause: HAMMER_PAUSE };
    let flat_out = Hammer { server: &served.server, pause: Duration::ZERO };
    let mut arms = [Seen::default(), Seen::default(), Seen::default(), Seen::default()];
    for _ in 0..sizes.rounds {
        for (seen, hammer) in arms.iter_mut().zip([None, Some(paced), Some(elsewhere), Some(flat_out)]) {
            seen.round(&served.server, &direct, hammer, &flood)?;
        }
    }
    let [alone, paced, elsewhere, flat_out] = arms;
    let beside = |case: &str, seen: &Seen| {
        let refused = median(seen.refused.iter().copied());
        let more = format!("{refused:.0} refusals/s, {:.0} lookups/s", median(seen.lookups.iter().copied()));
        Figure::beside("beside", case, "ms", &seen.p99, &alone.p99).more(more)
    };
    Ok(vec![
        beside(&format!("{HAMMERS} connections are refused"), &paced).asked(Asked::RatioAtMost(1.5)),
        beside("the same calls refused by a bare server of its own", &elsewhere),
        beside("refused as fast as they come", &flat_out),
    ])
}

/// Round by round.
#[derive(Default)]
struct Seen {
    p99: Vec<f64>,
    lookups: Vec<f64>,
    refused: Vec<f64>,
}

impl Seen {
    fn round(&mut self, server: &Server, direct: &Load, hammer: Option<Hammer<'_>>, flood: &Arc<[Vec<u8>]>) -> Result<()> {
        let (measured, refused) = std::thread::scope(|scope| {
            let hammering = hammer.map(|hammer| {
                let load = Load { requests: flood.clone(), expects: 429, callers: HAMMERS, pause: hammer.pause, ..direct.clone() };
                scope.spawn(move || load::run(hammer.server, &load))
            });
            let measured = load::run(server, direct);
            (measured, hammering.map(|running| running.join()))
        });
        let measured = measured?;
        ensure!(measured.failed == 0, "{} lookups failed: {:?}", measured.failed, measured.failure);
        if let Some(joined) = refused {
            let refused = joined.map_err(|_| anyhow::anyhow!("the hammer panicked"))??;
            ensure!(refused.failed == 0, "{} appends were not refused as expected: {:?}", refused.failed, refused.failure);
            self.refused.push(refused.per_second());
        }
        self.p99.push(p99(&measured));
        self.lookups.push(measured.per_second());
        Ok(())
    }
}
