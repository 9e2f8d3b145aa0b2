//! Promise 3 and cases D2 and A4: a full volume loses nothing, stops no reader, and heals without a restart.
//!
//! The volume is a small tmpfs in a mount namespace. Where the machine forbids that, the volume of the temporary folder stands in with a
//! `disk_reserve` just below what is free and a real file that takes it; that is said, and the volume is then never full to the last byte.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use spillgate_test_support::durable::{PEOPLE, job_of, state_of};
use spillgate_test_support::ledger::Ledger;
use spillgate_test_support::server::{Options, Reply, Server, folder};
use spillgate_test_support::volume::Volume;

const MIB: u64 = 1 << 20;
/// The check of free space is done at least twice in it.
const HEALS_WITHIN: Duration = Duration::from_millis(1_500);

const QUEUE: &str = "[queue.bookings]\nmax_item = \"64KiB\"\nbytes = \"8MiB\"\nworkers = 2\n";
const BOOK: &str = r#"
name = "book"
about = "Books."
http = "POST /book"
effect = "write"
idempotency = { key = "optional", record = "DONE" }
[input.reference]
type = "text"
about = "Yours."
[input.note]
type = "text"
default = ""
about = "Fills an item."
[[step]]
queue = "bookings"
[[step]]
name = "booking"
database = "main"
sql = "INSERT INTO BOOKING (REFERENCE, TENANT) SELECT :reference, 'x' WHERE :note <> '-' RETURNING REFERENCE"
columns = { REFERENCE = "text" }
max_bytes = "1KiB"
"#;
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

/// Where the store is, and what fills it up.
enum Ground {
    Small(Volume),
    /// The temporary folder's own volume.
    Reserve {
        folder: PathBuf,
        reserve: u64,
    },
}

impl Ground {
    fn new(bytes: u64) -> Ground {
        match Volume::mount(bytes) {
            Ok(volume) => Ground::Small(volume),
            Err(why) => {
                eprintln!("NO SMALL VOLUME: this machine lets nobody mount one ({why}); a file against disk_reserve stands in");
                let folder = folder("filler");
                let free = free_bytes(&folder);
                Ground::Reserve { folder, reserve: free - 96 * MIB }
            }
        }
    }
    fn serve(&self, ledger: &Ledger, disk_limit: &str) -> Server {
        let (data, reserve, launcher) = match self {
            Ground::Small(volume) => (volume.path().join("data"), 4 * MIB, volume.launcher()),
            Ground::Reserve { folder, reserve } => (folder.join("data"), *reserve, Vec::new()),
        };
        let server = format!(
            "data_dir = \"{}\"\n[store]\ndisk_limit = \"{disk_limit}\"\ndisk_reserve = \"{reserve}B\"\n{PEOPLE}{QUEUE}{}",
            data.display(),
            ledger.section()
        );
        let flows = [("book.toml", BOOK), ("count.toml", COUNT)];
        let options = Options { binary: env!("CARGO_BIN_EXE_spillgate"), server: &server, flows: &flows, environment: &[] };
        let server = Server::start_through(&launcher, &options);
        server.wait_for_durable();
        server
    }
    /// A foreign file takes what is left.
    fn fill(&self) -> PathBuf {
        match self {
            Ground::Small(volume) => volume.fill(),
            Ground::Reserve { folder, .. } => {
                let path = folder.join("foreign");
                std::fs::write(&path, vec![b'x'; usize::try_from(192 * MIB).expect("it fits")]).expect("a foreign file");
                path
            }
        }
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if let Ground::Reserve { folder, .. } = self {
            let _left_behind = std::fs::remove_dir_all(folder);
        }
    }
}

fn free_bytes(folder: &std::path::Path) -> u64 {
    let told = std::process::Command::new("df").args(["--output=avail", "-B1"]).arg(folder).output().expect("df runs");
    String::from_utf8_lossy(&told.stdout).lines().nth(1).and_then(|line| line.trim().parse().ok()).expect("a number of bytes")
}

fn book(server: &Server, reference: &str) -> Reply {
    server.post("key-one-1", "/api/book", &format!("{{\"reference\":\"{reference}\"}}"))
}

#[test]
fn d2_a4_promise_3_a_full_volume_refuses_with_when_to_come_back_and_heals_by_itself() {
    let (ground, ledger) = (Ground::new(28 * MIB), Ledger::new());
    let mut server = ground.serve(&ledger, "16MiB");
    server.operate_lane("bookings", "one", "pause", "");
    let jobs: Vec<String> = (0..50).map(|number| job_of(&book(&server, &format!("V-{number}")))).collect();

    let foreign = ground.fill();
    let refused = server.wait_for("refusal for the volume", |server| {
        let reply = book(server, "V-refused");
        // Accepted a moment before the volume was looked at: it counts like any other.
        (reply.status != 202).then_some(reply)
    });
    assert_eq!((refused.status, refused.code().as_str()), (503, "disk_low"), "{refused:?}");
    assert!(refused.header("retry-after").is_some() && refused.json()["policy"]["name"] == "store.disk_reserve", "{refused:?}");
    assert_eq!(server.get("key-one-1", "/api/count").status, 200, "no reader is stopped");
    assert_eq!(state_of(&server.job("key-one-1", &jobs[0])), "queued");
    assert_eq!(server.store()["state"], "disk_low");
    let ages = || server.metric("spillgate_queue_oldest_item_age_seconds{queue=\"bookings\",tenant=\"one\"}");
    let before = ages().expect("the metric is there");
    server.wait_for("an oldest item that grows older", |_| ages().is_some_and(|age| age > before && age > 0.0).then_some(()));

    // Killed while full, started on the full volume: it comes up, and drains what waits.
    for _ in 0..2 {
        server.kill();
        let begun = Instant::now();
        server.start_again();
        server.wait_for("opened store", |server| (server.store()["state"] == "disk_low").then_some(()));
        assert!(begun.elapsed() < Duration::from_secs(10), "ready within seconds: {:?}", begun.elapsed());
        assert_eq!(book(&server, "V-refused").code(), "disk_low");
    }
    server.operate_lane("bookings", "one", "resume", "");
    for job in &jobs {
        assert_eq!(state_of(&server.ended_job("key-one-1", job)), "succeeded", "work is done while the volume is full");
    }

    std::fs::remove_file(&foreign).expect("the foreign file is ours");
    let begun = Instant::now();
    server.wait_for("intake", |server| (book(server, "V-healed").status == 202).then_some(()));
    assert!(begun.elapsed() < HEALS_WITHIN, "intake resumes within a second of space coming back: {:?}", begun.elapsed());
    server.wait_until_drained("bookings", "one");
    for number in 0..50 {
        assert_eq!(ledger.booked(&format!("V-{number}")), 1, "V-{number}: no duplicate, none lost");
    }
    assert_eq!(ledger.booked("V-healed"), 1);
    assert_eq!(server.store()["state"], "serving");
}

#[test]
fn d2_a_store_that_is_larger_than_its_volume_fills_refuses_and_drains() {
    let Ok(volume) = Volume::mount(12 * MIB) else {
        eprintln!("NO SMALL VOLUME: a store larger than its volume is not tried on this machine");
        return;
    };
    let (ground, ledger) = (Ground::Small(volume), Ledger::new());
    let Ground::Small(volume) = &ground else { return };
    let server = format!(
        "data_dir = \"{}\"\n[store]\ndisk_limit = \"64MiB\"\ndisk_reserve = \"0B\"\n{PEOPLE}{QUEUE}{}",
        volume.path().join("data").display(),
        ledger.section()
    );
    let flows = [("book.toml", BOOK), ("count.toml", COUNT)];
    let options = Options { binary: env!("CARGO_BIN_EXE_spillgate"), server: &server, flows: &flows, environment: &[] };
    let mut server = Server::start_through(&volume.launcher(), &options);
    server.wait_for("opened store", |server| (server.store()["state"] != "recovering").then_some(()));
    assert_ne!(server.store()["state"], "failed", "it starts with what there is: {}", server.log());
    server.operate_lane("bookings", "one", "pause", "");
    let note = "n".repeat(50_000);
    let mut accepted = Vec::new();
    let refused = loop {
        assert!(accepted.len() < 400, "12 MiB do not hold 20 MB");
        let reference = format!("L-{}", accepted.len());
        let reply = server.post("key-one-1", "/api/book", &format!("{{\"reference\":\"{reference}\",\"note\":\"{note}\"}}"));
        if reply.status != 202 {
            break reply;
        }
        accepted.push((reference, job_of(&reply)));
    };
    assert!(matches!(refused.code().as_str(), "store_full" | "disk_low" | "queue_full"), "{refused:?}");
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    server.kill();
    server.start_again();
    server.wait_for("opened store", |server| (server.lane("bookings", "one")["waiting"] == accepted.len()).then_some(()));
    server.operate_lane("bookings", "one", "resume", "");
    for (reference, job) in &accepted {
        assert_eq!(state_of(&server.ended_job("key-one-1", job)), "succeeded");
        assert_eq!(ledger.booked(reference), 1);
    }
    assert_eq!(book(&server, "L-after").status, 202, "what was worked off is room again");
    server.wait_until_drained("bookings", "one");
}

#[test]
fn a_volume_that_cannot_be_written_to_stops_durable_work_only() {
    let Ok(volume) = Volume::mount(64 * MIB) else {
        eprintln!("NO SMALL VOLUME: a read-only volume is not tried on this machine");
        return;
    };
    let (ground, ledger) = (Ground::Small(volume), Ledger::new());
    let Ground::Small(volume) = &ground else { return };
    let mut server = ground.serve(&ledger, "16MiB");
    server.operate_lane("bookings", "one", "pause", "");
    let kept = server.post("key-one-1", "/api/book", "{\"reference\":\"R-1\",\"note\":\"n\"}");
    assert_eq!(kept.status, 202, "{kept:?}");
    server.signal("TERM");
    assert!(server.ended().success());
    let through = |program: &[&str]| {
        let launcher = volume.launcher();
        let output = std::process::Command::new(&launcher[0]).args(&launcher[1..]).args(program).output().expect("it runs");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
    };
    let path = volume.path().display().to_string();
    let (remounted, said) = through(&["mount", "-o", "remount,ro", &path]);
    assert!(remounted, "{said}");

    server.start_again();
    server.wait_for("the store to be given up", |server| (server.store()["state"] == "failed").then_some(()));
    let count = server.get("key-one-1", "/api/count");
    assert_eq!(count.status, 200, "{count:?}");
    let refused = server.post("key-one-1", "/api/book", "{\"reference\":\"R-2\",\"note\":\"n\"}");
    assert_eq!((refused.status, refused.code().as_str()), (503, "store_failed"), "{refused:?}");
    server.signal("TERM");
    assert!(server.ended().success());

    let data = format!("{path}/data");
    for command in ["inspect", "verify", "export"] {
        let (success, said) = through(&[env!("CARGO_BIN_EXE_spillgate"), "queue", command, "--data", &data]);
        assert!(success && said.contains(if command == "verify" { "no faults" } else { "bookings" }), "{command}: {said}");
    }
}
