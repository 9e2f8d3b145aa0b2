//! The floor over Postgres: axum and tokio-postgres.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::get;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_postgres::{Client, NoTls, Row, Statement};

use super::{Body, Truck, respond};
use crate::fleet;

struct Connection {
    client: Client,
    one: Statement,
    list: Statement,
}

/// A plain set of connections: who holds a permit finds one.
struct Pool {
    permits: Semaphore,
    idle: Mutex<Vec<Connection>>,
}

/// A connection that is checked out; given back by drop.
struct Seat<'a> {
    pool: &'a Pool,
    connection: Option<Connection>,
    _permit: SemaphorePermit<'a>,
}

impl Pool {
    async fn take(&self) -> Result<Seat<'_>> {
        let permit = self.permits.acquire().await?;
        let connection = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Ok(Seat { pool: self, connection, _permit: permit })
    }
}

impl Seat<'_> {
    fn get(&self) -> Result<&Connection> {
        self.connection.as_ref().context("a permit without a connection")
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).extend(self.connection.take());
    }
}

/// The two endpoints.
pub(super) async fn routes(url: &str, connections: usize) -> Result<Router> {
    let mut idle = Vec::with_capacity(connections);
    for _ in 0..connections {
        idle.push(connect(url).await?);
    }
    let pool = Arc::new(Pool { permits: Semaphore::new(connections), idle: Mutex::new(idle) });
    Ok(Router::new().route("/api/trucks/{id}", get(one)).route("/api/depots/{depot}/trucks", get(list)).with_state(pool))
}

async fn connect(url: &str) -> Result<Connection> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    let one = client.prepare(&fleet::one("$1")).await?;
    let list = client.prepare(&fleet::list("$1")).await?;
    Ok(Connection { client, one, list })
}

async fn one(State(pool): State<Arc<Pool>>, Path(id): Path<i64>) -> Response {
    respond(rows(&pool, |connection| &connection.one, id).await)
}

async fn list(State(pool): State<Arc<Pool>>, Path(depot): Path<i64>) -> Response {
    respond(rows(&pool, |connection| &connection.list, depot).await)
}

async fn rows(pool: &Pool, statement: impl Fn(&Connection) -> &Statement, key: i64) -> Result<Vec<u8>> {
    let seat = pool.take().await?;
    let connection = seat.get()?;
    let rows = connection.client.query(statement(connection), &[&key]).await?;
    drop(seat);
    let mut body = Body::new();
    for row in &rows {
        body.push(&truck(row)?)?;
    }
    body.finish()
}

fn truck(row: &Row) -> Result<Truck<'_>> {
    Ok(Truck {
        id: row.try_get(0)?,
        plate: row.try_get(1)?,
        driver: row.try_get(2)?,
        active: row.try_get(3)?,
        odometer: row.try_get(4)?,
        speed: row.try_get(5)?,
        seen: row.try_get(6)?,
    })
}
