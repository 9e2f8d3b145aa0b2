//! Limits of tenants, changed while the server runs: seen, named by their version, in force at once, audited.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::support::{Face, KEY, Reply, face};

const AGENT: &str = "/admin/v1/tenants/agent";

impl Reply {
    fn etag(&self) -> &str {
        self.head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap_or_else(|| panic!("no ETag: {}", self.head))
    }
}

impl Face {
    async fn change(&self, method: &str, etag: &str, body: &Value) -> Reply {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.send(&format!("{method} {AGENT}"), &format!("{KEY}If-Match: {etag}\r\n"), &body).await
    }
    /// The limit in force, and where it comes from.
    fn in_flight(&self) -> (u64, String) {
        let live = self.engine.live();
        assert_eq!(live.tenants[0].limits.in_flight, live.tenants[0].plan.in_flight.value, "the gate asks for the same");
        (live.tenants[0].limits.in_flight, live.tenants[0].plan.in_flight.origin.to_string())
    }
}

#[tokio::test]
async fn a_change_is_in_force_for_the_next_call_and_goes_into_the_audit() {
    let face = face().await;
    let seen = face.get(AGENT).await;
    assert_eq!((&seen.json()["override"], &seen.json()["limits"]["in_flight"]["limit"]), (&json!({}), &json!(8)));
    let put = face.change("PUT", seen.etag(), &json!({ "in_flight": 3, "run": { "ttl": "5s" } })).await;
    assert_eq!((put.status, face.in_flight()), (200, (3, "override".into())), "{}", put.body);
    let page = put.json();
    assert_eq!((&page["override"]["in_flight"], &page["limits"]["run.ttl"]), (&json!(3), &json!({ "limit": "5s", "from": "override" })));
    assert_eq!((&page["audited"], page.get("forgotten_at_restart")), (&json!(true), None));
    let again = face.get(AGENT).await;
    assert_eq!(
        (again.etag(), again.json()["limits"]["queued.items"]["from"].as_str()),
        (put.etag(), Some("default")),
        "the rest is as it was"
    );
    let usage = face.get(&format!("{AGENT}/usage")).await.json();
    assert_eq!(usage["in_flight"], json!({ "used": 0, "limit": 3, "from": "override" }));
    assert_eq!((&usage["run.live"], &usage["repeat_budget"]["used"]), (&json!({ "used": 0, "limit": 500, "from": "default" }), &json!(0)));

    let patched = face.change("PATCH", put.etag(), &json!({ "in_flight": null, "weight": 9 })).await;
    assert_eq!((patched.status, &patched.json()["override"]), (200, &json!({ "run": { "ttl": "5s" }, "weight": 9 })), "{}", patched.body);
    assert_eq!(face.in_flight(), (8, "/etc/spillgate/server.toml:5".into()), "as in the file");
    let deleted = face.change("DELETE", patched.etag(), &Value::Null).await;
    assert_eq!((deleted.status, &deleted.json()["override"], deleted.etag()), (200, &json!({}), seen.etag()));
    assert!(face.engine.live().overrides.is_empty());
    assert_eq!(*face.server.limited.lock().expect("no test panics here"), ["agent"; 3], "each was kept");

    let changes: Vec<_> =
        face.server.changes().into_iter().map(|change| (change.who, change.action, change.subject, change.from, change.to)).collect();
    let (set, patched) = (r#"{"in_flight":3,"run":{"ttl":"5s"}}"#, r#"{"run":{"ttl":"5s"},"weight":9}"#);
    let entry = |action: &str, from: &str, to: &str| {
        ("alice".to_owned(), action.to_owned(), "tenants/agent".to_owned(), Some(from.to_owned()), Some(to.to_owned()))
    };
    assert_eq!(changes, [entry("limit", "{}", set), entry("limit", set, patched), entry("unlimit", patched, "{}")]);
}

#[tokio::test]
async fn a_burst_does_not_outlive_the_rate_it_was_written_with() {
    let face = face().await;
    let rate = || face.engine.live().tenants[0].limits.rate;
    let wide = json!({ "rate": { "rate": "5/s", "burst": 5_000 }, "repeat_budget": { "rate": "1/s", "burst": 7 } });
    assert_eq!((face.change("PUT", "*", &wide).await.status, rate().burst), (200, 5_000));
    let patched = face.change("PATCH", "*", &json!({ "rate": { "rate": "1/s" } })).await;
    let set = json!({ "rate": { "rate": "1/s" }, "repeat_budget": { "rate": "1/s", "burst": 7 } });
    assert_eq!((patched.status, &patched.json()["override"]), (200, &set), "{}", patched.body);
    assert_eq!(rate().burst, 6, "a tenth of the calls of a minute, as in a file");
    // The same rate with another burst keeps the rate.
    assert_eq!(face.change("PATCH", "*", &json!({ "rate": { "burst": 3 } })).await.status, 200);
    assert_eq!((rate().calls, rate().burst), (1, 3));
}

#[tokio::test]
async fn what_is_set_for_a_tenant_that_left_is_shown_and_changed_by_its_own_page() {
    let face = face().await;
    assert_eq!(face.change("PUT", "*", &json!({ "in_flight": 3 })).await.status, 200);
    face.without_the_agent();
    let seen = face.get(AGENT).await;
    assert_eq!((seen.status, &seen.json()["override"], &seen.json()["id"]), (200, &json!({ "in_flight": 3 }), &json!("agent")));
    let patched = face.change("PATCH", seen.etag(), &json!({ "weight": 2 })).await;
    assert_eq!((patched.status, &patched.json()["override"]), (200, &json!({ "in_flight": 3, "weight": 2 })), "{}", patched.body);
    assert_eq!((&patched.json()["audited"], patched.json().get("limits")), (&json!(true), None), "none of it is in force");
    assert_eq!(face.change("PATCH", seen.etag(), &json!({ "weight": 3 })).await.code(), "changed_meanwhile");
    let deleted = face.change("DELETE", patched.etag(), &Value::Null).await;
    assert_eq!((deleted.status, &deleted.json()["override"]), (200, &json!({})));
    assert!(face.engine.live().overrides.is_empty());
    assert_eq!((face.get(AGENT).await.status, face.change("PATCH", "*", &json!({ "weight": 3 })).await.status), (404, 404));
}

#[tokio::test]
async fn a_change_of_what_was_changed_meanwhile_is_refused() {
    let face = face().await;
    let etag = face.get(AGENT).await.etag().to_owned();
    let unnamed = face.send(&format!("PUT {AGENT}"), KEY, "{}").await;
    assert_eq!((unnamed.status, unnamed.code().as_str()), (428, "match_required"));
    assert_eq!(face.change("PUT", &etag, &json!({ "in_flight": 3 })).await.status, 200);
    for method in ["PUT", "PATCH", "DELETE"] {
        let late = face.change(method, &etag, &json!({ "in_flight": 4 })).await;
        assert_eq!((late.status, late.code().as_str()), (412, "changed_meanwhile"), "{method}");
    }
    assert_eq!(face.in_flight().0, 3);
    assert_eq!(face.change("PATCH", "*", &json!({ "in_flight": 5 })).await.status, 200, "whatever it is");
    let refused: Vec<_> = face.server.changes().into_iter().filter(|change| change.outcome.starts_with("changed_meanwhile")).collect();
    assert_eq!((refused.len(), &refused[0].to), (3, &None), "tried, and audited as such");
}

#[tokio::test]
async fn of_changes_made_at_once_none_is_lost_unseen() {
    let face = face().await;
    let etag = face.get(AGENT).await.etag().to_owned();
    let bodies: Vec<Value> = (1..=8).map(|in_flight| json!({ "in_flight": in_flight })).collect();
    let sent = bodies.iter().map(|body| face.change("PUT", &etag, body));
    let mut statuses: Vec<u16> = futures(sent).await.into_iter().map(|reply| reply.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 412, 412, 412, 412, 412, 412, 412]);
}

/// All at once.
async fn futures<F: Future>(all: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut all: Vec<_> = all.map(Box::pin).collect();
    let mut done: Vec<Option<F::Output>> = all.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, done) in all.iter_mut().zip(&mut done) {
            if done.is_none()
                && let std::task::Poll::Ready(output) = future.as_mut().poll(context)
            {
                *done = Some(output);
            }
        }
        if done.iter().all(Option::is_some) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

#[tokio::test]
async fn what_no_file_could_say_is_refused_in_its_words_and_changes_nothing() {
    let face = face().await;
    for (body, name, problem) in [
        (json!({ "in_flight": 0 }), "in_flight", "expected a whole number from 1 to 1000000, found 0"),
        (json!({ "in_fligth": 2 }), "override", "an override has no key `in_fligth`; did you mean `in_flight`?"),
        (json!({ "keys": ["x"] }), "override", "an override has no key `keys`"),
        (json!({ "database": { "none": { "seats": { "limit": 1 } } } }), "database", "there is no database `none`"),
    ] {
        let reply = face.change("PUT", "*", &body).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, "invalid_input"), "{body}");
        assert_eq!(reply.json()["errors"], json!([{ "field": name, "problem": problem }]), "{body}");
        let (title, advice) = (reply.json()["title"].to_string(), reply.json()["advice"].to_string());
        assert!(!title.contains("flow") && !advice.contains("openapi"), "it is about a tenant's limits: {title} {advice}");
    }
    assert_eq!(face.change("PUT", "*", &json!([])).await.code(), "invalid_input");
    assert_eq!(face.send(&format!("PUT {AGENT}"), &format!("{KEY}If-Match: *\r\n"), "{").await.code(), "malformed");
    for method in ["PUT", "PATCH"] {
        let twice = r#"{"weight":2,"run":{"calls":5,"calls":7}}"#;
        let reply = face.send(&format!("{method} {AGENT}"), &format!("{KEY}If-Match: *\r\n"), twice).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, "malformed"), "{}", reply.body);
        assert!(reply.json()["detail"].as_str().is_some_and(|detail| detail.contains("the key \"calls\" comes twice")), "{}", reply.body);
    }
    assert_eq!(face.send("PUT /admin/v1/tenants/nobody", &format!("{KEY}If-Match: *\r\n"), "{}").await.code(), "unknown_page");
    assert_eq!((face.in_flight().0, face.engine.live().overrides.len()), (8, 0));
    face.server.still_reads.store(true, Ordering::Relaxed);
    let early = face.change("PUT", "*", &json!({ "in_flight": 2 })).await;
    assert_eq!((early.status, early.code().as_str(), face.in_flight().0), (503, "recovering", 8), "what was set before comes first");
    assert!(early.head.contains("retry-after: 1\r\n"), "{}", early.head);
}

#[tokio::test]
async fn a_change_that_cannot_be_kept_is_in_force_and_says_so() {
    let face = face().await;
    face.server.keeps_nothing.store(true, Ordering::Relaxed);
    let reply = face.change("PUT", "*", &json!({ "in_flight": 2 })).await;
    assert_eq!((reply.status, face.in_flight().0), (200, 2));
    assert_eq!((&reply.json()["forgotten_at_restart"], &reply.json()["audited"]), (&json!("the control store is full"), &json!(false)));
}

#[tokio::test]
async fn lowering_evicts_nothing_and_what_was_taken_is_given_back() {
    let face = face().await;
    let reserve = || {
        let live = face.engine.live();
        let tenant = &live.tenants[0];
        tenant.gate.reserve_memory(&tenant.limits, 1 << 20, face.engine.memory(), u64::MAX)
    };
    let held: Vec<_> = (0..5).map(|_| reserve().expect("far below a quarter of the server's")).collect();
    assert_eq!(face.change("PUT", "*", &json!({ "memory": "2MiB" })).await.status, 200);
    let usage = face.get(&format!("{AGENT}/usage")).await.json();
    assert_eq!((&usage["memory"]["used"], &usage["memory"]["limit"]), (&json!(5 << 20), &json!(2 << 20)), "nothing was evicted");
    assert!(reserve().is_err(), "new work is refused");
    drop(held);
    assert!(reserve().is_ok());
}

#[tokio::test]
async fn explain_shows_what_is_in_force_and_where_it_comes_from() {
    let face = face().await;
    assert_eq!(face.change("PUT", "*", &json!({ "memory": "2MiB" })).await.status, 200);
    let page = face.get(&format!("{AGENT}/explain?flow=hello")).await.json();
    let line = |name: &str| page["limits"].as_array().expect("a list").iter().find(|line| line["name"] == name).cloned();
    assert_eq!(line("tenant.memory"), Some(json!({ "name": "tenant.memory", "value": "2MiB", "from": "override" })));
    assert_eq!(line("tenant.in_flight").expect("it is there")["from"], "/etc/spillgate/server.toml:5");
    let encoded = face.get("/admin/v1/tenants/%61gent/explain?%66low=hel%6Co").await;
    assert_eq!((encoded.status, encoded.json()), (200, page.clone()), "what is encoded is the same name");
    assert!(line("server.memory").is_some() && page["version"].as_str().is_some_and(|version| version.len() == 16), "{page}");
}
