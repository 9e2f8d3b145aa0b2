//! Durable flows as a caller and an operator meet them: a job for each call, its life, its limits, and that a restart keeps all of it.

use std::time::{Duration, Instant};

use spillgate_test_support::durable::{OPERATOR, PEOPLE, STORE, job_of, state_of};
use spillgate_test_support::ledger::Ledger;
use spillgate_test_support::observer::Observer;
use spillgate_test_support::postgres;
use spillgate_test_support::server::{Options, Reply, Request, Server};

const QUEUE: &str = "[queue.bookings]\nmax_item = \"16KiB\"\nbytes = \"8MiB\"\nworkers = 2\n";

/// Books a reference from the queue `bookings`.
const BOOK: &str = r#"
name = "book"
about = "Books."
http = "POST /book"
effect = "write"
[input.reference]
type = "text"
about = "Yours."
[[step]]
queue = "bookings"
[[step]]
name = "booking"
database = "main"
sql = "INSERT INTO BOOKING (REFERENCE, TENANT) VALUES (:reference, 'x') RETURNING ID, REFERENCE"
columns = { ID = "integer", REFERENCE = "text" }
max_bytes = "1KiB"
"#;

/// Reads without any queue.
const COUNT: &str = r#"
name = "count"
about = "Counts."
http = "GET /count"
effect = "read"
[[step]]
database = "main"
sql = "SELECT COUNT(*) AS N FROM BOOKING"
columns = { N = "integer" }
max_bytes = "1KiB"
"#;

fn serve(ledger: &Ledger, more: &str, flows: &[(&str, &str)]) -> Server {
    let queue = if more.contains("[queue.") { "" } else { QUEUE };
    let server = format!("{more}{STORE}{PEOPLE}{queue}{}", ledger.section());
    let flows: Vec<_> = [("book.toml", BOOK), ("count.toml", COUNT)].into_iter().chain(flows.iter().copied()).collect();
    let server = Server::start(&Options { binary: env!("CARGO_BIN_EXE_spillgate"), server: &server, flows: &flows, environment: &[] });
    server.wait_for_durable();
    server
}

fn book(server: &Server, key: &str, reference: &str) -> Reply {
    server.post(key, "/api/book", &format!("{{\"reference\":\"{reference}\"}}"))
}

fn accepted(server: &Server, key: &str, reference: &str) -> String {
    let reply = book(server, key, reference);
    assert_eq!(reply.status, 202, "{reply:?}");
    // A worker may have it before its caller has the answer.
    assert!(["queued", "running"].contains(&state_of(&reply).as_str()), "{reply:?}");
    job_of(&reply)
}

#[test]
fn a_call_is_answered_with_a_job_and_the_job_is_done_from_disk() {
    let ledger = Ledger::new();
    let server = serve(&ledger, "", &[]);
    let reply = book(&server, "key-one-1", "A-1");
    assert_eq!(reply.status, 202, "{reply:?}");
    let job = job_of(&reply);
    assert_eq!(reply.header("location"), Some(format!("/api/jobs/{job}").as_str()));
    let ended = server.ended_job("key-one-1", &job);
    assert_eq!((ended.status, state_of(&ended).as_str()), (200, "succeeded"), "{ended:?}");
    assert_eq!(ended.json()["result"]["rows"][0]["REFERENCE"], "A-1");
    assert_eq!(ledger.booked("A-1"), 1);

    let waited = Request::new("POST", "/api/book").key("key-one-1").header("Prefer", "wait=10").body(r#"{"reference":"A-2"}"#);
    let waited = waited.send(&server.flows);
    assert_eq!((waited.status, state_of(&waited).as_str()), (200, "succeeded"), "an end in time comes with the reply: {waited:?}");
    assert_eq!(waited.json()["result"], server.job("key-one-1", &job_of(&waited)).json()["result"], "the same result either way");
    assert_eq!(ledger.booked("A-2"), 1);
}

#[test]
fn a1_a_wait_that_ran_out_leaves_one_item_and_never_two() {
    let ledger = Ledger::new();
    let server = serve(&ledger, "", &[]);
    server.operate_lane("bookings", "one", "pause", "");
    let asked = Request::new("POST", "/api/book").key("key-one-1").header("Prefer", "wait=1").body(r#"{"reference":"A-1"}"#);
    let begun = Instant::now();
    let reply = asked.send(&server.flows);
    assert_eq!((reply.status, state_of(&reply).as_str()), (202, "queued"), "the wait ran out: {reply:?}");
    assert!(begun.elapsed() >= Duration::from_millis(900), "it waited: {:?}", begun.elapsed());
    let lane = server.lane("bookings", "one");
    assert_eq!((&lane["waiting"], &lane["head"]["waits_for"]), (&1.into(), &"paused".into()), "one item: {lane}");
    server.operate_lane("bookings", "one", "resume", "");
    assert_eq!(state_of(&server.ended_job("key-one-1", &job_of(&reply))), "succeeded");
    let lane = server.lane("bookings", "one");
    assert_eq!(
        (&lane["waiting"], &lane["running"], &lane["appended"], &lane["ended"]["succeeded"]),
        (&0.into(), &0.into(), &1.into(), &1.into())
    );
    assert_eq!(ledger.booked("A-1"), 1);
    let usage = server.admin_get(OPERATOR, "/admin/v1/tenants/one/usage").json();
    assert_eq!(usage["in_flight"]["used"], 0, "nothing of the call is left: {usage}");
}

#[test]
fn a_job_does_not_exist_for_anybody_but_its_tenant() {
    let ledger = Ledger::new();
    let server = serve(&ledger, "", &[]);
    server.operate_lane("bookings", "one", "pause", "");
    let job = accepted(&server, "key-one-1", "A-1");
    let as_another = |id: &str| (server.job("key-two-1", id), server.cancel_job("key-two-1", id));
    for id in [job.as_str(), "7fffffff-1", "1-7fffffff", "nonsense"] {
        let (looked, cancelled) = as_another(id);
        assert_eq!((looked.status, looked.code().as_str()), (404, "unknown_job"), "{id}: {looked:?}");
        assert_eq!((cancelled.status, cancelled.code().as_str()), (404, "unknown_job"), "{id}: {cancelled:?}");
        assert_eq!(looked.json()["detail"], as_another("7fffffff-1").0.json()["detail"], "nothing tells it from one that never was");
    }
    assert_eq!(state_of(&server.job("key-one-1", &job)), "queued", "nobody else cancelled it");
    assert_eq!(Request::new("GET", &format!("/api/jobs/{job}")).send(&server.flows).status, 401);
}

#[test]
fn a_cancelled_job_is_never_run() {
    let ledger = Ledger::new();
    let server = serve(&ledger, "", &[]);
    server.operate_lane("bookings", "one", "pause", "");
    let (unwanted, wanted) = (accepted(&server, "key-one-1", "A-1"), accepted(&server, "key-one-1", "A-2"));
    let reply = server.cancel_job("key-one-1", &unwanted);
    assert_eq!((reply.status, state_of(&reply).as_str()), (200, "cancelled"), "{reply:?}");
    server.operate_lane("bookings", "one", "resume", "");
    assert_eq!(state_of(&server.ended_job("key-one-1", &wanted)), "succeeded");
    server.wait_until_drained("bookings", "one");
    assert_eq!(ledger.references(), ["A-2"]);
    let late = server.cancel_job("key-one-1", &wanted);
    assert_eq!((late.status, state_of(&late).as_str()), (200, "succeeded"), "what has ended stays as it is");
    assert_eq!(state_of(&server.job("key-one-1", &unwanted)), "cancelled");
}

#[test]
fn work_that_keeps_failing_becomes_a_dead_letter_and_can_be_replayed() {
    let observer = Observer::new();
    observer.execute(
        "CREATE TABLE dead_booking (reference text); CREATE TABLE dead_mended (mended boolean);
         CREATE FUNCTION dead_refuses() RETURNS boolean LANGUAGE plpgsql AS $$
         BEGIN
             IF NOT EXISTS (SELECT FROM dead_mended) THEN RAISE EXCEPTION 'come back' USING ERRCODE = '40001'; END IF;
             RETURN true;
         END $$",
    );
    let queue = "[queue.bookings]\nmax_item = \"16KiB\"\nbytes = \"8MiB\"\nattempts = 2\ndead_letters = { items = 1 }\n";
    let flow = BOOK.replace(
        "INSERT INTO BOOKING (REFERENCE, TENANT) VALUES (:reference, 'x') RETURNING ID, REFERENCE",
        "INSERT INTO dead_booking SELECT :reference WHERE dead_refuses() RETURNING reference",
    );
    let flow = flow.replace("columns = { ID = \"integer\", REFERENCE = \"text\" }", "columns = { reference = \"text\" }");
    let database = format!(
        "[database.main]\ndriver = \"postgres\"\nconnection = \"{}\"\naccess = \"read-write\"\npool = {{ max = 4 }}\n",
        postgres::shared().url()
    );
    let server = format!("{STORE}{PEOPLE}{queue}{database}");
    let server = Server::start(&Options {
        binary: env!("CARGO_BIN_EXE_spillgate"),
        server: &server,
        flows: &[("book.toml", &flow)],
        environment: &[],
    });
    server.wait_for_durable();
    let first = accepted(&server, "key-one-1", "D-1");
    let ended = server.ended_job("key-one-1", &first);
    assert_eq!((state_of(&ended).as_str(), ended.json()["error"]["code"].as_str()), ("dead", Some("database_error")), "{ended:?}");
    let letters = server.admin_get(OPERATOR, "/admin/v1/queues/bookings/lanes/one/dead").json();
    assert_eq!((&letters["dead"][0]["job"], &letters["dead"][0]["attempts"]), (&first.as_str().into(), &2.into()), "{letters}");

    // Its dead letters are full: the lane is parked and says so, and takes new work all the same.
    let second = accepted(&server, "key-one-1", "D-2");
    server.wait_for("parked lane", |server| (server.lane("bookings", "one")["head"]["waits_for"] == "dead_letters").then_some(()));
    let other = accepted(&server, "key-two-1", "D-3");
    assert_eq!(state_of(&server.ended_job("key-two-1", &other)), "dead", "another tenant's lane goes on");

    observer.execute("INSERT INTO dead_mended VALUES (true)");
    let replayed = server.operate_lane("bookings", "one", "dead/replay", r#"{"all":true}"#);
    assert_eq!(replayed["replayed"][0]["letter"], first.as_str(), "{replayed}");
    let again = replayed["replayed"][0]["job"].as_str().expect("a new job").to_owned();
    for job in [&again, &second] {
        assert_eq!(state_of(&server.ended_job("key-one-1", job)), "succeeded");
    }
    assert_eq!(observer.count("SELECT count(*) FROM dead_booking WHERE reference = 'D-1'"), 1);
    assert_eq!(server.lane("bookings", "one")["dead"], 0);
}

#[test]
fn an_operator_pauses_resumes_and_purges_one_lane_and_the_audit_knows() {
    let ledger = Ledger::new();
    let server = serve(&ledger, "", &[]);
    server.operate_lane("bookings", "one", "pause", "");
    let jobs: Vec<String> = (0..30).map(|number| accepted(&server, "key-one-1", &format!("P-{number}"))).collect();
    let other = accepted(&server, "key-two-1", "Q-1");
    assert_eq!(state_of(&server.ended_job("key-two-1", &other)), "succeeded", "a pause stops one lane only");
    let lane = server.lane("bookings", "one");
    assert_eq!((&lane["waiting"], &lane["paused"]), (&30.into(), &true.into()), "{lane}");
    assert!(lane["oldest_item_age_ms"].is_u64() && lane["disk_bytes"].as_u64().is_some_and(|bytes| bytes >= 64 << 10), "{lane}");

    let purged = server.operate_lane("bookings", "one", "purge", "");
    assert_eq!(purged["purged"], 30);
    server.operate_lane("bookings", "one", "resume", "");
    for job in [&jobs[0], &jobs[29]] {
        assert_eq!(state_of(&server.job("key-one-1", job)), "purged");
    }
    let after = accepted(&server, "key-one-1", "P-after");
    assert_eq!(state_of(&server.ended_job("key-one-1", &after)), "succeeded");
    assert_eq!(ledger.references(), ["Q-1", "P-after"], "nothing that was purged is run");

    let audit = server.admin_get(OPERATOR, "/admin/v1/audit").json();
    let entries: Vec<String> = audit["entries"]
        .as_array()
        .expect("entries")
        .iter()
        .map(|entry| format!("{} {} {}", entry["who"], entry["action"], entry["subject"]))
        .collect();
    for action in ["pause", "purge", "resume"] {
        let entry = format!("\"operator\" \"{action}\" \"queues/bookings/lanes/one\"");
        assert!(entries.contains(&entry), "{entry} is missing: {audit}");
    }
}

#[test]
fn promise_2_a_restart_keeps_what_waits_what_ended_and_what_is_paused() {
    let ledger = Ledger::new();
    let mut server = serve(&ledger, "", &[]);
    let done = accepted(&server, "key-two-1", "done");
    let result = server.ended_job("key-two-1", &done).json();
    server.operate_lane("bookings", "one", "pause", "");
    let jobs: Vec<String> = (0..40).map(|number| accepted(&server, "key-one-1", &format!("R-{number}"))).collect();
    assert_eq!(state_of(&server.cancel_job("key-one-1", &jobs[7])), "cancelled");
    for hard in [true, false] {
        if hard {
            server.kill();
        } else {
            server.signal("TERM");
            assert!(server.ended().success(), "{}", server.log());
        }
        server.start_again();
        server.wait_for_durable();
        let lane = server.lane("bookings", "one");
        assert_eq!((&lane["waiting"], &lane["paused"]), (&39.into(), &true.into()), "hard: {hard}: {lane}");
        assert_eq!(server.job("key-two-1", &done).json(), result, "a result outlives the process");
        assert_eq!(state_of(&server.job("key-one-1", &jobs[7])), "cancelled");
    }
    server.operate_lane("bookings", "one", "resume", "");
    server.wait_until_drained("bookings", "one");
    for (number, job) in jobs.iter().enumerate() {
        let expected = if number == 7 { "cancelled" } else { "succeeded" };
        assert_eq!(state_of(&server.job("key-one-1", job)), expected, "R-{number}");
        assert_eq!(ledger.booked(&format!("R-{number}")), i64::from(number != 7), "R-{number}");
    }
}

#[test]
fn promise_1_a_full_queue_refuses_and_says_whose_share_it_is() {
    let ledger = Ledger::new();
    let queue = "[queue.bookings]\nitems = 3\nmax_item = \"2KiB\"\nbytes = \"8MiB\"\n";
    let server = serve(&ledger, queue_after_server(queue).as_str(), &[]);
    server.operate_lane("bookings", "one", "pause", "");
    server.operate_lane("bookings", "two", "pause", "");
    for number in 0..2 {
        accepted(&server, "key-one-1", &format!("F-{number}"));
    }
    let own = book(&server, "key-one-1", "F-3");
    assert_eq!((own.status, own.code().as_str(), own.json()["scope"].as_str()), (429, "queue_full", Some("tenant")), "{own:?}");
    assert_eq!(own.json()["policy"], serde_json::json!({"name": "queue.items.share", "limit": 2, "used": 2}));
    assert!(own.header("retry-after").is_some() && own.json()["retryable"] == true, "{own:?}");
    accepted(&server, "key-two-1", "F-2");
    let others = book(&server, "key-three-1", "F-4");
    assert_eq!((others.status, others.code().as_str(), others.json()["scope"].as_str()), (503, "queue_full", Some("queue")), "{others:?}");
    let large = book(&server, "key-one-1", &"x".repeat(3_000));
    assert_eq!((large.status, large.code().as_str()), (413, "item_too_large"), "it could never fit: {large:?}");
    assert_eq!(server.get("key-one-1", "/api/count").status, 200, "direct flows are served");
    for tenant in ["one", "two"] {
        server.operate_lane("bookings", tenant, "resume", "");
        server.wait_until_drained("bookings", tenant);
    }
    accepted(&server, "key-one-1", "F-5");
    server.wait_until_drained("bookings", "one");
    let mut booked = ledger.references();
    booked.sort_unstable();
    assert_eq!(booked, ["F-0", "F-1", "F-2", "F-5"], "what was refused was not taken");
}

#[test]
fn promise_5_a_tenant_that_fills_a_shared_queue_to_its_last_byte_takes_nothing_from_the_others() {
    let ledger = Ledger::new();
    let queue = "[queue.bookings]\nmax_item = \"64KiB\"\nbytes = \"1MiB\"\n";
    let server = serve(&ledger, queue_after_server(queue).as_str(), &[]);
    server.operate_lane("bookings", "one", "pause", "");
    for bytes in [60_000, 6_000, 600, 60, 6] {
        let refused = (0..40).map(|_| book(&server, "key-one-1", &"x".repeat(bytes))).find(|reply| reply.status != 202);
        let refused = refused.expect("its part ends");
        assert_eq!((refused.status, refused.code().as_str()), (429, "queue_full"), "{refused:?}");
        assert_eq!(
            (refused.json()["scope"].as_str(), refused.json()["policy"]["name"].as_str()),
            (Some("tenant"), Some("queue.bytes.share"))
        );
    }
    let first = accepted(&server, "key-two-1", "small");
    assert_eq!(state_of(&server.ended_job("key-two-1", &first)), "succeeded", "beside a full lane that stands");
    // The largest item, too.
    accepted(&server, "key-two-1", &"y".repeat(60_000));
    assert_eq!(book(&server, "key-one-1", "still").status, 429);
}

/// A queue of a test's own in place of [`QUEUE`]: what `serve` puts first belongs to `[server]`.
fn queue_after_server(queue: &str) -> String {
    format!("memory = \"64MiB\"\n{queue}")
}

#[test]
fn a_queue_that_sheds_gives_up_the_oldest_of_the_lane_that_asks() {
    let ledger = Ledger::new();
    let queue = "[queue.bookings]\nitems = 4\nmax_item = \"2KiB\"\nbytes = \"8MiB\"\nwhen_full = \"shed_oldest\"\n";
    let server = serve(&ledger, queue_after_server(queue).as_str(), &[]);
    for tenant in ["one", "two"] {
        server.operate_lane("bookings", tenant, "pause", "");
    }
    let innocent = accepted(&server, "key-two-1", "S-two");
    let jobs: Vec<String> = (0..5).map(|number| accepted(&server, "key-one-1", &format!("S-{number}"))).collect();
    for (number, job) in jobs.iter().enumerate() {
        let seen = server.job("key-one-1", job);
        assert_eq!(state_of(&seen), if number < 3 { "shed" } else { "queued" }, "S-{number}");
        assert_eq!(seen.json()["error"]["code"].as_str(), (number < 3).then_some("queue_full"), "{seen:?}");
    }
    for tenant in ["one", "two"] {
        server.operate_lane("bookings", tenant, "resume", "");
        server.wait_until_drained("bookings", tenant);
    }
    assert_eq!(state_of(&server.job("key-two-1", &innocent)), "succeeded", "another lane is never touched");
    let mut booked = ledger.references();
    booked.sort_unstable();
    assert_eq!(booked, ["S-3", "S-4", "S-two"]);
}

#[test]
fn g2_a_server_told_to_stop_ends_in_time_and_keeps_what_waits() {
    let ledger = Ledger::new();
    let mut server = serve(&ledger, "shutdown_grace = \"10s\"\n", &[]);
    let jobs: Vec<String> = (0..60).map(|number| accepted(&server, "key-one-1", &format!("T-{number}"))).collect();
    let told = Instant::now();
    server.signal("TERM");
    assert!(server.ended().success(), "{}", server.log());
    assert!(told.elapsed() < Duration::from_secs(10), "{:?}", told.elapsed());
    server.start_again();
    for (number, job) in jobs.iter().enumerate() {
        server.wait_for_durable();
        assert_eq!(state_of(&server.ended_job("key-one-1", job)), "succeeded");
        assert_eq!(ledger.booked(&format!("T-{number}")), 1, "done before the stop or after it, once");
    }
}

#[test]
fn a_store_that_does_not_open_stops_durable_work_only() {
    let ledger = Ledger::new();
    let mut server = serve(&ledger, "", &[]);
    server.kill();
    std::fs::remove_dir_all(server.folder.join("data/store")).expect("the store is there");
    std::fs::write(server.folder.join("data/store"), "a file where a folder should be").expect("written");
    server.start_again();
    let refused = server.wait_for("an answer about the store", |server| {
        let reply = book(server, "key-one-1", "X-1");
        (reply.code() != "recovering").then_some(reply)
    });
    assert_eq!((refused.status, refused.code().as_str()), (503, "store_failed"), "{refused:?}");
    let ready = |target| Request::new("GET", target).send(&server.flows);
    assert_eq!((ready("/readyz").status, ready("/readyz").json()["status"].as_str()), (200, Some("degraded")));
    assert_eq!(ready("/readyz?for=durable").status, 503);
    assert_eq!(server.get("key-one-1", "/api/count").json()["rows"][0]["N"], 0, "direct flows serve");
    assert_eq!(server.store()["state"], "failed");
    assert_eq!(server.metric("spillgate_store_state{state=\"failed\"}"), Some(1.0));
}

const SOURCE: &str = r#"
name = "source"
about = "Hands on what is new."
effect = "read"
[schedule]
every = "1s"
tenant = "one"
watermark = "steps.new.rows[-1].ID"
[[step]]
name = "new"
database = "main"
sql = "SELECT ID, REFERENCE FROM BOOKING WHERE ID > COALESCE(:watermark, 0) ORDER BY ID"
columns = { ID = "integer", REFERENCE = "text" }
max_rows = 7
max_bytes = "4KiB"
[[step]]
emit = "note"
each = "steps.new.rows.map(row, {'reference': row.REFERENCE})"
"#;
const NOTE: &str = r#"
name = "note"
about = "Notes."
effect = "write"
idempotency = { key = "optional", record = "DONE" }
[input.reference]
type = "text"
[[step]]
queue = "notes"
[[step]]
database = "main"
sql = "INSERT INTO NOTE (REFERENCE) VALUES (:reference)"
"#;

#[test]
fn a_schedule_hands_on_each_new_row_once_also_across_crashes() {
    let ledger = Ledger::new();
    ledger.execute("CREATE TABLE NOTE (REFERENCE TEXT NOT NULL)");
    ledger.execute(
        "WITH RECURSIVE N (I) AS (SELECT 1 UNION ALL SELECT I + 1 FROM N WHERE I < 20) INSERT INTO BOOKING SELECT I, 'N-' || I, 'x' FROM N",
    );
    let queues = format!("memory = \"64MiB\"\n{QUEUE}[queue.notes]\nmax_item = \"16KiB\"\nbytes = \"8MiB\"\n");
    let mut server = serve(&ledger, &queues, &[("source.toml", SOURCE), ("note.toml", NOTE)]);
    // Seven rows a tick: killed after each of the first ticks, once at the tick and once when its items are done.
    for noted in [1, 7, 8] {
        server.wait_for("notes", |_| (ledger.count("SELECT COUNT(*) FROM NOTE") >= noted).then_some(()));
        server.kill();
        server.start_again();
        server.wait_for_durable();
    }
    server.wait_for("all notes", |_| (ledger.count("SELECT COUNT(DISTINCT REFERENCE) FROM NOTE") == 20).then_some(()));
    server.wait_until_drained("notes", "one");
    assert_eq!(ledger.count("SELECT COUNT(*) FROM NOTE"), 20, "promise 2: none twice");
    let ticks = server.metric("spillgate_schedule_ticks_total{flow=\"source\",outcome=\"run\"}");
    assert!(ticks.is_some_and(|ticks| ticks >= 1.0), "{ticks:?}");
}
