//! What durable flows add to the document: headers, jobs, and the refusals of a store.

use serde_json::{Map, Value, json};
use spillgate_config::plan::{Flow, IdempotencyPlan, KeyNeed};
use spillgate_model::Code;
use spillgate_queue::JobState;

use super::{parameter, replies};

/// Headers of a call that mean something to this flow.
pub(super) fn parameters(flow: &Flow) -> Vec<Value> {
    let mut parameters = Vec::new();
    if let Some(keys) = &flow.idempotency {
        let schema = json!({ "type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$" });
        parameters.push(parameter("Idempotency-Key", "header", keys.need == KeyNeed::Required, schema, about_key(keys)));
    }
    if flow.queue.is_some() {
        let about = "`wait=N`: waits up to N seconds, and no longer than the deadline, for the end of the job.";
        parameters.push(parameter("Prefer", "header", false, json!({ "type": "string", "examples": ["wait=5"] }), about));
    }
    parameters
}

fn about_key(keys: &IdempotencyPlan) -> &'static str {
    match keys.need {
        KeyNeed::Required | KeyNeed::Optional => {
            "A value of your own for this piece of work: sent again with the same key and input, it is not done twice."
        }
        KeyNeed::Derived => "A value of your own for this piece of work. Without one the same input from the same run counts as a repeat.",
    }
}

/// The success replies of a flow with a `queue` step, whose value is `result`.
pub(super) fn successes(result: &Value) -> [(&'static str, Value); 2] {
    let schema = |value: Option<&Value>| {
        let mut properties = json!({ "job": { "$ref": "#/components/schemas/Job" } });
        if let Some(value) = value {
            properties["result"] = value.clone();
            properties["result_kept"] = result_kept();
        }
        json!({ "type": "object", "required": ["job"], "properties": properties })
    };
    let header = |name: &str| json!({ "$ref": format!("#/components/headers/{name}") });
    let reply = |about: &str, location: bool, value: Option<&Value>| {
        let mut headers = replies::of_success();
        headers["Preference-Applied"] = header("PreferenceApplied");
        if location {
            headers["Location"] = header("Location");
        }
        json!({ "description": about, "headers": headers, "content": { "application/json": { "schema": schema(value) } } })
    };
    let ended = "The job ended while its caller waited, or this repeats one that has ended. A job that ended in another way than \
                 `succeeded` or `cancelled` is answered with the problem it ended with, and `job` in it.";
    let kept = "The work is kept on disk and will be done. Follow it at `href`.";
    [("200", reply(ended, false, Some(result))), ("202", reply(kept, true, None))]
}

fn result_kept() -> Value {
    json!({ "const": false, "description": "In place of a result that was too large to be kept." })
}

/// What stands in for the value where the database says that the work was done and the value itself is not known any more.
pub(super) fn done_before(flow: &Flow) -> Option<Value> {
    flow.idempotency.as_ref().filter(|plan| plan.record.is_some() || plan.verify.is_some()).map(|_| {
        json!({
            "type": "object",
            "description": "The work was done before, and only the database still knows of it.",
            "required": ["done_before", "job"],
            "properties": { "done_before": { "const": true }, "job": { "type": "string", "description": "The job that did it." } },
            "additionalProperties": false,
        })
    })
}

/// Refusals that only flows which need the store have, and the ends of a job, with their status.
pub(super) fn refusals(flow: &Flow) -> Vec<(u16, Code)> {
    let mut codes = Vec::new();
    if flow.queue.is_some() || flow.idempotency.is_some() || flow.unique.is_some() {
        codes.extend([Code::QueueFull, Code::StoreFull, Code::DiskLow, Code::Recovering, Code::StoreFailed]);
    }
    if flow.queue.is_some() {
        codes.extend([Code::ItemTooLarge, Code::ResultGone, Code::Stopped, Code::Expired, Code::FlowChanged]);
    }
    if let Some(keys) = &flow.idempotency {
        codes.extend((keys.need == KeyNeed::Required).then_some(Code::KeyRequired));
        codes.push(Code::KeyReused);
        codes.extend(flow.queue.is_none().then_some(Code::ConflictRunning));
    }
    codes.extend(flow.unique.is_some().then_some(Code::ConflictUnique));
    // Others filled the queue: no share of this caller is to blame.
    let by_others = flow.queue.is_some().then_some((503, Code::QueueFull));
    codes.into_iter().map(|code| (code.status(), code)).chain(by_others).collect()
}

/// `/api/jobs/{id}`.
pub(super) fn job_path() -> Map<String, Value> {
    let id =
        parameter("id", "path", true, json!({ "type": "string", "pattern": "^[1-9a-f][0-9a-f]*-[1-9a-f][0-9a-f]*$" }), "The job's id.");
    let wait = "`wait=N`: waits up to N seconds, at most 60, for the end of the job.";
    let prefer = parameter("Prefer", "header", false, json!({ "type": "string", "examples": ["wait=5"] }), wait);
    let job = json!({ "$ref": "#/components/schemas/Job" });
    let problem = json!({ "$ref": "#/components/schemas/Problem" });
    let reply = |about: &str, properties: Value| {
        let schema = json!({ "type": "object", "required": ["job"], "properties": properties });
        let headers = json!({ "Spillgate-Request-Id": { "$ref": "#/components/headers/RequestId" } });
        json!({ "description": about, "headers": headers, "content": { "application/json": { "schema": schema } } })
    };
    let refusals = |more: &[Code]| {
        let all = [Code::Malformed, Code::Unauthenticated, Code::UnknownJob, Code::RateExceeded, Code::Recovering, Code::StoreFailed];
        let all = all.into_iter().chain([Code::InFlightExceeded, Code::Draining, Code::Internal]).chain(more.iter().copied());
        replies::problems(all.map(|code| (code.status(), code)))
    };
    let operation = |name: &str, summary: &str, parameters: Vec<Value>, success: Value, more: &[Code]| {
        let mut responses = Map::from_iter([("200".to_owned(), success)]);
        responses.extend(refusals(more));
        json!({ "operationId": name, "summary": summary, "parameters": parameters, "responses": responses })
    };
    let any = json!({ "description": "What the flow would have answered. Only of a job that succeeded." });
    let look = reply(
        "How the job stands; `result` or `error` once it has ended.",
        json!({ "job": job, "result": any, "result_kept": result_kept(), "error": problem }),
    );
    let cancel = reply("The job's final state: `cancelled`, or the one it had ended in before.", json!({ "job": job }));
    Map::from_iter([
        (
            "get".to_owned(),
            operation("job_status", "how a job stands", vec![id.clone(), prefer], look, &[Code::ResultGone, Code::MemoryFull]),
        ),
        ("delete".to_owned(), operation("job_cancel", "cancel a job", vec![id], cancel, &[Code::ConflictRunning])),
    ])
}

/// A job as callers see it.
pub(super) fn job() -> Value {
    let states = JobState::ALL.map(JobState::name);
    json!({
        "type": "object",
        "required": ["id", "state", "href"],
        "properties": {
            "id": { "type": "string" },
            "state": { "type": "string", "enum": states },
            "href": { "type": "string", "format": "uri-reference", "description": "Where the job is followed and cancelled." },
            "replayed_as": {
                "type": "object",
                "description": "The job was dead and is done anew as this one.",
                "required": ["id", "href"],
                "properties": { "id": { "type": "string" }, "href": { "type": "string", "format": "uri-reference" } },
            },
        },
    })
}
