//! `[queue.NAME]`.

use std::sync::Arc;

use spillgate_model::units::{ByteSize, show_duration};

use crate::plan::{QueuePlan, WhenFull};
use crate::written::Table;

use super::roots::Roots;
use super::tenant::{show_count, show_size, unlimited_count};
use super::{Checker, Naming, check_name};

/// Most queues of one server.
const QUEUES: usize = 1_000;

/// All queues in name order, those with faults too: flows may refer to them.
pub(crate) fn queues(checker: &mut Checker<'_>, roots: &Roots) -> Vec<QueuePlan> {
    let written = roots.named("queue");
    if let Some((name, _)) = written.get(QUEUES) {
        checker.faults.add(&name.place, format!("more than {QUEUES} queues"));
    }
    let mut queues = Vec::new();
    for (name, table) in written.into_iter().take(QUEUES) {
        check_name(checker, "a queue", &name.value, Naming::Free, &name.place);
        queues.push(queue(checker, &name.value, table));
    }
    queues
}

fn queue(checker: &mut Checker<'_>, name: &str, table: &Table) -> QueuePlan {
    let (no_results, no_dead_letters) = (table.unwritten("results"), table.unwritten("dead_letters"));
    let results = table.table("results").unwrap_or(&no_results);
    let dead_letters = table.table("dead_letters").unwrap_or(&no_dead_letters);
    let (items, bytes, max_item) = (table.integer("items"), table.size("bytes"), table.size("max_item"));
    let (workers, attempts) = (table.integer("workers"), table.integer("attempts"));
    let (lease, expires) = (table.time("lease"), table.time("expires"));
    let (max_result, result_keep) = (results.size("max_result"), results.time("keep"));
    let (dead_items, dead_keep) = (dead_letters.integer("items"), dead_letters.time("keep"));
    let subject = format!("queue.{name}");
    let of = |key: &str| format!("{subject}.{key}");
    checker.limit(&subject, of("items"), &items, show_count(items.value));
    checker.limit(&subject, of("bytes"), &bytes, show_size(bytes.value));
    checker.limit(&subject, of("max_item"), &max_item, ByteSize(max_item.value).to_string());
    checker.limit(&subject, of("workers"), &workers, workers.value.to_string());
    checker.limit(&subject, of("attempts"), &attempts, attempts.value.to_string());
    checker.limit(&subject, of("lease"), &lease, show_duration(lease.value));
    checker.limit(&subject, of("expires"), &expires, show_duration(expires.value));
    checker.limit(&subject, of("results.max_result"), &max_result, ByteSize(max_result.value).to_string());
    checker.limit(&subject, of("results.keep"), &result_keep, show_duration(result_keep.value));
    checker.limit(&subject, of("dead_letters.items"), &dead_items, dead_items.value.to_string());
    checker.limit(&subject, of("dead_letters.keep"), &dead_keep, show_duration(dead_keep.value));
    if max_item.value > bytes.value {
        let (most, all) = (ByteSize(max_item.value), ByteSize(bytes.value));
        let place = if max_item.place.is_some() { table.place_of("max_item") } else { table.place_of("bytes") };
        checker.faults.add(&place, format!("`max_item` ({most}) is more than `bytes` ({all}): such an item could never wait here"));
    }
    QueuePlan {
        name: Arc::from(name),
        items: unlimited_count(items),
        bytes: bytes.into_limit(),
        max_item: max_item.into_limit(),
        // Known when flows and tenants are.
        shared: false,
        when_full: if table.text("when_full").value == "shed_oldest" { WhenFull::ShedOldest } else { WhenFull::Refuse },
        workers: usize::try_from(workers.value).unwrap_or(1),
        attempts: u32::try_from(attempts.value).unwrap_or(1),
        lease: lease.value,
        expires: expires.value,
        max_result: max_result.value,
        result_keep: result_keep.value,
        dead_items: dead_items.value.unsigned_abs(),
        dead_keep: dead_keep.value,
        origin: table.place.origin(),
    }
}
