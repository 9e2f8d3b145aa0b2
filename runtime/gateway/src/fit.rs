//! Could it ever fit: what a call must bring and what it may need, known from its head.

use spillgate_config::Plan;
use spillgate_config::plan::{Action, Effect, Flow, KeyNeed};
use spillgate_engine::LiveTenant;
use spillgate_model::{Code, Refusal, Scope};

use crate::head::Head;

/// Bytes that an item has beside what it was made of: names, ids, types.
const ITEM_FRAME_BYTES: u64 = 1_024;
/// A number takes nine bytes of an item and one digit and a comma of a body.
const ITEM_GROWTH: u64 = 5;

/// What a call of a flow may need, beside its body. Made once per plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Of its steps.
    steps: u64,
    item: Option<ItemNeeds>,
}

/// What the item of a call may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ItemNeeds {
    /// `max_item`.
    most: u64,
    /// The item is no larger than its input and the rows that are carried over the cut: nothing in it was made by an expression.
    as_input: bool,
}

impl Needs {
    pub(crate) fn of(flow: &Flow, plan: &Plan) -> Needs {
        let Some(cut) = &flow.queue else { return Needs { steps: flow.memory, item: None } };
        let most = plan.queues[cut.queue].max_item.value;
        let as_input = cut.carries.iter().all(|step| matches!(flow.steps[*step].action, Action::Sql(_) | Action::Http(_)));
        Needs { steps: flow.memory.saturating_sub(most), item: Some(ItemNeeds { most, as_input }) }
    }

    /// Bytes that a call needs whose head and body have so many.
    fn bytes(self, head_bytes: u64, body_bytes: u64) -> u64 {
        let item = self.item.map_or(0, |item| {
            let input = head_bytes.saturating_add(body_bytes).saturating_mul(ITEM_GROWTH);
            let made = input.saturating_add(self.steps).saturating_add(ITEM_FRAME_BYTES);
            if item.as_input { made.min(item.most) } else { item.most }
        });
        // The body and the values read from it.
        self.steps.saturating_add(item).saturating_add(body_bytes.saturating_mul(2))
    }
}

/// A call, as far as its head goes.
pub(crate) struct Asked<'a> {
    pub(crate) flow: &'a Flow,
    pub(crate) needs: Needs,
    pub(crate) head: &'a Head<'a>,
    /// Of its path and query.
    pub(crate) target_bytes: u64,
    /// The most that its body can have.
    pub(crate) body_bytes: u64,
}

/// Refuses what could never run, and says how many bytes the call reserves.
pub(crate) fn check(asked: &Asked<'_>, tenant: &LiveTenant, server_memory: u64) -> Result<u64, Refusal> {
    let Asked { flow, head, .. } = asked;
    if !flow.takes_body() && asked.body_bytes > 0 {
        return Err(Refusal::new(Code::Malformed, "A GET takes its input from path and query; send no body."));
    }
    if head.encoded {
        return Err(Refusal::new(Code::Malformed, "Send the body as it is, without Content-Encoding."));
    }
    if head.deadline.is_some_and(|deadline| deadline.is_zero()) {
        return Err(too_late("The deadline is 0: there is no time to do anything, and nothing was done."));
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
    let memory = asked.needs.bytes(asked.target_bytes, asked.body_bytes);
    let never = |scope: Scope, name: &'static str, limit: u64| {
        let detail = format!("This flow reserves {memory} bytes for a call, more than this caller may ever have.");
        Refusal { scope, ..Refusal::new(Code::MemoryFull, detail).policy(name, limit, memory).never() }
    };
    if memory > tenant.limits.memory {
        return Err(never(Scope::Tenant, "tenant.memory", tenant.limits.memory));
    }
    if memory > server_memory {
        return Err(never(Scope::Server, "server.memory", server_memory));
    }
    Ok(memory)
}

/// The deadline passed before anything was done, by the caller's own doing: it asked for so little, or sent its body so slowly.
pub(crate) fn too_late(detail: &str) -> Refusal {
    Refusal { scope: Scope::Caller, ..Refusal::new(Code::DeadlineExceeded, detail) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 1 << 20;

    fn needs(steps: u64, as_input: bool) -> Needs {
        Needs { steps, item: Some(ItemNeeds { most: MOST, as_input }) }
    }

    #[test]
    fn a_small_item_reserves_little_whatever_its_queue_takes() {
        assert_eq!(needs(0, true).bytes(50, 200), 250 * ITEM_GROWTH + ITEM_FRAME_BYTES + 400);
        assert_eq!(needs(10_000, true).bytes(50, 200), 10_000 + 250 * ITEM_GROWTH + ITEM_FRAME_BYTES + 10_000 + 400);
        assert_eq!(needs(0, true).bytes(0, MOST), MOST + 2 * MOST, "never more than the queue takes");
        assert_eq!(needs(0, false).bytes(50, 200), MOST + 400, "what an expression makes may have any size");
        assert_eq!(Needs { steps: 64, item: None }.bytes(50, 0), 64);
        assert_eq!(needs(u64::MAX, true).bytes(u64::MAX, u64::MAX), u64::MAX);
    }
}
