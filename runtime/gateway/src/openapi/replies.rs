//! What a flow can answer: its value, and the codes of its refusals by status.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use spillgate_config::plan::{Action, Effect, Flow, OnError, SqlStep, Step};
use spillgate_model::Code;

use super::schemas;

/// All replies of a flow.
pub(super) fn responses(flow: &Flow) -> Value {
    let mut responses = Map::new();
    responses.insert("200".into(), success(flow));
    for (status, codes) in refusals(flow) {
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
        responses.insert(status.to_string(), json!({ "description": titles.join(" "), "headers": headers, "content": content }));
    }
    responses.into()
}

/// Headers that replies share.
pub(super) fn headers() -> Value {
    let header = |about: &str, kind: &str| json!({ "description": about, "schema": { "type": kind } });
    json!({
        "RequestId": header("Names this call in the log of the server.", "string"),
        "RetryAfter": header("Seconds to wait, never less than retry_after_ms.", "integer"),
        "RateLimit": header("What is left of the limit that spoke.", "string"),
        "RateLimitPolicy": header("The limit that spoke.", "string"),
        "Stale": header("Seconds since the reply was fresh; only where it is not.", "integer"),
    })
}

/// The codes a call of this flow may end with, by status.
fn refusals(flow: &Flow) -> BTreeMap<u16, Vec<Code>> {
    let mut codes = vec![Code::InvalidInput, Code::Malformed, Code::Unauthenticated, Code::UnknownFlow];
    codes.extend([Code::RateExceeded, Code::InFlightExceeded, Code::MemoryFull, Code::Draining, Code::DeadlineExceeded, Code::Internal]);
    if flow.takes_body() {
        codes.push(Code::TooLarge);
    }
    if flow.steps.iter().any(|step| matches!(step.action, Action::Sql(_))) {
        codes.extend([Code::DatabaseUnreachable, Code::DatabaseError, Code::ValueInexact, Code::ResultTooLarge]);
        codes.extend([Code::Overloaded, Code::WaitTooLong]);
    }
    if flow.steps.iter().any(|step| matches!(step.action, Action::Http(_))) {
        codes.push(Code::UpstreamError);
    }
    if flow.effect == Effect::Write {
        codes.push(Code::OutcomeUnknown);
    }
    let mut by_status: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
    let empty = flow.steps.iter().filter_map(|step| step.on_empty).map(|on_empty| (on_empty.status, Code::Empty));
    for (status, code) in codes.into_iter().map(|code| (code.status(), code)).chain(empty) {
        let known = by_status.entry(status).or_default();
        if !known.contains(&code) {
            known.push(code);
        }
    }
    by_status.retain(|status, _| *status >= 400);
    by_status
}

fn success(flow: &Flow) -> Value {
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
    let schema = if shapes.len() == 1 { shapes.remove(0) } else { json!({ "anyOf": shapes }) };
    let mut headers = json!({ "Spillgate-Request-Id": { "$ref": "#/components/headers/RequestId" } });
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
