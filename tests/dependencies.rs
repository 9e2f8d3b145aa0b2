//! What this program is built from: licences, sources and bans, read from the lockfile and `cargo metadata`.
//!
//! The same rules stand in `deny.toml` for those who have cargo-deny. As a test they need no further tool, which a fresh machine
//! would have to build first.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Licences that may be used without asking.
const LICENCES: &[&str] = &[
    "Apache-2.0",
    "MIT",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "Unicode-3.0",
    "CC0-1.0",
    "Unlicense",
    "BSL-1.0",
    "MIT-0",
    "0BSD",
];
/// One crate, one licence beyond the list, and why.
const EXCEPTIONS: &[(&str, &str, &str)] =
    &[("unix-odbc", "LGPL-2.1-or-later", "the driver manager; anyone can rebuild this program with another one, as the licence asks")];
/// Crates that may not come in, each with what to use instead.
const BANNED: &[(&str, &str)] = &[
    ("openssl", "rustls with ring"),
    ("openssl-sys", "rustls with ring"),
    ("native-tls", "rustls with ring"),
    ("tokio-native-tls", "rustls with ring"),
    ("aws-lc-rs", "rustls with ring: one TLS provider"),
    ("aws-lc-sys", "rustls with ring: one TLS provider"),
    ("async-std", "tokio"),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Whether an SPDX expression is satisfied by allowed licences. `/` is the old way to write OR.
fn allowed(expression: &str, is_allowed: &dyn Fn(&str) -> bool) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let verdict = any_of(&words, &mut at, is_allowed);
    verdict && at == words.len()
}

fn any_of(words: &[&str], at: &mut usize, is_allowed: &dyn Fn(&str) -> bool) -> bool {
    let mut verdict = all_of(words, at, is_allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        verdict |= all_of(words, at, is_allowed);
    }
    verdict
}

fn all_of(words: &[&str], at: &mut usize, is_allowed: &dyn Fn(&str) -> bool) -> bool {
    let mut verdict = one(words, at, is_allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        verdict &= one(words, at, is_allowed);
    }
    verdict
}

fn one(words: &[&str], at: &mut usize, is_allowed: &dyn Fn(&str) -> bool) -> bool {
    let Some(word) = words.get(*at) else { return false };
    *at += 1;
    if *word == "(" {
        let verdict = any_of(words, at, is_allowed);
        *at += 1;
        return verdict;
    }
    if words.get(*at) == Some(&"WITH") {
        *at += 2;
    }
    is_allowed(word)
}

/// The packages of the lockfile: name, version, source (empty for our own).
fn locked() -> Vec<(String, String, String)> {
    let text = fs::read_to_string(root().join("Cargo.lock")).expect("the lockfile is committed");
    let field = |block: &str, key: &str| {
        let start = format!("{key} = \"");
        let line = block.lines().find(|line| line.starts_with(&start));
        line.map(|line| line[start.len()..].trim_end_matches('"').to_owned()).unwrap_or_default()
    };
    text.split("[[package]]").skip(1).map(|block| (field(block, "name"), field(block, "version"), field(block, "source"))).collect()
}

#[test]
fn every_licence_is_one_we_may_use() {
    let host = Command::new("rustc").arg("-vV").output().expect("rustc runs");
    let host = String::from_utf8_lossy(&host.stdout).lines().find_map(|line| line.strip_prefix("host: ").map(str::to_owned));
    let host = host.expect("rustc names its host");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", &host])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    let packages = metadata["packages"].as_array().expect("it lists packages");
    assert!(packages.len() > 100, "the whole tree is looked at, not only our own crates");
    let mut faults = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let licence = package["license"].as_str().unwrap_or("none stated");
        let is_allowed =
            |word: &str| LICENCES.contains(&word) || EXCEPTIONS.iter().any(|(known, licence, _)| *known == name && *licence == word);
        if !allowed(licence, &is_allowed) {
            faults.push(format!("{name}: {licence}"));
        }
    }
    assert!(faults.is_empty(), "licences to decide on:\n  {}", faults.join("\n  "));
}

#[test]
fn every_crate_comes_from_the_registry_and_none_is_banned() {
    let packages = locked();
    assert!(packages.len() > 100, "the lockfile was read");
    let mut faults = Vec::new();
    for (name, version, source) in &packages {
        let ours = source.is_empty() && name.starts_with("spillgate");
        if !ours && source != "registry+https://github.com/rust-lang/crates.io-index" {
            faults.push(format!("{name} {version} comes from {source:?}; only crates.io and this workspace are allowed"));
        }
        if let Some((_, instead)) = BANNED.iter().find(|(banned, _)| banned == name) {
            faults.push(format!("{name} {version} is banned; use {instead} (`cargo tree -i {name}` says who brings it)"));
        }
    }
    assert!(faults.is_empty(), "sources and bans:\n  {}", faults.join("\n  "));
}

#[test]
fn exceptions_are_still_needed() {
    let packages = locked();
    for (name, licence, _) in EXCEPTIONS {
        assert!(packages.iter().any(|(known, _, _)| known == name), "{name} is gone; take its exception for {licence} out");
    }
}

#[test]
fn licence_expressions_are_read_as_spdx_means_them() {
    let mit = |word: &str| word == "MIT";
    for good in ["MIT", "MIT OR GPL-3.0", "GPL-3.0/MIT", "(GPL-3.0 OR MIT) AND MIT", "MIT WITH Some-exception"] {
        assert!(allowed(good, &mit), "{good}");
    }
    for bad in ["GPL-3.0", "MIT AND GPL-3.0", "(MIT OR ISC) AND GPL-3.0", "", "MIT MIT"] {
        assert!(!allowed(bad, &mit), "{bad}");
    }
}
