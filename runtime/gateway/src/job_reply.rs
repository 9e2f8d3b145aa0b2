//! What a job looks like on the wire.
//!
//! * A call whose item is kept: 202 `{"job":{"id","state","href"}}` with `Location`.
//! * A call whose job ended in the time it was given: 200 `{"job":…,"result":…}`; where it ended otherwise, the problem it ended
//!   with, under that problem's status, with `job` in it.
//! * A look at a job: 200 `{"job":…}` with `result` or `error` once it has ended; 410 `result_gone` with `job` in it where its
//!   result is no longer kept.
//! * A cancelled job: 200 `{"job":…}` with its final state, which is an earlier one where there was one.

use serde_json::Value as Json;
use spillgate_engine::JobView;
use spillgate_model::{Code, Refusal, json};
use spillgate_queue::JobState;

use crate::{jobs, problem};

/// A reply about a job.
#[derive(Debug, PartialEq)]
pub(crate) struct JobReply {
    pub(crate) status: u16,
    /// It is a problem with this code.
    pub(crate) problem: Option<Code>,
    /// Milliseconds to wait before the call is sent again.
    pub(crate) retry_after_ms: Option<u64>,
    /// The job is to be looked for there.
    pub(crate) location: Option<String>,
    pub(crate) body: Vec<u8>,
}

/// `{"id":…,"state":…,"href":…}`.
pub(crate) fn job(view: &JobView) -> Vec<u8> {
    let mut out = Vec::with_capacity(96);
    let id = view.id.to_string();
    for (key, value) in [("{\"id\":", id.as_str()), (",\"state\":", view.state.name()), (",\"href\":", &jobs::href(view.id))] {
        out.extend_from_slice(key.as_bytes());
        json::write_text(value, &mut out);
    }
    out.push(b'}');
    out
}

/// The reply of the call that made the job, or of a repeat of it.
pub(crate) fn of_call(view: &JobView, request_id: &str) -> JobReply {
    match (view.state, &view.outcome) {
        (state, _) if !state.is_end() => JobReply { status: 202, location: Some(jobs::href(view.id)), ..whole(view, None) },
        _ if view.outcome_gone => gone(view, request_id),
        (JobState::Succeeded, Some(result)) => whole(view, Some(("result", result))),
        (JobState::Succeeded | JobState::Cancelled, _) => whole(view, None),
        (_, Some(stored)) => ended_with(view, stored, request_id),
        (state, None) => match jobs::refusal(state) {
            Some(refusal) => refused(view, &refusal, request_id),
            None => whole(view, None),
        },
    }
}

/// The reply to a look at the job.
pub(crate) fn of_look(view: &JobView, request_id: &str) -> JobReply {
    if view.outcome_gone {
        return gone(view, request_id);
    }
    match (&view.outcome, jobs::refusal(view.state)) {
        (Some(result), _) if view.state == JobState::Succeeded => whole(view, Some(("result", result))),
        (Some(problem), _) => whole(view, Some(("error", problem))),
        (None, Some(refusal)) => whole(view, Some(("error", &problem::body(&refusal, None, request_id)))),
        (None, None) => whole(view, None),
    }
}

/// The reply to a wish to cancel: only how it stands now.
pub(crate) fn of_cancel(view: &JobView) -> JobReply {
    whole(view, None)
}

fn whole(view: &JobView, value: Option<(&str, &[u8])>) -> JobReply {
    let job = job(view);
    let mut body = Vec::with_capacity(job.len() + 32 + value.map_or(0, |(_, value)| value.len()));
    body.extend_from_slice(b"{\"job\":");
    body.extend_from_slice(&job);
    if let Some((name, value)) = value {
        body.extend_from_slice(b",\"");
        body.extend_from_slice(name.as_bytes());
        body.extend_from_slice(b"\":");
        body.extend_from_slice(value);
    }
    body.push(b'}');
    JobReply { status: 200, problem: None, retry_after_ms: None, location: None, body }
}

fn gone(view: &JobView, request_id: &str) -> JobReply {
    let detail = format!("The job ended as {}; its result is no longer kept.", view.state.name());
    refused(view, &Refusal::new(Code::ResultGone, detail), request_id)
}

fn refused(view: &JobView, refusal: &Refusal, request_id: &str) -> JobReply {
    let retry_after_ms = refusal.retry_after.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
    let mut body = spillgate_model::problem::body(refusal, retry_after_ms, request_id);
    problem::add(&mut body, "job", &job(view));
    JobReply { status: refusal.status(), problem: Some(refusal.code), retry_after_ms, location: None, body }
}

/// The problem a job ended with, as the reply to this request.
fn ended_with(view: &JobView, stored: &[u8], request_id: &str) -> JobReply {
    let Ok(Json::Object(mut problem)) = serde_json::from_slice(stored) else {
        let refusal = Refusal::new(Code::Internal, "The work failed; what it failed with cannot be read.");
        return refused(view, &refusal, request_id);
    };
    problem.insert("request_id".into(), request_id.into());
    let status = problem.get("status").and_then(Json::as_u64).and_then(|status| u16::try_from(status).ok()).unwrap_or(500);
    let code = problem.get("code").and_then(Json::as_str).and_then(|name| Code::ALL.iter().copied().find(|code| code.name() == name));
    let retry_after_ms = problem.get("retry_after_ms").and_then(Json::as_u64);
    let mut body = Json::Object(problem).to_string().into_bytes();
    problem::add(&mut body, "job", &job(view));
    JobReply { status, problem: Some(code.unwrap_or(Code::Internal)), retry_after_ms, location: None, body }
}
