//! The binary: command line, wiring of concrete kinds, lifecycle.
//!
//! Invariants
//! 1. Only this crate knows every concrete connector; everything below sees traits.
//! 2. Exit codes: 0 fine, 1 faults found, 2 usage.
//! 3. Nothing is written outside of the data folder and the folders named on the command line.

mod breakers;
mod call;
mod cli;
mod commands;
mod control_commands;
mod cursor_key;
mod data_dir;
mod demo;
mod descriptors;
mod explain;
mod health;
mod init;
mod keeping;
mod last_good;
mod operations;
mod overrides;
mod private_file;
mod queue_commands;
mod reload;
mod serve;
mod store_known;
mod test_flows;
mod watch;
mod wiring;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    spillgate_odbc::prepare_process();
    let arguments = cli::Arguments::parse();
    match run(arguments.command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("spillgate: {error:#}");
            ExitCode::from(1)
        }
    }
}

fn run(command: cli::Command) -> anyhow::Result<ExitCode> {
    match command {
        cli::Command::Demo(options) => demo::run(&options),
        cli::Command::Init { dir } => init::run(&dir),
        cli::Command::Serve(options) => serve::run(&options),
        cli::Command::Check { config, format } => commands::check(&config, format),
        cli::Command::Test { config } => test_flows::run(&config),
        cli::Command::Explain(options) => explain::run(&options),
        cli::Command::Call(options) => call::run(&options),
        cli::Command::Schema { of } => commands::schema(of),
        cli::Command::Queue(command) => queue_commands::run(&command),
        cli::Command::Control(command) => control_commands::run(&command),
    }
}
