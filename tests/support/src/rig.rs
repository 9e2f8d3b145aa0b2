//! A database with a statement that is quick and one that is slow: slow because it sleeps, so that what is measured beside it is
//! not a want of CPU.

use std::any::Any;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::Connection;

use crate::client::{get, post};
use crate::derby::Derby;
use crate::link::Link;
use crate::odbc::db2_connection;
use crate::postgres;
use crate::shim::Shim;
use crate::turnstile::Turnstile;

/// Such a database. Whatever serves it ends with the value.
pub struct Rig {
    /// What a reader calls it.
    pub name: &'static str,
    driver: &'static str,
    connection: String,
    slow: Slow,
    quick: &'static str,
    /// Where its server listens, and how its connection is written for another such place.
    server: Option<(SocketAddr, Written)>,
    _alive: Box<dyn Any>,
}

/// A connection for a server that is reached there.
type Written = fn(SocketAddr) -> String;

struct Slow {
    effect: &'static str,
    sql: String,
}

/// Path of the quick flow.
pub const QUICK: &str = "/api/quick";
/// Path of the slow one.
pub const SLOW: &str = "/api/slow";
/// Path of the one behind a queue.
pub const LATER: &str = "/api/later";

impl Rig {
    /// Postgres; the test program's own.
    pub fn postgres(slow: Duration) -> Rig {
        let sql = format!("SELECT pg_sleep({})::text AS slept", slow.as_secs_f64());
        Rig {
            name: "Postgres",
            driver: "postgres",
            connection: postgres::shared().url(),
            slow: Slow { effect: "read", sql },
            quick: "SELECT 7 AS id",
            server: Some((([127, 0, 0, 1], postgres::shared().port()).into(), |at| postgres::shared().url_at(at.port()))),
            _alive: Box::new(()),
        }
    }
    /// SQLite in a file below this folder. A write waits about `slow` where so many wait at once.
    pub fn sqlite(folder: &Path, slow: Duration, waiting: u32) -> Rig {
        Self::sqlite_behind_turnstile(folder, slow / waiting).0
    }
    /// The same, and what lets a write through every so often.
    pub(crate) fn sqlite_behind_turnstile(folder: &Path, every: Duration) -> (Rig, Arc<Turnstile>) {
        let file = folder.join("rig.db");
        let tables = "CREATE TABLE turns (taken INTEGER NOT NULL); INSERT INTO turns VALUES (0);
                      CREATE TABLE quick (id INTEGER PRIMARY KEY); INSERT INTO quick VALUES (7)";
        Connection::open(&file).and_then(|connection| connection.execute_batch(tables)).expect("a database");
        let turnstile = Arc::new(Turnstile::before(&file, every));
        let rig = Rig {
            name: "SQLite",
            driver: "sqlite",
            connection: file.to_string_lossy().into_owned(),
            slow: Slow { effect: "write", sql: "UPDATE turns SET taken = taken + 1".to_owned() },
            quick: "SELECT id FROM quick WHERE id = 7",
            server: None,
            _alive: Box::new(turnstile.clone()),
        };
        (rig, turnstile)
    }
    /// IBM's driver before the test program's Derby.
    pub fn db2(slow: Duration) -> Rig {
        static NAP: Mutex<bool> = Mutex::new(false);
        let derby = Derby::shared();
        let mut known = NAP.lock().unwrap_or_else(PoisonError::into_inner);
        if !*known {
            derby.run(
                "CREATE FUNCTION NAP(MILLIS INTEGER) RETURNS INTEGER LANGUAGE JAVA PARAMETER STYLE JAVA NO SQL EXTERNAL NAME 'Nap.nap'",
            );
            *known = true;
        }
        let shim = Shim::to(derby.address());
        Rig {
            name: "IBM's driver",
            driver: "odbc",
            connection: db2_connection(shim.address()),
            slow: Slow { effect: "read", sql: format!("SELECT NAP({}) AS SLEPT FROM SYSIBM.SYSDUMMY1", slow.as_millis()) },
            quick: "SELECT 7 AS ID FROM SYSIBM.SYSDUMMY1",
            server: Some((shim.address(), db2_connection)),
            _alive: Box::new(shim),
        }
    }
    /// The same database at the end of a link that can be broken.
    pub fn behind_a_link(self) -> (Rig, Link) {
        let (server, written) = self.server.expect("a database with a server");
        let link = Link::to(server);
        (Rig { connection: written(link.address()), ..self }, link)
    }
    /// With another slow statement.
    #[must_use]
    pub fn slow(self, sql: String) -> Rig {
        Rig { slow: Slow { sql, ..self.slow }, ..self }
    }
    /// The section of the server file, with further lines.
    pub fn database(&self, name: &str, more: &str) -> String {
        self.section(name, &self.connection, more)
    }
    /// The same for a database of this kind whose server is at this address; a file that is missing, where there is no server.
    pub fn database_at(&self, name: &str, server: SocketAddr, more: &str) -> String {
        let connection = self.server.map_or_else(|| format!("{}.missing", self.connection), |(_, written)| written(server));
        self.section(name, &connection, more)
    }
    fn section(&self, name: &str, connection: &str, more: &str) -> String {
        let access = if self.slow.effect == "write" { "access = \"read-write\"\n" } else { "" };
        let driver = self.driver;
        format!("[database.{name}]\ndriver = \"{driver}\"\nconnection = '{connection}'\n{access}statement_timeout = \"60s\"\n{more}\n")
    }
    /// The quick flow over the database of this name, and the slow one: names of their files, and texts.
    pub fn flows(&self, database: &str) -> [(&'static str, String); 2] {
        let quick = flow("quick", "GET /quick", "read", "10s", database, self.quick);
        let method = if self.slow.effect == "write" { "POST" } else { "GET" };
        let slow = flow("slow", &format!("{method} /slow"), self.slow.effect, "50s", database, &self.slow.sql);
        [("quick.toml", quick), ("slow.toml", slow)]
    }
    /// A flow `later`: a queue, and behind it the slow statement.
    pub fn queued(&self, database: &str, queue: &str) -> (&'static str, String) {
        let text = flow("later", "POST /later", "write", "10s", database, &self.slow.sql).replace("deadline = \"10s\"\n", "").replacen(
            "[[step]]\n",
            &format!("[[step]]\nqueue = \"{queue}\"\n[[step]]\n"),
            1,
        );
        ("later.toml", text)
    }
    /// A call of the slow flow.
    pub fn slow_call(&self, key: &str) -> Vec<u8> {
        if self.slow.effect == "write" { post(SLOW, key, "{}") } else { get(SLOW, key) }
    }
}

/// A tenant whose key is `key-NAME-1`; its rate is not what is looked at.
pub fn tenant(name: &str, class: &str, more: &str) -> String {
    format!("[tenant.{name}]\nkeys = [\"{}\"]\nclass = \"{class}\"\nrate = \"unlimited\"\n{more}\n", key(name))
}

/// Its key.
pub fn key(name: &str) -> String {
    format!("key-{name}-1")
}

/// A flow of one statement with one small row.
pub fn flow(name: &str, http: &str, effect: &str, deadline: &str, database: &str, sql: &str) -> String {
    format!(
        "name = \"{name}\"\nabout = \"For scenes of isolation.\"\nhttp = \"{http}\"\neffect = \"{effect}\"\ndeadline = \"{deadline}\"\n\
         [[step]]\nname = \"{name}\"\ndatabase = \"{database}\"\nsql = \"{sql}\"\nmax_rows = 1\nmax_bytes = \"1KiB\"\n"
    )
}
