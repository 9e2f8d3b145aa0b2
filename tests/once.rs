//! Case E6 and promise 7 on the real binary: a key executes once, whoever races, and a crash in mid-write ends in the true outcome or in
//! `unknown`.
//!
//! A write is held up by a lock that the test holds in Postgres, so that races and crashes come exactly in its middle.

use std::time::Duration;

use serde_json::json;
use spillgate_test_support::durable::{OPERATOR, PEOPLE, STORE, job_of, state_of};
use spillgate_test_support::observer::Observer;
use spillgate_test_support::postgres;
use spillgate_test_support::server::{Options, Reply, Request, Server};

const QUEUE: &str = "[queue.bookings]\nmax_item = \"16KiB\"\nbytes = \"8MiB\"\n";
const RECORD: &str = "idempotency = { key = \"optional\", record = \"{mark}_done\" }";
const VERIFY: &str = "idempotency = { key = \"optional\", verify = \"SELECT 1 AS one FROM {mark} WHERE reference = :reference\" }";
const NOTHING: &str = "idempotency = { key = \"optional\" }";

/// Tables, a lock and a server of one test.
struct Ground {
    observer: Observer,
    server: Server,
    mark: &'static str,
}

impl Ground {
    /// A direct flow `POST /direct` and the same behind a queue, `POST /book`; `once` is what they say about keys.
    fn new(mark: &'static str, once: &str) -> Ground {
        let observer = Observer::new();
        let observed = format!(
            "CREATE TABLE {mark} (reference text NOT NULL, job text NOT NULL);
             CREATE TABLE {mark}_done (tenant text, flow text, idempotency_key text, job text NOT NULL, done_at timestamptz NOT NULL,
                 PRIMARY KEY (tenant, flow, idempotency_key))"
        );
        observer.execute(&observed);
        let flow = |name: &str, queue: &str| {
            let once = once.replace("{mark}", mark);
            format!(
                "name = \"{name}\"\nabout = \"Books.\"\nhttp = \"POST /{name}\"\neffect = \"write\"\ndeadline = \"12s\"\n{once}\n\
                 [input.reference]\ntype = \"text\"\nabout = \"Yours.\"\n{queue}\
                 [[step]]\nname = \"booking\"\ndatabase = \"main\"\n\
                 sql = \"INSERT INTO {mark} SELECT :reference, :job FROM pg_advisory_xact_lock_shared({lock}) RETURNING reference\"\n\
                 columns = {{ reference = \"text\" }}\nmax_bytes = \"1KiB\"\n",
                lock = lock_of(mark)
            )
        };
        let (direct, durable) = (flow("direct", ""), flow("book", "[[step]]\nqueue = \"bookings\"\n"));
        let url = postgres::shared().url();
        let database = format!(
            "[database.main]\ndriver = \"postgres\"\nconnection = \"{url}\"\naccess = \"read-write\"\nstatement_timeout = \"5s\"\npool = {{ max = 8, line = 64 }}\n"
        );
        let server = format!("{STORE}{PEOPLE}{QUEUE}{database}");
        let flows = [("direct.toml", direct.as_str()), ("book.toml", durable.as_str())];
        let server = Server::start(&Options { binary: env!("CARGO_BIN_EXE_spillgate"), server: &server, flows: &flows, environment: &[] });
        server.wait_for_durable();
        Ground { observer, server, mark }
    }
    /// Holds up every write from now on.
    fn hold(&self) {
        self.observer.execute(&format!("SELECT pg_advisory_lock({})", lock_of(self.mark)));
    }
    /// Lets writes go on.
    fn let_go(&self) {
        self.observer.execute(&format!("SELECT pg_advisory_unlock({})", lock_of(self.mark)));
    }
    /// Waits until a write is in its middle.
    fn in_mid_write(&self) {
        self.observer.wait_until_active(&format!("INSERT INTO {} ", self.mark), true, Duration::from_secs(10));
    }
    fn booked(&self, reference: &str) -> i64 {
        self.observer.count(&format!("SELECT count(*) FROM {} WHERE reference = '{reference}'", self.mark))
    }
    /// Dies in the middle of the write of `call` and is started again. The write is undone by Postgres.
    fn killed_in_mid_write(&mut self, call: &Request) {
        self.hold();
        let _nobody_listens = call.open(&self.server.flows);
        self.in_mid_write();
        self.server.kill();
        self.let_go();
        self.server.start_again();
        self.server.wait_for_durable();
    }
    /// Sends until the answer is another one than that the first call still runs. `PATIENCE` bounds it: never endless 409.
    fn answer(&self, call: &Request) -> Reply {
        self.server.wait_for("an answer that is not 409", |server| {
            let reply = call.send(&server.flows);
            (reply.status != 409).then_some(reply)
        })
    }
}

fn lock_of(mark: &str) -> u32 {
    mark.bytes().fold(7, |number, byte| (number * 31 + u32::from(byte)) % 1_000_003)
}

fn call(path: &str, tenant: &str, key: &str, reference: &str) -> Request {
    let call = Request::new("POST", path).key(&format!("key-{tenant}-1"));
    let call = if key.is_empty() { call } else { call.header("Idempotency-Key", key) };
    call.body(&format!("{{\"reference\":\"{reference}\"}}"))
}

#[test]
fn e6_twenty_parallel_calls_with_one_key_are_one_execution_with_equal_answers() {
    let ground = Ground::new("race_direct", RECORD);
    ground.hold();
    let replies: Vec<Reply> = std::thread::scope(|threads| {
        let calls: Vec<_> = (0..20).map(|_| threads.spawn(|| call("/api/direct", "one", "k-1", "A").send(&ground.server.flows))).collect();
        ground.server.wait_for("all twenty to be in flight", |server| {
            (server.admin_get(OPERATOR, "/admin/v1/tenants/one/usage").json()["in_flight"]["used"] == 20).then_some(())
        });
        ground.in_mid_write();
        ground.let_go();
        calls.into_iter().map(|call| call.join().expect("a reply")).collect()
    });
    assert_eq!(replies[0].status, 200, "{:?}", replies[0]);
    assert_eq!(replies[0].json()["rows"][0]["reference"], "A");
    for reply in &replies {
        assert_eq!((reply.status, &reply.body), (200, &replies[0].body), "equal answers, byte for byte");
    }
    assert_eq!(ground.booked("A"), 1, "promise 7: one execution");

    let other_input = call("/api/direct", "one", "k-1", "B").send(&ground.server.flows);
    assert_eq!((other_input.status, other_input.code().as_str()), (422, "key_reused"), "{other_input:?}");
    let other_tenant = call("/api/direct", "two", "k-1", "B").send(&ground.server.flows);
    assert_eq!((other_tenant.status, &other_tenant.json()["rows"][0]["reference"]), (200, &json!("B")), "{other_tenant:?}");
    let other_flow = call("/api/book", "one", "k-1", "C").send(&ground.server.flows);
    assert_eq!(other_flow.status, 202, "a key counts for one flow: {other_flow:?}");
    ground.server.wait_until_drained("bookings", "one");
    assert_eq!(["A", "B", "C"].map(|reference| ground.booked(reference)), [1, 1, 1]);
}

#[test]
fn e6_twenty_parallel_durable_calls_with_one_key_get_one_job() {
    let ground = Ground::new("race_durable", RECORD);
    let replies: Vec<Reply> = std::thread::scope(|threads| {
        let calls: Vec<_> = (0..20).map(|_| threads.spawn(|| call("/api/book", "one", "k-1", "A").send(&ground.server.flows))).collect();
        calls.into_iter().map(|call| call.join().expect("a reply")).collect()
    });
    let job = job_of(&replies[0]);
    for reply in &replies {
        assert!(matches!(reply.status, 200 | 202), "{reply:?}");
        assert_eq!(job_of(reply), job);
    }
    assert_eq!(state_of(&ground.server.ended_job("key-one-1", &job)), "succeeded");
    let later = call("/api/book", "one", "k-1", "A").header("Prefer", "wait=5").send(&ground.server.flows);
    assert_eq!((later.status, job_of(&later), &later.json()["result"]["rows"][0]["reference"]), (200, job, &json!("A")));
    let other = call("/api/book", "one", "k-1", "B").send(&ground.server.flows);
    assert_eq!((other.status, other.code().as_str()), (422, "key_reused"));
    assert_eq!((ground.booked("A"), ground.booked("B")), (1, 0));
}

#[test]
fn e6_a_crash_before_the_commit_is_found_out_and_the_repeat_does_the_work_once() {
    for (mark, once) in [("cut_record", RECORD), ("cut_verify", VERIFY)] {
        let mut ground = Ground::new(mark, &once.replace("\"optional\"", "\"required\""));
        let call = call("/api/direct", "one", "k-1", "A");
        ground.killed_in_mid_write(&call);
        let reply = ground.answer(&call);
        assert_eq!((reply.status, &reply.json()["rows"][0]["reference"]), (200, &json!("A")), "{mark}: {reply:?}");
        assert_eq!(ground.booked("A"), 1, "{mark}: promise 7");
        assert_eq!(ground.answer(&call).body, reply.body, "{mark}");
        assert_eq!(ground.booked("A"), 1, "{mark}");
    }
}

#[test]
fn e6_a_crash_after_the_commit_is_found_out_and_nothing_is_done_again() {
    for (mark, once) in [("kept_record", RECORD), ("kept_verify", VERIFY)] {
        let mut ground = Ground::new(mark, once);
        let call = call("/api/direct", "one", "k-1", "A");
        ground.hold();
        let nobody_listens = call.open(&ground.server.flows);
        ground.in_mid_write();
        ground.server.kill();
        drop(nobody_listens);
        // What the transaction would have left if the crash had come a moment later.
        ground.let_go();
        ground.observer.wait_until_active(&format!("INSERT INTO {mark} "), false, Duration::from_secs(10));
        ground.observer.execute(&format!(
            "INSERT INTO {mark} VALUES ('A', 'first'); INSERT INTO {mark}_done VALUES ('one', 'direct', 'k-1', 'first', now())"
        ));
        ground.server.start_again();
        ground.server.wait_for_durable();
        let reply = ground.answer(&call);
        assert_eq!((reply.status, &reply.json()["done_before"]), (200, &json!(true)), "{mark}: {reply:?}");
        assert_eq!(ground.booked("A"), 1, "{mark}: promise 7: never twice");
    }
}

#[test]
fn e6_a_crash_that_nothing_can_tell_of_is_unknown_until_an_operator_says() {
    let mut ground = Ground::new("cut_unknown", NOTHING);
    let direct = call("/api/direct", "one", "k-1", "A");
    ground.killed_in_mid_write(&direct);
    let told = ground.answer(&direct);
    assert_eq!((told.status, told.code().as_str(), &told.json()["retryable"]), (504, "outcome_unknown", &json!(false)), "{told:?}");
    assert_eq!(ground.answer(&direct).code(), "outcome_unknown", "and it stays so");
    assert_eq!(ground.booked("A"), 0, "never run again by itself");
    let unknown = ground.server.metric("spillgate_interrupted_writes_total{by=\"nothing\"}");
    assert!(unknown.is_some_and(|count| count >= 1.0), "{unknown:?}");

    // The same behind a queue: its job is `unknown`, and its caller and an operator see it.
    let durable = call("/api/book", "one", "k-2", "B");
    ground.killed_in_mid_write(&durable);
    let job = job_of(&ground.answer(&durable.clone().header("Prefer", "wait=0")));
    let ended = ground.server.ended_job("key-one-1", &job);
    assert_eq!((state_of(&ended).as_str(), &ended.json()["error"]["code"]), ("unknown", &json!("outcome_unknown")), "{ended:?}");
    assert_eq!(ground.booked("B"), 0);
    let resolved =
        ground.server.operate(&format!("/admin/v1/jobs/{job}/resolve"), r#"{"state":"succeeded","note":"found in the paper file"}"#);
    assert_eq!(resolved["state"], "succeeded");
    let seen = ground.server.job("key-one-1", &job);
    assert_eq!((state_of(&seen).as_str(), &seen.json()["result"]["note"]), ("succeeded", &json!("found in the paper file")), "{seen:?}");
    let again = Request::new("POST", &format!("/admin/v1/jobs/{job}/resolve")).key(OPERATOR).body(r#"{"state":"failed"}"#);
    assert!(again.send(&ground.server.admin).status >= 400, "a job ends in exactly one state");
    assert_eq!(ground.booked("B"), 0);
}

#[test]
fn e4_an_item_taken_by_a_worker_that_died_is_done_once_and_its_place_is_free() {
    let mut ground = Ground::new("killed_worker", RECORD);
    let booking = call("/api/book", "one", "", "A");
    ground.hold();
    let job = job_of(&booking.send(&ground.server.flows));
    ground.in_mid_write();
    assert_eq!(state_of(&ground.server.job("key-one-1", &job)), "running");
    assert_eq!(ground.server.cancel_job("key-one-1", &job).code(), "conflict_running", "what is at work cannot be cancelled");
    ground.server.kill();
    ground.server.start_again();
    ground.server.wait_for_durable();
    assert!(matches!(state_of(&ground.server.job("key-one-1", &job)).as_str(), "queued" | "running"), "the item is back");
    // The dead worker's statement is still there in Postgres; its transaction ends when it can.
    ground.let_go();
    assert_eq!(state_of(&ground.server.ended_job("key-one-1", &job)), "succeeded");
    assert_eq!((ground.booked("A"), ground.observer.count("SELECT count(*) FROM killed_worker_done")), (1, 1));
    let lane = ground.server.lane("bookings", "one");
    assert_eq!((&lane["waiting"], &lane["running"]), (&json!(0), &json!(0)), "{lane}");
}

#[test]
fn a_business_key_is_taken_once_across_tenants_and_shown_to_its_owner_only() {
    let ground = Ground::new("unique_key", "idempotency = { key = \"optional\" }\nunique = { by = [\"reference\"], within = \"1h\" }");
    ground.server.operate_lane("bookings", "one", "pause", "");
    let first = job_of(&call("/api/book", "one", "", "A").send(&ground.server.flows));
    let own = call("/api/book", "one", "", "A").send(&ground.server.flows);
    assert_eq!((own.status, own.code().as_str()), (409, "conflict_unique"), "{own:?}");
    assert!(own.body.contains(&format!("Job {first}")), "its owner is told which job has it: {own:?}");
    let other = call("/api/book", "two", "", "A").send(&ground.server.flows);
    assert_eq!((other.status, other.code().as_str()), (409, "conflict_unique"), "{other:?}");
    assert!(!other.body.contains(&first) && !other.body.contains("\"one\""), "nobody else is: {other:?}");
    assert_eq!(call("/api/book", "two", "", "B").send(&ground.server.flows).status, 202, "another key is free");

    assert_eq!(state_of(&ground.server.cancel_job("key-one-1", &first)), "cancelled");
    let freed = call("/api/book", "two", "", "A").send(&ground.server.flows);
    assert_eq!(freed.status, 202, "a cancelled job frees its business key: {freed:?}");
    assert_eq!(state_of(&ground.server.ended_job("key-two-1", &job_of(&freed))), "succeeded");
    assert_eq!(ground.booked("A"), 1);
    let done = call("/api/book", "one", "", "A").send(&ground.server.flows);
    assert_eq!(done.code(), "conflict_unique", "what was done stays taken");
}
