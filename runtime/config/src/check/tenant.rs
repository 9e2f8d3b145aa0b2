//! `[admin.NAME]`, `[class.NAME]` and `[tenant.NAME]`: keys, attributes and limits.

use std::collections::BTreeMap;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use spillgate_model::limits::TENANTS;
use spillgate_model::units::ByteSize;
use spillgate_model::{Type, Value};

use crate::fault::did_you_mean;
use crate::keys::server::CLASSES;
use crate::place::{Located, Place, Setting};
use crate::plan::{Admin, Class, DatabasePlan, Flow, Limit, QueuedPlan, RunPlan, ServerPlan, TenantPlan};
use crate::raw::{Raw, printable};
use crate::typed::{self, Problem};
use crate::written::{Table, Written};

use super::isolation::{count, seats};
use super::roots::Roots;
use super::{Checker, Naming, check_name};

/// A tenant that does not say may use this part of the server's memory.
const MEMORY_SHARE: u64 = 4;

pub(crate) fn admins(checker: &mut Checker<'_>, roots: &Roots) -> Vec<Admin> {
    let mut admins = Vec::new();
    for (name, table) in roots.named("admin") {
        check_name(checker, "an admin", &name.value, Naming::Free, &name.place);
        admins.push(Admin { name: Arc::from(&*name.value), keys: keys(table).map(|(_, key)| key).collect() });
    }
    admins
}

/// SHA-256 of each key, with its place.
fn keys(table: &Table) -> impl Iterator<Item = (&Place, [u8; 32])> {
    table.list("keys").iter().filter_map(|item| match &item.value {
        Written::Secret(secret) => Some((&item.place, Sha256::digest(secret.expose().as_bytes()).into())),
        _ => None,
    })
}

/// Keys are unique over tenants and admins, and a listener others can reach has some.
pub(crate) fn check_keys(checker: &mut Checker<'_>, roots: &Roots, server: &ServerPlan) {
    let mut seen: BTreeMap<[u8; 32], (String, Place)> = BTreeMap::new();
    let empty: [u8; 32] = Sha256::digest(b"").into();
    for (kind, listener, address) in [("admin", "admin_listen", server.admin_listen), ("tenant", "listen", server.listen)] {
        let mut any = false;
        for (name, table) in roots.named(kind) {
            any |= !table.list("keys").is_empty() || table.is_broken("keys");
            for (place, key) in keys(table) {
                if key == empty {
                    checker.faults.add(place, "expected a key, found an empty text");
                }
                match seen.get(&key) {
                    Some((owner, first)) => {
                        checker.faults.add(place, format!("this is also a key of {owner} ({}): each key has one owner", first.short()));
                    }
                    None => drop(seen.insert(key, (format!("[{kind}.{}]", name.value), place.clone()))),
                }
            }
        }
        if !any && !address.ip().is_loopback() && !checker.incomplete {
            let place = roots.section("server").map_or(roots.place.clone(), |table| table.place_of(listener));
            checker
                .faults
                .add(&place, format!("`{listener}` can be reached from elsewhere, and no {kind} has a key: nobody could be told apart"));
        }
    }
}

pub(crate) fn tenants(checker: &mut Checker<'_>, roots: &Roots, server: &ServerPlan, databases: &[DatabasePlan]) -> Vec<TenantPlan> {
    let classes = roots.named("class");
    for (name, _) in &classes {
        if !CLASSES.contains(&&*name.value) {
            let near = did_you_mean(&name.value, CLASSES.iter().copied());
            checker.faults.add(&name.place, format!("expected one of {}, found `{}`{near}", CLASSES.join(", "), printable(&name.value)));
        }
    }
    let written = roots.named("tenant");
    if let Some((name, _)) = written.get(TENANTS) {
        checker.faults.add(&name.place, format!("more than {TENANTS} tenants"));
    }
    written.into_iter().take(TENANTS).map(|(name, table)| tenant(checker, name, table, &classes, server, databases)).collect()
}

fn tenant(
    checker: &mut Checker<'_>,
    name: &Located<String>,
    table: &Table,
    classes: &[&(Located<String>, Table)],
    server: &ServerPlan,
    databases: &[DatabasePlan],
) -> TenantPlan {
    check_name(checker, "a tenant", &name.value, Naming::Free, &name.place);
    let class_name = table.text("class").value;
    let class = classes.iter().find(|(name, _)| name.value == class_name).map(|(_, table)| table);
    let written: Vec<&Table> = [Some(table), class].into_iter().flatten().collect();
    let rate = |name: &str| written.iter().find_map(|table| table.written_rate(name)).unwrap_or_else(|| table.rate(name));
    let integer = |name: &str| written.iter().find_map(|table| table.written_integer(name)).unwrap_or_else(|| table.integer(name));
    let memory = written.iter().find_map(|table| table.written_size("memory"));
    let memory = memory.unwrap_or(Setting { value: server.memory.value / MEMORY_SHARE, place: None });
    let (rate, repeat_budget, in_flight, weight) = (rate("rate"), rate("repeat_budget"), integer("in_flight"), integer("weight"));
    let seats = seats(checker, table, class, databases);
    let flows = table.texts("flows");
    if flows.iter().any(|pattern| pattern.value == "*") {
        checker.notes.push(format!("{}: tenant {} may call every flow", name.place.short(), name.value));
    }
    TenantPlan {
        name: Arc::from(&*name.value),
        keys: keys(table).map(|(_, key)| key).collect(),
        class: match &*class_name {
            "control" => Class::Control,
            "interactive" => Class::Interactive,
            "batch" => Class::Batch,
            _ => Class::Agent,
        },
        attributes: attributes(checker, table),
        rate: rate.into_limit(),
        in_flight: unlimited_count(in_flight),
        memory: memory.into_limit(),
        queued: queued(table, class),
        weight: count(weight),
        seats,
        repeat_budget: repeat_budget.into_limit(),
        run: run(table, class),
        flows: flows.into_iter().map(|pattern| pattern.value).collect(),
        origin: name.place.origin(),
    }
}

/// Each limit for itself: the tenant's own, its class's, the default.
fn queued(table: &Table, class: Option<&Table>) -> QueuedPlan {
    let unwritten = table.unwritten("queued");
    let written = both(table, class, "queued");
    let size = |name| written.iter().find_map(|table| table.written_size(name)).unwrap_or_else(|| unwritten.size(name));
    let items = written.iter().find_map(|table| table.written_integer("items")).unwrap_or_else(|| unwritten.integer("items"));
    QueuedPlan { items: unlimited_count(items), bytes: size("bytes").into_limit(), disk: size("disk").into_limit() }
}

fn run(table: &Table, class: Option<&Table>) -> RunPlan {
    let unwritten = table.unwritten("run");
    let written = both(table, class, "run");
    let integer = |name| written.iter().find_map(|table| table.written_integer(name)).unwrap_or_else(|| unwritten.integer(name));
    let ttl = written.iter().find_map(|table| table.written_time("ttl")).unwrap_or_else(|| unwritten.time("ttl"));
    let count = |name| unlimited_count(integer(name));
    RunPlan {
        live: count("live"),
        calls: count("calls"),
        in_flight: count("in_flight"),
        retries: count("retries"),
        depth: count("depth"),
        ttl: ttl.into_limit(),
    }
}

/// The table of that name of a tenant and of its class, where written.
fn both<'a>(table: &'a Table, class: Option<&'a Table>, name: &str) -> Vec<&'a Table> {
    [Some(table), class].into_iter().flatten().filter_map(|table| table.table(name)).collect()
}

pub(crate) fn unlimited_count(setting: Setting<i64>) -> Limit<u64> {
    let value = if setting.value == i64::MAX { u64::MAX } else { setting.value.unsigned_abs() };
    Limit { value, origin: setting.origin() }
}

pub(crate) fn show_count(value: i64) -> String {
    if value == i64::MAX { "unlimited".into() } else { value.to_string() }
}

pub(crate) fn show_size(value: u64) -> String {
    if value == u64::MAX { "unlimited".into() } else { ByteSize(value).to_string() }
}

fn attributes(checker: &mut Checker<'_>, table: &Table) -> BTreeMap<Arc<str>, Value> {
    let mut attributes = BTreeMap::new();
    for (name, written) in table.map("attributes") {
        check_name(checker, "an attribute", &name.value, Naming::Identifier, &name.place);
        if name.value == "name" {
            checker.faults.add(&name.place, "`name` is taken: `tenant.name` is the tenant's name");
        }
        let value = match &written.value {
            Written::Raw(raw) => attribute(raw).unwrap_or_else(|message| {
                checker.faults.add(&written.place, message);
                Value::Null
            }),
            _ => Value::Null,
        };
        attributes.insert(Arc::from(&*name.value), value);
    }
    attributes
}

/// Text stays text; decimals are written as text and take their type from the input that reads them.
fn attribute(raw: &Raw) -> Result<Value, Problem> {
    match raw {
        Raw::Text(_) => typed::from_raw(Type::Text, raw),
        Raw::Integer(_) => typed::from_raw(Type::Integer, raw),
        Raw::Boolean(_) => typed::from_raw(Type::Boolean, raw),
        Raw::Float(text) => {
            Err(format!("expected text, a whole number, true or false, found {text}; write a decimal as text: \"{text}\"").into())
        }
        other => Err(format!("expected text, a whole number, true or false, found {}", other.show()).into()),
    }
}

/// What nobody can ever do is worth a note.
pub(crate) fn check_flows(checker: &mut Checker<'_>, tenants: &[TenantPlan], flows: &[Flow]) {
    for flow in flows.iter().filter(|flow| !tenants.iter().any(|tenant| tenant.may_call(&flow.name))) {
        checker.notes.push(format!("no tenant may call the flow {}", flow.name));
    }
    for tenant in tenants {
        for pattern in tenant.flows.iter().filter(|pattern| !checker.incomplete && *pattern != "*") {
            if !flows.iter().any(|flow| crate::plan::matches(pattern, &flow.name)) {
                let near = did_you_mean(pattern, flows.iter().map(|flow| &*flow.name));
                checker.notes.push(format!("tenant {}: `flows` has \"{}\", which is no flow{near}", tenant.name, printable(pattern)));
            }
        }
        for flow in flows.iter().filter(|flow| flow.memory > tenant.memory.value && tenant.may_call(&flow.name)) {
            let (needed, given) = (ByteSize(flow.memory), show_size(tenant.memory.value));
            checker
                .notes
                .push(format!("tenant {} may call {} but never can: a call needs {needed}, its memory is {given}", tenant.name, flow.name));
        }
    }
}
