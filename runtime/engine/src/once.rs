//! Once: under which keys work is done, and what became of a write that was cut off.
//!
//! A key's scope is its tenant and flow. The store keeps it from the append to some time after the end, so that claiming it and
//! making the item are one record.
//!
//! Invariants
//! 1. A call with a key is never run unprotected: where its key cannot be claimed it is refused.
//! 2. The claim is durable before a write is sent; its end is written with the result that repeats are answered with.
//! 3. Only what is proven not to have been executed frees its keys. What nobody can tell is `unknown` and is never run again by itself.
//! 4. A call that repeats waits to its own deadline, never longer; how many wait is bounded.
//! 5. A call without a key touches nothing here.
//!
//! It refuses: running items from queues (`durable` does), guessing what a database did.

mod direct;
mod ending;
mod evidence;
mod keys;
mod left_over;
mod repeat;
mod settling;
mod waiting;

use bytes::Bytes;
use spillgate_config::plan::KeyNeed;
use spillgate_model::{Code, Datum, Refusal};
use spillgate_queue::{JobId, Key, Store, Unique};

pub(crate) use direct::run;
pub(crate) use ending::keep;
pub(crate) use evidence::{Found, RECORD_LIMITS, look_into, recorded_by};
pub(crate) use left_over::watch;
pub(crate) use waiting::Waiting;

use crate::{Call, Live, Outcome};

/// The engine's own queue, in which direct calls claim their keys.
const DIRECT: &str = "(direct)";
/// Longest key, in visible ASCII characters.
const KEY_BYTES: usize = 255;

/// Under which keys an item is appended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Once {
    /// The caller's and the derived one.
    pub(crate) keys: Vec<Key>,
    pub(crate) unique: Option<Unique>,
}

impl Once {
    /// Nothing is asked of the store: the call may run as often as it is sent.
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.unique.is_none()
    }
    /// The job that stands for one of the keys, and whether its input is the same. Memory only.
    pub(crate) fn known(&self, store: &Store) -> Option<(JobId, bool)> {
        self.keys.iter().find_map(|key| store.find_key(key))
    }
}

/// The keys of a call, from what its caller sent and what its flow says.
pub(crate) fn of_call(call: &Call) -> Result<Once, Box<Refusal>> {
    let flow = &call.live.plan.flows[call.flow];
    let given = call.key.as_deref();
    if let Some(text) = given {
        check(text)?;
    }
    let unique = flow.unique.as_ref().map(|plan| keys::unique(flow, plan, &call.flowfile.input));
    let Some(plan) = &flow.idempotency else {
        return match given {
            // Taken and ignored, it would promise a protection that is not there.
            Some(_) => Err(Refusal::new(Code::Malformed, "This flow takes no idempotency key; send none.").into()),
            None => Ok(Once { keys: Vec::new(), unique }),
        };
    };
    if plan.need == KeyNeed::Required && given.is_none() {
        return Err(Refusal::new(Code::KeyRequired, "This flow runs only under an Idempotency-Key.").into());
    }
    let derived = match (plan.need, plan.derive_within) {
        (_, Some(within)) => Some(within),
        (KeyNeed::Derived, None) => Some(plan.keep),
        _ => None,
    };
    let mut made = Vec::new();
    if given.is_some() || derived.is_some() {
        let input = keys::input(flow, &call.flowfile.input);
        made.extend(given.map(|text| Key { hash: keys::given(&call.flowfile.tenant, &flow.name, text), input, keep: plan.keep }));
        made.extend(derived.map(|keep| Key { hash: keys::derived(&call.flowfile, &flow.name, &input), input, keep }));
    }
    Ok(Once { keys: made, unique })
}

/// What the store says of a call before anything is done for it.
#[derive(Debug)]
pub enum Standing {
    /// Nothing: it is work that was not asked for before.
    New,
    /// One of its keys is known: it gets what the first call got, and needs nothing else.
    Replay,
    /// Its business key is taken.
    Taken(Box<Refusal>),
}

/// How a call stands. Memory only; what is claimed meanwhile is told by the append itself.
pub(crate) fn standing(store: &Store, call: &Call) -> Standing {
    // What is wrong with its keys is said where it runs.
    let Ok(once) = of_call(call) else { return Standing::New };
    if once.known(store).is_some() {
        return Standing::Replay;
    }
    match once.unique.and_then(|unique| store.find_unique(&unique)) {
        Some((job, owner)) => Standing::Taken(unique_taken(job, &owner, &call.flowfile.tenant)),
        None => Standing::New,
    }
}

/// Whether a key that was sent stands for work already: what repeats needs no room in a queue.
pub(crate) fn is_known(store: &Store, live: &Live, tenant: usize, flow: usize, key: &str) -> bool {
    let (tenant, flow) = (&live.tenants[tenant].plan.name, &live.plan.flows[flow]);
    let hash = keys::given(tenant, &flow.name, key);
    flow.idempotency.is_some() && store.find_key(&Key { hash, input: [0; 16], keep: std::time::Duration::ZERO }).is_some()
}

fn check(key: &str) -> Result<(), Box<Refusal>> {
    if (1..=KEY_BYTES).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    let detail = format!("An Idempotency-Key has 1 to {KEY_BYTES} visible ASCII characters.");
    Err(Refusal::new(Code::Malformed, detail).into())
}

/// The key stands for work with another input.
pub(crate) fn key_reused(job: JobId) -> Box<Refusal> {
    Refusal::new(Code::KeyReused, format!("This key was used with another input, by job {job}.")).into()
}

/// Another call has the business key, with whatever other values. Whose job it is decides whether it is named.
pub(crate) fn unique_taken(job: JobId, owner: &str, caller: &str) -> Box<Refusal> {
    // The first call's other values are not known here: what is said must be true whether or not they are the same.
    let whose = if owner == caller { format!("Job {job}") } else { "Another tenant's call".to_owned() };
    let detail = format!("{whose} has this business key: it did its work, or is about to, with its own values. Your call changed nothing.");
    Refusal::new(Code::ConflictUnique, detail).into()
}

/// What a flow comes to whose work was found done before.
pub(crate) fn done_before(job: &str) -> Outcome {
    let entries = [("done_before", Datum::Boolean(true)), ("job", Datum::Text(job.into()))];
    let value = Datum::Map(std::sync::Arc::new(entries.into_iter().map(|(name, value)| (name.into(), value)).collect()));
    Outcome::Value { value, stale: None }
}

/// The same as it is kept of a job.
fn done_before_body(job: &str) -> Bytes {
    crate::reply::body(&done_before(job)).unwrap_or_default().into()
}
