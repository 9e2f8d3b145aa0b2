//! What tests of durable work ask of a server: jobs as a tenant, lanes as an operator, and when it is ready for work.

use serde_json::Value as Json;

use crate::server::{Reply, Request, Server};

/// The key of the one operator in [`PEOPLE`].
pub const OPERATOR: &str = "operator-key-1";
/// Tenants `one`, `two` and `three` with the keys `key-one-1` and so on, and an operator.
pub const PEOPLE: &str = "
[admin.operator]
keys = [\"operator-key-1\"]
[class.agent]
rate = \"unlimited\"
queued = { items = 5_000, bytes = \"8MiB\", disk = \"8MiB\" }
[tenant.one]
keys = [\"key-one-1\"]
[tenant.two]
keys = [\"key-two-1\"]
[tenant.three]
keys = [\"key-three-1\"]
";
/// A store that is there in a moment.
pub const STORE: &str = "
[store]
disk_limit = \"32MiB\"
disk_reserve = \"1MiB\"
";

/// The job a reply names.
pub fn job_of(reply: &Reply) -> String {
    let job = &reply.json()["job"];
    assert!(job["href"].as_str().is_some_and(|href| href.ends_with(job["id"].as_str().expect("an id"))), "{reply:?}");
    job["id"].as_str().expect("an id").to_owned()
}

/// A job's state in a reply.
pub fn state_of(reply: &Reply) -> String {
    reply.json()["job"]["state"].as_str().unwrap_or_else(|| panic!("a job with a state: {reply:?}")).to_owned()
}

impl Server {
    /// Waits until durable work is taken.
    pub fn wait_for_durable(&self) {
        self.wait_for("readiness for durable work", |server| {
            (Request::new("GET", "/readyz?for=durable").try_send(&server.flows).ok()?.status == 200).then_some(())
        });
    }
    /// A job as its tenant sees it now.
    pub fn job(&self, key: &str, id: &str) -> Reply {
        self.get(key, &format!("/api/jobs/{id}"))
    }
    /// A job once it has ended.
    pub fn ended_job(&self, key: &str, id: &str) -> Reply {
        let request = Request::new("GET", &format!("/api/jobs/{id}")).key(key).header("Prefer", "wait=10");
        self.wait_for("end of the job", |server| {
            let reply = request.send(&server.flows);
            (!matches!(state_of(&reply).as_str(), "queued" | "running")).then_some(reply)
        })
    }
    /// Asks for a job to be cancelled.
    pub fn cancel_job(&self, key: &str, id: &str) -> Reply {
        Request::new("DELETE", &format!("/api/jobs/{id}")).key(key).send(&self.flows)
    }
    /// A POST on the admin face; it must succeed.
    pub fn operate(&self, target: &str, body: &str) -> Json {
        let reply = Request::new("POST", target).key(OPERATOR).body(body).send(&self.admin);
        assert_eq!(reply.status, 200, "{target}: {reply:?}");
        reply.json()
    }
    /// Something done to a lane: `pause`, `resume`, `purge`, `dead/replay`.
    pub fn operate_lane(&self, queue: &str, tenant: &str, what: &str, body: &str) -> Json {
        self.operate(&format!("/admin/v1/queues/{queue}/lanes/{tenant}/{what}"), body)
    }
    /// A lane as the operator sees it; `Null` where there is none.
    pub fn lane(&self, queue: &str, tenant: &str) -> Json {
        let reply = self.admin_get(OPERATOR, &format!("/admin/v1/queues/{queue}/lanes/{tenant}"));
        if reply.status == 404 { Json::Null } else { reply.json() }
    }
    /// The store as the operator sees it.
    pub fn store(&self) -> Json {
        self.admin_get(OPERATOR, "/admin/v1/queues").json()["store"].take()
    }
    /// The value of a series, by its name with labels as they are scraped.
    pub fn metric(&self, series: &str) -> Option<f64> {
        let page = self.admin_get(OPERATOR, "/metrics").body;
        page.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
    }
    /// Waits until nothing of a lane waits or is at work.
    pub fn wait_until_drained(&self, queue: &str, tenant: &str) {
        self.wait_for("an empty lane", |server| {
            let lane = server.lane(queue, tenant);
            (lane.is_null() || (lane["waiting"] == 0 && lane["running"] == 0)).then_some(())
        });
    }
}
