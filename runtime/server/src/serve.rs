//! The life of a server: load, start, serve, reload, drain, stop.
//!
//! Invariants
//! 1. Nothing is bound or spawned before the configuration is proven.
//! 2. A database that is down stops nothing: sessions are opened when a call needs one.
//! 3. What is kept on disk is opened behind the listeners ([`crate::keeping`]): direct flows are answered at once.
//! 4. After SIGTERM or SIGINT no new call is taken, no item is taken from a
//!    queue, what runs ends within `shutdown_grace`, then the data folder is closed and the process ends.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use spillgate_admin::Admin;
use spillgate_config::Plan;
use spillgate_engine::Engine;
use spillgate_gateway::{Gateway, GatewayOptions};
use spillgate_telemetry::{Sink, Telemetry, TelemetryOptions, happened};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::data_dir::DataDir;
use crate::keeping::Keeping;
use crate::operations::Operator;
use crate::overrides::KeptOverrides;
use crate::reload::{self, Reloader};
use crate::watch::Watch;
use crate::{breakers, cli, commands, cursor_key, descriptors, health, last_good, wiring};

/// How long attempts that are cut off may take to let go.
const CUT_OFF: Duration = Duration::from_secs(1);

/// Addresses from the command line, in place of the file's.
#[derive(Clone, Copy, Default)]
pub(crate) struct Addresses {
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) admin_listen: Option<SocketAddr>,
}

impl Addresses {
    pub(crate) fn put_into(self, plan: &mut Plan) {
        plan.server.listen = self.listen.unwrap_or(plan.server.listen);
        plan.server.admin_listen = self.admin_listen.unwrap_or(plan.server.admin_listen);
    }
}

/// Where the listeners really are (a port 0 became a real one).
pub(crate) struct Bound {
    pub(crate) listen: SocketAddr,
    pub(crate) admin_listen: SocketAddr,
}

/// `spillgate serve`.
pub(crate) fn run(options: &cli::Serve) -> anyhow::Result<ExitCode> {
    run_with(&options.config, options.last_good, Addresses::default(), |bound| {
        eprintln!("spillgate: flows on http://{}, admin on http://{}", bound.listen, bound.admin_listen);
    })
}

/// Serves until told to stop. `on_ready` is called once, when calls are answered.
pub(crate) fn run_with(
    config: &Path,
    use_last_good: bool,
    addresses: Addresses,
    on_ready: impl FnOnce(&Bound),
) -> anyhow::Result<ExitCode> {
    wiring::install_tls_provider();
    let plan = match reload::load(config, addresses) {
        Ok(plan) => plan,
        Err(faults) => {
            commands::print_faults(&faults, cli::Format::Text);
            if !use_last_good {
                return Ok(ExitCode::from(1));
            }
            let mut plan = last_good::load(config)?;
            addresses.put_into(&mut plan);
            eprintln!("spillgate: the files above are broken; starting on the last proven configuration, version {}", plan.version);
            plan
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("the async runtime cannot start")?;
    let code = runtime.block_on(serve(config, Arc::new(plan), addresses, on_ready))?;
    // Threads inside a driver may never come back; they must not keep the process.
    runtime.shutdown_background();
    Ok(code)
}

async fn serve(config: &Path, plan: Arc<Plan>, addresses: Addresses, on_ready: impl FnOnce(&Bound)) -> anyhow::Result<ExitCode> {
    let mut stop = Stop::new()?;
    let folder = DataDir::take(&plan.server.data_dir)?;
    let telemetry = Telemetry::start(TelemetryOptions {
        access: Sink::Stdout,
        log: Sink::Stderr,
        otlp: plan.server.otlp.clone(),
        version: env!("CARGO_PKG_VERSION"),
    })?;
    let connections = descriptors::connections();
    let cursor_key = cursor_key::load_or_make(&plan.server.data_dir)?;
    let engine = Engine::start(plan.clone(), wiring::make_database(), telemetry.clone(), cursor_key)
        .map_err(|problems| anyhow::anyhow!("{}", problems.join("\n")))?;
    happened::config_started(&telemetry, &plan.version);
    last_good::save(&plan);
    let flows = bind(plan.server.listen).await?;
    let admin = bind(plan.server.admin_listen).await?;
    let bound = Bound { listen: flows.local_addr()?, admin_listen: admin.local_addr()? };
    let keeping = Keeping::new(engine.clone(), folder, &plan);
    let reloader = Reloader::new(config.to_owned(), addresses, engine.clone(), telemetry.clone(), keeping.clone());
    let stopping = CancellationToken::new();
    let gateway = Gateway::new(engine.clone(), telemetry.clone(), gateway_options(connections, &keeping));
    let overrides = KeptOverrides::new(engine.clone());
    let operator = Operator { reloader: reloader.clone(), keeping: keeping.clone(), overrides };
    let admin_service = Admin::new(engine.clone(), telemetry.clone(), Arc::new(operator));
    let serving = tokio::spawn(gateway.serve(flows, stopping.clone()));
    let administering = tokio::spawn(admin_service.serve(admin, stopping.clone()));
    let reloading = tokio::spawn(follow_files(reloader, engine.clone(), stopping.clone()));
    tokio::spawn(health::follow(engine.clone(), telemetry.clone(), stopping.clone()));
    tokio::spawn(breakers::follow(engine.clone(), keeping.clone(), stopping.clone()));
    let opening = keeping.clone();
    tokio::spawn(async move { opening.open().await });
    on_ready(&bound);

    stop.wait().await;
    tracing::info!("stopping: no new calls are taken, nor items from queues");
    stopping.cancel();
    engine.stop_taking();
    let grace = engine.live().plan.server.shutdown_grace;
    let ended = tokio::time::timeout(grace, async {
        let _ended = tokio::join!(serving, administering, reloading);
        // Last, for an accepted call may start a write until its connection has ended.
        engine.drained().await;
    });
    if ended.await.is_err() {
        tracing::warn!(?grace, "calls or items were still running at the end of shutdown_grace");
        // Their items stay, or are looked into after the next start. An attempt that does not even end for this is left behind.
        let _left_behind = tokio::time::timeout(CUT_OFF, engine.cut_off()).await;
    }
    keeping.close().await;
    tokio::task::spawn_blocking(move || telemetry.shutdown()).await.ok();
    Ok(ExitCode::SUCCESS)
}

/// What only the server knows of how things are.
fn gateway_options(connections: usize, keeping: &Arc<Keeping>) -> GatewayOptions {
    let keeping = keeping.clone();
    GatewayOptions { connections, readiness: Arc::new(move || keeping.reasons()) }
}

async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("{address} cannot be listened on"))
}

/// Reloads when files changed or SIGHUP came, until the server stops.
async fn follow_files(reloader: Arc<Reloader>, engine: Engine, stopping: CancellationToken) {
    let mut hangup = match signal(SignalKind::hangup()) {
        Ok(hangup) => hangup,
        Err(error) => return tracing::error!(%error, "SIGHUP cannot be heard"),
    };
    let mut watch = Watch::new();
    loop {
        watch.follow(&engine.live().plan);
        tokio::select! {
            () = watch.changed() => {}
            _ = hangup.recv() => {}
            () = stopping.cancelled() => return,
        }
        // The outcome is kept by the reloader and told by the log and the admin face.
        let _told = reloader.reload().await;
    }
}

/// SIGTERM and SIGINT. A second one ends the process at once.
struct Stop {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Stop {
    fn new() -> anyhow::Result<Self> {
        Ok(Stop { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }
    async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
