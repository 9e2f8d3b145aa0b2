//! The one ordered stack of the admin listener, and its routes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Path, Request, State as Shared};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{MethodRouter, get, post};
use http::HeaderValue;
use http_body_util::{BodyExt as _, Limited};
use spillgate_config::Fault;
use spillgate_engine::query;
use spillgate_model::refusal::BadField;
use spillgate_model::{Code, Refusal, problem};
use spillgate_telemetry::happened;

use crate::pages::databases::{BreakerPage, Breakers, DatabaseState, Databases};
use crate::reply::{self, REQUEST_ID};
use crate::{State, change, guard, limits, metrics, pages, queues};

/// Bytes of a request body: nothing here takes more than a few words.
const BODY_BYTES: usize = 16 * 1024;

/// What the stack found out about a request.
#[derive(Clone)]
pub(crate) struct Asked {
    pub(crate) id: Arc<str>,
    pub(crate) admin: Arc<str>,
    pub(crate) remote: SocketAddr,
}

/// Everything that is answered.
pub(crate) fn router(state: Arc<State>) -> Router {
    Router::new()
        .route("/metrics", read(get(metrics::metrics)))
        .route("/admin/v1/flows", read(get(flows)))
        .route("/admin/v1/databases", read(get(databases)))
        .route("/admin/v1/breakers", read(get(breakers)))
        .route("/admin/v1/tenants", read(get(limits::all)))
        .route("/admin/v1/tenants/{id}", limited(get(limits::one).put(limits::put).patch(limits::patch).delete(limits::delete)))
        .route("/admin/v1/tenants/{id}/usage", read(get(limits::usage)))
        .route("/admin/v1/tenants/{id}/explain", read(get(limits::explain)))
        .route("/admin/v1/config", read(get(config)))
        .route("/admin/v1/queues", read(get(queues::queues)))
        .route("/admin/v1/queues/{queue}/lanes/{tenant}", read(get(queues::lane)))
        .route("/admin/v1/queues/{queue}/lanes/{tenant}/purge", change(post(queues::purge)))
        .route("/admin/v1/queues/{queue}/lanes/{tenant}/pause", change(post(queues::pause)))
        .route("/admin/v1/queues/{queue}/lanes/{tenant}/resume", change(post(queues::resume)))
        .route("/admin/v1/queues/{queue}/lanes/{tenant}/dead", read(get(queues::dead)))
        .route("/admin/v1/queues/{queue}/lanes/{tenant}/dead/replay", change(post(queues::replay)))
        .route("/admin/v1/jobs/{id}/resolve", change(post(queues::resolve)))
        .route("/admin/v1/audit", read(get(queues::audit)))
        .route("/admin/v1/reload", change(post(reload)))
        .route("/problems/{code}", read(get(help)))
        .fallback(nothing_here)
        .layer(middleware::from_fn_with_state(state.clone(), stack))
        .with_state(state)
}

fn read(route: MethodRouter<Arc<State>>) -> MethodRouter<Arc<State>> {
    route.fallback(only_get)
}

fn limited(route: MethodRouter<Arc<State>>) -> MethodRouter<Arc<State>> {
    route.fallback(only_limits)
}

fn change(route: MethodRouter<Arc<State>>) -> MethodRouter<Arc<State>> {
    route.fallback(only_post)
}

/// The stack, in order.
async fn stack(Shared(state): Shared<Arc<State>>, request: Request, next: Next) -> Response {
    let id: Arc<str> = format!("admin-{}", state.requests.fetch_add(1, Ordering::Relaxed)).into();
    let remote = request.extensions().get::<ConnectInfo<SocketAddr>>().map_or(SocketAddr::from(([0, 0, 0, 0], 0)), |info| info.0);
    let mut response = match admit(&state, request, &id, remote).await {
        Ok(request) => next.run(request).await,
        Err(refusal) => {
            happened::admin_denied(&state.telemetry, remote.ip(), refusal.code.name(), &refusal.detail);
            reply::refusal(&refusal, &id)
        }
    };
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

async fn admit(state: &State, request: Request, id: &Arc<str>, remote: SocketAddr) -> Result<Request, Refusal> {
    // Host and Origin first: a page of a stranger learns nothing, not even whether a key is right.
    guard::our_own(request.uri(), request.headers(), &state.host_name)?;
    // Then who asks, by the keys of the plan that runs now.
    let admin = guard::who(request.headers(), &state.engine.live().plan.admins)?;
    // Then the path, for every page: what is no text names nothing.
    if !request.uri().path().split('/').all(|segment| query::decode_path(segment).is_some()) {
        return Err(Refusal::new(Code::Malformed, "The path is not percent-encoded UTF-8."));
    }
    // Then the body, whole, so that no handler can be made to wait for it or to hold more.
    let (mut parts, body) = request.into_parts();
    let body = Limited::new(body, BODY_BYTES).collect().await.map_err(|error| {
        let code = if error.is::<http_body_util::LengthLimitError>() { Code::TooLarge } else { Code::Malformed };
        Refusal::new(code, format!("A body here has at most {BODY_BYTES} bytes."))
    })?;
    parts.extensions.insert(Asked { id: id.clone(), admin, remote });
    Ok(Request::from_parts(parts, Body::from(body.to_bytes())))
}

async fn flows(Shared(state): Shared<Arc<State>>) -> Response {
    reply::json(&pages::Flows::of(&state.engine.live().plan))
}

async fn databases(Shared(state): Shared<Arc<State>>) -> Response {
    let live = state.engine.live();
    let now = state.engine.started().elapsed();
    let databases = live.databases.iter().map(|database| {
        let metrics = state.telemetry.database_metrics(&database.plan().name);
        let by_breakers = state.telemetry.refused_by_breakers(&database.plan().name);
        DatabaseState::of(database.plan(), database.status(), &metrics, by_breakers, now)
    });
    reply::json(&Databases { databases: databases.collect() })
}

async fn breakers(Shared(state): Shared<Arc<State>>) -> Response {
    reply::json(&Breakers { breakers: state.engine.breakers().into_iter().map(BreakerPage::of).collect() })
}

async fn config(Shared(state): Shared<Arc<State>>) -> Response {
    reply::json(&pages::Config::of(&state.engine.live().plan, &state.operations.standing()))
}

/// Survives its caller: a reload that began is carried through.
async fn reload(Shared(state): Shared<Arc<State>>, asked: axum::Extension<Asked>) -> Response {
    let work = {
        let (state, asked) = (state.clone(), asked.0.clone());
        async move {
            let before = state.operations.standing().applied;
            let result = state.operations.reload().await;
            let (versions, outcome) = match &result {
                Ok(version) => ((Some(before), Some(version.clone())), change::DONE.to_owned()),
                Err(faults) => ((None, None), format!("refused, {} faults", faults.len())),
            };
            change::keep(&state, &asked, "reload", String::new(), versions, outcome).await;
            result
        }
    };
    match tokio::spawn(work).await {
        Ok(Ok(version)) => reply::json(&pages::Reloaded { version, kept: state.operations.standing().kept }),
        Ok(Err(faults)) => reply::refusal(&refused(&faults), &asked.id),
        Err(_) => reply::refusal(&Refusal::new(Code::Internal, "The reload broke off; what ran before goes on."), &asked.id),
    }
}

/// Every fault with its place; the same table of codes as everywhere.
fn refused(faults: &[Fault]) -> Refusal {
    let field = |fault: &Fault| BadField {
        name: format!("{}:{}:{}", fault.file.display(), fault.line, fault.column),
        problem: fault.message.clone(),
    };
    let detail = format!("The configuration has faults ({}); nothing that runs was changed.", faults.len());
    let mut refusal = Refusal::new(Code::ConfigRefused, detail).fields(faults.iter().map(field).collect());
    refusal.status = Some(422);
    refusal
}

async fn help(Path(name): Path<String>, asked: axum::Extension<Asked>) -> Response {
    match problem::code_of_page(&format!("{}{name}", problem::PAGES)) {
        Some(code) => reply::text("text/markdown; charset=utf-8", problem::page(code)),
        None => reply::refusal(&Refusal::new(Code::UnknownPage, "There is no such code."), &asked.id),
    }
}

async fn only_get(asked: axum::Extension<Asked>) -> Response {
    reply::method_not_allowed("This page is only read.", "GET, HEAD", &asked.id)
}

async fn only_post(asked: axum::Extension<Asked>) -> Response {
    reply::method_not_allowed("This is asked for with POST.", "POST", &asked.id)
}

async fn only_limits(asked: axum::Extension<Asked>) -> Response {
    reply::method_not_allowed(
        "Limits are read with GET and changed with PUT, PATCH and DELETE.",
        "GET, HEAD, PUT, PATCH, DELETE",
        &asked.id,
    )
}

async fn nothing_here(request: Request) -> Response {
    let id = request.extensions().get::<Asked>().map_or("", |asked| &asked.id);
    reply::refusal(&Refusal::new(Code::UnknownPage, "There is no such page on the admin listener."), id)
}
