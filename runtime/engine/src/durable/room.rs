//! Room for items: which limits are in force, and how a full one is told to its caller.

use std::sync::Arc;

use spillgate_config::plan::{QueuePlan, QueuedPlan, WhenFull};
use spillgate_model::{Code, Refusal, Scope};
use spillgate_queue::{Full, LaneName, Need, QueueLimits, Room, Store, StoreError, WhichLimit};

/// Content bytes that an item has beside what its caller sent: names, ids, types.
const FRAME_BYTES: u64 = 1024;
/// A number takes nine bytes of an item and one digit and a comma of a body.
const GROWTH: u64 = 5;

/// The limits that rule an append.
pub(super) fn limits(queue: &QueuePlan, tenant: &QueuedPlan) -> QueueLimits {
    QueueLimits {
        queue_items: queue.items.value,
        queue_bytes: queue.bytes.value,
        tenant_items: tenant.items.value,
        tenant_bytes: tenant.bytes.value,
        tenant_disk: tenant.disk.value,
        shared: queue.shared,
        item_bytes: queue.max_item.value,
        outcome_bytes: queue.max_result,
    }
}

/// The lane of a tenant in a queue.
pub(super) fn lane(queue: &QueuePlan, tenant: &Arc<str>) -> LaneName {
    LaneName { queue: queue.name.clone(), tenant: tenant.clone() }
}

/// Room for one item that comes with a request of at most `bytes`. `None`: other items of the lane may have to give way, and that is
/// decided when the item is there.
pub(super) fn before_body(
    store: &Store,
    queue: &QueuePlan,
    tenant: &Arc<str>,
    queued: &QueuedPlan,
    bytes: u64,
) -> Result<Option<Room>, Refusal> {
    let most = bytes.saturating_mul(GROWTH).saturating_add(FRAME_BYTES).min(queue.max_item.value);
    let need = Need { items: 1, bytes: most, shed_oldest: false };
    match store.reserve(&lane(queue, tenant), need, &limits(queue, queued)) {
        Ok(room) => Ok(Some(room)),
        Err(full) if gives_way(queue, &full) => Ok(None),
        // An item may be smaller than what could come; then its own bytes decide.
        Err(_) if most > FRAME_BYTES && fits_if_small(store, queue, tenant, queued) => Ok(None),
        Err(full) => Err(refusal(&full)),
    }
}

fn fits_if_small(store: &Store, queue: &QueuePlan, tenant: &Arc<str>, queued: &QueuedPlan) -> bool {
    let need = Need { items: 1, bytes: FRAME_BYTES.min(queue.max_item.value), shed_oldest: false };
    store.reserve(&lane(queue, tenant), need, &limits(queue, queued)).is_ok()
}

fn is_of_store(which: WhichLimit) -> bool {
    matches!(which, WhichLimit::StoreDisk | WhichLimit::VolumeFree | WhichLimit::NotServing)
}

fn gives_way(queue: &QueuePlan, full: &Full) -> bool {
    queue.when_full == WhenFull::ShedOldest && full.own_share && !is_of_store(full.which)
}

/// Room for items of a lane whose bytes are known.
pub(super) fn exactly(
    store: &Store,
    queue: &QueuePlan,
    tenant: &Arc<str>,
    queued: &QueuedPlan,
    items: u64,
    bytes: u64,
) -> Result<Room, Full> {
    let need = Need { items, bytes, shed_oldest: queue.when_full == WhenFull::ShedOldest };
    store.reserve(&lane(queue, tenant), need, &limits(queue, queued))
}

/// Room for one item that makes no other give way.
pub(super) fn without_shedding(store: &Store, queue: &QueuePlan, tenant: &Arc<str>, queued: &QueuedPlan, bytes: u64) -> Result<Room, Full> {
    let need = Need { items: 1, bytes, shed_oldest: false };
    store.reserve(&lane(queue, tenant), need, &limits(queue, queued))
}

/// How much of a limit was asked for.
pub(super) fn asked(which: WhichLimit, items: u64, bytes: u64) -> u64 {
    match which {
        WhichLimit::QueueItems | WhichLimit::LaneItems | WhichLimit::TenantItems => items,
        WhichLimit::QueueBytes | WhichLimit::LaneBytes | WhichLimit::TenantBytes => bytes,
        WhichLimit::TenantDisk | WhichLimit::StoreDisk => bytes,
        WhichLimit::ItemBytes => u64::MAX,
        WhichLimit::VolumeFree | WhichLimit::NotServing => 0,
    }
}

/// The one place where a full limit becomes a refusal.
pub(crate) fn refusal(full: &Full) -> Refusal {
    let (code, name, detail) = match full.which {
        WhichLimit::QueueItems => (Code::QueueFull, "queue.items", "The queue holds as many items as it may."),
        WhichLimit::QueueBytes => (Code::QueueFull, "queue.bytes", "The queue holds as many bytes as it may."),
        WhichLimit::LaneItems => {
            (Code::QueueFull, "queue.items.share", "This tenant has as many items in the queue as leave a part to others.")
        }
        WhichLimit::LaneBytes => {
            (Code::QueueFull, "queue.bytes.share", "This tenant has as many bytes in the queue as leave a part to others.")
        }
        WhichLimit::TenantItems => (Code::QueueFull, "tenant.queued.items", "This tenant has as many items waiting as it may."),
        WhichLimit::TenantBytes => (Code::QueueFull, "tenant.queued.bytes", "This tenant has as many bytes waiting as it may."),
        WhichLimit::TenantDisk => (Code::QueueFull, "tenant.queued.disk", "This tenant's work holds as much of the disk as it may."),
        WhichLimit::ItemBytes => (Code::ItemTooLarge, "queue.max_item", "The item is larger than the queue takes."),
        WhichLimit::StoreDisk => (Code::StoreFull, "store.disk_limit", "The store is full."),
        WhichLimit::VolumeFree => (Code::DiskLow, "store.disk_reserve", "The volume has less free space than is kept in reserve."),
        WhichLimit::NotServing => return Refusal::new(Code::StoreFailed, "The store of durable work has stopped."),
    };
    let mut refusal = Refusal::new(code, detail).policy(name, full.limit, full.used);
    let of_queue = matches!(full.which, WhichLimit::QueueItems | WhichLimit::QueueBytes);
    if of_queue && !full.own_share {
        // Others filled it: nothing this caller does makes room.
        (refusal.scope, refusal.status) = (Scope::Queue, Some(503));
    }
    if let Some(wait) = full.retry_after.filter(|_| refusal.retryable) {
        refusal.retry_after = Some(wait);
    }
    refusal
}

/// What a caller is told when the store does not take its work.
pub(crate) fn store_refusal(error: &StoreError) -> Box<Refusal> {
    let refusal = match error {
        StoreError::Full(full) => refusal(full),
        StoreError::Closing => Refusal::new(Code::Draining, "This server is stopping."),
        StoreError::NotFound => Refusal::new(Code::UnknownJob, "There is no such job."),
        StoreError::Damaged => Refusal::new(Code::ResultGone, "The stored result is damaged."),
        other => Refusal::new(Code::StoreFailed, "The store of durable work has stopped.").internal(other.to_string()),
    };
    Box::new(refusal)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_limit_is_named_as_in_the_configuration() {
        let retry_after = Some(Duration::from_millis(700));
        let full = |which, own_share| refusal(&Full { which, limit: 10, used: 9, own_share, retry_after });
        let told = |refusal: &Refusal| (refusal.code.name(), refusal.status(), refusal.scope.name());
        assert_eq!(told(&full(WhichLimit::QueueItems, true)), ("queue_full", 429, "tenant"));
        assert_eq!(told(&full(WhichLimit::QueueBytes, false)), ("queue_full", 503, "queue"));
        assert_eq!(told(&full(WhichLimit::LaneBytes, true)), ("queue_full", 429, "tenant"));
        assert_eq!(told(&full(WhichLimit::TenantDisk, false)), ("queue_full", 429, "tenant"));
        assert_eq!(told(&full(WhichLimit::ItemBytes, true)), ("item_too_large", 413, "caller"));
        assert_eq!(told(&full(WhichLimit::StoreDisk, false)), ("store_full", 503, "server"));
        assert_eq!(told(&full(WhichLimit::VolumeFree, false)), ("disk_low", 503, "server"));
        let policy = full(WhichLimit::TenantItems, true).policy.expect("a limit spoke");
        assert_eq!((policy.name, policy.limit, policy.used), ("tenant.queued.items", 10, 9));
        assert_eq!(full(WhichLimit::TenantItems, true).retry_after, retry_after, "as the store measured it");
        assert_eq!(full(WhichLimit::ItemBytes, true).retry_after, None);
        assert!(!full(WhichLimit::ItemBytes, true).retryable && full(WhichLimit::QueueItems, true).retryable);
    }
}
