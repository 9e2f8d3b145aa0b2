//! What isolation costs a call when nothing is going on: the gate's own work driven in this process, past everything that calls it.
//!
//! Counted is what is done for a call that names its run and has one statement: rate, run, calls in flight, memory of tenant and
//! server, repeats, the breakers of flow and database, the expected wait; then the seat; and giving all of it back.

use std::hint::black_box;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use spillgate_admission::seats::{Asked, Asking, Class, Estimate, Pool, Share};
use spillgate_admission::{Breaker, BreakerLimits, Budget, Entering, FairSeats, RunLimits, Said, TenantGate, TenantLimits};
use spillgate_model::units::Rate;

use super::super::Settings;
use crate::figure::{Asked as Bound, Figure, print_figures};
use crate::process::own_cpu;

/// Calls between two looks at the clock.
const BATCH: u64 = 10_000;
const STATEMENT: Duration = Duration::from_millis(1);
const BREAKER: BreakerLimits = BreakerLimits {
    window: Duration::from_secs(20),
    min_calls: 20,
    open_below: 0.5,
    probes: 1,
    probe_limit: Duration::from_secs(10),
    cool_down: Duration::from_secs(1),
};

/// Runs it.
pub(super) fn run(settings: &Settings) -> Result<Vec<Figure>> {
    let mut idle = Idle::new();
    let (mut gate, mut seats) = (Vec::new(), Vec::new());
    for _ in 0..settings.scale.rounds {
        gate.push(micros(settings.scale.window / 5, || idle.gate())?);
        seats.push(micros(settings.scale.window / 5, || idle.seat())?);
    }
    let median = |micros: Vec<f64>| crate::duel::median(micros.into_iter());
    let (gate, seats) = (median(gate), median(seats));
    let figures = vec![
        Figure::value("gate", "gate and seat together", "us", gate + seats).asked(Bound::AtMost(3.0)),
        Figure::value("gate", "rate, run, in flight, memory, repeats, breakers, wait", "us", gate),
        Figure::value("gate", "a seat, taken and given back", "us", seats),
    ];
    print_figures("CPU of the gate for each call, nothing else going on", "", &figures);
    Ok(figures)
}

/// CPU of one of what `work` does.
fn micros(length: Duration, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let (started, before) = (Instant::now(), own_cpu()?);
    let mut done = 0;
    while started.elapsed() < length {
        for _ in 0..BATCH {
            work()?;
        }
        done += BATCH;
    }
    Ok(own_cpu()?.saturating_sub(before).as_secs_f64() * 1e6 / done as f64)
}

/// A tenant and a database that nobody else uses.
struct Idle {
    start: Instant,
    limits: TenantLimits,
    gate: Arc<TenantGate>,
    memory: Arc<Budget>,
    run: Arc<str>,
    breakers: [Breaker; 2],
    seats: Mutex<FairSeats>,
    tenant: Arc<str>,
    estimate: Option<Estimate>,
}

impl Idle {
    fn new() -> Self {
        let rate = Rate { calls: u64::MAX, period: Duration::from_secs(1), burst: u64::MAX };
        let run = RunLimits { calls: u64::MAX, ..RunLimits::default() };
        Idle {
            start: Instant::now(),
            limits: TenantLimits { rate, run, ..TenantLimits::default() },
            gate: Arc::default(),
            memory: Arc::default(),
            run: "run-of-an-agent-0123456789".into(),
            breakers: [Breaker::default(), Breaker::default()],
            seats: Mutex::new(FairSeats::new(Pool { max: 16, fast_only: 2, floor: 4, adaptive: true })),
            tenant: "bench".into(),
            estimate: Some(STATEMENT.into()),
        }
    }
    fn asking(&self, now: Duration) -> Asking<'_> {
        let share = Share { weight: 1, reserved: 0, limit: 14, line: 16 };
        Asking { tenant: &self.tenant, share, class: Class::Agent, estimate: self.estimate, deadline: now + Duration::from_secs(10) }
    }
    fn lock(&self) -> std::sync::MutexGuard<'_, FairSeats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn gate(&mut self) -> Result<()> {
        let now = self.start.elapsed();
        let call = Entering { run: Some(&self.run), depth: 1, memory: 64 << 10, now };
        let permit = self.gate.enter(&self.limits, &call, &self.memory, 256 << 20).ok().context("an idle gate refuses")?;
        ensure!(self.gate.repeats().is_quiet(now), "an idle gate remembers failures");
        let passes = self.breakers.each_ref().map(|breaker| breaker.enter(&BREAKER, now).ok());
        ensure!(self.lock().foresee(&self.asking(now), now).is_none(), "an idle database expects a wait");
        for (breaker, pass) in self.breakers.iter().zip(passes) {
            black_box(breaker.told(pass.context("an idle breaker refuses")?, Said::Well, &BREAKER, now));
        }
        black_box(self.gate.passed(Some(&self.run), |_| true));
        drop(permit);
        self.gate.ended(STATEMENT);
        Ok(())
    }
    fn seat(&mut self) -> Result<()> {
        let now = self.start.elapsed();
        let Asked::Seat(held) = self.lock().ask(&self.asking(now), now) else { anyhow::bail!("an idle database has no seat") };
        let now = self.start.elapsed();
        let mut seats = self.lock();
        seats.end(held, Some(STATEMENT), now);
        ensure!(seats.next(now).is_none(), "nobody waits");
        Ok(())
    }
}
