//! The connector crate driven in this process, past engine and HTTP: what its sessions, threads and exact types cost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use spillgate_connector::{Access, Database, ReadLimits, Session, Statement};
use spillgate_model::{Secret, Value};
use spillgate_odbc::{Odbc, OdbcOptions};
use tokio::runtime::Runtime;

use crate::bare::Question;
use crate::fleet::TRUCKS;
use crate::load::Window;

/// As a flow that reads the whole table would have them.
const LIMITS: ReadLimits = ReadLimits { max_rows: 10_000, max_bytes: 16 << 20 };
const ONE: ReadLimits = ReadLimits { max_rows: 1, max_bytes: 64 << 10 };

/// Open sessions and the runtime that drives them.
pub(crate) struct Sessions {
    runtime: Runtime,
    open: Vec<Box<dyn Session>>,
    _database: Odbc,
}

impl Sessions {
    /// Connects so many.
    pub(crate) fn open(connection: &str, count: usize, workers: usize) -> Result<Self> {
        let database = Odbc::new(OdbcOptions {
            connection: Secret::new(connection),
            on_connect: Vec::new(),
            statement_timeout: Duration::from_secs(60),
            threads: count,
        });
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()?;
        let open = (0..count).map(|_| Ok(runtime.block_on(database.connect(Access::ReadOnly))?)).collect::<Result<_>>()?;
        Ok(Sessions { runtime, open, _database: database })
    }
    /// Rows a second that all of them read together.
    pub(crate) fn rows_per_second(&mut self, question: &Question, window: Window) -> Result<f64> {
        let statement = Statement { id: 1, text: question.sql.as_str().into(), columns: Arc::new([]) };
        let reading: Vec<_> = std::mem::take(&mut self.open)
            .into_iter()
            .zip((0..TRUCKS).step_by(97))
            .map(|(session, first)| self.runtime.spawn(count_rows(session, statement.clone(), question.by_key.then_some(first), window)))
            .collect();
        let mut counted = 0;
        for read in reading {
            let (session, rows) = self.runtime.block_on(read)??;
            self.open.push(session);
            counted += rows;
        }
        Ok(counted as f64 / window.length().as_secs_f64())
    }
}

async fn count_rows(
    mut session: Box<dyn Session>,
    statement: Statement,
    first: Option<i64>,
    window: Window,
) -> Result<(Box<dyn Session>, u64)> {
    let mut counted = 0;
    let mut key = first;
    loop {
        key = key.map(|key| key % TRUCKS + 1);
        let read = match key {
            Some(key) => session.read(&statement, &[Value::Integer(key)], ONE).await?,
            None => session.read(&statement, &[], LIMITS).await?,
        };
        let now = Instant::now();
        if now >= window.end {
            return Ok((session, counted));
        }
        counted += if now >= window.begin { read.len() as u64 } else { 0 };
    }
}
