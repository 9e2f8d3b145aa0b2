//! The status and body a caller would get, without a caller: for the flows' own tests.

use spillgate_engine::{Outcome, reply};
use spillgate_model::{Refusal, problem};

/// Status and body of an outcome, made by the same writers as a served reply.
pub fn offline_reply(ended: Result<Outcome, Refusal>) -> (u16, Vec<u8>) {
    let refused = |refusal: &Refusal| (refusal.status(), problem::body(refusal, refusal.retry_after_ms(), "offline"));
    match ended {
        Ok(Outcome::Refused(refusal)) => refused(&refusal),
        Err(refusal) => refused(&refusal),
        // Without a store no flow ends as a job, which has no body of its own.
        Ok(outcome) => reply::body(&outcome).map_or((202, Vec::new()), |body| (200, body)),
    }
}
