//! Promises 2 and 7 under kill -9: several clients of several tenants book, with and without a queue, while the server is killed and
//! started again and again. Executions are counted in the target database: none lost, none twice.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use spillgate_test_support::durable::{PEOPLE, STORE, job_of, state_of};
use spillgate_test_support::observer::Observer;
use spillgate_test_support::postgres;
use spillgate_test_support::server::{Options, PATIENCE, Request, Server};

/// Acknowledged bookings after which the server is killed, round by round.
const ROUNDS: [usize; 12] = [3, 17, 40, 8, 29, 61, 5, 23, 11, 47, 2, 35];
/// A start on what a crash left takes no longer.
const READY_WITHIN: Duration = Duration::from_secs(10);
/// Each with a tenant and a path of its own turn.
const CLIENTS: usize = 6;
const TENANTS: [&str; 3] = ["one", "two", "three"];

const QUEUE: &str = "[queue.bookings]\nmax_item = \"16KiB\"\nbytes = \"8MiB\"\nworkers = 3\n";

fn flow(name: &str, queue: &str) -> String {
    format!(
        "name = \"{name}\"\nabout = \"Books.\"\nhttp = \"POST /{name}\"\neffect = \"write\"\ndeadline = \"10s\"\n\
         idempotency = {{ key = \"required\", record = \"crash_done\" }}\n[input.reference]\ntype = \"text\"\nabout = \"Yours.\"\n\
         {queue}[[step]]\nname = \"booking\"\ndatabase = \"main\"\nsql = \"INSERT INTO crash_booking VALUES (:reference, :job)\"\n"
    )
}

fn serve() -> Server {
    let database = format!(
        "[database.main]\ndriver = \"postgres\"\nconnection = \"{}\"\naccess = \"read-write\"\npool = {{ max = 8, line = 64 }}\n",
        postgres::shared().url()
    );
    let server = format!("{STORE}{PEOPLE}{QUEUE}{database}");
    let (direct, durable) = (flow("direct", ""), flow("book", "[[step]]\nqueue = \"bookings\"\norder_by = \"size(input.reference)\"\n"));
    let flows = [("direct.toml", direct.as_str()), ("book.toml", durable.as_str())];
    let server = Server::start(&Options { binary: env!("CARGO_BIN_EXE_spillgate"), server: &server, flows: &flows, environment: &[] });
    server.wait_for_durable();
    server
}

/// Where the server is now, for clients that lost it.
struct Whereabouts {
    now: Mutex<(usize, String)>,
    changed: Condvar,
}

impl Whereabouts {
    fn now(&self) -> (usize, String) {
        self.now.lock().expect("no client panicked").clone()
    }
    fn moved(&self, address: &str) {
        let mut now = self.now.lock().expect("no client panicked");
        *now = (now.0 + 1, address.to_owned());
        self.changed.notify_all();
    }
    /// Waits until the server is somewhere else than it was at move number `seen`.
    fn after(&self, seen: usize) {
        let now = self.now.lock().expect("no client panicked");
        let (_now, late) = self.changed.wait_timeout_while(now, PATIENCE, |now| now.0 == seen).expect("no client panicked");
        assert!(!late.timed_out(), "the server did not come back");
    }
}

/// What a client was told.
#[derive(Default)]
struct Told {
    /// Acknowledged references, each with its job where it has one.
    acknowledged: Vec<(String, Option<String>)>,
    /// States in which jobs were seen to have ended.
    ended: BTreeMap<String, String>,
    /// Calls that had to be sent again, for the server died before it answered.
    again: usize,
}

/// Books one reference after the other until nobody wants to hear of it any more. Every booking is sent with one key until it is
/// acknowledged, as a careful client does.
fn client(number: usize, at: &Whereabouts, acknowledged: &SyncSender<()>) -> Told {
    let (key, path) = (format!("key-{}-1", TENANTS[number % 3]), if number < 4 { "/api/book" } else { "/api/direct" });
    let mut told = Told::default();
    for booking in 0.. {
        let reference = format!("c{number}-{booking}");
        let call = Request::new("POST", path).key(&key).header("Idempotency-Key", &reference);
        let call = call.body(&format!("{{\"reference\":\"{reference}\"}}"));
        let begun = Instant::now();
        let reply = loop {
            assert!(begun.elapsed() < 2 * PATIENCE, "{reference}: a call is answered in the end");
            let (seen, address) = at.now();
            match call.try_send(&address) {
                Ok(reply) if matches!(reply.status, 200 | 202) => break reply,
                // Being opened, stopping, or the first call with the key is still looked into.
                Ok(reply) if matches!(reply.code().as_str(), "recovering" | "draining" | "conflict_running") => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Ok(reply) => panic!("{reference}: {reply:?}"),
                Err(_died) => {
                    told.again += 1;
                    at.after(seen);
                }
            }
        };
        let job = (path == "/api/book").then(|| job_of(&reply));
        if let Some((_, Some(before))) = told.acknowledged.last() {
            let look = Request::new("GET", &format!("/api/jobs/{before}")).key(&key).try_send(&at.now().1);
            if let Some(state) = look.ok().filter(|reply| reply.status == 200).map(|reply| state_of(&reply))
                && !matches!(state.as_str(), "queued" | "running")
            {
                told.ended.insert(before.clone(), state);
            }
        }
        told.acknowledged.push((reference, job));
        if acknowledged.send(()).is_err() {
            return told;
        }
    }
    told
}

fn kill_again_and_again(server: &mut Server, at: &Whereabouts, acknowledged: &Receiver<()>) -> Vec<Duration> {
    let mut starts = Vec::new();
    for bookings in ROUNDS {
        for _ in 0..bookings {
            acknowledged.recv_timeout(PATIENCE).expect("bookings are acknowledged");
        }
        server.kill();
        let begun = Instant::now();
        server.start_again();
        server.wait_for_durable();
        starts.push(begun.elapsed());
        at.moved(&server.flows);
    }
    for _ in 0..CLIENTS {
        acknowledged.recv_timeout(PATIENCE).expect("bookings are acknowledged");
    }
    starts
}

#[test]
fn promises_2_and_7_what_was_acknowledged_is_done_once_however_often_the_server_is_killed() {
    let observer = Observer::new();
    observer.execute(
        "CREATE TABLE crash_booking (reference text NOT NULL, job text NOT NULL);
         CREATE TABLE crash_done (tenant text, flow text, idempotency_key text, job text NOT NULL, done_at timestamptz NOT NULL,
             PRIMARY KEY (tenant, flow, idempotency_key))",
    );
    let mut server = serve();
    let at = Whereabouts { now: Mutex::new((0, server.flows.clone())), changed: Condvar::new() };
    let (sender, receiver) = sync_channel(4);
    let (told, starts) = std::thread::scope(|threads| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (at, sender) = (&at, sender.clone());
                threads.spawn(move || client(number, at, &sender))
            })
            .collect();
        let starts = kill_again_and_again(&mut server, &at, &receiver);
        // Clients end with the booking at hand.
        drop(receiver);
        let told: Vec<Told> = clients.into_iter().map(|client| client.join().expect("a client ends")).collect();
        (told, starts)
    });
    for tenant in TENANTS {
        server.wait_until_drained("bookings", tenant);
    }

    let expected: Vec<&String> = told.iter().flat_map(|told| told.acknowledged.iter().map(|(reference, _)| reference)).collect();
    let mut executed: BTreeMap<String, usize> = BTreeMap::new();
    for reference in observer.texts("SELECT reference FROM crash_booking") {
        *executed.entry(reference).or_default() += 1;
    }
    let twice: Vec<_> = executed.iter().filter(|(_, count)| **count != 1).collect();
    assert!(twice.is_empty(), "promise 7: executed more than once: {twice:?}");
    let lost: Vec<_> = expected.iter().filter(|reference| !executed.contains_key(**reference)).collect();
    assert!(lost.is_empty(), "promise 2: acknowledged and lost: {lost:?}");
    assert_eq!(executed.len(), expected.len(), "every call was repeated until it was acknowledged: nothing else was done");

    let states = |server: &Server| -> BTreeMap<String, String> {
        let jobs = told.iter().enumerate().flat_map(|(number, told)| told.acknowledged.iter().map(move |(_, job)| (number, job)));
        let seen = jobs.filter_map(|(number, job)| {
            let job = job.as_ref()?;
            Some((job.clone(), state_of(&server.job(&format!("key-{}-1", TENANTS[number % 3]), job))))
        });
        seen.collect()
    };
    let ended = states(&server);
    let others: Vec<_> = ended.iter().filter(|(_, state)| *state != "succeeded").collect();
    assert!(others.is_empty(), "promise 2: {others:?}");
    for (job, state) in told.iter().flat_map(|told| &told.ended) {
        assert_eq!(&ended[job], state, "promise 2: {job} ends in exactly one state");
    }
    let slowest = starts.iter().max().copied().unwrap_or_default();
    assert!(slowest < READY_WITHIN, "ready within seconds each time: {starts:?}");

    server.signal("TERM");
    assert!(server.ended().success(), "{}", server.log());
    server.start_again();
    server.wait_for_durable();
    assert_eq!(states(&server), ended, "a clean stop and a start change nothing");
    let again: usize = told.iter().map(|told| told.again).sum();
    assert!(again > 0, "the crashes came while calls were in flight");
    println!("{} bookings over {} crashes, {again} calls cut off; slowest start {slowest:?}", expected.len(), ROUNDS.len());
}
