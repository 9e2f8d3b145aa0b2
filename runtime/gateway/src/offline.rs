//! The status and body a caller would get, without a caller: for the flows' own tests.

use spillgate_engine::Outcome;
use spillgate_model::Refusal;

use crate::{problem, respond};

/// Status and body of an outcome, made by the same writers as a served reply.
pub fn offline_reply(ended: Result<Outcome, Refusal>) -> (u16, Vec<u8>) {
    let refused = |refusal: &Refusal| (refusal.status(), problem::body(refusal, None, "offline"));
    match ended {
        Ok(Outcome::Rows { rows, next, affected, stale }) => (200, respond::rows_body(&rows, next.as_deref(), affected, stale)),
        Ok(Outcome::Value { value, .. }) => (200, respond::value_body(&value)),
        // Without a store no flow ends as a job.
        Ok(Outcome::Job(_)) => (202, Vec::new()),
        Ok(Outcome::Refused(refusal)) => refused(&refusal),
        Err(refusal) => refused(&refusal),
    }
}
