//! Limits of tenants while the server runs: seen, used, set over the file's, and given up again.
//!
//! Invariants
//! 1. Only the override is edited: what it does not say is as in the file, before and after a reload.
//! 2. A change names the page its author saw (`If-Match`), and is refused if that is not the page any more; the two are compared
//!    under the lock under which limits change.
//! 3. What is answered as changed is in force for the next call; a lowered limit evicts nothing.

use std::sync::Arc;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Path, RawQuery, State as Shared};
use axum::response::Response;
use http::header::{ETAG, IF_MATCH};
use http::{HeaderMap, HeaderValue};
use serde::Serialize;
use serde_json::{Map, Value, json};
use spillgate_config::{ExplainError, Override, Overrides, conflicts, explain_for};
use spillgate_engine::{Live, LiveTenant};
use spillgate_model::refusal::BadField;
use spillgate_model::{Code, Refusal};

use crate::change::{self, Effect};
use crate::pages::tenants::{self, Absent, ExplainedLine, ExplainedPage, Taken, Tenant, Tenants};
use crate::stack::Asked;
use crate::{State, once_each, query, queues, reply};

/// `GET /admin/v1/tenants`.
pub(crate) async fn all(Shared(state): Shared<Arc<State>>) -> Response {
    reply::json(&Tenants::of(&state.engine.live()))
}

/// `GET /admin/v1/tenants/{id}`.
pub(crate) async fn one(Shared(state): Shared<Arc<State>>, Path(id): Path<String>, asked: Extension<Asked>) -> Response {
    let live = state.engine.live();
    match position(&live, &id) {
        Ok(index) => {
            let page = Tenant::live(&live, index);
            with_etag(reply::json(&page), &page.etag())
        }
        Err(_) if live.overrides.contains_key(&*id) => {
            let page = absent(&live, &id);
            with_etag(reply::json(&page), &page.etag())
        }
        Err(refusal) => reply::refusal(&refusal, &asked.id),
    }
}

/// `GET /admin/v1/tenants/{id}/usage`.
pub(crate) async fn usage(Shared(state): Shared<Arc<State>>, Path(id): Path<String>, asked: Extension<Asked>) -> Response {
    let live = state.engine.live();
    let page = position(&live, &id).map(|index| {
        let tenant = &live.tenants[index];
        tenants::usage(&tenant.plan, &live.plan.databases, &taken(&state, &live, tenant))
    });
    reply::result(page.as_ref(), &asked.id)
}

fn taken(state: &State, live: &Live, tenant: &LiveTenant) -> Taken {
    let (gate, plan, now) = (&tenant.gate, &tenant.plan, state.engine.started().elapsed());
    let held = |database: &Arc<spillgate_engine::LiveDatabase>| {
        let status = database.status().fair;
        status.tenants.iter().filter(|of| of.tenant == plan.name).map(|of| u64::from(of.held)).sum()
    };
    Taken {
        rate_left: gate.rate_remaining(plan.rate.value, now),
        repeats_left: gate.repeats().left(plan.repeat_budget.value, now),
        in_flight: gate.in_flight(),
        memory: gate.memory(),
        runs: gate.runs().live(),
        queued: queues::queued_by(state, &plan.name),
        seats: live.databases.iter().map(held).collect(),
    }
}

/// `GET /admin/v1/tenants/{id}/explain?flow=NAME`.
pub(crate) async fn explain(
    Shared(state): Shared<Arc<State>>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    asked: Extension<Asked>,
) -> Response {
    let live = state.engine.live();
    let page = position(&live, &id).and_then(|index| {
        let takes = "This page takes `flow`, the name of a flow.";
        let [flow] = query::read(query.as_deref(), ["flow"], takes)?;
        let flow = &*flow.ok_or_else(|| Refusal::new(Code::Malformed, takes))?;
        let lines = explain_for(&live.plan, &live.tenants[index].plan, flow).map_err(|error| no_explanation(&error))?;
        let shut = ExplainedLine::breakers(&state.engine.breakers(), &live.tenants[index].plan.name, flow);
        let limits = lines.into_iter().map(Into::into).chain(shut).collect();
        Ok(ExplainedPage { version: live.plan.version.clone(), limits })
    });
    reply::result(page.as_ref(), &asked.id)
}

fn no_explanation(error: &ExplainError) -> Refusal {
    Refusal::new(Code::UnknownPage, format!("{error}."))
}

/// `PUT`: the whole override.
pub(crate) async fn put(state: Shared<Arc<State>>, id: Path<String>, headers: HeaderMap, asked: Extension<Asked>, body: Bytes) -> Response {
    let wanted = read(&body);
    change(state, id, &headers, asked, "limit", wanted.map(|wanted| move |_: &Value| wanted)).await
}

/// `PATCH`: a merge patch (RFC 7396) of the override; `null`: as in the file. Only a `burst` does not outlive the rate it was written with.
pub(crate) async fn patch(
    state: Shared<Arc<State>>,
    id: Path<String>,
    headers: HeaderMap,
    asked: Extension<Asked>,
    body: Bytes,
) -> Response {
    let merged = |patch: Value| {
        move |before: &Value| {
            let mut after = before.clone();
            merge(&mut after, patch);
            after
        }
    };
    change(state, id, &headers, asked, "limit", read(&body).map(merged)).await
}

/// `DELETE`: everything as in the file.
pub(crate) async fn delete(state: Shared<Arc<State>>, id: Path<String>, headers: HeaderMap, asked: Extension<Asked>) -> Response {
    change(state, id, &headers, asked, "unlimit", Ok(|_: &Value| json!({}))).await
}

fn read(body: &[u8]) -> Result<Value, Refusal> {
    let malformed = |problem: &str, error: serde_json::Error| Refusal::new(Code::Malformed, format!("The body {problem}: {error}."));
    let value: Value = serde_json::from_slice(body).map_err(|error| malformed("is not JSON", error))?;
    once_each::check(body).map_err(|error| malformed("says something twice", error))?;
    if value.is_object() { Ok(value) } else { Err(invalid(vec!["expected an object of limits such as {\"in_flight\": 32}".into()])) }
}

fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(entries) = target else { return };
    // Whoever lowers a rate means to lower it: with the burst of another rate nothing might be limited.
    if patch.get("rate").is_some_and(Value::is_string) && !patch.contains_key("burst") {
        entries.remove("burst");
    }
    for (name, value) in patch {
        match value {
            Value::Null => drop(entries.remove(&name)),
            value => merge(entries.entry(name).or_insert(Value::Null), value),
        }
    }
}

/// What a change came to.
#[derive(Serialize)]
struct Limited {
    /// The tenant's page as it is now; of a tenant the plan does not have, what is set.
    #[serde(flatten)]
    page: Map<String, Value>,
    /// Why a restart would forget it.
    #[serde(skip_serializing_if = "Option::is_none")]
    forgotten_at_restart: Option<String>,
    #[serde(skip)]
    etag: String,
}

/// Changes an override: `wanted` makes the new one of the old one.
async fn change<F>(
    Shared(state): Shared<Arc<State>>,
    Path(id): Path<String>,
    headers: &HeaderMap,
    Extension(asked): Extension<Asked>,
    action: &'static str,
    wanted: Result<F, Refusal>,
) -> Response
where
    F: FnOnce(&Value) -> Value + Send + 'static,
{
    let ready = wanted.and_then(|wanted| Ok((wanted, seen(headers)?)));
    let (wanted, seen) = match ready {
        Ok(ready) => ready,
        Err(refusal) => return reply::refusal(&refusal, &asked.id),
    };
    let subject = format!("tenants/{id}");
    let work = {
        let state = state.clone();
        async move {
            // What was set before the last stop is in force first: a change is of that.
            state.operations.overrides_read().await.map_err(|why| Refusal::new(Code::Recovering, why))?;
            let id: Arc<str> = id.into();
            let (mut from, mut to) = (json!({}), json!({}));
            state.engine.change_overrides(|live| {
                let after = changed(live, &id, &seen, wanted)?;
                (from, to) = (set_for(&live.overrides, &id), set_for(&after, &id));
                Ok::<_, Refusal>(after)
            })?;
            let forgotten_at_restart = state.operations.keep_override(&id).await.err();
            let live = state.engine.live();
            let (page, etag) = page(&live, &id);
            Ok(Effect { value: Limited { page, forgotten_at_restart, etag }, from: Some(from.to_string()), to: Some(to.to_string()) })
        }
    };
    match change::carried_through(&state, &asked, action, subject, work).await {
        Ok(changed) => with_etag(reply::json(&changed), &changed.value.etag),
        Err(refusal) => reply::refusal(&refusal, &asked.id),
    }
}

/// All overrides there are to be.
fn changed(live: &Live, id: &Arc<str>, seen: &str, wanted: impl FnOnce(&Value) -> Value) -> Result<Overrides, Refusal> {
    let etag = match position(live, id) {
        Ok(index) => Tenant::live(live, index).etag(),
        Err(_) if live.overrides.contains_key(id) => absent(live, id).etag(),
        Err(refusal) => return Err(refusal),
    };
    if seen != "*" && !seen.split(',').any(|seen| seen.trim() == etag) {
        return Err(Refusal::new(Code::ChangedMeanwhile, "If-Match names another state of this tenant's limits than the present one."));
    }
    let set = Override::read(&wanted(&set_for(&live.overrides, id))).map_err(invalid)?;
    let unknown: Vec<String> = set.unknown_databases(&live.plan).map(|name| format!("`database`: there is no database `{name}`")).collect();
    if !unknown.is_empty() {
        return Err(invalid(unknown));
    }
    let before = Overrides::clone(&live.overrides);
    let mut after = before.clone();
    match set.is_empty() {
        true => drop(after.remove(id)),
        false => drop(after.insert(id.clone(), Arc::new(set))),
    }
    let known = conflicts(&live.plan, &before);
    let new: Vec<String> = conflicts(&live.plan, &after).into_iter().filter(|conflict| !known.contains(conflict)).collect();
    if new.is_empty() { Ok(after) } else { Err(invalid(new)) }
}

/// What is set over a tenant's limits.
fn set_for(overrides: &Overrides, id: &str) -> Value {
    overrides.get(id).map_or_else(|| json!({}), |set| set.json().clone())
}

fn page(live: &Live, id: &str) -> (Map<String, Value>, String) {
    let (shown, etag) = match position(live, id) {
        Ok(index) => {
            let page = Tenant::live(live, index);
            (serde_json::to_value(&page), page.etag())
        }
        Err(_) => {
            let page = absent(live, id);
            (serde_json::to_value(&page), page.etag())
        }
    };
    (shown.ok().and_then(|shown| shown.as_object().cloned()).unwrap_or_default(), etag)
}

/// What is left over from a tenant the plan does not have any more.
fn absent<'a>(live: &Live, id: &'a str) -> Absent<'a> {
    Absent::of(id, live.overrides.get(id).map(|set| &**set))
}

fn position(live: &Live, id: &str) -> Result<usize, Refusal> {
    let found = live.tenants.iter().position(|tenant| *tenant.plan.name == *id);
    found.ok_or_else(|| Refusal::new(Code::UnknownPage, "The plan that runs has no such tenant."))
}

/// The version a change is about. Without one somebody else's change could be undone unseen.
fn seen(headers: &HeaderMap) -> Result<String, Refusal> {
    let seen = headers.get(IF_MATCH).and_then(|seen| seen.to_str().ok());
    seen.map(str::to_owned).ok_or_else(|| Refusal::new(Code::MatchRequired, "A change needs the header If-Match with the page's ETag."))
}

/// Problems in the words of a file; each begins with its key, where it is about one.
fn invalid(problems: Vec<String>) -> Refusal {
    let field = |problem: String| {
        let (name, rest) = match problem.strip_prefix('`').and_then(|rest| rest.split_once("`: ")) {
            Some((name, rest)) => (name.to_owned(), rest.to_owned()),
            None => ("override".to_owned(), problem),
        };
        BadField { name, problem: rest }
    };
    Refusal::new(Code::InvalidInput, "The limits were not changed.").fields(problems.into_iter().map(field).collect())
}

fn with_etag(mut response: Response, etag: &str) -> Response {
    if let Ok(etag) = HeaderValue::from_str(etag) {
        response.headers_mut().insert(ETAG, etag);
    }
    response
}
