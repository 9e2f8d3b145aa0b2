//! Concrete connectors for the databases of a plan: the only place that names them.

use std::sync::Arc;

use spillgate_config::plan::{DatabasePlan, Driver};
use spillgate_connector::Database;
use spillgate_engine::MakeDatabase;
use spillgate_odbc::{Odbc, OdbcOptions};
use spillgate_postgres::{Postgres, PostgresOptions};
use spillgate_sqlite::{Sqlite, SqliteOptions};

/// Chooses the process's one TLS provider. Called once, first.
pub(crate) fn install_tls_provider() {
    // An error means that one is installed already, which is what is wanted.
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
}

/// What the engine makes its databases with.
pub(crate) fn make_database() -> MakeDatabase {
    Arc::new(connector)
}

fn connector(plan: &DatabasePlan) -> Result<Arc<dyn Database>, String> {
    Ok(match plan.driver {
        Driver::Postgres => Arc::new(
            Postgres::new(PostgresOptions {
                connection: plan.connection.clone(),
                on_connect: plan.on_connect.clone(),
                statement_timeout: plan.statement_timeout,
                application_name: "spillgate".into(),
            })
            .map_err(|error| error.to_string())?,
        ),
        Driver::Sqlite => Arc::new(
            Sqlite::new(SqliteOptions {
                path: plan.connection.expose().into(),
                on_connect: plan.on_connect.clone(),
                statement_timeout: plan.statement_timeout,
            })
            .map_err(|error| error.to_string())?,
        ),
        Driver::Odbc => Arc::new(Odbc::new(OdbcOptions {
            connection: plan.connection.clone(),
            on_connect: plan.on_connect.iter().map(|statement| statement.as_str().into()).collect(),
            statement_timeout: plan.statement_timeout,
            threads: plan.pool_max,
        })),
    })
}
