//! What the server itself recorded of calls: whose they were, how they ended, how long they waited for a seat.

use std::time::Duration;

use serde_json::Value as Json;

use spillgate_test_support::server::Server;

/// One call in the access record.
pub(crate) struct Record {
    pub(crate) tenant: String,
    pub(crate) status: u64,
    /// For a seat.
    pub(crate) wait: Duration,
    /// All the rest: where a call is one statement, about as long as it held a seat.
    pub(crate) work: Duration,
}

/// All calls so far, in the order of their ends.
pub(crate) fn records(server: &Server) -> Vec<Record> {
    server.output().lines().filter_map(|line| record(&serde_json::from_str(line).ok()?)).collect()
}

fn record(line: &Json) -> Option<Record> {
    let duration = |name: &str| line[name].as_u64().map(Duration::from_micros);
    let wait = duration("wait_us")?;
    let work = duration("duration_us")?.saturating_sub(wait);
    Some(Record { tenant: line["tenant"].as_str()?.to_owned(), status: line["status"].as_u64()?, wait, work })
}
