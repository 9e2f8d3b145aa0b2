//! What a job looks like on the wire.
//!
//! * A call whose item is kept: 202 `{"job":{"id","state","href"}}` with `Location`.
//! * A call whose job ended in the time it was given: 200 `{"job":…,"result":…}`; where it ended otherwise, the problem it ended
//!   with, under that problem's status, with `job` in it.
//! * A look at a job: 200 `{"job":…}` with `result` or `error` once it has ended; 410 `result_gone` with `job` in it where its
//!   result is no longer kept.
//! * Of a job whose result was too large to be kept at all, both are 200 `{"job":…,"result_kept":false}`: it succeeded.
//! * Of a dead job that an operator replayed, `job` has `"replayed_as":{"id","href"}`: it is done anew as that one.
//! * A wish to cancel: 200 `{"job":…}` with its final state, which is an earlier one where it had ended; 409 `conflict_running` with
//!   `job` in it while it is at work.

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

/// In place of a result.
const NOT_KEPT: Option<(&str, &[u8])> = Some(("result_kept", b"false"));

/// `{"id":…,"state":…,"href":…}`.
pub(crate) fn job(view: &JobView) -> Vec<u8> {
    let mut out = Vec::with_capacity(96);
    let id = view.id.to_string();
    for (key, value) in [("{\"id\":", id.as_str()), (",\"state\":", view.state.name()), (",\"href\":", &jobs::href(view.id))] {
        out.extend_from_slice(key.as_bytes());
        json::write_text(value, &mut out);
    }
    if let Some(new) = view.replayed_as {
        out.extend_from_slice(b",\"replayed_as\":{\"id\":");
        json::write_text(&new.to_string(), &mut out);
        out.extend_from_slice(b",\"href\":");
        json::write_text(&jobs::href(new), &mut out);
        out.push(b'}');
    }
    out.push(b'}');
    out
}

/// The reply of the call that made the job, or of a repeat of it.
pub(crate) fn of_call(view: &JobView, request_id: &str) -> JobReply {
    match (view.state, &view.outcome) {
        (state, _) if !state.is_end() => JobReply { status: 202, location: Some(jobs::href(view.id)), ..whole(view, None) },
        _ if view.outcome_gone => gone(view, request_id),
        _ if view.too_large => whole(view, NOT_KEPT),
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
    if view.too_large {
        return whole(view, NOT_KEPT);
    }
    match (&view.outcome, jobs::refusal(view.state)) {
        (Some(result), _) if view.state == JobState::Succeeded => whole(view, Some(("result", result))),
        (Some(problem), _) => whole(view, Some(("error", problem))),
        (None, Some(refusal)) => {
            whole(view, Some(("error", &spillgate_model::problem::body(&refusal, refusal.retry_after_ms(), request_id))))
        }
        (None, None) => whole(view, None),
    }
}

/// The reply to a wish to cancel.
pub(crate) fn of_cancel(view: &JobView, request_id: &str) -> JobReply {
    if view.state.is_end() {
        return whole(view, None);
    }
    let detail = "The job is at work and can no longer be cancelled; it will end by itself.";
    refused(view, &Refusal::new(Code::ConflictRunning, detail), request_id)
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
    let retry_after_ms = refusal.retry_after_ms();
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

#[cfg(test)]
mod tests {
    use spillgate_queue::JobId;

    use super::*;

    fn view(state: JobState, outcome: Option<&'static str>, outcome_gone: bool) -> JobView {
        let outcome = outcome.map(|text| text.as_bytes().into());
        JobView { id: JobId { lane: 0x2f, sequence: 0x1a }, state, outcome, outcome_gone, too_large: false, replayed_as: None }
    }

    fn text(reply: &JobReply) -> &str {
        std::str::from_utf8(&reply.body).expect("JSON is UTF-8")
    }

    fn json(reply: &JobReply) -> Json {
        serde_json::from_slice(&reply.body).expect("JSON")
    }

    const STORED: &str = r#"{"type":"/problems/database_error","title":"t","status":502,"code":"database_error","detail":"d","scope":"database","retryable":true,"retry_after_ms":1500,"advice":"a","request_id":"job"}"#;

    #[test]
    fn a_job_that_has_not_ended_is_followed() {
        for state in [JobState::Queued, JobState::Running] {
            let reply = of_call(&view(state, None, false), "r-1");
            let job = format!(r#"{{"job":{{"id":"2f-1a","state":"{}","href":"/api/jobs/2f-1a"}}}}"#, state.name());
            assert_eq!((reply.status, reply.location.as_deref(), text(&reply)), (202, Some("/api/jobs/2f-1a"), job.as_str()));
            assert_eq!(
                (of_look(&view(state, None, false), "r-1").status, text(&of_look(&view(state, None, false), "r-1"))),
                (200, job.as_str())
            );
        }
    }

    #[test]
    fn c1_a_result_is_passed_on_byte_for_byte() {
        let exact = r#"{"rows":[{"ID":"9007199254740993","X":1.10}],"row_count":1,"truncated":false}"#;
        for reply in [of_call, of_look].map(|reply| reply(&view(JobState::Succeeded, Some(exact), false), "r-1")) {
            let job = r#"{"id":"2f-1a","state":"succeeded","href":"/api/jobs/2f-1a"}"#;
            assert_eq!((reply.status, reply.problem, text(&reply)), (200, None, format!(r#"{{"job":{job},"result":{exact}}}"#).as_str()));
        }
    }

    #[test]
    fn a_call_whose_job_failed_in_time_is_answered_with_its_problem() {
        let reply = of_call(&view(JobState::Dead, Some(STORED), false), "r-1");
        assert_eq!((reply.status, reply.problem, reply.retry_after_ms), (502, Some(Code::DatabaseError), Some(1_500)));
        let problem = json(&reply);
        assert_eq!((&problem["request_id"], &problem["job"]["state"], &problem["detail"]), (&"r-1".into(), &"dead".into(), &"d".into()));
        let look = of_look(&view(JobState::Dead, Some(STORED), false), "r-1");
        assert_eq!((look.status, look.problem), (200, None), "the look itself succeeded");
        assert_eq!((&json(&look)["error"]["code"], &json(&look)["job"]["state"]), (&"database_error".into(), &"dead".into()));
    }

    #[test]
    fn an_end_that_left_no_problem_says_what_it_was() {
        for (state, status, code) in [
            (JobState::Failed, 500, Code::Internal),
            (JobState::Expired, 504, Code::Expired),
            (JobState::Shed, 429, Code::QueueFull),
            (JobState::Purged, 503, Code::Stopped),
            (JobState::Unknown, 504, Code::OutcomeUnknown),
        ] {
            let reply = of_call(&view(state, None, false), "r-1");
            assert_eq!((reply.status, reply.problem, &json(&reply)["job"]["state"]), (status, Some(code), &state.name().into()));
            assert_eq!(reply.retry_after_ms.is_none(), json(&reply)["retry_after_ms"].is_null());
            assert_eq!(json(&of_look(&view(state, None, false), "r-1"))["error"]["code"], code.name());
        }
        let broken = of_call(&view(JobState::Failed, Some("{"), false), "r-1");
        assert_eq!((broken.status, broken.problem), (500, Some(Code::Internal)));
        let cancelled = of_call(&view(JobState::Cancelled, None, false), "r-1");
        assert_eq!((cancelled.status, cancelled.problem), (200, None), "its caller wanted it");
    }

    #[test]
    fn a_result_that_was_pushed_out_is_gone_and_the_final_state_is_not() {
        for reply in [of_call, of_look].map(|reply| reply(&view(JobState::Succeeded, None, true), "r-1")) {
            assert_eq!((reply.status, reply.problem), (410, Some(Code::ResultGone)));
            assert_eq!(json(&reply)["job"]["state"], "succeeded");
        }
    }

    #[test]
    fn a_dead_job_that_was_replayed_points_to_the_new_one() {
        let view = JobView { replayed_as: Some(JobId { lane: 0x2f, sequence: 0x2b }), ..view(JobState::Dead, None, false) };
        let body: Json = serde_json::from_slice(&of_look(&view, "r-1").body).expect("it is JSON");
        assert_eq!(body["job"]["replayed_as"], serde_json::json!({ "id": "2f-2b", "href": "/api/jobs/2f-2b" }));
    }

    #[test]
    fn a_success_whose_result_was_too_large_is_a_success() {
        let view = JobView { too_large: true, ..view(JobState::Succeeded, None, false) };
        for reply in [of_call, of_look].map(|reply| reply(&view, "r-1")) {
            assert_eq!((reply.status, reply.problem), (200, None));
            assert_eq!((&json(&reply)["result_kept"], &json(&reply)["job"]["state"]), (&false.into(), &"succeeded".into()));
        }
    }

    #[test]
    fn what_is_at_work_cannot_be_cancelled() {
        let reply = of_cancel(&view(JobState::Running, None, false), "r-1");
        assert_eq!((reply.status, reply.problem, &json(&reply)["job"]["state"]), (409, Some(Code::ConflictRunning), &"running".into()));
        for state in [JobState::Cancelled, JobState::Succeeded, JobState::Dead] {
            let reply = of_cancel(&view(state, None, false), "r-1");
            assert_eq!((reply.status, &json(&reply)["job"]["state"]), (200, &state.name().into()));
        }
    }
}
