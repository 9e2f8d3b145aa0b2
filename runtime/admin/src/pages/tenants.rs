//! Tenants: their limits in force as the files write them, what an operator set over them, and what they use, in numbers.

use std::borrow::Cow;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use spillgate_config::plan::{Amount, Class, DatabasePlan, TenantPlan};
use spillgate_config::{Explained, Override};
use spillgate_engine::{BreakerView, Live};
use spillgate_model::units::{ByteSize, show_duration};

/// `GET /admin/v1/tenants`.
#[derive(Serialize)]
pub(crate) struct Tenants<'a> {
    pub(crate) tenants: Vec<Tenant<'a>>,
    /// Tenants that the plan does not have any more, but limits are set for: without effect until they come back.
    pub(crate) overrides_without_tenant: Vec<&'a str>,
}

impl<'a> Tenants<'a> {
    pub(crate) fn of(live: &'a Live) -> Self {
        let known = |name: &str| live.tenants.iter().any(|tenant| *tenant.plan.name == *name);
        Tenants {
            tenants: (0..live.tenants.len()).map(|index| Tenant::live(live, index)).collect(),
            overrides_without_tenant: live.overrides.keys().map(|name| &**name).filter(|name| !known(name)).collect(),
        }
    }
}

/// A tenant and its limits in force.
#[derive(Serialize)]
pub(crate) struct Tenant<'a> {
    id: &'a str,
    class: &'static str,
    flows: &'a [String],
    /// Names only: what an attribute says about somebody stays here.
    attributes: Vec<&'a str>,
    keys: usize,
    /// By name, in the forms of the files and of the override.
    limits: Map<String, Value>,
    /// What was set over the file's limits; `{}`: nothing.
    r#override: Cow<'a, Value>,
    from: String,
}

impl<'a> Tenant<'a> {
    /// As it is in force.
    pub(crate) fn live(live: &'a Live, index: usize) -> Self {
        let plan = &live.tenants[index].plan;
        Tenant::of(plan, &live.plan.databases, live.overrides.get(&plan.name).map(|set| &**set))
    }
    pub(crate) fn of(plan: &'a TenantPlan, databases: &'a [DatabasePlan], set: Option<&'a Override>) -> Self {
        let limits = plan.limits(databases, |_| true).into_iter();
        Tenant {
            id: &plan.name,
            class: match plan.class {
                Class::Control => "control",
                Class::Interactive => "interactive",
                Class::Agent => "agent",
                Class::Batch => "batch",
            },
            flows: &plan.flows,
            attributes: plan.attributes.keys().map(|name| &**name).collect(),
            keys: plan.keys.len(),
            limits: limits
                .map(|limit| (limit.name.into_owned(), json!({ "limit": written(limit.amount), "from": limit.origin.to_string() })))
                .collect(),
            r#override: set.map_or_else(|| Cow::Owned(json!({})), |set| Cow::Borrowed(set.json())),
            from: plan.origin.to_string(),
        }
    }
    /// Tells this page from any other: what is said of a change must be said of the page that its author saw.
    pub(crate) fn etag(&self) -> String {
        etag(self)
    }
}

/// What is set for a tenant that the plan does not have: without effect until it comes back.
#[derive(Serialize)]
pub(crate) struct Absent<'a> {
    id: &'a str,
    /// `{}`: nothing any more.
    r#override: Value,
}

impl<'a> Absent<'a> {
    pub(crate) fn of(id: &'a str, set: Option<&Override>) -> Self {
        Absent { id, r#override: set.map_or_else(|| json!({}), |set| set.json().clone()) }
    }
    /// As of [`Tenant::etag`].
    pub(crate) fn etag(&self) -> String {
        etag(self)
    }
}

fn etag(page: &impl Serialize) -> String {
    let page = serde_json::to_vec(page).unwrap_or_default();
    let digest = Sha256::digest(page);
    format!("\"{}\"", digest[..8].iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

/// As a file writes it.
fn written(amount: Amount) -> Value {
    match amount {
        unlimited if unlimited.is_unlimited() => "unlimited".into(),
        Amount::Rate(rate) => json!({ "rate": rate.to_string(), "burst": rate.burst }),
        Amount::Count(count) => count.into(),
        Amount::Bytes(bytes) => ByteSize(bytes).to_string().into(),
        Amount::Time(time) => show_duration(time).into(),
    }
}

/// What a tenant has taken at one moment.
pub(crate) struct Taken {
    /// Calls that the rate would still let through at once.
    pub(crate) rate_left: u64,
    /// The same of its budget for repeats.
    pub(crate) repeats_left: u64,
    pub(crate) in_flight: u64,
    pub(crate) memory: u64,
    /// Runs that are known.
    pub(crate) runs: u64,
    /// Of the store: items, their bytes, and disk.
    pub(crate) queued: Option<[u64; 3]>,
    /// Seats held, in the order of the plan's databases.
    pub(crate) seats: Vec<u64>,
}

/// `GET /admin/v1/tenants/{id}/usage`: each limit in calls, bytes, items, seats or milliseconds. `used` is `null` of what is no stock (a
/// weight, what each run may use), and of what is in a store that is not open.
pub(crate) fn usage(plan: &TenantPlan, databases: &[DatabasePlan], taken: &Taken) -> Map<String, Value> {
    let mut page = Map::new();
    for limit in plan.limits(databases, |_| true) {
        let most = number(limit.amount);
        let left = |left: u64| Some(most.saturating_sub(left));
        let queued = |index: usize| taken.queued.map(|queued| queued[index]);
        let used = match &*limit.name {
            "rate" => left(taken.rate_left),
            "repeat_budget" => left(taken.repeats_left),
            "in_flight" => Some(taken.in_flight),
            "memory" => Some(taken.memory),
            "run.live" => Some(taken.runs),
            "queued.items" => queued(0),
            "queued.bytes" => queued(1),
            "queued.disk" => queued(2),
            name => seats_used(name, databases, taken, most),
        };
        let shown = if most == u64::MAX { "unlimited".into() } else { Value::from(most) };
        page.insert(limit.name.into_owned(), json!({ "used": used, "limit": shown, "from": limit.origin.to_string() }));
    }
    page
}

/// `database.NAME.seats.limit` and `.reserved`; of those reserved, as many are in use as it holds.
fn seats_used(name: &str, databases: &[DatabasePlan], taken: &Taken, most: u64) -> Option<u64> {
    let (database, key) = name.strip_prefix("database.")?.rsplit_once(".seats.")?;
    let index = databases.iter().position(|known| *known.name == *database)?;
    let held = taken.seats.get(index).copied()?;
    Some(if key == "reserved" { held.min(most) } else { held })
}

/// Of a rate the calls that may come at once.
fn number(amount: Amount) -> u64 {
    match amount {
        Amount::Rate(rate) if rate.calls == u64::MAX => u64::MAX,
        Amount::Rate(rate) => rate.burst,
        Amount::Count(amount) | Amount::Bytes(amount) => amount,
        Amount::Time(time) => milliseconds(time),
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// `GET /admin/v1/tenants/{id}/explain?flow=NAME`: what `spillgate explain` prints.
#[derive(Serialize)]
pub(crate) struct ExplainedPage {
    /// Of the plan that runs.
    pub(crate) version: String,
    pub(crate) limits: Vec<ExplainedLine>,
}

/// One limit.
#[derive(Serialize)]
pub(crate) struct ExplainedLine {
    name: String,
    value: String,
    from: String,
}

impl ExplainedLine {
    /// The breakers that a call of this tenant and flow would meet and that are not closed: limits, too, as long as that lasts.
    pub(crate) fn breakers(views: &[BreakerView], tenant: &str, flow: &str) -> Vec<ExplainedLine> {
        let asks = |database: &str| views.iter().any(|view| *view.database == *database && view.flow.as_deref() == Some(flow));
        let meets = |view: &&BreakerView| match (view.flow.as_deref(), view.tenant.as_deref()) {
            (None, _) => asks(&view.database),
            (Some(name), of) => name == flow && of == Some(tenant),
        };
        let line = |view: &BreakerView| {
            let subject = view.flow.as_ref().map_or_else(|| format!("database.{}", view.database), |_| "flow".to_owned());
            let next = view.status.outage.map(|outage| format!(", next probe in {} ms", outage.cool_down.as_millis()));
            let value = format!("{}{}", view.status.state.name(), next?);
            Some(ExplainedLine { name: format!("{subject}.breaker"), value, from: "now".to_owned() })
        };
        views.iter().filter(meets).filter_map(line).collect()
    }
}

impl From<Explained> for ExplainedLine {
    fn from(line: Explained) -> Self {
        ExplainedLine { name: line.name, value: line.value, from: line.origin.to_string() }
    }
}
