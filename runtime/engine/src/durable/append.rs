//! The first half of a cut flow: what stands before the `queue` step, then the item, then its job.
//!
//! It runs in its caller's future: a hang-up before the append leaves nothing, one after it changes nothing.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use spillgate_admission::Reservation;
use spillgate_config::plan::{Flow, QueueCut, QueuePlan};
use spillgate_model::{Code, Datum, Refusal, chance};
use spillgate_queue::{Appended, Appending, NewItem, Room, Store};
use tokio::time::{Instant, timeout_at};

use super::codec::{DEPTH, Writer};
use super::content::{Begins, Content, Origin};
use super::jobs::Patience;
use super::room::{self, store_refusal};
use super::{JobView, fit, jobs};
use crate::once::{self, Once};
use crate::reload::Inner;
use crate::run::Notes;
use crate::steps::{self, Carried, Context};
use crate::verdict::too_late;
use crate::{Call, Outcome};

/// What a reply has beside the result.
const RESULT_FRAME_BYTES: u64 = 1_024;

/// Runs the first half and answers with the job.
pub(crate) async fn run(inner: &Arc<Inner>, mut call: Call, notes: &Notes) -> Outcome {
    answer(once_of(inner, &mut call, notes).await)
}

/// The same of a scheduled run: each tick is work of its own, whatever its flow says of keys.
pub(super) async fn scheduled(inner: &Arc<Inner>, mut call: Call, notes: &Notes) -> Outcome {
    answer(job_of(inner, &mut call, notes, Once::default()).await)
}

fn answer(job: Result<JobView, Box<Refusal>>) -> Outcome {
    match job {
        Ok(job) => Outcome::Job(job),
        Err(refusal) => Outcome::Refused(refusal),
    }
}

async fn once_of(inner: &Arc<Inner>, call: &mut Call, notes: &Notes) -> Result<JobView, Box<Refusal>> {
    let store = inner.durability.store()?;
    let once = once::of_call(call)?;
    // A repeat gets the first call's job and needs nothing of the database, nor any room.
    if let Some((job, same)) = once.known(store) {
        return if same { jobs::wait(store, job, &patience(inner, call)).await } else { Err(once::key_reused(job)) };
    }
    job_of(inner, call, notes, once).await
}

async fn job_of(inner: &Arc<Inner>, call: &mut Call, notes: &Notes, once: Once) -> Result<JobView, Box<Refusal>> {
    let store = inner.durability.store()?;
    let deadline = Instant::from_std(call.flowfile.deadline);
    let room = call.room.take();
    let (made, _memory) = first_half(inner, call, notes).await?;
    // What is given to the store may be kept, whoever still waits: past the deadline nothing is.
    if deadline <= Instant::now() {
        return Err(too_late(notes.doing(), "The deadline passed before the item was given to the store; nothing was kept.")
            .refusal
            .into());
    }
    let item = NewItem { keys: once.keys, unique: once.unique, ..made };
    let appended = append(store, call, room, item);
    let appended = timeout_at(deadline, appended).await.unwrap_or_else(|_| {
        let detail = "The deadline passed before it was known whether the item was kept; it may be.";
        Err(Box::new(Refusal::new(Code::OutcomeUnknown, detail)))
    })?;
    match appended {
        Appended::New { job, .. } | Appended::Repeat { job } => jobs::wait(store, job, &patience(inner, call)).await,
        Appended::KeyReused { job } => Err(once::key_reused(job)),
        Appended::UniqueTaken { job, tenant } => Err(once::unique_taken(job, &tenant, &call.flowfile.tenant)),
    }
}

/// For whoever waits nothing runs here any more: it keeps the memory that a result may take, and no more.
fn patience<'a>(inner: &'a Inner, call: &Call) -> Patience<'a> {
    if let (Some(permit), Ok((_, _, queue))) = (&call.permit, cut_of(call)) {
        permit.shrink_memory(queue.max_result + RESULT_FRAME_BYTES);
    }
    Patience { wait: call.wait, deadline: Instant::from_std(call.flowfile.deadline), stop: inner.durability.stopping() }
}

/// The steps before the cut, under the deadline, and the item they lead to.
async fn first_half(inner: &Arc<Inner>, call: &Call, notes: &Notes) -> Result<(NewItem, Reservation), Box<Refusal>> {
    let (flow, cut, queue) = cut_of(call)?;
    let context = Context::new(inner, call, notes);
    let working = async {
        let progress = steps::run_to_cut(&context, cut.step).await?;
        let order = match &cut.order_by {
            Some(expression) => Some(context.value_of(expression, &flow.steps[cut.step], &progress).await?),
            None => None,
        };
        Ok((progress, order))
    };
    let (progress, order) = crate::run::in_time(&context, Box::pin(working)).await.map_err(|failed| Box::new(failed.refusal))?;
    let needed = &call.live.flows[call.flow].needed;
    let content = content_of(call, Begins::BehindCut, Origin::Caller, progress.carried(flow, needed));
    let bytes = encoded(&content, queue)?;
    // What was packed is held beside what it was made of, until it is on disk.
    let memory = call.live.plan.server.memory.value;
    let reserved = inner
        .memory
        .reserve(bytes.len() as u64, memory)
        .map_err(|used| Refusal::new(Code::MemoryFull, "The memory for the item is in use.").policy("server.memory", memory, used))?;
    let item = NewItem {
        content: bytes.into(),
        order: order.map(|value| order_hash(&value)),
        expires_in: Some(cut.expires),
        ..NewItem::default()
    };
    Ok((item, reserved))
}

pub(super) fn cut_of(call: &Call) -> Result<(&Arc<Flow>, &QueueCut, &QueuePlan), Box<Refusal>> {
    let flow = &call.live.plan.flows[call.flow];
    let cut = flow.queue.as_ref().ok_or_else(|| Refusal::new(Code::Internal, "The flow has no `queue` step."))?;
    Ok((flow, cut, &call.live.plan.queues[cut.queue]))
}

/// What an item of this call holds.
pub(crate) fn content_of(call: &Call, begins: Begins, origin: Origin, carried: Vec<Carried>) -> Content {
    let flow = &call.live.plan.flows[call.flow];
    Content {
        begins,
        origin,
        depth: call.depth,
        flow: flow.name.clone(),
        tenant: call.flowfile.tenant.clone(),
        id: call.flowfile.id.clone(),
        run: call.flowfile.run.clone(),
        key: call.key.clone(),
        stand_in: call.key.is_none().then(chance::drawn_wide),
        trace: call.trace,
        inputs: fit::inputs_of(flow, &call.flowfile.input),
        carried,
    }
}

/// Its bytes, where the queue takes so many.
pub(super) fn encoded(content: &Content, queue: &QueuePlan) -> Result<Vec<u8>, Box<Refusal>> {
    let bytes = content.encode().map_err(|error| {
        Refusal::new(Code::ItemTooLarge, format!("The item cannot be kept: {error}.")).policy("item.depth", DEPTH as u64, DEPTH as u64 + 1)
    })?;
    let (limit, used) = (queue.max_item.value, bytes.len() as u64);
    if used > limit {
        let detail = format!("The item takes {used} bytes, and the queue takes {limit}.");
        return Err(Refusal::new(Code::ItemTooLarge, detail).policy("queue.max_item", limit, used).into());
    }
    Ok(bytes)
}

/// Appends one item, in the room there is or in room asked for now.
async fn append(store: &Store, call: &Call, room: Option<Room>, item: NewItem) -> Result<Appended, Box<Refusal>> {
    let (_, _, queue) = cut_of(call)?;
    let tenant = &call.live.tenants[call.tenant].plan;
    let bytes = item.content.len() as u64;
    let fits = |room: &Room| room.bytes() >= bytes && *room.lane().queue == *queue.name && *room.lane().tenant == *tenant.name;
    let room = match room.filter(fits) {
        Some(room) => room,
        None => room::exactly(store, queue, &tenant.name, &tenant.queued, 1, bytes).map_err(|full| room::refusal(&full))?,
    };
    let appended = store.append(Appending { room, items: vec![item] }).await.map_err(|error| store_refusal(&error))?;
    appended.into_iter().next().ok_or_else(|| Refusal::new(Code::Internal, "The store said nothing of the item.").into())
}

/// Values that are the same have the same number.
pub(super) fn order_hash(value: &Datum) -> u64 {
    let mut writer = Writer::default();
    // What is nested too deeply has the number of what it begins with.
    let _whole = writer.datum(value, DEPTH);
    let digest = Sha256::digest(&writer.out);
    digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}
