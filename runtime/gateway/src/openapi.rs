//! The OpenAPI 3.1 document of what one tenant may call: types, errors, limits and security of each flow.
//!
//! Invariants
//! 1. It is the same text for the same plan and tenant, in one order: paths, then methods, then inputs as declared.
//! 2. It names nothing this tenant may not call, no identity-bound input, no statement and no database.

mod durable;
mod replies;
mod schemas;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use spillgate_admission::TenantLimits;
use spillgate_config::Plan;
use spillgate_config::plan::{Action, Effect, Endpoint, Flow, Input, TenantPlan};
use spillgate_engine::intake;
use spillgate_model::limits;
use spillgate_model::units::Rate;

use crate::head::RUN_BYTES;
use crate::routes::nameless;

/// The document for a tenant under the limits in force.
pub fn document(plan: &Plan, tenant: &TenantPlan, in_force: &TenantLimits) -> Value {
    let mut paths: BTreeMap<String, (Vec<&str>, Map<String, Value>)> = BTreeMap::new();
    for flow in plan.flows.iter().filter(|flow| tenant.may_call(&flow.name)) {
        let Some(endpoint) = &flow.http else { continue };
        // One path may not stand there twice under other names: the first flow's names are used for all its methods.
        let (names, methods) = paths.entry(nameless(&endpoint.path)).or_insert_with(|| (parts(&endpoint.path), Map::new()));
        methods.insert(endpoint.method.to_ascii_lowercase(), operation(plan, flow, endpoint, names, in_force));
        if flow.queue.is_some() {
            paths.entry(nameless("/jobs/{id}")).or_insert_with(|| (vec!["id"], durable::job_path()));
        }
    }
    let paths: Map<String, Value> = paths.into_iter().map(|(path, (names, methods))| (named(&path, &names), methods.into())).collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Spillgate flows",
            "version": plan.version,
            "description": "What this key may call. Replies are exact or they are refusals; a refusal says what to do next.",
        },
        "servers": [{ "url": "/" }],
        "security": [{ "key": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "key": { "type": "http", "scheme": "bearer", "description": "A key from the operator." } },
            "schemas": { "Problem": schemas::problem(), "Integer": schemas::integer(), "Job": durable::job() },
            "headers": replies::headers(),
            "parameters": headers_of_calls(),
        },
    })
}

/// Headers that any call may have.
fn headers_of_calls() -> Value {
    let run = json!({ "type": "string", "minLength": 1, "maxLength": RUN_BYTES, "pattern": "^[!-~]+$" });
    let about_run = "Name of the agent run that the call belongs to: all its calls share the budgets under x-spillgate-limits.run.";
    let depth = json!({ "type": "integer", "minimum": 0, "maximum": u8::MAX });
    let about_depth = "How many agents or tools have handed the call on, from 0.";
    let about_deadline = "Milliseconds that the caller waits: shortens the flow's deadline, never lengthens it.";
    json!({
        "Run": parameter("Spillgate-Run", "header", false, run, about_run),
        "Depth": parameter("Spillgate-Depth", "header", false, depth, about_depth),
        "Deadline": parameter("Spillgate-Deadline-Ms", "header", false, json!({ "type": "integer", "minimum": 0 }), about_deadline),
    })
}

/// Names of the inputs in a path, in order.
fn parts(path: &str) -> Vec<&str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect()
}

/// A nameless path with these names, as it is served.
fn named(path: &str, names: &[&str]) -> String {
    let mut names = names.iter();
    let parts = path.split('/').map(|part| match part.starts_with('{') {
        true => names.next().map(|name| format!("{{{name}}}")).unwrap_or_default(),
        false => part.to_owned(),
    });
    format!("/api{}", parts.collect::<Vec<_>>().join("/"))
}

fn operation(plan: &Plan, flow: &Flow, endpoint: &Endpoint, path_names: &[&str], in_force: &TenantLimits) -> Value {
    let mut operation = Map::new();
    operation.insert("operationId".into(), json!(&*flow.name));
    operation.insert("summary".into(), json!(flow.name.replace('_', " ")));
    if !flow.about.is_empty() {
        operation.insert("description".into(), json!(flow.about));
    }
    let own_names = parts(&endpoint.path);
    let in_path = own_names.iter().zip(path_names).filter_map(|(own, shown)| {
        let input = flow.inputs.iter().find(|input| &*input.name == *own)?;
        Some(parameter(shown, "path", true, schemas::text_input(input), &input.about))
    });
    let mut parameters: Vec<Value> = in_path.collect();
    if !flow.takes_body() {
        let in_query = fields(flow).map(|input| parameter(&input.name, "query", input.required, schemas::text_input(input), &input.about));
        parameters.extend(in_query);
        parameters.extend(paging(flow).map(|(name, schema, about)| parameter(name, "query", false, schema, about)));
    } else {
        operation.insert("requestBody".into(), request_body(flow));
    }
    parameters.extend(durable::parameters(flow));
    parameters.extend(["Run", "Depth", "Deadline"].map(|name| json!({ "$ref": format!("#/components/parameters/{name}") })));
    operation.insert("parameters".into(), parameters.into());
    operation.insert("responses".into(), replies::responses(flow));
    operation.insert("x-spillgate-effect".into(), json!(if flow.effect == Effect::Read { "read" } else { "write" }));
    operation.insert("x-spillgate-limits".into(), limits_of(plan, flow, in_force));
    operation.into()
}

/// Inputs a caller gives in the query string or the body.
fn fields(flow: &Flow) -> impl Iterator<Item = &Input> {
    flow.inputs.iter().filter(|input| !input.in_path && input.from_tenant.is_none())
}

fn paging(flow: &Flow) -> impl Iterator<Item = (&'static str, Value, &'static str)> {
    flow.page.iter().flat_map(|page| {
        let size = json!({ "type": "integer", "minimum": 1, "maximum": page.max, "default": page.size });
        [
            (intake::CURSOR, json!({ "type": "string" }), "The `next` of the page before; without it the first page."),
            (intake::SIZE, size, "Rows of a page."),
        ]
    })
}

fn parameter(name: &str, place: &str, required: bool, schema: Value, about: &str) -> Value {
    let mut parameter = json!({ "name": name, "in": place, "required": required, "schema": schema });
    if !about.is_empty() {
        parameter["description"] = json!(about);
    }
    parameter
}

fn request_body(flow: &Flow) -> Value {
    let mut properties = Map::new();
    for input in fields(flow) {
        let mut schema = schemas::json_input(input);
        if !input.about.is_empty() {
            schema["description"] = json!(input.about);
        }
        properties.insert(input.name.to_string(), schema);
    }
    for (name, mut schema, about) in paging(flow) {
        schema["description"] = json!(about);
        properties.insert(name.into(), schema);
    }
    let required: Vec<&str> = fields(flow).filter(|input| input.required).map(|input| &*input.name).collect();
    let needed = !required.is_empty();
    let mut schema = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if needed {
        schema["required"] = json!(required);
    }
    json!({ "required": needed, "content": { "application/json": { "schema": schema } } })
}

fn limits_of(plan: &Plan, flow: &Flow, in_force: &TenantLimits) -> Value {
    let milliseconds = |time: std::time::Duration| json!(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    let mut shown = Map::new();
    shown.insert("deadline_ms".into(), milliseconds(flow.deadline.value));
    let sql = flow.steps.iter().rev().find_map(|step| if let Action::Sql(sql) = &step.action { Some(sql) } else { None });
    if let Some(sql) = sql {
        shown.insert("max_rows".into(), json!(sql.max_rows));
        shown.insert("max_bytes".into(), json!(sql.max_bytes));
    }
    let queue = flow.queue.as_ref().map(|cut| (cut, &plan.queues[cut.queue]));
    if flow.takes_body() {
        shown.insert("body_bytes".into(), queue.map_or(json!(limits::BODY_BYTES), |(_, queue)| finite(queue.max_item.value)));
    }
    if let Some((cut, queue)) = queue {
        shown.insert("expires_ms".into(), milliseconds(cut.expires));
        shown.insert("result_bytes".into(), finite(queue.max_result));
        shown.insert("result_kept_ms".into(), milliseconds(queue.result_keep));
    }
    shown.insert("rate".into(), shown_rate(in_force.rate));
    shown.insert("in_flight".into(), finite(in_force.in_flight));
    shown.insert("repeat_budget".into(), shown_rate(in_force.repeat_budget));
    let run = &in_force.run;
    shown.insert(
        "run".into(),
        json!({
            "calls": finite(run.calls),
            "in_flight": finite(run.in_flight),
            "retries": finite(run.retries),
            "depth": finite(run.depth),
            "ttl_ms": milliseconds(run.ttl),
        }),
    );
    shown.into()
}

fn shown_rate(rate: Rate) -> Value {
    json!({ "calls": finite(rate.calls), "seconds": rate.period.as_secs(), "burst": finite(rate.burst) })
}

/// A limit, or the word for none.
fn finite(limit: u64) -> Value {
    if limit == u64::MAX { json!("unlimited") } else { json!(limit) }
}
