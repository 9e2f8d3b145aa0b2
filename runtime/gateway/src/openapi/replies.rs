//! What a flow can answer: its value, and the codes of its refusals by status.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use spillgate_config::plan::{Action, Effect, Flow, HttpStep, OnError, SqlStep, Step};
use spillgate_model::Code;

use super::{durable, schemas};

/// All replies of a flow.
pub(super) fn responses(flow: &Flow) -> Value {
    let mut responses = Map::new();
    if flow.queue.is_some() {
        responses.extend(durable::successes(&value(flow)).map(|(status, reply)| (status.to_owned(), reply)));
    } else {
        responses.insert("200".into(), success(flow));
    }
    responses.extend(problems(refusals(flow)));
    responses.into()
}

/// Problem replies by status, from codes with the status they come under.
pub(super) fn problems(codes: impl IntoIterator<Item = (u16, Code)>) -> Map<String, Value> {
    let mut by_status: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
    for (status, code) in codes {
        let known = by_status.entry(status).or_default();
        if !known.contains(&code) {
            known.push(code);
        }
    }
    by_status.retain(|status, _| *status >= 400);
    by_status.into_iter().map(|(status, codes)| (status.to_string(), problem(status, &codes))).collect()
}

fn problem(status: u16, codes: &[Code]) -> Value {
    let names: Vec<&str> = codes.iter().map(|code| code.name()).collect();
    let titles: Vec<String> = codes.iter().map(|code| format!("`{}`: {}.", code.name(), code.title())).collect();
    let mut headers = json!({ "Spillgate-Request-Id": { "$ref": "#/components/headers/RequestId" } });
    if status == 429 || status == 503 {
        headers["Retry-After"] = json!({ "$ref": "#/components/headers/RetryAfter" });
    }
    if status == 429 {
        headers["RateLimit"] = json!({ "$ref": "#/components/headers/RateLimit" });
        headers["RateLimit-Policy"] = json!({ "$ref": "#/components/headers/RateLimitPolicy" });
    }
    let one_of_them = json!({ "properties": { "code": { "enum": names } } });
    let schema = json!({ "allOf": [{ "$ref": "#/components/schemas/Problem" }, one_of_them] });
    let content = json!({ "application/problem+json": { "schema": schema } });
    json!({ "description": titles.join(" "), "headers": headers, "content": content })
}

/// Headers of every success of a flow.
pub(super) fn of_success() -> Value {
    let header = |name: &str| json!({ "$ref": format!("#/components/headers/{name}") });
    json!({ "Spillgate-Request-Id": header("RequestId"), "Spillgate-Recovered": header("Recovered") })
}

/// Headers that replies share.
pub(super) fn headers() -> Value {
    let header = |about: &str, kind: &str| json!({ "description": about, "schema": { "type": kind } });
    json!({
        "RequestId": header("Names this call in the log of the server.", "string"),
        "RetryAfter": header("Seconds to wait, never less than retry_after_ms.", "integer"),
        "RateLimit": header("What is left of the limit that spoke.", "string"),
        "RateLimitPolicy": header("The limit that spoke.", "string"),
        "Location": header("Where the job is followed.", "string"),
        "PreferenceApplied": header("How long the end of the job was waited for at most, as `wait=N`; where it was asked for.", "string"),
        "Recovered": header(
            "`CODE; since=TIME`: what this call's run, or its tenant, was told since TIME has passed. Only on the first success after.",
            "string",
        ),
        "Stale": header("Seconds since the reply was fresh; only where it is not.", "integer"),
    })
}

/// The codes a call of this flow may end with, and their status.
fn refusals(flow: &Flow) -> Vec<(u16, Code)> {
    let mut codes = vec![Code::InvalidInput, Code::Malformed, Code::Unauthenticated, Code::UnknownFlow];
    codes.extend([Code::RateExceeded, Code::InFlightExceeded, Code::RunExhausted, Code::RepeatsExhausted, Code::MemoryFull]);
    codes.extend([Code::Draining, Code::DeadlineExceeded, Code::Internal]);
    if flow.takes_body() {
        // Of a durable flow, only a chunked body has this limit.
        codes.push(Code::TooLarge);
    }
    if flow.steps.iter().any(|step| matches!(step.action, Action::Sql(_))) {
        codes.extend([Code::DatabaseUnreachable, Code::DatabaseError, Code::ValueInexact, Code::ResultTooLarge]);
        codes.extend([Code::BreakerOpen, Code::Overloaded, Code::WaitTooLong]);
    }
    if evaluates(flow) {
        codes.push(Code::ExpressionFailed);
    }
    if flow.steps.iter().any(|step| matches!(step.action, Action::Http(_))) {
        codes.push(Code::UpstreamError);
    }
    if flow.effect == Effect::Write {
        codes.push(Code::OutcomeUnknown);
    }
    let empty = flow.steps.iter().filter_map(|step| step.on_empty).map(|on_empty| (on_empty.status, Code::Empty));
    codes.into_iter().map(|code| (code.status(), code)).chain(durable::refusals(flow)).chain(empty).collect()
}

/// Whether anything of the flow is an expression, or is held against what another flow takes.
fn evaluates(flow: &Flow) -> bool {
    let of_step = |step: &Step| {
        step.when.is_some()
            || !step.route.is_empty()
            || matches!(&step.action, Action::Map(_) | Action::Emit(_) | Action::Http(HttpStep { body: Some(_), .. }))
    };
    flow.steps.iter().any(of_step) || flow.queue.as_ref().is_some_and(|cut| cut.order_by.is_some())
}

/// The value a flow may end with.
fn value(flow: &Flow) -> Value {
    let mut shapes: Vec<Value> = Vec::new();
    for step in last_steps(flow) {
        let rows = match &step.action {
            Action::Sql(sql) => Some(rows(flow, sql)),
            _ => None,
        };
        let other = matches!(step.on_error, Some(OnError::Value(_))) || rows.is_none();
        let any = other.then(|| json!({ "description": "A value the flow makes." }));
        for shape in rows.into_iter().chain(any) {
            if !shapes.contains(&shape) {
                shapes.push(shape);
            }
        }
    }
    shapes.extend(durable::done_before(flow));
    if shapes.len() == 1 { shapes.remove(0) } else { json!({ "anyOf": shapes }) }
}

fn success(flow: &Flow) -> Value {
    let schema = value(flow);
    let mut headers = of_success();
    if flow.cache.is_some() {
        headers["Spillgate-Stale"] = json!({ "$ref": "#/components/headers/Stale" });
    }
    json!({ "description": "The flow ran.", "headers": headers, "content": { "application/json": { "schema": schema } } })
}

/// The steps that may be the last one that ran: from the end, up to one that always runs.
fn last_steps(flow: &Flow) -> Vec<&Step> {
    let jumped_over = |index: usize| flow.steps[..index].iter().any(|step| step.route.iter().any(|(_, target)| *target > index));
    let mut steps = Vec::new();
    for (index, step) in flow.steps.iter().enumerate().rev() {
        if matches!(step.action, Action::Queue | Action::Emit(_) | Action::Route) {
            continue;
        }
        steps.push(step);
        if step.when.is_none() && !jumped_over(index) {
            break;
        }
    }
    steps
}

fn rows(flow: &Flow, sql: &SqlStep) -> Value {
    let columns: Map<String, Value> = sql.columns.iter().map(|(name, kind)| (name.to_string(), schemas::column(*kind))).collect();
    let names: Vec<&str> = sql.columns.iter().map(|(name, _)| &**name).collect();
    let mut row = json!({ "type": "object" });
    if !names.is_empty() {
        row["required"] = json!(names);
        row["properties"] = columns.into();
        row["additionalProperties"] = json!(false);
    }
    let most = flow.page.as_ref().map_or(sql.max_rows, |page| page.max);
    let mut properties = Map::new();
    properties.insert("rows".into(), json!({ "type": "array", "items": row, "maxItems": most }));
    properties.insert("row_count".into(), json!({ "type": "integer", "minimum": 0, "maximum": most }));
    properties.insert("truncated".into(), json!({ "type": "boolean", "description": "There were more rows than the limits let through." }));
    if sql.write {
        properties.insert("affected".into(), json!({ "type": "integer", "description": "Rows inserted, changed or deleted." }));
    }
    if flow.page.is_some() {
        properties.insert(
            "next".into(),
            json!({ "type": "string", "description": "Send it as `cursor` for the next page; absent on the last." }),
        );
    }
    if flow.cache.is_some() {
        properties.insert("stale_seconds".into(), json!({ "type": "integer", "description": "How old a reply is that is not fresh." }));
    }
    json!({ "type": "object", "required": ["rows", "row_count", "truncated"], "properties": properties })
}
