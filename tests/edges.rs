//! Dependencies between the crates of this workspace point down only; this table is the whole truth about them.
//!
//! 1. Every workspace crate stands in [`ALLOWED`].
//! 2. It depends on nothing of this workspace but what stands beside it there.
//! 3. The table itself points down: a crate may only name crates that stand above it in the list.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Lowest first: each crate with the crates it may build on.
const ALLOWED: &[(&str, &[&str])] = &[
    ("spillgate-model", &[]),
    ("spillgate-expression", &["spillgate-model"]),
    ("spillgate-config", &["spillgate-model", "spillgate-expression"]),
    ("spillgate-telemetry", &["spillgate-model"]),
    ("spillgate-admission", &["spillgate-model"]),
    ("spillgate-queue", &["spillgate-model"]),
    ("spillgate-control", &["spillgate-model"]),
    ("spillgate-connector", &["spillgate-model"]),
    ("spillgate-odbc", &["spillgate-model", "spillgate-connector"]),
    ("spillgate-postgres", &["spillgate-model", "spillgate-connector"]),
    ("spillgate-sqlite", &["spillgate-model", "spillgate-connector"]),
    (
        "spillgate-engine",
        &[
            "spillgate-model",
            "spillgate-expression",
            "spillgate-config",
            "spillgate-telemetry",
            "spillgate-admission",
            "spillgate-queue",
            "spillgate-connector",
        ],
    ),
    (
        "spillgate-gateway",
        &[
            "spillgate-model",
            "spillgate-expression",
            "spillgate-config",
            "spillgate-telemetry",
            "spillgate-admission",
            "spillgate-queue",
            "spillgate-engine",
        ],
    ),
    ("spillgate-admin", &["spillgate-model", "spillgate-config", "spillgate-telemetry", "spillgate-queue", "spillgate-engine"]),
    ("spillgate", EVERYTHING),
];

/// The server alone knows every concrete kind.
const EVERYTHING: &[&str] = &[
    "spillgate-model",
    "spillgate-expression",
    "spillgate-config",
    "spillgate-telemetry",
    "spillgate-admission",
    "spillgate-queue",
    "spillgate-control",
    "spillgate-connector",
    "spillgate-odbc",
    "spillgate-postgres",
    "spillgate-sqlite",
    "spillgate-engine",
    "spillgate-gateway",
    "spillgate-admin",
];

/// Real databases that any crate's tests may stand on: no fake where the real thing can run.
const REAL_IN_TESTS: &[&str] = &["spillgate-connector", "spillgate-sqlite"];

/// Crates for tests and measurements: they may use any crate, and others use them in tests only.
const DEVELOPMENT: &[&str] = &["spillgate-test-support", "spillgate-bench"];

fn workspace_packages() -> Vec<serde_json::Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    metadata["packages"].as_array().expect("it lists packages").clone()
}

fn text<'a>(value: &'a serde_json::Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

#[test]
fn dependencies_point_down_only() {
    let packages = workspace_packages();
    let members: BTreeSet<&str> = packages.iter().map(|package| text(package, "name")).collect();
    let mut faults = Vec::new();
    for package in &packages {
        let name = text(package, "name");
        if DEVELOPMENT.contains(&name) {
            continue;
        }
        let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| *known == name) else {
            faults.push(format!("{name}: a new crate; decide where it stands in ALLOWED and in ARCHITECTURE.md"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let target = text(dependency, "name");
            let for_tests = text(dependency, "kind") == "dev";
            if !members.contains(target)
                || allowed.contains(&target)
                || (for_tests && (DEVELOPMENT.contains(&target) || REAL_IN_TESTS.contains(&target)))
            {
                continue;
            }
            let kind = if for_tests { "dev-depends" } else { "depends" };
            faults.push(format!("{name} {kind} on {target}: move what it needs down, or pass it in from the server"));
        }
    }
    assert!(faults.is_empty(), "forbidden edges:\n  {}", faults.join("\n  "));
}

#[test]
fn the_table_points_down_and_names_only_crates_that_exist() {
    let packages = workspace_packages();
    let members: BTreeSet<&str> = packages.iter().map(|package| text(package, "name")).collect();
    for (position, (name, allowed)) in ALLOWED.iter().enumerate() {
        assert!(members.contains(name), "{name} stands in ALLOWED but not in the workspace");
        for target in *allowed {
            assert!(
                ALLOWED[..position].iter().any(|(lower, _)| lower == target),
                "{name} may not name {target}: it does not stand below it"
            );
        }
    }
}

#[test]
fn only_the_server_names_concrete_connectors() {
    let server = Path::new(env!("CARGO_MANIFEST_DIR")).join("runtime/server");
    for package in workspace_packages() {
        let name = text(&package, "name").to_owned();
        let concrete = ["spillgate-odbc", "spillgate-postgres", "spillgate-sqlite"];
        let names_one = package["dependencies"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|dependency| concrete.contains(&text(dependency, "name")) && text(dependency, "kind") != "dev");
        let may = name == "spillgate" || DEVELOPMENT.contains(&name.as_str());
        assert!(!names_one || may, "{name} names a concrete connector; only {} may", server.display());
    }
}
