//! Measures the product beside hand-written floors that do the same work, in one go and in turn.
//!
//! Servers are processes of their own; this process is the load generator. It measures and judges nothing: the only
//! thing it insists on is that both sides give the same answers.

mod bare;
mod connector;
mod duel;
mod figure;
mod fleet;
mod floor;
mod folder;
mod histogram;
mod load;
mod plain;
mod process;
mod product;
mod report;
mod scenario;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand, ValueEnum};

use duel::Pace;
use report::Report;
use scenario::Settings;
use scenario::isolation;
use scenario::queue::{Depth, Part, Sizes};

#[derive(Parser)]
#[command(about = "Measures spillgate beside hand-written floors", args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Internal>,
    #[command(flatten)]
    measure: Measure,
}

#[derive(Subcommand)]
enum Internal {
    /// Serves a floor (started by the bench itself); the database is read from BENCH_DATABASE.
    #[command(hide = true)]
    Floor {
        kind: floor::Kind,
        #[arg(long)]
        listen: SocketAddr,
        #[arg(long)]
        connections: usize,
    },
    /// Opens a store and tells how that went (started by the bench itself).
    #[command(hide = true)]
    OpenStore { folder: PathBuf, disk_limit: u64, memory: Option<u64> },
}

#[derive(Args)]
struct Measure {
    /// What to measure; everything without one.
    scenarios: Vec<Scenario>,
    /// Short rounds: shows that it runs, gives no figures to quote.
    #[arg(long)]
    quick: bool,
    /// Write all figures here.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The product's binary; by default the one beside this program.
    #[arg(long, value_name = "FILE")]
    product: Option<PathBuf>,
    /// Rounds of each side.
    #[arg(long)]
    rounds: Option<usize>,
    /// Length of a round's counted part.
    #[arg(long, value_name = "MS")]
    window_ms: Option<u64>,
    /// Callers at once.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64, 256])]
    callers: Vec<usize>,
    /// Connections to the database, the same on both sides.
    #[arg(long, default_value_t = 16)]
    connections: usize,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Scenario {
    /// Floor and product over Postgres.
    Postgres,
    /// Floor and product over SQLite.
    Sqlite,
    /// Bare loops and product over IBM's driver.
    Odbc,
    /// Five million rows asked, 150 allowed.
    Cap,
    /// From starting the demo to its first answered call.
    Demo,
    /// Every part of the durable queue, thoroughly.
    Queue,
    /// Durable appends beside a plain loop.
    QueueAppend,
    /// Durable appends over HTTP.
    QueueHttp,
    /// The same load on sled, fjall and redb.
    QueueOthers,
    /// Start with millions of waiting items.
    QueueStart,
    /// A lane with a million items is emptied.
    QueuePurge,
    /// Waiting items are worked off.
    QueueDrain,
    /// A store at its limit.
    QueueLimit,
    /// A direct flow beside a queue that refuses.
    QueueBeside,
    /// Every part of the isolation between tenants.
    Isolation,
    /// A tenant beside another's agents on a slow statement.
    IsolationPileUp,
    /// Ten times the load that can be served.
    IsolationOverload,
    /// Callers that retry in layers while a database is slow, and after.
    IsolationStorm,
    /// A hundred tenants that flood.
    IsolationFairness,
    /// What the gate costs when nothing is going on.
    IsolationGate,
}

impl Scenario {
    fn of(part: Part) -> Self {
        match part {
            Part::Append => Scenario::QueueAppend,
            Part::Http => Scenario::QueueHttp,
            Part::Others => Scenario::QueueOthers,
            Part::Start => Scenario::QueueStart,
            Part::Purge => Scenario::QueuePurge,
            Part::Drain => Scenario::QueueDrain,
            Part::Limit => Scenario::QueueLimit,
            Part::Beside => Scenario::QueueBeside,
        }
    }
    fn of_isolation(part: isolation::Part) -> Self {
        match part {
            isolation::Part::PileUp => Scenario::IsolationPileUp,
            isolation::Part::Overload => Scenario::IsolationOverload,
            isolation::Part::Storm => Scenario::IsolationStorm,
            isolation::Part::Fairness => Scenario::IsolationFairness,
            isolation::Part::Gate => Scenario::IsolationGate,
        }
    }
}

impl Measure {
    fn settings(&self) -> Result<Settings> {
        let beside = std::env::current_exe().context("where is this program?")?.with_file_name("spillgate");
        let product = self.product.clone().unwrap_or(beside);
        ensure!(product.is_file(), "there is no {}: build the product first, with the same profile", product.display());
        let (rounds, window_millis, warm_up_millis) = if self.quick { (2, 300, 100) } else { (5, 2000, 300) };
        let pace = Pace {
            rounds: self.rounds.unwrap_or(rounds),
            window: Duration::from_millis(self.window_ms.unwrap_or(window_millis)),
            warm_up: Duration::from_millis(warm_up_millis),
            callers: self.callers.clone(),
        };
        let depth = match (self.quick, self.scenarios.is_empty()) {
            (true, _) => Depth::Trial,
            (false, true) => Depth::Brief,
            (false, false) => Depth::Full,
        };
        let scale = isolation::Scale::of(self.quick);
        Ok(Settings {
            product,
            pace,
            sizes: Sizes::of(depth).paced(self.rounds, self.window_ms),
            scale,
            connections: self.connections,
            workers: cpus(),
        })
    }
    fn run(&self) -> Result<()> {
        let settings = self.settings()?;
        let wanted = |scenario| self.scenarios.is_empty() || self.scenarios.contains(&scenario);
        let mut report = Report { quick: self.quick, cpus: cpus(), ..Report::default() };
        if wanted(Scenario::Postgres) {
            report.comparisons.extend(scenario::postgres::run(&settings)?);
        }
        if wanted(Scenario::Sqlite) {
            report.comparisons.extend(scenario::sqlite::run(&settings)?);
        }
        if wanted(Scenario::Odbc) {
            report.loops.extend(scenario::odbc::run(&settings)?);
        }
        if wanted(Scenario::Cap) {
            report.row_caps.extend(scenario::cap::run(&settings)?);
        }
        if wanted(Scenario::Demo) {
            report.demo = Some(scenario::demo::run(&settings)?);
        }
        let wanted_part = |part| wanted(Scenario::Queue) || wanted(Scenario::of(part));
        scenario::queue::run(&settings, &wanted_part, &mut report)?;
        let wanted_part = |part| wanted(Scenario::Isolation) || wanted(Scenario::of_isolation(part));
        scenario::isolation::run(&settings, &wanted_part, &mut report)?;
        report.print_end();
        self.json.as_deref().map_or(Ok(()), |file| report.write_json(file))
    }
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    match arguments.command {
        Some(Internal::Floor { kind, listen, connections }) => {
            let database = std::env::var("BENCH_DATABASE").context("BENCH_DATABASE says which database")?;
            floor::serve(kind, listen, &database, connections)
        }
        Some(Internal::OpenStore { folder, disk_limit, memory }) => scenario::queue::open_and_tell(&folder, disk_limit, memory),
        None => arguments.measure.run(),
    }
}
