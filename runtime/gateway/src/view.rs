//! What the gateway derives from a live plan: keys, routes, counters, documents. Made once per plan, never per call.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use bytes::Bytes;
use spillgate_engine::{Engine, Live};
use spillgate_telemetry::{CallMetrics, Telemetry, names};

use crate::callers::Callers;
use crate::openapi;
use crate::routes::Routes;

/// The face of one live plan.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) live: Arc<Live>,
    pub(crate) callers: Callers,
    pub(crate) routes: Routes,
    /// In the order of `live.tenants`; filled when a tenant first calls.
    tenants: Box<[TenantView]>,
}

#[derive(Debug, Default)]
struct TenantView {
    /// By flow; the last one counts calls of flows it does not have.
    metrics: OnceLock<Box<[OnceLock<Arc<CallMetrics>>]>>,
    openapi: OnceLock<Bytes>,
}

impl View {
    fn new(live: Arc<Live>) -> Self {
        let callers = Callers::new(&live.tenants);
        let routes = Routes::new(&live.plan);
        let tenants = live.tenants.iter().map(|_| TenantView::default()).collect();
        View { live, callers, routes, tenants }
    }

    /// The counts of a tenant and flow (`None`: a flow it does not have).
    pub(crate) fn metrics(&self, tenant: usize, flow: Option<usize>, telemetry: &Telemetry) -> &Arc<CallMetrics> {
        let flows = &self.live.plan.flows;
        let all = self.tenants[tenant].metrics.get_or_init(|| (0..=flows.len()).map(|_| OnceLock::new()).collect());
        let name = flow.map_or(names::UNKNOWN, |flow| &*flows[flow].name);
        all[flow.unwrap_or(flows.len())].get_or_init(|| telemetry.call_metrics(&self.live.tenants[tenant].plan.name, name))
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
