//! Postgres: the conformance suite over a real server, and the promises that no other database has.

mod failures;
mod sessions;
mod statements;
mod support;
mod values;

use spillgate_connector::conformance::{WIDE, statement, value};
use spillgate_connector::{Access, Database as _, DatabaseError, Session};
use spillgate_model::Value;
use spillgate_test_support::postgres;

spillgate_connector::conformance_suite!(support::Server::new);

async fn open(access: Access) -> Box<dyn Session> {
    support::database(postgres::shared().url()).connect(access).await.expect("a session")
}

async fn one(session: &mut Box<dyn Session>, text: &str, values: &[Value]) -> Result<Value, DatabaseError> {
    let rows = session.read(&statement(text), values, WIDE).await?;
    Ok(value(&rows, 0, 0))
}

fn text(text: &str) -> Value {
    Value::Text(text.into())
}
