//! What a call leaves behind: its counts and its access record, exactly once, on every path.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use spillgate_admission::{Cause, Stage};
use spillgate_model::Code;
use spillgate_telemetry::happened::FailedCall;
use spillgate_telemetry::{AccessRecord, CallMetrics, RunningCall, Telemetry, TraceContext, happened, names};

use crate::view::{Counted, View};

/// How a call ended, for those who count.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) code: Option<Code>,
    pub(crate) status: u16,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    pub(crate) truncated: bool,
    pub(crate) stale: bool,
    /// Time spent waiting for seats.
    pub(crate) wait: Duration,
}

/// A call on its way. Dropped before its end it counts as hung up.
pub(crate) struct Trail<'a> {
    telemetry: &'a Telemetry,
    /// Counts of callers nobody knows: made-up tenants and paths get no series of their own (case E8).
    strangers: &'a CallMetrics,
    pub(crate) id: Arc<str>,
    /// Seeds the jitter of the reply.
    pub(crate) number: u64,
    pub(crate) started: Instant,
    remote: IpAddr,
    method: Method,
    run: Option<Arc<str>>,
    trace: Option<TraceContext>,
    caller: Option<(Arc<View>, usize)>,
    counted: Counted,
    running: Option<RunningCall>,
    /// How far it came at the gate.
    stage: Stage,
    /// What its success shows to have passed.
    pub(crate) recovered: Vec<Cause>,
    ended: bool,
}

impl<'a> Trail<'a> {
    pub(crate) fn start(
        telemetry: &'a Telemetry,
        strangers: &'a CallMetrics,
        (id, number): (Arc<str>, u64),
        remote: IpAddr,
        method: Method,
    ) -> Self {
        Trail {
            telemetry,
            strangers,
            id,
            number,
            started: Instant::now(),
            remote,
            method,
            run: None,
            trace: None,
            caller: None,
            counted: Counted::Unknown,
            running: None,
            stage: Stage::Draining,
            recovered: Vec::new(),
            ended: false,
        }
    }

    /// The gate asks this now: never before what stands earlier in its list.
    pub(crate) fn asks(&mut self, stage: Stage) {
        self.stage.reached(stage);
    }

    /// The head named a run or a trace.
    pub(crate) fn names(&mut self, run: Option<Arc<str>>, trace: Option<TraceContext>) {
        (self.run, self.trace) = (run, trace);
    }
    /// The caller is known.
    pub(crate) fn caller(&mut self, view: &Arc<View>, tenant: usize) {
        self.caller = Some((view.clone(), tenant));
    }
    /// The flow is known: from here the call runs.
    pub(crate) fn flow(&mut self, flow: usize) {
        self.begin(Counted::Flow(flow));
    }
    /// It is about a job.
    pub(crate) fn job(&mut self) {
        self.begin(Counted::Job);
    }
    fn begin(&mut self, counted: Counted) {
        self.counted = counted;
        self.running = self.caller.as_ref().map(|(view, tenant)| view.metrics(*tenant, counted, self.telemetry).begin());
    }
    /// Which tenant calls.
    pub(crate) fn tenant(&self) -> Option<(&Arc<View>, usize)> {
        self.caller.as_ref().map(|(view, tenant)| (view, *tenant))
    }
    /// What its caller may not hear goes to the log.
    pub(crate) fn failed(&self, code: Code, internal: &str) {
        let (tenant, flow) = self.who_and_what();
        let call = FailedCall { tenant, flow, request_id: &self.id, code: code.name(), internal };
        happened::call_failed(self.telemetry, &call);
    }
    /// It was no call: a health check or a page.
    pub(crate) fn forget(mut self) {
        self.ended = true;
    }
    /// The reply is made.
    pub(crate) fn end(mut self, facts: Facts) {
        self.ended = true;
        let duration = self.started.elapsed();
        match (self.running.take(), &self.caller) {
            (Some(running), _) => running.end(facts.code, duration, facts.bytes),
            (None, Some((view, tenant))) => view.metrics(*tenant, self.counted, self.telemetry).count(facts.code, duration, facts.bytes),
            (None, None) => self.strangers.count(facts.code, duration, facts.bytes),
        }
        self.record(&facts, facts.code.map_or("ok", Code::name), duration);
    }

    /// Tenant and flow as records name them.
    fn who_and_what(&self) -> (&str, &str) {
        match &self.caller {
            Some((view, tenant)) => (&view.live.tenants[*tenant].plan.name, view.name(self.counted)),
            None => (names::UNKNOWN, names::UNKNOWN),
        }
    }

    fn record(&self, facts: &Facts, code: &'static str, duration: Duration) {
        let (tenant, flow) = self.who_and_what();
        self.telemetry.access(&AccessRecord {
            request_id: &self.id,
            trace: self.trace,
            tenant,
            run: self.run.as_deref(),
            flow,
            method: self.method.as_str(),
            status: facts.status,
            code,
            duration,
            wait: facts.wait,
            rows: facts.rows,
            bytes: facts.bytes,
            truncated: facts.truncated,
            stale: facts.stale,
            remote: self.remote,
        });
    }
}

impl Drop for Trail<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.record(&Facts::default(), "hung_up", self.started.elapsed());
        }
    }
}
