//! What durable work may hold, looked at together: items, lanes, tenants, queues, the store and its volume.
//!
//! What could never hold a single item is a fault. Shares that add up to more than there is are notes: they may be meant so, and the
//! hard limits hold whatever the shares are.

use std::collections::BTreeSet;

use spillgate_model::limits::store_share;
use spillgate_model::units::ByteSize;

use crate::place::Place;
use crate::plan::{Flow, QueuePlan, ServerPlan, TenantPlan};
use crate::written::Table;

use super::Checker;
use super::roots::Roots;

/// A lane with anything in it holds an extent of items and one of its journal, 64 KiB each.
const EXTENTS_OF_A_LANE: u64 = 128 << 10;
/// What a store needs beside its items: heads, room to move items in, operators' settings.
const STORE_BESIDE_ITEMS: u64 = 1 << 20;
/// Above this, sizes are shown in it.
const SHOWN_IN: u64 = 1 << 20;

/// What was proven one by one.
pub(crate) struct Together<'a> {
    pub(crate) server: &'a ServerPlan,
    pub(crate) queues: &'a [QueuePlan],
    pub(crate) tenants: &'a [TenantPlan],
    pub(crate) flows: &'a [Flow],
}

pub(crate) fn check_together(checker: &mut Checker<'_>, roots: &Roots, all: &Together<'_>) {
    for (index, queue) in all.queues.iter().enumerate() {
        if !checker.incomplete && !all.flows.iter().any(|flow| queue_of(flow) == Some(index)) {
            checker.notes.push(format!("no flow uses the queue {}", queue.name));
        }
    }
    store_holds_items(checker, roots, all);
    for tenant in all.tenants {
        tenant_holds_items(checker, roots, all, tenant);
    }
    small_for_several(checker, roots, all);
    if all.flows.iter().any(is_durable) {
        sums(checker, all);
        volume(checker, all.server);
    }
}

fn queue_of(flow: &Flow) -> Option<usize> {
    flow.queue.as_ref().map(|cut| cut.queue)
}

/// Whether its calls leave anything in the store.
fn is_durable(flow: &Flow) -> bool {
    flow.queue.is_some() || flow.idempotency.is_some() || flow.unique.is_some() || flow.schedule.is_some()
}

/// The largest item fits the store twice: once where it is, once where it is moved to.
fn store_holds_items(checker: &mut Checker<'_>, roots: &Roots, all: &Together<'_>) {
    let Some(queue) = all.queues.iter().max_by_key(|queue| queue.max_item.value) else { return };
    let (item, limit) = (queue.max_item.value, all.server.disk_limit);
    let (there, needed) = (store_share(limit), 2 * item + STORE_BESIDE_ITEMS);
    if needed > there {
        let place = place_of_limit(&[roots.section("store")], "disk_limit", || queue_place(roots, &queue.name));
        let message = format!(
            "`[store] disk_limit` is {}, of which {} are for durable work; items of the queue {} of up to {} need at least {}: raise it, or lower `max_item`",
            ByteSize(limit),
            ByteSize(there),
            queue.name,
            ByteSize(item),
            ByteSize(needed)
        );
        checker.faults.add(&place, message);
    }
}

/// Each tenant against the queues it reaches.
fn tenant_holds_items(checker: &mut Checker<'_>, roots: &Roots, all: &Together<'_>, tenant: &TenantPlan) {
    let reached: BTreeSet<usize> = all.flows.iter().filter(|flow| tenant.may_call(&flow.name)).filter_map(queue_of).collect();
    let Some(queue) = reached.into_iter().map(|index| &all.queues[index]).max_by_key(|queue| queue.max_item.value) else { return };
    let (item, disk, bytes) = (queue.max_item.value, tenant.queued.disk.value, tenant.queued.bytes.value);
    let (shown, needed) = (ByteSize(item), ByteSize(item + EXTENTS_OF_A_LANE));
    if item + EXTENTS_OF_A_LANE > disk {
        let place = tenant_limit(roots, tenant, "disk");
        let message = format!(
            "tenant {} has a `queued.disk` of {}, one item of the queue {} of {shown} takes {needed} in whole extents: raise it, or lower `max_item`",
            tenant.name,
            ByteSize(disk),
            queue.name
        );
        checker.faults.add(&place, message);
    } else if item > bytes {
        checker.notes.push(format!(
            "{}: tenant {} has `queued.bytes` of {}: items of the queue {} above it ({shown} are allowed there) are refused",
            tenant_limit(roots, tenant, "bytes").short(),
            tenant.name,
            ByteSize(bytes),
            queue.name
        ));
    }
}

/// Marks the queues that several tenants may use. What one is handed by `emit` counts, too: who emits may call the target.
pub(crate) fn mark_shared(queues: &mut [QueuePlan], tenants: &[TenantPlan], flows: &[Flow]) {
    for (index, queue) in queues.iter_mut().enumerate() {
        queue.shared = users(index, tenants, flows).count() > 1;
    }
}

fn users<'a>(queue: usize, tenants: &'a [TenantPlan], flows: &'a [Flow]) -> impl Iterator<Item = &'a TenantPlan> {
    let calls_into = move |tenant: &&TenantPlan| flows.iter().any(|flow| queue_of(flow) == Some(queue) && tenant.may_call(&flow.name));
    tenants.iter().filter(calls_into)
}

/// Of a shared queue a tenant leaves an eighth to the others. A queue where the largest item may not fit into that.
fn small_for_several(checker: &mut Checker<'_>, roots: &Roots, all: &Together<'_>) {
    for (index, queue) in all.queues.iter().enumerate().filter(|(_, queue)| queue.shared) {
        let (bytes, item) = (queue.bytes.value, queue.max_item.value);
        let leaves_less = |tenant: &&TenantPlan| {
            let queued = &tenant.queued;
            let own = queued.bytes.value.min(queued.items.value.min(queue.items.value).saturating_mul(item));
            own > bytes.saturating_sub(item)
        };
        let left = bytes.div_ceil(8);
        let Some(first) = users(index, all.tenants, all.flows).find(leaves_less).filter(|_| left < item) else { continue };
        checker.notes.push(format!(
            "{}: of the queue {} one tenant ({} for one) may leave no more than {} to the others, and their items of up to {} may be refused with queue_full then: make `bytes` eight times `max_item`, or set `queued.bytes` of tenants below",
            queue_place(roots, &queue.name).short(),
            queue.name,
            first.name,
            ByteSize(left),
            ByteSize(item)
        ));
    }
}

/// Where a limit of a tenant stands: with it, with its class, else where the tenant is.
fn tenant_limit(roots: &Roots, tenant: &TenantPlan, key: &str) -> Place {
    let named = |kind: &str, name: &str| roots.named(kind).into_iter().find(|(known, _)| known.value == name);
    let own = named("tenant", &tenant.name);
    let class = own.and_then(|(_, table)| named("class", &table.text("class").value));
    let queued: Vec<Option<&Table>> = [own, class].into_iter().map(|found| found.and_then(|(_, table)| table.table("queued"))).collect();
    place_of_limit(&queued, key, || own.map_or(roots.place.clone(), |(name, _)| name.place.clone()))
}

fn place_of_limit(tables: &[Option<&Table>], key: &str, otherwise: impl Fn() -> Place) -> Place {
    tables.iter().flatten().find(|table| table.has(key)).map_or_else(otherwise, |table| table.place_of(key))
}

fn queue_place(roots: &Roots, name: &str) -> Place {
    let written = roots.named("queue").into_iter().find(|(known, _)| known.value == name);
    written.map_or(roots.place.clone(), |(name, _)| name.place.clone())
}

/// Shares that add up to more than the store.
fn sums(checker: &mut Checker<'_>, all: &Together<'_>) {
    let limit = store_share(all.server.disk_limit);
    let reaches = |tenant: &&TenantPlan| all.flows.iter().any(|flow| is_durable(flow) && tenant.may_call(&flow.name));
    let shares: Vec<u64> = all.tenants.iter().filter(reaches).map(|tenant| tenant.queued.disk.value).collect();
    let bytes: Vec<u64> = all.queues.iter().map(|queue| queue.bytes.value).collect();
    for (what, limits, then) in [
        ("`queued.disk` of tenants", shares, "a tenant may be refused with store_full while its own share is not used up"),
        ("`bytes` of queues", bytes, "a call may be refused with store_full while its queue is not full"),
    ] {
        // What is unlimited is listed by itself, and the store's limit holds for it.
        let finite = limits.iter().filter(|limit| **limit != u64::MAX);
        let (count, sum) = finite.fold((0usize, 0u64), |(count, sum), limit| (count + 1, sum.saturating_add(*limit)));
        if sum > limit {
            checker.notes.push(format!(
                "{what} ({count}) add up to {}, `[store] disk_limit` leaves {} for durable work: {then}",
                shown(sum),
                shown(limit)
            ));
        }
    }
}

/// The store's limit against what the volume has.
fn volume(checker: &mut Checker<'_>, server: &ServerPlan) {
    let Some(available) = checker.source.available(&server.data_dir) else { return };
    let wanted = server.disk_limit.saturating_add(server.disk_reserve);
    if wanted > available {
        checker.notes.push(format!(
            "the volume of {} has {} for the store, `[store] disk_limit` and `disk_reserve` are {} and {}: new durable work is refused with disk_low before the limit is reached",
            server.data_dir.display(),
            shown(available),
            shown(server.disk_limit),
            shown(server.disk_reserve)
        ));
    }
}

/// Free space and sums in whole MiB: nobody reads bytes.
fn shown(bytes: u64) -> ByteSize {
    ByteSize(if bytes > SHOWN_IN { bytes - bytes % SHOWN_IN } else { bytes })
}
