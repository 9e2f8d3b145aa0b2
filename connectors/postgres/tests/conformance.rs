//! The conformance suite over a real Postgres.

mod support;

spillgate_connector::conformance_suite!(support::Server::new);
