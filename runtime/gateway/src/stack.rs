//! The one ordered stack every request passes, and nothing beside it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use spillgate_admission::Permit;
use spillgate_config::plan::{Effect, Flow};
use spillgate_engine::{Call, LiveTenant, Outcome, intake};
use spillgate_model::{Code, Flowfile, Refusal, Scope, limits};

use crate::head::Head;
use crate::pages::{self, Page};
use crate::reply_body::ReplyBody;
use crate::respond::{self, Denied};
use crate::routes::Missing;
use crate::trail::Trail;
use crate::{Inner, payload};

/// What a request came to.
pub(crate) enum Ended {
    /// No call: a page of our own.
    Page(Page),
    /// A flow ran. The permit covers the reply until it is sent.
    Flow { outcome: Outcome, waited: Duration, permit: Arc<Permit> },
}

/// Answers one request. Dropped by a caller that hangs up: a read is ended by that, a write goes on inside the engine.
pub(crate) async fn answer(gateway: &Inner, remote: IpAddr, request: Request<Incoming>) -> Response<ReplyBody> {
    let (parts, body) = request.into_parts();
    // First of all an id: whatever happens from here, a refusal too, can be found again by it.
    let mut trail = Trail::start(&gateway.telemetry, &gateway.strangers, gateway.ids.next(), remote, parts.method.clone());
    let ended = stages(gateway, &mut trail, &parts, body).await;
    let closing = gateway.draining.load(Ordering::Relaxed);
    respond::respond(trail, ended, closing)
}

/// The stages, in the order of the contract. Each refuses as early as it can know.
async fn stages(gateway: &Inner, trail: &mut Trail<'_>, parts: &http::request::Parts, body: Incoming) -> Result<Ended, Denied> {
    // Health and help need no key and no permit: they must answer when nothing else does.
    if let Some(page) = pages::open(gateway, parts)? {
        return Ok(Ended::Page(page));
    }
    // Draining comes before any work: another instance will do it.
    if gateway.draining.load(Ordering::Relaxed) {
        return Err(Refusal::new(Code::Draining, "This server is stopping.").into());
    }
    // Head limits bound what all later stages look at.
    let head = Head::read(parts)?;
    let run: Option<Arc<str>> = head.run.map(Arc::from);
    trail.names(run.clone(), head.trace);
    // The caller: without a valid key nobody learns which paths exist.
    let view = gateway.views.current(&gateway.engine);
    let tenant_index = view.callers.find(head.authorization)?;
    // The tenant, whose limits rule from here.
    trail.caller(&view, tenant_index);
    let tenant = &view.live.tenants[tenant_index];
    if let Some(page) = pages::keyed(&view, tenant_index, parts)? {
        return Ok(Ended::Page(page));
    }
    // The flow, before any limit is charged: a wrong path costs its caller nothing.
    let Some(path) = parts.uri.path().strip_prefix("/api").filter(|path| path.starts_with('/')) else {
        return Err(Refusal::new(Code::UnknownPage, "Flows are served below /api/.").into());
    };
    let plan = &view.live.plan;
    let flow_index = view.routes.find(plan, &tenant.plan, parts.method.as_str(), path).map_err(missing)?;
    let flow = &plan.flows[flow_index];
    trail.flow(flow_index);
    // Could it ever fit: what waiting cannot help is refused for good, before the body is read.
    let memory = could_fit(flow, tenant, plan.server.memory.value, &head, &body)?;
    // The permit: rate, in flight, memory. It gives back by drop whatever it took.
    let now = trail.started.saturating_duration_since(gateway.started);
    let permit = tenant.gate.enter(&tenant.limits, memory, gateway.engine.memory(), plan.server.memory.value, now)?;
    let permit = Arc::new(permit);
    // The deadline, before the body: a slow sender spends its own time. A caller may only shorten it.
    let allowed = head.deadline.map_or(flow.deadline.value, |asked| asked.min(flow.deadline.value));
    let deadline = trail.started + allowed;
    // The body, under its cap, chunked or not.
    let body = payload::read(body, deadline.into()).await?;
    // Intake: typed values, all bad fields at once.
    let reads_query = !flow.takes_body();
    let given = intake::Given {
        path: Some((view.routes.template(flow_index), path)),
        query: parts.uri.query(),
        body: (!reads_query).then_some(&*body),
    };
    let intake = intake::read(flow, &tenant.plan, &given)?;
    // The flow itself.
    let flowfile = Flowfile { id: trail.id.clone(), tenant: tenant.plan.name.clone(), run, input: intake.values, deadline };
    let (outcome, waited) = gateway
        .engine
        .run_measured(Call {
            live: view.live.clone(),
            flow: flow_index,
            tenant: tenant_index,
            flowfile,
            page: intake.page,
            permit: Some(permit.clone()),
            stubs: None,
            room: None,
            key: None,
            wait: None,
            depth: 0,
            trace: None,
        })
        .await;
    Ok(Ended::Flow { outcome, waited, permit })
}

fn missing(missing: Missing) -> Denied {
    match missing {
        Missing::Flow => Refusal::new(Code::UnknownFlow, "No flow that this key may call is served at this path.").into(),
        Missing::Method(allow) => {
            let refusal = Refusal::new(Code::MethodNotAllowed, format!("This path is served with {allow}."));
            Denied { allow: Some(allow), ..refusal.into() }
        }
    }
}

/// Refuses what could never run, and says how many bytes the call reserves.
fn could_fit(flow: &Flow, tenant: &LiveTenant, server_memory: u64, head: &Head<'_>, body: &Incoming) -> Result<u64, Refusal> {
    let body_bytes = payload::most_bytes(body);
    if !flow.takes_body() && body_bytes > 0 {
        return Err(Refusal::new(Code::Malformed, "A GET takes its input from path and query; send no body."));
    }
    if body_bytes > limits::BODY_BYTES {
        return Err(payload::too_large(body_bytes));
    }
    if head.encoded {
        return Err(Refusal::new(Code::Malformed, "Send the body as it is, without Content-Encoding."));
    }
    if head.keyed && flow.effect == Effect::Write {
        // Taken and ignored, the key would promise a protection that is not there.
        return Err(Refusal::new(Code::Malformed, "Idempotency keys are not available in this version; send none."));
    }
    // The body and the values read from it.
    let memory = flow.memory.saturating_add(2 * body_bytes);
    let never = |scope: Scope, name: &'static str, limit: u64| {
        let detail = format!("This flow reserves {memory} bytes for a call, more than this caller may ever have.");
        let mut refusal = Refusal::new(Code::MemoryFull, detail).policy(name, limit, memory);
        (refusal.scope, refusal.retryable, refusal.retry_after) = (scope, false, None);
        refusal
    };
    if memory > tenant.limits.memory {
        return Err(never(Scope::Tenant, "tenant.memory", tenant.limits.memory));
    }
    if memory > server_memory {
        return Err(never(Scope::Server, "server.memory", server_memory));
    }
    Ok(memory)
}
