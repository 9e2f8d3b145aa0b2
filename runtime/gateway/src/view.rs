//! What the gateway derives from a live plan: keys, routes, counters, documents. Made once per plan, never per call.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use bytes::Bytes;
use spillgate_config::plan::Flow;
use spillgate_engine::{Engine, Live};
use spillgate_telemetry::{CallMetrics, Telemetry, names};

use crate::callers::Callers;
use crate::consequences::Shows;
use crate::fit::Needs;
use crate::openapi;
use crate::routes::Routes;

/// The face of one live plan.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) live: Arc<Live>,
    pub(crate) callers: Callers,
    pub(crate) routes: Routes,
    /// Whether any flow needs the store.
    pub(crate) durable: bool,
    /// In the order of the plan's flows.
    pub(crate) flows: Box<[FlowView]>,
    /// In the order of `live.tenants`; filled when a tenant first calls.
    tenants: Box<[TenantView]>,
}

/// What the gateway knows of a flow.
#[derive(Debug)]
pub(crate) struct FlowView {
    pub(crate) needs: Needs,
    pub(crate) shows: Shows,
}

/// Under which flow a call is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Of no flow that its tenant has.
    #[default]
    Unknown,
    /// A look at a job.
    Job,
    Flow(usize),
}

#[derive(Debug, Default)]
struct TenantView {
    /// By [`Counted`], flows first.
    metrics: OnceLock<Box<[OnceLock<Arc<CallMetrics>>]>>,
    openapi: OnceLock<Bytes>,
}

impl View {
    fn new(live: Arc<Live>) -> Self {
        let callers = Callers::new(&live.tenants);
        let routes = Routes::new(&live.plan);
        let tenants = live.tenants.iter().map(|_| TenantView::default()).collect();
        let needs_store =
            |flow: &Flow| flow.queue.is_some() || flow.idempotency.is_some() || flow.unique.is_some() || flow.schedule.is_some();
        let durable = live.plan.flows.iter().any(|flow| needs_store(flow));
        let of_flow = |flow: &Flow| FlowView { needs: Needs::of(flow, &live.plan), shows: Shows::of(flow, &live.plan) };
        let flows = live.plan.flows.iter().map(|flow| of_flow(flow)).collect();
        View { live, callers, routes, durable, flows, tenants }
    }

    /// The name under which a call is counted.
    pub(crate) fn name(&self, counted: Counted) -> &str {
        match counted {
            Counted::Flow(flow) => &self.live.plan.flows[flow].name,
            Counted::Job => names::JOBS,
            Counted::Unknown => names::UNKNOWN,
        }
    }

    /// The counts of a tenant's calls.
    pub(crate) fn metrics(&self, tenant: usize, counted: Counted, telemetry: &Telemetry) -> &Arc<CallMetrics> {
        let flows = self.live.plan.flows.len();
        let all = self.tenants[tenant].metrics.get_or_init(|| (0..flows + 2).map(|_| OnceLock::new()).collect());
        let place = match counted {
            Counted::Flow(flow) => flow,
            Counted::Unknown => flows,
            Counted::Job => flows + 1,
        };
        all[place].get_or_init(|| telemetry.call_metrics(&self.live.tenants[tenant].plan.name, self.name(counted)))
    }

    /// The OpenAPI document of a tenant.
    pub(crate) fn openapi(&self, tenant: usize) -> Bytes {
        let caller = &self.live.tenants[tenant];
        let text = || openapi::document(&self.live.plan, &caller.plan, &caller.limits).to_string();
        self.tenants[tenant].openapi.get_or_init(|| text().into()).clone()
    }
}

/// The view of what is live now.
#[derive(Debug)]
pub(crate) struct Views {
    current: ArcSwap<View>,
    building: Mutex<()>,
}

impl Views {
    pub(crate) fn new(live: Arc<Live>) -> Self {
        Views { current: ArcSwap::from_pointee(View::new(live)), building: Mutex::new(()) }
    }

    /// The view of the live plan. The first call after a reload makes it; those that come meanwhile wait for that.
    pub(crate) fn current(&self, engine: &Engine) -> Arc<View> {
        let live = engine.live();
        let view = self.current.load_full();
        if Arc::ptr_eq(&view.live, &live) {
            return view;
        }
        self.rebuild(engine)
    }

    #[cold]
    fn rebuild(&self, engine: &Engine) -> Arc<View> {
        let _one_builds = self.building.lock().unwrap_or_else(PoisonError::into_inner);
        // Asked again under the lock: another call may have built it, or another reload have come.
        let (live, view) = (engine.live(), self.current.load_full());
        if Arc::ptr_eq(&view.live, &live) {
            return view;
        }
        let view = Arc::new(View::new(live));
        self.current.store(view.clone());
        view
    }
}
