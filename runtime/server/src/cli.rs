//! The command line as typed options. Usage errors exit with 2 (clap's own).

use std::net::SocketAddr;
use std::path::PathBuf;

/// Typed, bounded flows between AI agents and the databases a business runs on.
#[derive(clap::Parser)]
#[command(name = "spillgate", version, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Run the fleet example: complete, embedded, on loopback only
    Demo(Demo),
    /// Write a server file and a first flow to edit
    Init {
        /// Folder to write into; made if missing
        dir: PathBuf,
    },
    /// Serve the flows of a server file
    Serve(Serve),
    /// Report every fault of the files at once; exit 1 if there is one
    Check {
        /// The server file
        #[arg(long)]
        config: PathBuf,
        /// How to print
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Run the flows' own tests
    Test {
        /// The server file
        #[arg(long)]
        config: PathBuf,
    },
    /// Show every limit that applies to a tenant's call of a flow, and where it comes from
    Explain(Explain),
    /// Call a flow as a tenant
    Call(Call),
    /// Print the JSON schema of a file
    Schema {
        /// Which file
        #[arg(value_enum)]
        of: SchemaOf,
    },
    /// Look into the queue store of a stopped server
    #[command(subcommand)]
    Queue(Queue),
    /// Export or import the operator state of a stopped server
    #[command(subcommand)]
    Control(Control),
}

#[derive(clap::Subcommand)]
pub(crate) enum Queue {
    /// Show lanes, what waits in them, and how the files are
    Inspect {
        /// The server's data_dir
        #[arg(long)]
        data: PathBuf,
        #[command(flatten)]
        lanes: LaneFilter,
        /// How to print
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Read everything and prove every checksum; exit 1 if there is a fault
    Verify {
        /// The server's data_dir
        #[arg(long)]
        data: PathBuf,
        /// How to print
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Write waiting items and dead letters as JSON lines
    Export {
        /// The server's data_dir
        #[arg(long)]
        data: PathBuf,
        #[command(flatten)]
        lanes: LaneFilter,
        /// A new file to write to; standard output without it
        #[arg(long)]
        file: Option<PathBuf>,
    },
    /// End everything that waits in one lane
    Purge {
        /// The server's data_dir
        #[arg(long)]
        data: PathBuf,
        /// Name of the queue
        #[arg(long)]
        queue: String,
        /// Name of the tenant
        #[arg(long)]
        tenant: String,
        /// Its dead letters too
        #[arg(long)]
        dead: bool,
    },
}

/// Which lanes; all without one.
#[derive(clap::Args)]
pub(crate) struct LaneFilter {
    /// Only lanes of this queue
    #[arg(long)]
    pub(crate) queue: Option<String>,
    /// Only lanes of this tenant
    #[arg(long)]
    pub(crate) tenant: Option<String>,
}

impl LaneFilter {
    pub(crate) fn takes_all(&self) -> bool {
        self.queue.is_none() && self.tenant.is_none()
    }
    pub(crate) fn takes(&self, queue: &str, tenant: &str) -> bool {
        let fits = |wanted: &Option<String>, name: &str| wanted.as_ref().is_none_or(|wanted| wanted == name);
        fits(&self.queue, queue) && fits(&self.tenant, tenant)
    }
}

#[derive(clap::Subcommand)]
pub(crate) enum Control {
    /// Write paused lanes, audit and overrides as JSON lines
    Export {
        /// The server's data_dir
        #[arg(long)]
        data: PathBuf,
        /// Where to write; standard output without it
        #[arg(long)]
        file: Option<PathBuf>,
    },
    /// Put an export in place of what is there
    Import {
        /// The server's data_dir
        #[arg(long)]
        data: PathBuf,
        /// What to read; standard input without it
        #[arg(long)]
        file: Option<PathBuf>,
    },
}

#[derive(clap::Args)]
pub(crate) struct Demo {
    /// Where flows are served; loopback only
    #[arg(long, default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
    /// Where the admin face is served; loopback only
    #[arg(long, default_value = "127.0.0.1:8081")]
    pub(crate) admin_listen: SocketAddr,
    /// Folder for the example's files and its database
    #[arg(long, default_value = "data/demo")]
    pub(crate) data: PathBuf,
}

#[derive(clap::Args)]
pub(crate) struct Serve {
    /// The server file
    #[arg(long)]
    pub(crate) config: PathBuf,
    /// Start on the last proven configuration if this one is broken
    #[arg(long)]
    pub(crate) last_good: bool,
}

/// The key with which a running server is asked, unless another is named.
pub(crate) const OPERATOR_KEY: &str = "env:SPILLGATE_ADMIN_KEY";

#[derive(clap::Args)]
pub(crate) struct Explain {
    /// The server file
    #[arg(long)]
    pub(crate) config: PathBuf,
    /// Name of the tenant
    #[arg(long)]
    pub(crate) tenant: String,
    /// Name of the flow
    #[arg(long)]
    pub(crate) flow: String,
    /// Where the admin face of a running server is; without it, where the server file says
    #[arg(long)]
    pub(crate) url: Option<String>,
    /// An operator's key, or env:NAME or file:PATH; without one no server is asked
    #[arg(long, default_value = OPERATOR_KEY)]
    pub(crate) key: String,
}

#[derive(clap::Args)]
pub(crate) struct Call {
    /// Name of the flow
    pub(crate) flow: String,
    /// Inputs as NAME=VALUE; a repeated name makes a list
    pub(crate) inputs: Vec<String>,
    /// Where the server listens
    #[arg(long, default_value = "http://127.0.0.1:8080")]
    pub(crate) url: String,
    /// The tenant's key, or env:NAME or file:PATH
    #[arg(long, default_value = "env:SPILLGATE_KEY")]
    pub(crate) key: String,
    /// Idempotency key of this piece of work: sent again with it, it is not done twice
    #[arg(long)]
    pub(crate) idempotency_key: Option<String>,
    /// Seconds to wait for the end of the job, where the flow queues
    #[arg(long, value_name = "SECONDS")]
    pub(crate) wait: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SchemaOf {
    Server,
    Flow,
}
