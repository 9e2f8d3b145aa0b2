//! Items that one flow hands to another: made, checked and given room before the run that makes them commits anything.
//!
//! An item whose key or business key is taken is left out, as a caller's second call would be.
//!
//! A target without room holds its source back: the source's item waits, and nothing of it was executed. Where a part of the run cannot
//! be taken back any more, the run itself waits, to its deadline.

use std::sync::Arc;
use std::time::Duration;

use spillgate_config::plan::{EmitStep, Flow, QueuePlan, Step};
use spillgate_model::refusal::DEFAULT_RETRY_AFTER;
use spillgate_model::{Code, Datum, Flowfile, Refusal, json};
use spillgate_queue::{Appending, Emit, Full, NewItem, Store};
use tokio::time::Instant;

use super::append::{content_of, encoded, order_hash};
use super::content::{Begins, Origin};
use super::room;
use crate::intake::{self, Given};
use crate::reload::Inner;
use crate::run::Notes;
use crate::steps::{Context, Progress};
use crate::verdict::{Failed, Fallible};
use crate::{Call, Outcome, once};

/// How long a run that must go on waits before it asks a full target again, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The items of one `emit` step.
pub(crate) struct Emission<'a> {
    context: &'a Context<'a>,
    step: &'a Step,
    target: usize,
    flow: &'a Arc<Flow>,
    queue: &'a QueuePlan,
    items: Vec<NewItem>,
    bytes: u64,
}

impl<'a> Emission<'a> {
    pub(crate) fn new(context: &'a Context<'a>, step: &'a Step, plan: &EmitStep) -> Fallible<Self> {
        let live = &context.call.live;
        let flow = live.plan.flows.get(plan.target);
        // Proven by the checker: the target begins with its `queue` step.
        let (Some(flow), Some(cut)) = (flow, flow.and_then(|flow| flow.queue.as_ref())) else {
            return Err(fault(step, format!("The flow {} takes no items.", plan.flow)));
        };
        let queue = &live.plan.queues[cut.queue];
        Ok(Emission { context, step, target: plan.target, flow, queue, items: Vec::new(), bytes: 0 })
    }

    /// One more item, of the input as a caller of the target would send it.
    pub(crate) async fn add(&mut self, input: &Datum) -> Fallible<()> {
        let call = self.call(input)?;
        let once = once::of_call(&call).map_err(|refusal| self.unfit(&refusal))?;
        let content = content_of(&call, Begins::BehindCut, Origin::Emitted, Vec::new());
        let content = encoded(&content, self.queue).map_err(|refusal| Failed::refused(*refusal))?;
        let Some(cut) = &self.flow.queue else { return Ok(()) };
        let order = match &cut.order_by {
            Some(expression) => {
                let notes = Notes::default();
                let target = Context::new(self.context.inner, &call, &notes);
                let nothing_ran = Progress::new(self.flow);
                let value = target.value_of(expression, &self.flow.steps[cut.step], &nothing_ran).await?;
                Some(order_hash(&value))
            }
            None => None,
        };
        self.bytes += content.len() as u64;
        self.items.push(NewItem {
            content: content.into(),
            keys: once.keys,
            unique: once.unique,
            order,
            expires_in: Some(cut.expires),
            claimed: false,
        });
        Ok(())
    }

    fn call(&self, input: &Datum) -> Fallible<Call> {
        let source = self.context.call;
        let mut body = Vec::new();
        json::write_datum(input, &mut body);
        let tenant = &source.live.tenants[source.tenant].plan;
        let given = Given { body: Some(&body), ..Given::default() };
        let intake = intake::read(self.flow, tenant, &given).map_err(|refusal| self.unfit(&refusal))?;
        let flowfile = Flowfile { input: intake.values, ..source.flowfile.clone() };
        let call = Call::new(source.live.clone(), self.target, source.tenant, flowfile);
        Ok(Call { depth: source.depth.saturating_add(1), trace: source.trace, ..call })
    }

    fn unfit(&self, refusal: &Refusal) -> Box<Failed> {
        fault(self.step, format!("Step {} cannot hand on to {}: {}", self.step.name, self.flow.name, refusal.detail))
    }

    /// The items with room for them; a refusal where the target has none now.
    pub(crate) fn into_room(mut self) -> Fallible<Emit> {
        let store = self.context.inner.durability.store().map_err(Failed::refused)?;
        match self.room(store) {
            Ok(room) => Ok(Emit { room, items: std::mem::take(&mut self.items) }),
            Err(full) => Err(self.full(&full)),
        }
    }

    /// The same, where the run must go on: waits for room, to the deadline of the run.
    pub(crate) async fn into_room_in_time(mut self) -> Fallible<Emit> {
        let store = self.context.inner.durability.store().map_err(Failed::refused)?;
        let mut pause = FIRST_PAUSE;
        loop {
            let full = match self.room(store) {
                Ok(room) => return Ok(Emit { room, items: std::mem::take(&mut self.items) }),
                Err(full) => full,
            };
            if self.never_fits(&full) || Instant::now() + pause >= self.context.deadline {
                return Err(self.full(&full));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn room(&self, store: &Store) -> Result<spillgate_queue::Room, Full> {
        let tenant = &self.context.call.live.tenants[self.context.call.tenant].plan;
        room::exactly(store, self.queue, &tenant.name, &tenant.queued, self.items.len() as u64, self.bytes)
    }

    /// Waiting would not help: all of it together is more than may ever be there.
    fn never_fits(&self, full: &Full) -> bool {
        full.limit < room::asked(full.which, self.items.len() as u64, self.bytes)
    }

    fn full(&self, full: &Full) -> Box<Failed> {
        let mut refusal = room::refusal(full);
        // Who hands on looks again by itself: a target that is resumed is not to wait for long.
        refusal.retry_after = refusal.retry_after.map(|wait| wait.min(DEFAULT_RETRY_AFTER));
        if self.never_fits(full) {
            let detail = format!("The {} items that step {} hands on could never fit.", self.items.len(), self.step.name);
            refusal = Refusal { policy: refusal.policy, ..Refusal::new(Code::ItemTooLarge, detail) };
        }
        Failed::refused(refusal)
    }
}

fn fault(step: &Step, detail: String) -> Box<Failed> {
    Failed::refused(Refusal::new(Code::ExpressionFailed, detail).internal(format!("step {}", step.name)))
}

/// Appends what a direct call hands on: it has no item of its own whose end could carry it.
pub(crate) async fn handed_on(inner: &Inner, outcome: Outcome, emits: Vec<Emit>) -> Outcome {
    let store = match inner.durability.store() {
        Ok(store) => store,
        Err(refusal) => return Outcome::Refused(refusal.into()),
    };
    for Emit { room, items } in emits {
        if let Err(error) = store.append(Appending { room, items }).await {
            let detail = "The flow did its work, and whether what it hands on was kept is not known.";
            return Outcome::Refused(Refusal::new(Code::OutcomeUnknown, detail).internal(error.to_string()).into());
        }
    }
    outcome
}
