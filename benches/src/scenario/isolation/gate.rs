//! What isolation costs a call when nothing is going on: the product's own gate and engine in this process, before a database that
//! answers at once and without work.
//!
//! Counted is what is done for a call that names its run and has one statement. At the gate: rate, run, calls in flight, memory of
//! tenant and server, repeats, the breakers, the expected wait, and giving all of it back. In the engine: everything between the call
//! and its session, so deadline, breakers and seat, and making the outcome; what the session itself costs is taken off.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use spillgate_admission::{Entering, Permit, RunLimits, TenantLimits};
use spillgate_connector::{Access, Database, DatabaseError, Ended, Failure, ReadLimits, Session, Statement, Written};
use spillgate_engine::{Call, Engine, Live, Outcome};
use spillgate_model::{Column, Flowfile, Rows, RowsBuilder, Type, Value, Work};
use spillgate_telemetry::{Telemetry, TelemetryOptions};
use spillgate_test_support::rig::flow;
use spillgate_test_support::server::Options;

use super::super::Settings;
use crate::figure::{Asked, Figure, print_figures};
use crate::folder::Folder;
use crate::process::own_cpu;

/// Calls between two looks at the clock.
const BATCH: u64 = 10_000;
const LIMITS: ReadLimits = ReadLimits { max_rows: 1, max_bytes: 1 << 10 };
const MEMORY: u64 = 64 << 10;

/// Every limit is there, and far away.
const SERVER: &str = "
[database.main]
driver = \"postgres\"
connection = \"postgres://nobody@127.0.0.1:1/nowhere\"
[tenant.bench]
keys = [\"key-bench-1\"]
rate = { rate = \"1000000000/s\", burst = 1000000000 }
";

/// Runs it.
pub(super) fn run(settings: &Settings) -> Result<Vec<Figure>> {
    let folder = Folder::new("gate")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let figures = runtime.block_on(async {
        let idle = Idle::new(&folder.path)?;
        let (mut session, statement) = (Still, Statement { id: 1, text: "SELECT 7 AS id".into(), columns: Arc::from([]) });
        let length = settings.scale.window / 5;
        let (mut gate, mut engine) = (Vec::new(), Vec::new());
        for _ in 0..settings.scale.rounds {
            gate.push(micros(length, async || idle.pass_the_gate()).await?);
            let whole = micros(length, async || idle.call().await).await?;
            let bare = micros(length, async || {
                black_box(session.read(&statement, &[], LIMITS).await).map(drop).map_err(|error| anyhow!("{error:?}"))
            });
            engine.push(whole - bare.await?);
        }
        let median = |micros: Vec<f64>| crate::duel::median(micros.into_iter());
        let (gate, engine) = (median(gate), median(engine));
        anyhow::Ok(vec![
            Figure::value("gate", "gate and engine together", "us", gate + engine).asked(Asked::AtMost(3.0)),
            Figure::value("gate", "the gate, all of its stages", "us", gate),
            Figure::value("gate", "the engine, from the call to its session and back", "us", engine),
        ])
    })?;
    print_figures("CPU of each call from the gate to its session, nothing else going on", "", &figures);
    Ok(figures)
}

/// CPU of one of what `work` does.
async fn micros(length: Duration, mut work: impl AsyncFnMut() -> Result<()>) -> Result<f64> {
    let (started, before) = (Instant::now(), own_cpu()?);
    let mut done = 0;
    while started.elapsed() < length {
        for _ in 0..BATCH {
            work().await?;
        }
        done += BATCH;
    }
    Ok(own_cpu()?.saturating_sub(before).as_secs_f64() * 1e6 / done as f64)
}

/// An engine with one tenant that nobody else uses.
struct Idle {
    engine: Engine,
    live: Arc<Live>,
    /// The tenant's, but for its runs: one makes more calls here than a file may allow it.
    limits: TenantLimits,
    run: Arc<str>,
    id: Arc<str>,
    input: Arc<[Value]>,
}

impl Idle {
    fn new(folder: &Path) -> Result<Self> {
        let flow = flow("quick", "GET /quick", "read", "10s", "main", "SELECT 7 AS id");
        let options = Options { binary: "", server: SERVER, flows: &[("quick.toml", &flow)], environment: &[] };
        options.write(folder, ["127.0.0.1:0", "127.0.0.1:0"]);
        let plan = spillgate_config::load(&folder.join("server.toml")).map_err(|faults| anyhow!("{faults:#?}"))?;
        let telemetry = Telemetry::start(TelemetryOptions::default())?;
        let engine = Engine::start(Arc::new(plan), Arc::new(|_| Ok(Arc::new(Still))), telemetry, [7; 32])
            .map_err(|faults| anyhow!("{}", faults.join("; ")))?;
        let live = engine.live();
        let limits = live.tenants[0].limits;
        let limits = TenantLimits { run: RunLimits { calls: u64::MAX, ..limits.run }, ..limits };
        Ok(Idle { engine, live, limits, run: "run-of-an-agent-0123456789".into(), id: "bench".into(), input: Arc::from([]) })
    }
    fn now(&self) -> Duration {
        self.engine.started().elapsed()
    }
    /// What the gateway asks, in its order.
    fn pass_the_gate(&self) -> Result<()> {
        let tenant = &self.live.tenants[0];
        let entering = Entering { run: Some(&self.run), depth: 1, memory: MEMORY, now: self.now() };
        let server_memory = self.live.plan.server.memory.value;
        let permit: Arc<Permit> = tenant
            .gate
            .enter(&self.limits, &entering, self.engine.memory(), server_memory)
            .map(Arc::new)
            .ok()
            .context("an idle gate refuses")?;
        ensure!(tenant.gate.repeats().is_quiet(entering.now), "an idle gate remembers failures");
        ensure!(self.engine.breaker_refuses(&self.live, 0, 0).is_none(), "an idle breaker refuses");
        ensure!(self.engine.expects(&self.live, 0, 0, deadline()).is_none(), "an idle database expects a wait");
        black_box(tenant.gate.passed(Some(&self.run), |_| true));
        tenant.gate.ended(Duration::from_millis(1));
        drop(permit);
        Ok(())
    }
    /// What the engine does behind it.
    async fn call(&self) -> Result<()> {
        let tenant = self.live.tenants[0].plan.name.clone();
        let (id, run, input) = (self.id.clone(), Some(self.run.clone()), self.input.clone());
        let flowfile = Flowfile { id, tenant, run, input, deadline: deadline() };
        let call = Call { depth: 1, ..Call::new(self.live.clone(), 0, 0, flowfile) };
        match self.engine.run_measured(call).await {
            (Outcome::Rows { .. }, Duration::ZERO) => Ok(()),
            other => bail!("an idle engine answers {other:?}"),
        }
    }
}

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

/// A database, and each session of it, that has the same row for everybody at once.
struct Still;

impl Database for Still {
    fn read_only_guard(&self) -> &'static str {
        "nothing to write"
    }
    fn connect(&self, _access: Access) -> Work<'_, Result<Box<dyn Session>, DatabaseError>> {
        Box::pin(async { Ok(Box::new(Still) as Box<dyn Session>) })
    }
}

fn nothing_to_write() -> DatabaseError {
    DatabaseError::new(Failure::Refused, "nothing is written here", "nothing is written here")
}

impl Session for Still {
    fn read<'a>(&'a mut self, _: &'a Statement, _: &'a [Value], limits: ReadLimits) -> Work<'a, Result<Rows, DatabaseError>> {
        Box::pin(async move {
            let columns: Arc<[Column]> = Arc::from([Column { name: "id".into(), kind: Type::Integer }]);
            let mut rows = RowsBuilder::new(columns, limits.max_rows, limits.max_bytes);
            rows.integer(7);
            rows.end_row();
            Ok(rows.finish())
        })
    }
    fn write<'a>(&'a mut self, _: &'a Statement, _: &'a [Value], _: ReadLimits) -> Work<'a, Result<Written, DatabaseError>> {
        Box::pin(async { Err(nothing_to_write()) })
    }
    fn begin(&mut self) -> Work<'_, Result<(), DatabaseError>> {
        Box::pin(async { Err(nothing_to_write()) })
    }
    fn commit(&mut self) -> Work<'_, Result<(), DatabaseError>> {
        Box::pin(async { Err(nothing_to_write()) })
    }
    fn rollback(&mut self) -> Work<'_, Result<(), DatabaseError>> {
        Box::pin(async { Ok(()) })
    }
    fn usable(&self) -> bool {
        true
    }
    fn end(self: Box<Self>) -> Work<'static, Ended> {
        Box::pin(async { Ended::Closed })
    }
}
