//! What the server itself recorded of calls: whose they were, how they ended, how long they waited for a seat.

use serde_json::Value as Json;

use spillgate_test_support::server::Server;

/// One call in the access record.
pub(crate) struct Record {
    pub(crate) tenant: String,
    pub(crate) status: u64,
    pub(crate) wait_us: u64,
}

/// All calls so far, in the order of their ends.
pub(crate) fn records(server: &Server) -> Vec<Record> {
    server.output().lines().filter_map(|line| record(&serde_json::from_str(line).ok()?)).collect()
}

fn record(line: &Json) -> Option<Record> {
    Some(Record { tenant: line["tenant"].as_str()?.to_owned(), status: line["status"].as_u64()?, wait_us: line["wait_us"].as_u64()? })
}
