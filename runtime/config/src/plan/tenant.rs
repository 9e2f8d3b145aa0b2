//! A tenant as proven: who it is, what it may call, and each of its limits with the place it comes from.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use spillgate_model::Value;
use spillgate_model::units::{ByteSize, Rate, show_duration};

use super::{DatabasePlan, Limit, Origin, QueuedPlan, RunPlan, SeatShare};

/// `[tenant.NAME]`: as the file has it, or with what an operator set over it (see [`crate::Override`]).
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct TenantPlan {
    pub name: Arc<str>,
    /// SHA-256 of each key.
    pub keys: Vec<[u8; 32]>,
    pub class: Class,
    pub attributes: BTreeMap<Arc<str>, Value>,
    /// `calls == u64::MAX`: unlimited.
    pub rate: Limit<Rate>,
    pub in_flight: Limit<u64>,
    pub memory: Limit<u64>,
    pub queued: QueuedPlan,
    /// Share of the seats against other tenants: 1 to 1,000.
    pub weight: Limit<u32>,
    /// In the order of [`super::Plan::databases`]: see [`TenantPlan::seats_of`].
    pub seats: Vec<SeatShare>,
    /// What repeats of failing calls draw from; `calls == u64::MAX`: unlimited.
    pub repeat_budget: Limit<Rate>,
    pub run: RunPlan,
    /// Patterns of flow names; `*` matches all. Use [`TenantPlan::may_call`].
    pub flows: Vec<String>,
    pub origin: Origin,
}

impl TenantPlan {
    /// What it has of the seats of that database (index into [`super::Plan::databases`]).
    pub fn seats_of(&self, database: usize) -> &SeatShare {
        &self.seats[database]
    }
    /// Whether this tenant may call that flow.
    pub fn may_call(&self, flow: &str) -> bool {
        self.flows.iter().any(|pattern| matches(pattern, flow))
    }
    /// All its limits, those of seats for the databases that `of` takes.
    pub fn limits<'a>(&'a self, databases: &'a [DatabasePlan], of: impl Fn(usize) -> bool) -> Vec<TenantLimit<'a>> {
        let mut limits = Vec::with_capacity(16 + 2 * databases.len());
        let mut add = |name: Cow<'static, str>, amount, origin| limits.push(TenantLimit { name, amount, origin });
        add("rate".into(), Amount::Rate(self.rate.value), &self.rate.origin);
        add("in_flight".into(), Amount::Count(self.in_flight.value), &self.in_flight.origin);
        add("memory".into(), Amount::Bytes(self.memory.value), &self.memory.origin);
        add("weight".into(), counted(self.weight.value), &self.weight.origin);
        for (index, database) in databases.iter().enumerate().filter(|(index, _)| of(*index)) {
            let share = self.seats_of(index);
            let named = |key: &str| Cow::Owned(format!("database.{}.seats.{key}", database.name));
            add(named("reserved"), counted(share.reserved.value), &share.reserved.origin);
            add(named("limit"), counted(share.limit.value), &share.limit.origin);
        }
        let (queued, run) = (&self.queued, &self.run);
        add("queued.items".into(), Amount::Count(queued.items.value), &queued.items.origin);
        add("queued.bytes".into(), Amount::Bytes(queued.bytes.value), &queued.bytes.origin);
        add("queued.disk".into(), Amount::Bytes(queued.disk.value), &queued.disk.origin);
        add("repeat_budget".into(), Amount::Rate(self.repeat_budget.value), &self.repeat_budget.origin);
        let counts = [
            ("run.live", &run.live),
            ("run.calls", &run.calls),
            ("run.in_flight", &run.in_flight),
            ("run.retries", &run.retries),
            ("run.depth", &run.depth),
        ];
        for (name, limit) in counts {
            add(name.into(), Amount::Count(limit.value), &limit.origin);
        }
        add("run.ttl".into(), Amount::Time(run.ttl.value), &run.ttl.origin);
        limits
    }
}

/// One limit of a tenant, as `explain` and the admin face show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantLimit<'a> {
    /// As its path below `[tenant.NAME]`: `queued.disk`, `database.as400.seats.limit`.
    pub name: Cow<'static, str>,
    /// In force.
    pub amount: Amount,
    /// Where it comes from.
    pub origin: &'a Origin,
}

/// How much; the largest number of each stands for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Amount {
    Rate(Rate),
    Count(u64),
    Bytes(u64),
    Time(Duration),
}

impl Amount {
    /// Whether it limits nothing.
    pub fn is_unlimited(self) -> bool {
        match self {
            Amount::Rate(rate) => rate.calls == u64::MAX,
            Amount::Count(amount) | Amount::Bytes(amount) => amount == u64::MAX,
            Amount::Time(_) => false,
        }
    }
}

/// As the files write it.
impl fmt::Display for Amount {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            unlimited if unlimited.is_unlimited() => out.write_str("unlimited"),
            Amount::Rate(rate) => write!(out, "{rate}, burst {}", rate.burst),
            Amount::Count(count) => count.fmt(out),
            Amount::Bytes(bytes) => ByteSize(*bytes).fmt(out),
            Amount::Time(time) => out.write_str(&show_duration(*time)),
        }
    }
}

fn counted(count: u32) -> Amount {
    Amount::Count(if count == u32::MAX { u64::MAX } else { u64::from(count) })
}

/// Whether a name fits a pattern; each `*` stands for any letters.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|head| name.strip_prefix(head)) else { return false };
    let Some(tail) = parts.next_back() else { return rest.is_empty() };
    // Leftmost places for the parts between leave most room for the tail.
    for part in parts {
        let Some(found) = rest.find(part) else { return false };
        rest = &rest[found + part.len()..];
    }
    rest.ends_with(tail)
}

/// A tenant's class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Class {
    Control,
    Interactive,
    Agent,
    Batch,
}

/// A share of seats that cannot be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Crowded {
    /// Index of the tenant whose share it is, the last to be promised.
    pub(crate) tenant: usize,
    pub(crate) database: usize,
    pub(crate) problem: String,
}

/// Shares that promise more than there is: a tenant's above its own limit, or all of them above the pool.
pub(crate) fn crowded(databases: &[DatabasePlan], tenants: &[TenantPlan]) -> Vec<Crowded> {
    let mut found = Vec::new();
    for (database, plan) in databases.iter().enumerate() {
        let mut sum = 0u64;
        let mut is_over = false;
        for (index, tenant) in tenants.iter().enumerate() {
            let share = tenant.seats_of(database);
            let (reserved, limit, most) = (share.reserved.value, share.limit.value, plan.pool_max as u64);
            if reserved > limit {
                let problem = format!("tenant {} has {reserved} seats of {} reserved, and a `limit` of {limit}", tenant.name, plan.name);
                found.push(Crowded { tenant: index, database, problem });
            }
            sum += u64::from(reserved);
            if sum > most && !is_over {
                is_over = true;
                let so_far = sum - u64::from(reserved);
                let problem = format!(
                    "tenant {} has {reserved} seats of {} reserved, others before it {so_far}: `pool.max` is {most}",
                    tenant.name, plan.name
                );
                found.push(Crowded { tenant: index, database, problem });
            }
        }
    }
    found
}
