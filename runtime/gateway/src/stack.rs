//! The one ordered stack every request passes, and nothing beside it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response};
use hyper::body::Incoming;
use spillgate_admission::{PayloadMemory, Permit, Stage};
use spillgate_engine::{JobView, Outcome};
use spillgate_model::{Code, Refusal};

use crate::admitting::Admitting;
use crate::head::Head;
use crate::pages::{self, Page};
use crate::reply_body::ReplyBody;
use crate::respond::{self, Denied};
use crate::routes::Missing;
use crate::trail::Trail;
use crate::{Inner, jobs};

/// What a request came to.
pub(crate) enum Ended {
    /// No call: a page of our own.
    Page(Page),
    /// A flow ran. The permit covers the reply until it is sent. `wait`: how long the end of a job was waited for at most.
    Flow { outcome: Outcome, waited: Duration, permit: Arc<Permit>, wait: Option<Duration> },
    /// Somebody asked for a job. The memory covers its result; `waited` is how long its end was waited for at most.
    Job { asked: jobs::Asked, job: JobView, memory: Option<PayloadMemory>, waited: Option<Duration> },
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
    // Draining comes before any work: another instance will do it. (From here the order is that of `Stage`.)
    trail.asks(Stage::Draining);
    if gateway.draining.load(Ordering::Relaxed) {
        return Err(Refusal::new(Code::Draining, "This server is stopping.").into());
    }
    // Head limits bound what all later stages look at.
    let head = Head::read(parts)?;
    let run: Option<Arc<str>> = head.run.map(Arc::from);
    trail.names(run.clone(), head.trace);
    // The caller: without a valid key nobody learns which paths exist.
    trail.asks(Stage::Tenant);
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
    trail.asks(Stage::Flow);
    let Some(path) = parts.uri.path().strip_prefix("/api").filter(|path| path.starts_with('/')) else {
        return Err(Refusal::new(Code::UnknownPage, "Flows are served below /api/.").into());
    };
    let flow = view.routes.find(&view.live.plan, &tenant.plan, parts.method.as_str(), path).map_err(missing)?;
    trail.flow(flow);
    Admitting { gateway, view: &view, tenant: tenant_index, flow, head: &head, parts, path }.call(trail, run, body).await
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
