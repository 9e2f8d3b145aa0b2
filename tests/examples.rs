//! The shipped examples and the files shown in the documents are whole, free of faults, and pass their own tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use spillgate_test_support::derby::Derby;
use spillgate_test_support::odbc::db2_connection;
use spillgate_test_support::shim::Shim;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// An empty folder of this test's own.
fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("examples").join(name);
    if path.exists() {
        fs::remove_dir_all(&path).expect("the folder of the last run can be removed");
    }
    fs::create_dir_all(&path).expect("a folder can be made");
    path
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder can be made");
    for entry in fs::read_dir(from).expect("the example is there").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("a file can be copied");
        }
    }
}

/// Every `env:NAME` of the files below a folder: what a user sets before the first start.
fn environment_of(folder: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder).expect("a folder can be read").flatten() {
        if entry.path().is_dir() {
            names.extend(environment_of(&entry.path()));
        } else if let Ok(text) = fs::read_to_string(entry.path()) {
            for part in text.split("\"env:").skip(1) {
                names.extend(part.split('"').next().map(str::to_owned));
            }
        }
    }
    names
}

/// Runs the program on a server file, with a value of its form for every variable the files ask for.
fn spillgate(command: &str, server: &Path, settings: &[(&str, &str)]) -> Output {
    let names = environment_of(server.parent().expect("a file stands in a folder"));
    let value = |name: &String| {
        if name.ends_with("_URL") { "postgres://user:secret@127.0.0.1:1/none".to_owned() } else { format!("a-value-for-{name}") }
    };
    Command::new(env!("CARGO_BIN_EXE_spillgate"))
        .args([command, "--config"])
        .arg(server)
        .envs(names.iter().map(|name| (name, value(name))))
        .envs(settings.iter().copied())
        .output()
        .expect("the program runs")
}

fn assert_clean(server: &Path) {
    let output = spillgate("check", server, &[]);
    let shown = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}:\n{shown}", server.display());
}

#[test]
fn every_shipped_server_file_checks_clean() {
    let mut found = 0;
    for entry in fs::read_dir(root().join("flows")).expect("the examples are there").flatten() {
        let mut servers: Vec<PathBuf> =
            fs::read_dir(entry.path()).map(|files| files.flatten().map(|file| file.path()).collect()).unwrap_or_default();
        servers.retain(|file| {
            file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("server") && name.to_string_lossy().ends_with(".toml"))
        });
        for server in servers {
            assert_clean(&server);
            found += 1;
        }
    }
    assert!(found >= 3, "fleet, Postgres and Db2 are shipped; found {found} server files");
}

fn seeded_fleet(name: &str) -> PathBuf {
    let fleet = folder(name);
    copy(&root().join("flows/fleet"), &fleet);
    let script = |file: &str| fs::read_to_string(fleet.join(file)).expect("the script is there");
    let database = rusqlite::Connection::open(fleet.join("fleet.db")).expect("a database can be made");
    database
        .execute_batch(&format!("PRAGMA synchronous = OFF; BEGIN; {}; {}; COMMIT;", script("schema.sql"), script("seed.sql")))
        .expect("the example's scripts run");
    fleet
}

#[test]
fn the_fleet_passes_its_own_tests_on_its_own_database() {
    let output = spillgate("test", &seeded_fleet("fleet-tests").join("server.toml"), &[]);
    let shown = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{shown}");
}

#[tokio::test]
async fn the_postgres_example_passes_its_own_tests_on_a_real_server() {
    let url = spillgate_test_support::postgres::shared().url();
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("the server answers");
    let connection = tokio::spawn(connection);
    let schema = fs::read_to_string(root().join("flows/postgres/schema.sql")).expect("the script is there");
    client.batch_execute(&schema).await.expect("the example's script runs");
    drop(client);
    connection.await.expect("no panic").expect("a clean end");
    let output = spillgate("test", &root().join("flows/postgres/server.toml"), &[("FLEET_URL", &url)]);
    let shown = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{shown}");
}

#[test]
fn the_db2_example_passes_its_own_tests_through_ibms_driver() {
    let derby = Derby::shared();
    let schema = fs::read_to_string(root().join("flows/db2/schema.sql")).expect("the script is there");
    let code: String = schema.lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join("\n");
    for statement in code.split(';').map(str::trim).filter(|statement| !statement.is_empty()) {
        derby.run(statement);
    }
    let link = Shim::to(derby.address());
    let connection = db2_connection(link.address());
    let settings = [("FLEET_CONNECTION", connection.as_str()), ("FLEET_WRITE_CONNECTION", connection.as_str())];
    let output = spillgate("test", &root().join("flows/db2/server.toml"), &settings);
    let shown = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{shown}");
}

#[test]
fn the_fleet_has_the_size_the_documents_state_and_fills_in_a_moment() {
    let begun = Instant::now();
    let fleet = seeded_fleet("fleet-size");
    assert!(begun.elapsed() < Duration::from_secs(5), "filling took {:?}", begun.elapsed());
    let database = rusqlite::Connection::open(fleet.join("fleet.db")).expect("it opens");
    for (table, rows) in [("TRUCK", 1_000), ("TRIP", 5_000), ("TRUCK_POSITION", 20_000), ("BOOKING", 400), ("CUSTOMER", 120), ("DEPOT", 8)]
    {
        let counted: i64 = database.query_row(&format!("SELECT COUNT(*) FROM {table}"), [], |row| row.get(0)).expect("the table is there");
        assert_eq!(counted, rows, "{table}");
    }
    let strays: i64 = database
        .query_row("SELECT COUNT(*) FROM TRIP JOIN TRUCK ON TRUCK.ID = TRIP.TRUCK_ID JOIN CUSTOMER ON CUSTOMER.ID = TRIP.CUSTOMER_ID WHERE TRIP.COMPANY <> TRUCK.COMPANY OR TRIP.COMPANY <> CUSTOMER.COMPANY", [], |row| row.get(0))
        .expect("the join runs");
    assert_eq!(strays, 0, "no trip mixes two companies");
}

/// The files a document shows: fenced blocks of TOML whose first line is `# FOLDER/FILE`, such as `# my/flows/order.toml`.
fn shown_files(document: &str) -> Vec<(String, String)> {
    let text = fs::read_to_string(root().join(document)).expect("the document is there");
    let blocks = text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks
        .filter_map(|block| {
            let name = block.lines().next()?.strip_prefix("# ")?;
            (name.ends_with(".toml") && name.contains('/')).then(|| (name.to_owned(), block.to_owned()))
        })
        .collect()
}

#[test]
fn the_files_the_readme_shows_check_clean() {
    let folder = folder("readme");
    let files = shown_files("README.md");
    for (name, content) in &files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().expect("it stands in a folder")).expect("a folder can be made");
        fs::write(path, content).expect("a file can be written");
    }
    let servers: Vec<&String> = files.iter().map(|(name, _)| name).filter(|name| name.ends_with("server.toml")).collect();
    assert!(!servers.is_empty() && files.len() > servers.len(), "the README shows a server file and a flow: {files:?}");
    for server in servers {
        assert_clean(&folder.join(server));
    }
}
