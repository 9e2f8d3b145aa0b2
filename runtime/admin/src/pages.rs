//! The pages as they go out: types apart from handlers. What is not named here cannot leave.
//!
//! Units stand last in names; a limit says where it comes from. Not here, on purpose: connection strings, keys,
//! `on_connect` (it may hold passwords), statements, header values, URLs of `http` steps, values of tenants' attributes.

pub(crate) mod audit;
pub(crate) mod databases;
pub(crate) mod queues;
pub(crate) mod tenants;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Serialize, Serializer};
use spillgate_config::plan::{Action, Effect, Flow, KeyNeed, Limit, ServerPlan, Step, When};
use spillgate_config::{Fault, Plan};

use crate::operations::Standing;
use databases::DatabaseSettings;
use tenants::Tenant;

/// An amount; the largest number stands for no limit.
pub(crate) struct Amount(u64);

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            u64::MAX => serializer.serialize_str("unlimited"),
            amount => serializer.serialize_u64(amount),
        }
    }
}

/// A limit and where it comes from.
#[derive(Serialize)]
pub(crate) struct LimitPage<T> {
    limit: T,
    from: String,
}

fn amount(limit: &Limit<u64>) -> LimitPage<Amount> {
    LimitPage { limit: Amount(limit.value), from: limit.origin.to_string() }
}

fn milliseconds(time: Duration) -> Amount {
    Amount(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// `GET /admin/v1/flows`.
#[derive(Serialize)]
pub(crate) struct Flows<'a> {
    flows: Vec<FlowPage<'a>>,
}

#[derive(Serialize)]
struct FlowPage<'a> {
    name: &'a str,
    about: &'a str,
    http: Option<String>,
    effect: &'static str,
    deadline_ms: LimitPage<Amount>,
    inputs: Vec<&'a str>,
    steps: Vec<StepPage<'a>>,
    cached: bool,
    paged: bool,
    /// What its `queue` step puts items into.
    queue: Option<&'a str>,
    idempotency: Option<&'static str>,
    unique: bool,
    schedule: Option<String>,
    memory_bytes: u64,
    file: Cow<'a, str>,
    version: String,
}

#[derive(Serialize)]
struct StepPage<'a> {
    name: &'a str,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    database: Option<&'a str>,
}

impl<'a> Flows<'a> {
    pub(crate) fn of(plan: &'a Plan) -> Self {
        Flows { flows: plan.flows.iter().map(|flow| FlowPage::of(flow, plan)).collect() }
    }
}

impl<'a> FlowPage<'a> {
    fn of(flow: &'a Flow, plan: &'a Plan) -> Self {
        FlowPage {
            name: &flow.name,
            about: &flow.about,
            http: flow.http.as_ref().map(|endpoint| format!("{} /api{}", endpoint.method, endpoint.path)),
            effect: match flow.effect {
                Effect::Read => "read",
                Effect::Write => "write",
            },
            deadline_ms: LimitPage { limit: milliseconds(flow.deadline.value), from: flow.deadline.origin.to_string() },
            inputs: flow.inputs.iter().map(|input| &*input.name).collect(),
            steps: flow.steps.iter().map(|step| StepPage::of(step, plan)).collect(),
            cached: flow.cache.is_some(),
            paged: flow.page.is_some(),
            queue: flow.queue.as_ref().map(|cut| &*plan.queues[cut.queue].name),
            idempotency: flow.idempotency.as_ref().map(|keys| match keys.need {
                KeyNeed::Required => "required",
                KeyNeed::Optional => "optional",
                KeyNeed::Derived => "derived",
            }),
            unique: flow.unique.is_some(),
            schedule: flow.schedule.as_ref().map(|schedule| match &schedule.when {
                When::Every(time) => format!("every {} s", time.as_secs_f64()),
                When::Cron(cron) => cron.written().to_owned(),
            }),
            memory_bytes: flow.memory,
            file: flow.file.to_string_lossy(),
            version: format!("{:016x}", flow.version),
        }
    }
}

impl<'a> StepPage<'a> {
    fn of(step: &'a Step, plan: &'a Plan) -> Self {
        let (kind, database) = match &step.action {
            Action::Sql(sql) => ("sql", plan.databases.get(sql.database).map(|database| &*database.name)),
            Action::Map(_) => ("map", None),
            Action::Http(_) => ("http", None),
            Action::Queue => ("queue", None),
            Action::Emit(_) => ("emit", None),
            Action::Route => ("route", None),
        };
        StepPage { name: &step.name, kind, database }
    }
}

/// `POST /admin/v1/reload`, applied.
#[derive(Serialize)]
pub(crate) struct Reloaded {
    pub(crate) version: String,
    /// Keys whose change waits for a restart.
    pub(crate) kept: Vec<String>,
}

/// `GET /admin/v1/config`.
#[derive(Serialize)]
pub(crate) struct Config<'a> {
    /// Of what runs, not of what was refused.
    version: &'a str,
    files: Vec<Cow<'a, str>>,
    notes: &'a [String],
    /// What is wrong with the operator state on disk, a sentence each.
    remarks: &'a [String],
    last_reload: LastReload<'a>,
    plan: PlanPage<'a>,
}

#[derive(Serialize)]
struct LastReload<'a> {
    faults: &'a [Fault],
    kept: &'a [String],
}

#[derive(Serialize)]
struct PlanPage<'a> {
    server: ServerPage<'a>,
    admins: Vec<&'a str>,
    databases: Vec<DatabaseSettings<'a>>,
    queues: BTreeMap<&'a str, queues::QueueSettings>,
    tenants: Vec<Tenant<'a>>,
    flows: Vec<FlowPage<'a>>,
}

#[derive(Serialize)]
struct ServerPage<'a> {
    listen: String,
    admin_listen: String,
    data_dir: Cow<'a, str>,
    flows: Cow<'a, str>,
    memory_bytes: LimitPage<Amount>,
    cache_bytes: Amount,
    http_hosts: &'a [String],
    shutdown_grace_ms: Amount,
    disk_limit_bytes: Amount,
    disk_reserve_bytes: Amount,
    /// Whether spans are exported; the address may hold a token.
    otlp: bool,
}

impl<'a> Config<'a> {
    pub(crate) fn of(plan: &'a Plan, standing: &'a Standing) -> Self {
        Config {
            version: &plan.version,
            files: plan.files.iter().map(|file| file.to_string_lossy()).collect(),
            notes: &plan.notes,
            remarks: &standing.remarks,
            last_reload: LastReload { faults: &standing.faults, kept: &standing.kept },
            plan: PlanPage {
                server: ServerPage::of(&plan.server),
                admins: plan.admins.iter().map(|admin| &*admin.name).collect(),
                databases: plan.databases.iter().map(DatabaseSettings::of).collect(),
                queues: plan.queues.iter().map(|queue| (&*queue.name, queues::QueueSettings::of(queue))).collect(),
                tenants: plan.tenants.iter().map(|tenant| Tenant::of(tenant, &plan.databases, None)).collect(),
                flows: plan.flows.iter().map(|flow| FlowPage::of(flow, plan)).collect(),
            },
        }
    }
}

impl<'a> ServerPage<'a> {
    fn of(plan: &'a ServerPlan) -> Self {
        ServerPage {
            listen: plan.listen.to_string(),
            admin_listen: plan.admin_listen.to_string(),
            data_dir: plan.data_dir.to_string_lossy(),
            flows: plan.flows.to_string_lossy(),
            memory_bytes: amount(&plan.memory),
            cache_bytes: Amount(plan.cache),
            http_hosts: &plan.http_hosts,
            shutdown_grace_ms: milliseconds(plan.shutdown_grace),
            disk_limit_bytes: Amount(plan.disk_limit),
            disk_reserve_bytes: Amount(plan.disk_reserve),
            otlp: plan.otlp.is_some(),
        }
    }
}

#[cfg(test)]
mod tests;
