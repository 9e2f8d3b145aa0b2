//! Limits that an operator sets over a tenant's while the server runs: read by the same tables of keys as a file.
//!
//! Invariants
//! 1. An override is sparse: what it does not say is as in the file, also after the file changed.
//! 2. It never makes a promise that cannot be kept: seats it reserves beyond the pool are not reserved (see [`in_force`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value as Json};
use sha2::Sha256;
use toml::de::DeValue;

use crate::fault::Faults;
use crate::keys::isolation::OVERRIDE;
use crate::place::{FileText, Setting};
use crate::plan::{DatabasePlan, Limit, Origin, Plan, SeatShare, TenantPlan, crowded};
use crate::source::Memory;
use crate::walk::Walk;
use crate::written::Table;

/// Overrides by tenant.
pub type Overrides = BTreeMap<Arc<str>, Arc<Override>>;

/// Limits in place of a tenant's own.
#[derive(Debug)]
pub struct Override {
    json: Json,
    table: Table,
}

impl Override {
    /// Reads an object of the keys of `[tenant.NAME]` that are limits, in the forms of a file. `null` says nothing, and tables that
    /// say nothing are left out.
    pub fn read(json: &Json) -> Result<Override, Vec<String>> {
        let json = said(json).unwrap_or_else(|| Json::Object(Map::new()));
        if !json.is_object() {
            return Err(vec!["expected an object of limits such as {\"in_flight\": 32}".into()]);
        }
        let text = to_toml(&json);
        let file = FileText::new("override".into(), 0, text.clone());
        let (mut faults, source) = (Faults::default(), Memory::default());
        let (mut notes, mut secret_files, mut secrets) = (Vec::new(), Vec::new(), Sha256::default());
        let mut walk = Walk {
            file: &file,
            source: &source,
            faults: &mut faults,
            notes: &mut notes,
            secret_files: &mut secret_files,
            secrets: &mut secrets,
        };
        let value = DeValue::parse(&text).map_err(|error| vec![error.message().trim().to_owned()])?;
        let DeValue::Table(tree) = value.get_ref() else { return Err(vec!["expected an object".into()]) };
        let table = walk.section(&OVERRIDE, tree, 0);
        if faults.is_empty() { Ok(Override { json, table }) } else { Err(faults.sorted().into_iter().map(|fault| fault.message).collect()) }
    }

    /// As it was read, without what says nothing.
    pub fn json(&self) -> &Json {
        &self.json
    }
    /// Whether it sets nothing.
    pub fn is_empty(&self) -> bool {
        self.table.entries.is_empty()
    }
    /// Databases it names that the plan does not have: what it says of them has no effect.
    pub fn unknown_databases<'a>(&'a self, plan: &'a Plan) -> impl Iterator<Item = &'a str> {
        let names = self.table.named("database").iter().map(|(name, _)| &*name.value);
        names.filter(|name| !plan.databases.iter().any(|database| *database.name == **name))
    }

    /// The tenant with these limits in place of its own.
    pub fn over(&self, tenant: &TenantPlan, databases: &[DatabasePlan]) -> TenantPlan {
        let (table, mut tenant) = (&self.table, tenant.clone());
        put(&mut tenant.rate, table.written_rate("rate"));
        put(&mut tenant.repeat_budget, table.written_rate("repeat_budget"));
        put(&mut tenant.in_flight, table.written_integer("in_flight").map(count));
        put(&mut tenant.memory, table.written_size("memory"));
        put(&mut tenant.weight, table.written_integer("weight").map(few));
        if let Some(queued) = table.table("queued") {
            put(&mut tenant.queued.items, queued.written_integer("items").map(count));
            put(&mut tenant.queued.bytes, queued.written_size("bytes"));
            put(&mut tenant.queued.disk, queued.written_size("disk"));
        }
        if let Some(run) = table.table("run") {
            put(&mut tenant.run.live, run.written_integer("live").map(count));
            put(&mut tenant.run.calls, run.written_integer("calls").map(count));
            put(&mut tenant.run.in_flight, run.written_integer("in_flight").map(count));
            put(&mut tenant.run.retries, run.written_integer("retries").map(count));
            put(&mut tenant.run.depth, run.written_integer("depth").map(count));
            put(&mut tenant.run.ttl, run.written_time("ttl"));
        }
        for (share, database) in tenant.seats.iter_mut().zip(databases) {
            self.seats_over(share, &database.name);
        }
        tenant
    }

    /// What it says of one database goes before what it says of all.
    fn seats_over(&self, share: &mut SeatShare, database: &str) {
        let here = self.table.named("database").iter().find(|(name, _)| *name.value == *database);
        let written = [self.table.table("seats"), here.and_then(|(_, table)| table.table("seats"))];
        for seats in written.into_iter().flatten() {
            put(&mut share.reserved, seats.written_integer("reserved").map(few));
            put(&mut share.limit, seats.written_integer("limit").map(few));
        }
    }
}

fn put<T>(limit: &mut Limit<T>, written: Option<Setting<T>>) {
    if let Some(Setting { value, .. }) = written {
        *limit = Limit { value, origin: Origin::Override };
    }
}

fn count(setting: Setting<i64>) -> Setting<u64> {
    let value = if setting.value == i64::MAX { u64::MAX } else { setting.value.unsigned_abs() };
    Setting { value, place: None }
}

fn few(setting: Setting<i64>) -> Setting<u32> {
    Setting { value: u32::try_from(setting.value).unwrap_or(u32::MAX), place: None }
}

/// Why an override would promise what is not there, a sentence each; empty: it can be kept beside the others.
pub fn conflicts(plan: &Plan, overrides: &Overrides) -> Vec<String> {
    crowded(&plan.databases, &with(plan, overrides)).into_iter().map(|crowded| crowded.problem).collect()
}

/// The tenants of a plan, in its order, with the limits in force. Where a file changed so that shares of seats no longer fit, the seats
/// that overrides reserve there are as in the file.
pub fn in_force(plan: &Plan, overrides: &Overrides) -> Vec<TenantPlan> {
    let mut tenants = with(plan, overrides);
    for crowded in crowded(&plan.databases, &tenants) {
        for (tenant, written) in tenants.iter_mut().zip(&plan.tenants) {
            tenant.seats[crowded.database] = written.seats[crowded.database].clone();
        }
    }
    tenants
}

fn with(plan: &Plan, overrides: &Overrides) -> Vec<TenantPlan> {
    let tenant = |tenant: &TenantPlan| match overrides.get(&tenant.name) {
        Some(set) => set.over(tenant, &plan.databases),
        None => tenant.clone(),
    };
    plan.tenants.iter().map(tenant).collect()
}

/// Without `null` and what holds nothing else. `None`: nothing is left.
fn said(json: &Json) -> Option<Json> {
    match json {
        Json::Null => None,
        Json::Object(object) => {
            let kept: Map<String, Json> = object.iter().filter_map(|(name, value)| Some((name.clone(), said(value)?))).collect();
            (!kept.is_empty()).then_some(Json::Object(kept))
        }
        other => Some(other.clone()),
    }
}

/// The same value as one TOML value.
fn to_toml(json: &Json) -> String {
    match json {
        Json::Object(object) => {
            let entries: Vec<String> = object.iter().map(|(name, value)| format!("{} = {}", quoted(name), to_toml(value))).collect();
            format!("{{ {} }}", entries.join(", "))
        }
        Json::Array(items) => format!("[{}]", items.iter().map(to_toml).collect::<Vec<_>>().join(", ")),
        Json::String(text) => quoted(text),
        // A key that is told nothing is left out before; in a list it is no limit of any form.
        Json::Null => "\"\"".into(),
        Json::Bool(_) | Json::Number(_) => json.to_string(),
    }
}

/// JSON's escapes are TOML's; one letter more is not written as it is there.
fn quoted(text: &str) -> String {
    Json::from(text).to_string().replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::path::Path;

    const SERVER: &str = "[database.fleet]\ndriver = \"sqlite\"\nconnection = \"fleet.db\"\npool = { max = 8 }\n\
        [database.yard]\ndriver = \"sqlite\"\nconnection = \"yard.db\"\n\
        [tenant.agent]\nin_flight = 8\nseats = { reserved = 1 }\n[tenant.office]\nseats = { reserved = 2 }\n";

    fn plan(server: &str) -> Plan {
        let flow = "name = \"a\"\nhttp = \"GET /a\"\n[[step]]\nmap = \"1\"\n";
        let source = Memory::default().file("server.toml", server).file("flows/a.toml", flow);
        crate::load_from(&source, Path::new("server.toml")).unwrap_or_else(|faults| panic!("{faults:#?}"))
    }

    fn set(json: &Json) -> Override {
        Override::read(json).unwrap_or_else(|problems| panic!("{problems:?}"))
    }

    fn overrides(set_for: &[(&str, Json)]) -> Overrides {
        set_for.iter().map(|(tenant, json)| (Arc::from(*tenant), Arc::new(set(json)))).collect()
    }

    #[test]
    fn what_an_override_says_is_in_force_and_everything_else_is_as_in_the_file() {
        let plan = plan(SERVER);
        let all = json!({
            "rate": { "rate": "5/s", "burst": 2 }, "in_flight": "unlimited", "memory": "1MiB", "weight": 4, "seats": { "limit": 3 },
            "queued": { "items": 7, "disk": "1MiB" }, "repeat_budget": "unlimited", "run": { "live": 9, "ttl": "5s" },
            "database": { "fleet": { "seats": { "limit": "unlimited", "reserved": 2 } } },
        });
        let tenant = set(&all).over(&plan.tenants[0], &plan.databases);
        let shown: Vec<String> = tenant
            .limits(&plan.databases, |_| true)
            .iter()
            .filter(|limit| *limit.origin == Origin::Override)
            .map(|limit| format!("{} {}", limit.name, limit.amount))
            .collect();
        assert_eq!(
            shown,
            [
                "rate 5/s, burst 2",
                "in_flight unlimited",
                "memory 1MiB",
                "weight 4",
                "database.fleet.seats.reserved 2",
                "database.fleet.seats.limit unlimited",
                "database.yard.seats.limit 3",
                "queued.items 7",
                "queued.disk 1MiB",
                "repeat_budget unlimited",
                "run.live 9",
                "run.ttl 5s",
            ]
        );
        assert_eq!((tenant.queued.bytes.value, tenant.run.calls.value), (256 << 20, 200));
        assert_eq!((tenant.name, tenant.seats[1].reserved.value), (plan.tenants[0].name.clone(), 1));
    }

    #[test]
    fn what_an_override_cannot_say_is_refused_in_the_words_of_a_file() {
        for (json, problem) in [
            (json!([1]), "expected an object of limits such as {\"in_flight\": 32}"),
            (json!({ "keys": ["k"] }), "an override has no key `keys`"),
            (json!({ "in_fligth": 1 }), "an override has no key `in_fligth`; did you mean `in_flight`?"),
            (json!({ "in_flight": 0 }), "`in_flight`: expected a whole number from 1 to 1000000, found 0"),
            (json!({ "in_flight": 1.5 }), "`in_flight`: expected a whole number from 1 to 1000000, found 1.5"),
            (
                json!({ "memory": "a\u{7f}\"\\" }),
                "`memory`: expected a size such as \"64MiB\" (B, KiB, MiB, GiB), found \"a\\u{7f}\\\"\\\\\"",
            ),
            (json!({ "queued": { "item": 1 } }), "queued has no key `item`; did you mean `items`?"),
            (json!({ "run": { "ttl": "unlimited" } }), "`ttl`: expected a time such as \"800ms\" (ms, s, min, h, d), found \"unlimited\""),
        ] {
            let found = Override::read(&json).err().unwrap_or_else(|| panic!("{json} was taken"));
            assert_eq!(found, [problem], "{json}");
        }
        assert_eq!(Override::read(&json!({ "in_flight": 0, "weight": "much" })).err().map(|found| found.len()), Some(2), "all at once");
    }

    #[test]
    fn null_says_nothing_and_tables_of_it_are_nothing() {
        let empty = set(&json!({ "rate": null, "run": { "calls": null }, "database": { "fleet": { "seats": {} } } }));
        assert!(empty.is_empty() && *empty.json() == json!({}));
        let one = set(&json!({ "run": { "calls": 3, "live": null } }));
        assert_eq!(*one.json(), json!({ "run": { "calls": 3 } }));
    }

    #[test]
    fn seats_are_never_promised_twice() {
        let plan = plan(SERVER);
        assert!(conflicts(&plan, &overrides(&[("agent", json!({ "seats": { "reserved": 6 } }))])).is_empty());
        let set_for =
            overrides(&[("agent", json!({ "seats": { "reserved": 6 }, "weight": 3 })), ("office", json!({ "seats": { "reserved": 3 } }))]);
        let problems = conflicts(&plan, &set_for);
        assert_eq!(problems, ["tenant office has 3 seats of fleet reserved, others before it 6: `pool.max` is 8"]);
        let tenants = in_force(&plan, &set_for);
        let reserved = |database: usize| tenants.iter().map(|tenant| tenant.seats[database].reserved.value).collect::<Vec<_>>();
        assert_eq!(
            (reserved(0), reserved(1), tenants[0].weight.value),
            (vec![1, 2], vec![6, 3], 3),
            "as in the file where they do not fit"
        );
        let above = overrides(&[("agent", json!({ "seats": { "reserved": 3, "limit": 2 } }))]);
        assert!(conflicts(&plan, &above)[0].contains("a `limit` of 2"));
        let unknown = set(&json!({ "database": { "nowhere": { "seats": { "limit": 2 } } } }));
        assert_eq!(unknown.unknown_databases(&plan).collect::<Vec<_>>(), ["nowhere"]);
    }
}
