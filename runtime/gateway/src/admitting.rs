//! The stages of a call whose flow is known, up to its outcome, and what that means for the next calls.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::request::Parts;
use hyper::body::Incoming;
use spillgate_admission::{Entering, FAILED_FOR, Permit, Stage};
use spillgate_config::plan::Flow;
use spillgate_engine::intake::{self, Intake};
use spillgate_engine::{Call, LiveTenant, Outcome, Standing};
use spillgate_model::{Flowfile, Refusal};
use spillgate_queue::Room;

use crate::alike::{Known, Like};
use crate::consequences::{self, Said, Success};
use crate::fit::{self, Asked};
use crate::head::Head;
use crate::payload::Cap;
use crate::prefer::LONGEST_WAIT;
use crate::respond::Denied;
use crate::stack::Ended;
use crate::trail::Trail;
use crate::view::View;
use crate::{Inner, payload};

/// A call that is known to be one, on its way to its flow.
pub(crate) struct Admitting<'a> {
    pub(crate) gateway: &'a Inner,
    pub(crate) view: &'a View,
    pub(crate) tenant: usize,
    pub(crate) flow: usize,
    pub(crate) head: &'a Head<'a>,
    pub(crate) parts: &'a Parts,
    /// Below `/api`.
    pub(crate) path: &'a str,
}

impl Admitting<'_> {
    /// The stages, and what their end means for the next calls.
    pub(crate) async fn call(&self, trail: &mut Trail<'_>, run: Option<Arc<str>>, body: Incoming) -> Result<Ended, Denied> {
        let mut like = None;
        let ended = self.stages(trail, run, body, &mut like).await;
        match &ended {
            Ok(Ended::Flow { outcome: Outcome::Refused(refusal), permit, .. }) => self.refused(trail, refusal, Some(permit), like),
            Ok(Ended::Flow { outcome, .. }) => self.answered(trail, outcome, like),
            Ok(Ended::Page(_) | Ended::Job { .. }) => {}
            Err(denied) => self.refused(trail, &denied.refusal, None, like),
        }
        ended
    }

    async fn stages(&self, trail: &mut Trail<'_>, run: Option<Arc<str>>, body: Incoming, like: &mut Option<Like>) -> Result<Ended, Denied> {
        let (engine, live, flow, tenant) = (&self.gateway.engine, &self.view.live, self.flow(), self.tenant());
        let server_memory = live.plan.server.memory.value;
        // Could it ever fit: what waiting cannot help is refused for good, before the body is read.
        trail.asks(Stage::Fit);
        let cap = Cap::of(flow, &live.plan, &body);
        let body_bytes = cap.most_bytes(&body)?;
        let needs = self.view.flows[self.flow].needs;
        let asked = Asked { flow, needs, head: self.head, target_bytes: self.target_bytes(), body_bytes };
        let memory = fit::check(&asked, tenant, server_memory)?;
        // The permit: rate, run, in flight, memory. It gives back by drop whatever it took.
        trail.asks(Stage::Rate);
        let entering = Entering { run: run.as_ref(), depth: self.head.depth.unwrap_or(0).into(), memory, now: self.now(trail) };
        let permit = Arc::new(tenant.gate.enter(&tenant.limits, &entering, engine.memory(), server_memory)?);
        // Room for what the body will become, so that no body is read that could not be kept.
        trail.asks(Stage::Queue);
        let room = self.room(body_bytes).inspect_err(|_| permit.give_back())?;
        // The deadline, before the body: a slow sender spends its own time. A caller may only shorten it.
        let allowed = self.head.deadline.map_or(flow.deadline.value, |asked| asked.min(flow.deadline.value));
        let deadline = trail.started + allowed;
        // The body, under its cap, chunked or not.
        let body = payload::read(body, cap, deadline.into()).await?;
        // Intake: typed values, all bad fields at once.
        let intake = self.intake(&body)?;
        *like = run.as_ref().filter(|_| flow.takes_body()).map(|_| self.gateway.alike.of(&intake));
        // Nothing is begun, or kept, for a caller whose time is up: of what was kept then, it could not be told.
        if deadline <= Instant::now() {
            return Err(fit::too_late("The deadline passed before anything was done.").into());
        }
        // The flow itself, unless the last stages of the gate refuse it.
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
        if let Err(refusal) = self.last_stages(trail, &call, &permit, *like) {
            permit.give_back();
            return Err(refusal);
        }
        let (outcome, waited) = engine.run_measured(call).await;
        Ok(Ended::Flow { outcome, waited, permit, wait })
    }

    fn flow(&self) -> &Flow {
        &self.view.live.plan.flows[self.flow]
    }
    fn tenant(&self) -> &LiveTenant {
        &self.view.live.tenants[self.tenant]
    }
    fn target_bytes(&self) -> u64 {
        self.parts.uri.path_and_query().map_or(0, |target| target.as_str().len()) as u64
    }
    /// On the clock that the gates are shown, when the call began.
    fn now(&self, trail: &Trail<'_>) -> Duration {
        trail.started.saturating_duration_since(self.gateway.started)
    }

    /// The idempotency key, where it means something.
    fn key(&self) -> Option<&str> {
        self.head.key.filter(|_| self.flow().idempotency.is_some())
    }

    fn intake(&self, body: &[u8]) -> Result<Intake, Refusal> {
        let reads_query = !self.flow().takes_body();
        let given = intake::Given {
            path: Some((self.view.routes.template(self.flow), self.path)),
            query: self.parts.uri.query(),
            body: (!reads_query).then_some(body),
        };
        intake::read(self.flow(), &self.tenant().plan, &given)
    }

    /// Room for the item of a durable flow. The repeat of a known key makes no item.
    fn room(&self, body_bytes: u64) -> Result<Option<Room>, Refusal> {
        let (engine, live) = (&self.gateway.engine, &self.view.live);
        let is_known = |key| engine.knows_key(live, self.tenant, self.flow, key);
        if self.flow().queue.is_none() || self.key().is_some_and(is_known) {
            return Ok(None);
        }
        engine.reserve(live, self.tenant, self.flow, body_bytes + self.target_bytes())
    }

    /// What is asked of a call whose input is known. A replay gets what the first call got, whatever became of its like and whether a
    /// seat is to be had or not. A cache is looked into by the engine, which asks for seats behind it.
    fn last_stages(&self, trail: &mut Trail<'_>, call: &Call, permit: &Permit, like: Option<Like>) -> Result<(), Denied> {
        let (engine, live) = (&self.gateway.engine, &self.view.live);
        trail.asks(Stage::Replay);
        let standing = engine.standing(call);
        if matches!(standing, Standing::Replay) {
            return Ok(());
        }
        trail.asks(Stage::Repeats);
        self.may_repeat(permit, like, self.now(trail))?;
        trail.asks(Stage::Unique);
        if let Standing::Taken(refusal) = standing {
            return Err(Denied { refusal, allow: None });
        }
        trail.asks(Stage::Breaker);
        engine.breaker_refuses(live, self.tenant, self.flow).map_or(Ok(()), Err)?;
        trail.asks(Stage::Wait);
        Ok(engine.expects(live, self.tenant, self.flow, call.flowfile.deadline).map_or(Ok(()), Err)?)
    }

    /// What the call is alike by, as far as its head goes.
    fn known(&self) -> Known<'_> {
        let target = (!self.flow().takes_body()).then(|| (self.path, self.parts.uri.query()));
        Known { flow: &self.flow().name, key: self.key(), run: self.head.run, target }
    }

    /// A repeat of what has just failed draws on the budgets for that. Cheap where nothing has failed.
    fn may_repeat(&self, permit: &Permit, like: Option<Like>, now: Duration) -> Result<(), Refusal> {
        let (known, repeats) = (self.known(), self.tenant().gate.repeats());
        if known.is_like_nothing() || repeats.is_quiet(now) {
            return Ok(());
        }
        match repeats.is_repeat(self.gateway.alike.likeness(&known, like.as_ref()), now) {
            true => permit.repeat(&self.tenant().limits, now),
            false => Ok(()),
        }
    }

    /// The call was refused, or failed.
    fn refused(&self, trail: &Trail<'_>, refusal: &Refusal, permit: Option<&Arc<Permit>>, like: Option<Like>) {
        let gate = &self.tenant().gate;
        match (consequences::said(refusal), permit) {
            (Said::Refused, Some(permit)) => permit.give_back(),
            (Said::Failed, Some(_)) => gate.ended(trail.started.elapsed()),
            _ => {}
        }
        let known = self.known();
        if let Some(wait) = consequences::repeats_for(refusal).filter(|_| !known.is_like_nothing()) {
            let ended = self.now(trail) + trail.started.elapsed();
            gate.repeats().failed(self.gateway.alike.likeness(&known, like.as_ref()), wait, ended);
        }
        if let Some(cause) = self.view.flows[self.flow].shows.cause(refusal) {
            gate.met(self.head.run, cause);
        }
    }

    /// The call was answered.
    fn answered(&self, trail: &mut Trail<'_>, outcome: &Outcome, like: Option<Like>) {
        let (gate, known, took) = (&self.tenant().gate, self.known(), trail.started.elapsed());
        let ended = self.now(trail) + took;
        gate.ended(took);
        let likeness = || self.gateway.alike.likeness(&known, like.as_ref());
        let Some(success) = Success::of(outcome) else {
            gate.repeats().failed(likeness(), FAILED_FOR, ended);
            return;
        };
        if !known.is_like_nothing() && !gate.repeats().is_quiet(ended) {
            gate.repeats().succeeded(likeness(), ended);
        }
        let shows = &self.view.flows[self.flow].shows;
        trail.recovered = gate.passed(self.head.run, |cause| shows.passed(success, cause));
    }
}
