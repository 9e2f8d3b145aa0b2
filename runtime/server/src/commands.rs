//! Commands that only read: check, schema.

use std::path::Path;
use std::process::ExitCode;

use spillgate_config::Fault;

use crate::cli::{Format, SchemaOf};
use crate::wiring;

fn counted((count, word): (usize, &str)) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

/// Prints faults: text on standard error, JSON on standard output.
pub(crate) fn print_faults(faults: &[Fault], format: Format) {
    match format {
        Format::Text => {
            for fault in faults {
                eprintln!("{fault}");
            }
            eprintln!("{}", counted((faults.len(), "fault")));
        }
        Format::Json => println!("{}", serde_json::json!({ "faults": faults })),
    }
}

/// `spillgate check`: every fault of the files, and of what connectors find in their settings. Touches no database.
pub(crate) fn check(config: &Path, format: Format) -> anyhow::Result<ExitCode> {
    wiring::install_tls_provider();
    let plan = match spillgate_config::load(config) {
        Ok(plan) => plan,
        Err(faults) => {
            print_faults(&faults, format);
            return Ok(ExitCode::from(1));
        }
    };
    let (mut faults, mut guards) = (Vec::new(), Vec::new());
    for database in &plan.databases {
        match wiring::make_database()(database) {
            Ok(connector) => guards.push((database.name.clone(), connector.read_only_guard())),
            Err(message) => faults.push(spillgate_config::fault_at(&database.origin, config, &message)),
        }
    }
    if !faults.is_empty() {
        print_faults(&faults, format);
        return Ok(ExitCode::from(1));
    }
    match format {
        Format::Text => {
            let [flows, databases, tenants] =
                [(plan.flows.len(), "flow"), (plan.databases.len(), "database"), (plan.tenants.len(), "tenant")].map(counted);
            println!("{flows}, {databases}, {tenants}: no faults (version {})", plan.version);
            for (name, guard) in guards {
                println!("read-only on {name}: {guard}");
            }
            for note in &plan.notes {
                println!("note: {note}");
            }
            print!("{}", spillgate_admission::describe());
        }
        Format::Json => {
            let guards: serde_json::Map<_, _> = guards.into_iter().map(|(name, guard)| (name.to_string(), guard.into())).collect();
            println!("{}", serde_json::json!({ "faults": [], "version": plan.version, "notes": plan.notes, "read_only_guards": guards }));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// `spillgate schema`.
pub(crate) fn schema(of: SchemaOf) -> anyhow::Result<ExitCode> {
    let schema = match of {
        SchemaOf::Server => spillgate_config::schema_server(),
        SchemaOf::Flow => spillgate_config::schema_flow(),
    };
    println!("{}", serde_json::to_string_pretty(&schema)?);
    Ok(ExitCode::SUCCESS)
}
