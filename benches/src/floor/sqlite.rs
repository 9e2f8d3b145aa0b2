//! The floor over SQLite: axum and rusqlite, each connection on a thread of its own.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::get;
use rusqlite::{Connection, OpenFlags, Row, Statement};
use tokio::sync::oneshot;

use super::{Body, Decimal, Timestamp, Truck, respond};
use crate::fleet;

#[derive(Clone, Copy)]
enum Question {
    One(i64),
    List(i64),
}

struct Job {
    question: Question,
    answer: oneshot::Sender<Result<Vec<u8>>>,
}

type Jobs = mpsc::SyncSender<Job>;

/// More than the callers that are measured, so that a sender never blocks.
const WAITING: usize = 4096;

/// The two endpoints.
pub(super) fn routes(path: &str, connections: usize) -> Result<Router> {
    let (jobs, waiting) = mpsc::sync_channel::<Job>(WAITING);
    let waiting = Arc::new(Mutex::new(waiting));
    for _ in 0..connections {
        let (path, waiting) = (PathBuf::from(path), waiting.clone());
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        std::thread::Builder::new().name("sqlite".into()).spawn(move || work(&connection, &waiting))?;
    }
    Ok(Router::new().route("/api/trucks/{id}", get(one)).route("/api/depots/{depot}/trucks", get(list)).with_state(jobs))
}

async fn one(State(jobs): State<Jobs>, Path(id): Path<i64>) -> Response {
    respond(ask(&jobs, Question::One(id)).await)
}

async fn list(State(jobs): State<Jobs>, Path(depot): Path<i64>) -> Response {
    respond(ask(&jobs, Question::List(depot)).await)
}

async fn ask(jobs: &Jobs, question: Question) -> Result<Vec<u8>> {
    let (answer, answered) = oneshot::channel();
    jobs.try_send(Job { question, answer }).ok().context("more calls waiting than are measured")?;
    answered.await?
}

fn work(connection: &Connection, waiting: &Mutex<mpsc::Receiver<Job>>) -> Result<()> {
    let mut one = connection.prepare(&fleet::one("?1"))?;
    let mut list = connection.prepare(&fleet::list("?1"))?;
    loop {
        let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = next else { return Ok(()) };
        let body = match job.question {
            Question::One(id) => read(&mut one, id),
            Question::List(depot) => read(&mut list, depot),
        };
        let _caller_gone = job.answer.send(body);
    }
}

fn read(statement: &mut Statement<'_>, key: i64) -> Result<Vec<u8>> {
    let mut body = Body::new();
    let mut rows = statement.query([key])?;
    while let Some(row) = rows.next()? {
        body.push(&truck(row)?)?;
    }
    body.finish()
}

/// Borrows SQLite's own text, which is valid until the next step.
fn truck<'a>(row: &'a Row<'_>) -> Result<Truck<'a>> {
    Ok(Truck {
        id: row.get(0)?,
        plate: row.get_ref(1)?.as_str()?,
        driver: row.get_ref(2)?.as_str_or_null()?,
        active: row.get(3)?,
        odometer: Decimal::Text(row.get_ref(4)?.as_str()?),
        speed: row.get(5)?,
        seen: Timestamp::Text(row.get_ref(6)?.as_str()?),
    })
}
