//! The one ordered stack every request passes, and nothing beside it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response};
use hyper::body::Incoming;
use spillgate_admission::{Entering, PayloadMemory, Permit};
use spillgate_config::plan::{Effect, Flow, KeyNeed};
use spillgate_engine::{Call, JobView, LiveTenant, Outcome, intake};
use spillgate_model::{Code, Flowfile, Refusal, Scope};
use spillgate_queue::Room;

use crate::head::Head;
use crate::pages::{self, Page};
use crate::payload::Cap;
use crate::prefer::LONGEST_WAIT;
use crate::reply_body::ReplyBody;
use crate::respond::{self, Denied};
use crate::routes::Missing;
use crate::trail::Trail;
use crate::view::View;
use crate::{Inner, jobs, payload};

/// What a request came to.
pub(crate) enum Ended {
    /// No call: a page of our own.
    Page(Page),
    /// A flow ran. The permit covers the reply until it is sent. `wait`: how long the end of a job was waited for at most.
    Flow { outcome: Outcome, waited: Duration, permit: Arc<Permit>, wait: Option<Duration> },
    /// Somebody asked for a job. The memory covers its result; `waited` is how long its end was waited for at most.
    Job { asked: jobs::Asked, job: JobView, memory: Option<PayloadMemory>, waited: Option<Duration> },
}

/// A call that is known to be one, on its way to its flow.
struct Admitting<'a> {
    gateway: &'a Inner,
    view: &'a View,
    tenant: usize,
    flow: usize,
    head: &'a Head<'a>,
    parts: &'a Parts,
    /// Below `/api`.
    path: &'a str,
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
async fn stages(gateway: &Inner, trail: &mut Trail<'_>, parts: &Parts, body: Incoming) -> Result<Ended, Denied> {
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
    // What is asked of a job needs no flow: the plan that made it may be gone.
    if let Some(id) = parts.uri.path().strip_prefix(jobs::PATH) {
        return Box::pin(jobs::answer(gateway, trail, (&view, tenant_index), (parts, &head, &body), id)).await;
    }
    // The flow, before any limit is charged: a wrong path costs its caller nothing.
    let Some(path) = parts.uri.path().strip_prefix("/api").filter(|path| path.starts_with('/')) else {
        return Err(Refusal::new(Code::UnknownPage, "Flows are served below /api/.").into());
    };
    let flow = view.routes.find(&view.live.plan, &tenant.plan, parts.method.as_str(), path).map_err(missing)?;
    trail.flow(flow);
    Admitting { gateway, view: &view, tenant: tenant_index, flow, head: &head, parts, path }.call(trail, run, body).await
}

impl Admitting<'_> {
    /// The stages of a call whose flow is known.
    async fn call(&self, trail: &Trail<'_>, run: Option<Arc<str>>, body: Incoming) -> Result<Ended, Denied> {
        let (engine, live) = (&self.gateway.engine, &self.view.live);
        let (flow, tenant, server_memory) = (&live.plan.flows[self.flow], &live.tenants[self.tenant], live.plan.server.memory.value);
        // Could it ever fit: what waiting cannot help is refused for good, before the body is read.
        let cap = Cap::of(flow, &live.plan, &body);
        let body_bytes = cap.most_bytes(&body)?;
        let memory = could_fit(flow, tenant, server_memory, self.head, body_bytes)?;
        // The permit: rate, in flight, memory. It gives back by drop whatever it took.
        let now = trail.started.saturating_duration_since(self.gateway.started);
        let entering = Entering { run: run.as_ref(), depth: self.head.depth.map(u64::from), memory, now };
        let permit = tenant.gate.enter(&tenant.limits, &entering, engine.memory(), server_memory)?;
        let permit = Arc::new(permit);
        // Room for what the body will become, so that no body is read that could not be kept.
        let room = self.room(body_bytes).inspect_err(|_| permit.give_back())?;
        // The deadline, before the body: a slow sender spends its own time. A caller may only shorten it.
        let allowed = self.head.deadline.map_or(flow.deadline.value, |asked| asked.min(flow.deadline.value));
        let deadline = trail.started + allowed;
        // The body, under its cap, chunked or not.
        let body = payload::read(body, cap, deadline.into()).await?;
        // Intake: typed values, all bad fields at once.
        let reads_query = !flow.takes_body();
        let given = intake::Given {
            path: Some((self.view.routes.template(self.flow), self.path)),
            query: self.parts.uri.query(),
            body: (!reads_query).then_some(&*body),
        };
        let intake = intake::read(flow, &tenant.plan, &given)?;
        // The flow itself.
        let flowfile = Flowfile { id: trail.id.clone(), tenant: tenant.plan.name.clone(), run, input: intake.values, deadline };
        let wait = self.head.wait.filter(|_| flow.queue.is_some()).map(|wait| wait.min(LONGEST_WAIT).min(allowed));
        let call = Call {
            live: live.clone(),
            flow: self.flow,
            tenant: self.tenant,
            flowfile,
            page: intake.page,
            permit: Some(permit.clone()),
            stubs: None,
            room,
            key: self.key().map(Arc::from),
            wait,
            depth: self.head.depth.unwrap_or(0).into(),
            trace: self.head.trace,
        };
        let (outcome, waited) = engine.run_measured(call).await;
        Ok(Ended::Flow { outcome, waited, permit, wait })
    }

    /// The idempotency key, where it means something.
    fn key(&self) -> Option<&str> {
        self.head.key.filter(|_| self.view.live.plan.flows[self.flow].idempotency.is_some())
    }

    /// Room for the item of a durable flow. The repeat of a known key makes no item.
    fn room(&self, body_bytes: u64) -> Result<Option<Room>, Refusal> {
        let (engine, live) = (&self.gateway.engine, &self.view.live);
        let is_known = |key| engine.knows_key(live, self.tenant, self.flow, key);
        if live.plan.flows[self.flow].queue.is_none() || self.key().is_some_and(is_known) {
            return Ok(None);
        }
        let in_head = self.parts.uri.path_and_query().map_or(0, |target| target.as_str().len()) as u64;
        engine.reserve(live, self.tenant, self.flow, body_bytes + in_head)
    }
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
fn could_fit(flow: &Flow, tenant: &LiveTenant, server_memory: u64, head: &Head<'_>, body_bytes: u64) -> Result<u64, Refusal> {
    if !flow.takes_body() && body_bytes > 0 {
        return Err(Refusal::new(Code::Malformed, "A GET takes its input from path and query; send no body."));
    }
    if head.encoded {
        return Err(Refusal::new(Code::Malformed, "Send the body as it is, without Content-Encoding."));
    }
    match &flow.idempotency {
        // Taken and ignored, the key would promise a protection that is not there.
        None if head.key.is_some() && (flow.effect == Effect::Write || flow.queue.is_some()) => {
            return Err(Refusal::new(Code::Malformed, "This flow keeps no idempotency keys; send none."));
        }
        Some(keys) if keys.need == KeyNeed::Required && head.key.is_none() => {
            return Err(Refusal::new(Code::KeyRequired, "This flow is called with the header Idempotency-Key."));
        }
        _ => {}
    }
    // The body and the values read from it.
    let memory = flow.memory.saturating_add(body_bytes.saturating_mul(2));
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
