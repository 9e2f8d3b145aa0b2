//! Where the ODBC drivers are that `deploy/test-tools.sh` installs, and connection strings for them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::derby;

/// IBM's Db2 driver (the build with 32-bit length indicators).
pub fn ibm_driver() -> PathBuf {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.test-tools");
    let driver = tools.join("ibm/clidriver/lib/libdb2.so");
    driver.canonicalize().unwrap_or_else(|_| panic!("{} is missing: run deploy/test-tools.sh", driver.display()))
}

/// Debian's ODBC driver for PostgreSQL (64-bit length indicators).
pub fn postgres_driver() -> PathBuf {
    debian_driver("psqlodbcw.so")
}

/// Debian's ODBC driver for SQLite (64-bit length indicators).
pub fn sqlite_driver() -> PathBuf {
    debian_driver("libsqlite3odbc.so")
}

fn debian_driver(name: &str) -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let found = folders.map(|folder| folder.path().join("odbc").join(name)).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{name} is missing: run deploy/test-tools.sh"))
}

/// Connection string of IBM's driver for the Derby behind the shim at this address.
pub fn db2_connection(shim: SocketAddr) -> String {
    format!(
        "Driver={};DATABASE={};HOSTNAME=127.0.0.1;PORT={};PROTOCOL=TCPIP;UID={};PWD={};Authentication=SERVER;",
        ibm_driver().display(),
        derby::DATABASE,
        shim.port(),
        derby::USER,
        derby::PASSWORD
    )
}
