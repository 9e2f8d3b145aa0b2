//! Operator state on real files: restarts, damage, full volumes, versions of the future, bounds.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;
use crate::export as lines;
use crate::notebook::{Change, Notebook, NotebookError};
use spillgate_model::limits::operator_share;

const SHARE: u64 = 2 << 20;

/// A folder that goes with its test; a small volume of its own where the machine permits one.
struct Place {
    path: PathBuf,
    mounted: bool,
    /// Closed before the next one is opened and before the folder goes.
    opened: std::cell::RefCell<Vec<Control>>,
}

impl Place {
    fn new() -> Place {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("spillgate-control-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a folder");
        Place { path, mounted: false, opened: std::cell::RefCell::default() }
    }
    fn small_volume(bytes: u64) -> Place {
        let mut place = Place::new();
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"]).arg(&place.path).output();
        place.mounted = mount.is_ok_and(|mount| mount.status.success());
        place
    }
    fn folder(&self) -> PathBuf {
        self.path.join("control")
    }
    fn options(&self) -> ControlOptions {
        ControlOptions { folder: self.folder(), share: SHARE }
    }
    fn open(&self) -> Control {
        self.open_with(Box::new(sled_notebook::open), quick())
    }
    fn open_with(&self, opener: Opener, waits: Waits) -> Control {
        self.opened.take().iter().for_each(Control::close);
        let control = Control::open_with(&self.options(), opener, waits).expect("a thread");
        self.opened.borrow_mut().push(control.clone());
        control
    }
    fn bytes(&self) -> u64 {
        fn below(folder: &Path) -> u64 {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            entries.map(|entry| entry.metadata().map_or(0, |data| if data.is_dir() { below(&entry.path()) } else { data.len() })).sum()
        }
        below(&self.folder())
    }
    /// Writes a foreign file until nothing more fits.
    fn fill(&self) -> PathBuf {
        use std::io::Write as _;
        let path = self.path.join("foreign");
        let mut file = fs::OpenOptions::new().create(true).append(true).open(&path).expect("a file");
        while file.write_all(&[7; 4096]).is_ok() {}
        path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.opened.take().iter().for_each(Control::close);
        if self.mounted {
            let _gone = Command::new("umount").arg(&self.path).status();
        }
        let _gone = fs::remove_dir_all(&self.path);
    }
}

fn quick() -> Waits {
    let short = Duration::from_millis(20);
    Waits { export: short, retry: short, look: short }
}

fn lane(tenant: &str) -> PausedLane {
    PausedLane { queue: "bookings".into(), tenant: tenant.into() }
}

fn entry(action: &str) -> AuditEntry {
    AuditEntry { at_ms: 1, who: "alice".into(), action: action.into(), outcome: "done".into(), ..AuditEntry::default() }
}

/// Waits until `probe` holds; a state that changes on another thread has no event to wait for.
async fn until(what: &str, mut probe: impl FnMut() -> bool) {
    for _ in 0..1_000 {
        if probe() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {what}");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() { copy(&entry.path(), &target) } else { assert!(fs::copy(entry.path(), target).is_ok()) }
    }
}

#[tokio::test]
async fn what_was_kept_survives_a_crash_and_an_orderly_stop() {
    let (place, crashed) = (Place::new(), Place::new());
    let slow = Waits { export: Duration::from_secs(3600), ..quick() };
    let control = place.open_with(Box::new(sled_notebook::open), slow);
    control.set_paused(&lane("agent"), true).expect("room");
    control.set_paused(&lane("office"), true).expect("room");
    control.set_paused(&lane("office"), false).expect("room");
    assert_eq!(control.record(entry("pause")).expect("room"), 1);
    assert_eq!(control.record(entry("resume")).expect("room"), 2);
    control.put(Kind::Override, "agent", &serde_json::json!({ "rate": "5/s" })).expect("room");
    control.kept().await.expect("durable");
    copy(&place.folder(), &crashed.folder());
    let expect = |control: &Control| {
        assert_eq!(control.paused(), [lane("agent")]);
        let audit: Vec<_> = control.audit(0, 10).into_iter().map(|entry| (entry.number, entry.action)).collect();
        assert_eq!(audit, [(1, "pause".to_owned()), (2, "resume".to_owned())]);
        assert_eq!(control.audit(1, 10).len(), 1);
        assert_eq!(control.all(Kind::Override), [("agent".to_owned(), serde_json::json!({ "rate": "5/s" }))]);
        assert!(control.remarks().is_empty(), "{:?}", control.remarks());
    };
    expect(&crashed.open());
    control.close();
    assert!(control.kept().await.is_ok(), "nothing is left to keep");
    control.forget(Kind::Override, "agent");
    assert!(control.kept().await.is_err(), "a closed one keeps nothing more");
    let again = place.open();
    expect(&again);
    assert_eq!(again.record(entry("purge")).expect("room"), 3, "numbers are never used twice");
}

#[tokio::test]
async fn what_was_kept_survives_the_loss_of_either_copy() {
    let place = Place::new();
    // A second try of an export would come too late.
    let slow = Waits { export: Duration::from_secs(3600), ..quick() };
    let control = place.open_with(Box::new(sled_notebook::open), slow);
    assert_eq!(control.began(), Began::New);
    control.set_paused(&lane("agent"), true).expect("room");
    control.kept().await.expect("durable");
    // As a kill leaves it: nothing is written at a stop.
    for (lost, said) in [("sled", "sled.aside"), ("sled/db", "sled.aside"), ("control.export", "")] {
        let crashed = Place::new();
        copy(&place.folder(), &crashed.folder());
        let path = crashed.folder().join(lost);
        let gone = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        gone.expect("it was there");
        let control = crashed.open();
        assert_eq!((control.paused(), control.began()), (vec![lane("agent")], Began::Kept), "{lost}");
        assert!(said.is_empty() || control.remarks()[0].contains(said), "{lost}: {:?}", control.remarks());
        assert!(crashed.folder().join("control.export").is_file(), "{lost}: there are two again");
    }
}

#[tokio::test]
async fn a_state_that_is_gone_is_told_from_one_that_never_was() {
    let place = Place::new();
    place.open().close();
    assert_eq!(place.open().began(), Began::Kept, "an empty one is one, too");
    place.opened.take().iter().for_each(Control::close);
    fs::remove_dir_all(place.folder()).expect("taken away");
    assert_eq!(place.open().began(), Began::New);
    place.opened.take().iter().for_each(Control::close);
    for file in ["sled/db", "control.export"] {
        fs::write(place.folder().join(file), vec![0xa5; 100_000]).expect("damaged");
    }
    let control = place.open();
    assert_eq!(control.began(), Began::Lost);
    assert!(control.remarks().iter().any(|remark| remark.contains("it began empty")), "{:?}", control.remarks());
    assert_eq!(place.open().began(), Began::Kept);
}

#[tokio::test]
async fn a_damaged_notebook_is_moved_aside_once_and_the_last_export_is_loaded() {
    let place = Place::new();
    let control = place.open();
    control.set_paused(&lane("agent"), true).expect("room");
    control.kept().await.expect("durable");
    control.close();
    let damage = || fs::write(place.folder().join("sled/db"), vec![0xa5; 100_000]).expect("damaged");

    damage();
    let control = place.open();
    assert_eq!(control.paused(), [lane("agent")]);
    assert!(control.remarks()[0].contains("sled.aside"), "{:?}", control.remarks());
    control.set_paused(&lane("office"), true).expect("room");
    control.kept().await.expect("durable in the new one");
    control.close();
    let first = fs::read(place.folder().join("sled.aside/db")).expect("the damaged copy is there");

    // Damaged again before anybody looked: nothing is moved over the first copy, and nothing is lost.
    damage();
    let control = place.open();
    assert_eq!(control.paused(), [lane("agent"), lane("office")]);
    assert!(control.remarks()[0].contains("earlier damaged copy"), "{:?}", control.remarks());
    assert_eq!(fs::read(place.folder().join("sled.aside/db")).expect("still there"), first);
    control.set_paused(&lane("agent"), false).expect("room");
    control.kept().await.expect("durable in the export");
    let exported = lines::read(&place.folder().join("control.export")).expect("whole").expect("there").records;
    assert!(exported.get("paused/bookings/agent").is_none() && exported.get("paused/bookings/office").is_some());

    // A person looked and took the first copy away: the second one takes its place, and the remark goes with it, too.
    fs::remove_dir_all(place.folder().join("sled.aside")).expect("taken away");
    until("the second copy is moved aside", || place.folder().join("sled.aside").exists() && control.remarks().len() == 1).await;
    fs::remove_dir_all(place.folder().join("sled.aside")).expect("taken away");
    until("no remark", || control.remarks().is_empty()).await;
    control.close();
    assert_eq!(place.open().paused(), [lane("office")]);
}

#[tokio::test]
async fn no_damage_of_the_notebook_ends_the_process_or_brings_back_another_state() {
    let place = Place::new();
    let control = place.open();
    for number in 0..40 {
        control.set_paused(&lane(&format!("tenant-{number:02}")), true).expect("room");
        control.kept().await.expect("durable");
    }
    control.close();
    let expected = control.paused();
    let bytes = fs::read(place.folder().join("sled/db")).expect("the database");
    let (mut different, mut noticed) = (0, 0);
    for round in 0..24 {
        let damaged = Place::new();
        copy(&place.folder(), &damaged.folder());
        let mut changed = bytes.clone();
        let at = round * bytes.len() / 24;
        if round % 3 == 0 {
            changed.truncate(at)
        } else {
            changed[at..].iter_mut().take(round % 3 * 7).for_each(|byte| *byte ^= 0x40)
        }
        fs::write(damaged.folder().join("sled/db"), &changed).expect("damaged");
        let alone = Place::new();
        copy(&damaged.folder(), &alone.folder());
        fs::remove_file(alone.folder().join("control.export")).expect("only the damaged notebook is left");
        assert_eq!(damaged.open().paused(), expected, "round {round}: the export is newer than what is left");
        assert!(damaged.open().remarks().len() <= 1);
        // Without an export: an earlier state or none, never a mixture of two.
        let left = alone.open().paused().len();
        let earlier: Vec<_> = (0..left).map(|number| lane(&format!("tenant-{number:02}"))).collect();
        assert_eq!(alone.open().paused(), earlier, "round {round}");
        different += usize::from(left < expected.len());
        noticed += usize::from(damaged.folder().join("sled.aside").exists());
    }
    assert!(different > 5 && noticed >= different, "{different} lost something, {noticed} were noticed");
}

#[tokio::test]
async fn d2_a_full_volume_neither_loses_the_state_nor_stops_a_change() {
    let place = Place::small_volume(6 << 20);
    if !place.mounted {
        return on_a_simulated_full_volume().await;
    }
    let control = place.open();
    control.set_paused(&lane("agent"), true).expect("room");
    control.kept().await.expect("durable");
    let ballast = place.folder().join("ballast");
    assert_eq!(fs::metadata(&ballast).expect("made at the start").len(), Share::of(SHARE).ballast);

    // Full: changes go on, with the ballast for their place.
    let foreign = place.fill();
    for number in 0..40 {
        control.set_paused(&lane(&format!("tenant-{number}")), true).expect("room");
        control.kept().await.expect("durable: the ballast is there for this");
        place.fill();
        if !ballast.exists() {
            break;
        }
    }
    // Whatever could be written was; what comes now is in force, said not to be kept, and kept as soon as there is space.
    while control.kept().await.is_ok() {
        control.record(entry(&"long ".repeat(100))).expect("room");
    }
    until("a remark", || control.remarks().iter().any(|remark| remark.contains("not on disk yet"))).await;
    let paused = control.paused();
    fs::remove_file(&foreign).expect("space again");
    until("kept by itself", || control.remarks().is_empty() && ballast.exists()).await;
    control.kept().await.expect("durable again");
    control.close();

    // A start on a volume that is full again: the ballast lets the notebook open.
    place.fill();
    let control = place.open();
    assert_eq!(control.paused(), paused);
    assert!(control.remarks().is_empty(), "{:?}", control.remarks());
    control.close();
    // And a start with no ballast left: the export speaks, the notebook is not even tried.
    let _already_used = fs::remove_file(&ballast);
    place.fill();
    let control = place.open();
    assert_eq!(control.paused(), paused);
    assert!(control.remarks()[0].contains("the volume is full"), "{:?}", control.remarks());
    fs::remove_file(&foreign).expect("space again");
    until("opened by itself", || control.remarks().is_empty() && ballast.exists()).await;
    assert!(!place.folder().join("sled.aside").exists(), "a full volume is no damage");
}

/// A notebook whose volume is full whenever the test says so.
struct Filling {
    inside: Box<dyn Notebook>,
    full: Arc<AtomicBool>,
}

impl Notebook for Filling {
    fn scan(&self) -> Result<Vec<(String, Vec<u8>)>, NotebookError> {
        self.inside.scan()
    }
    fn write(&mut self, changes: Vec<Change>) -> Result<(), NotebookError> {
        if self.full.load(Ordering::SeqCst) { Err(NotebookError::Full) } else { self.inside.write(changes) }
    }
    fn flush(&mut self) -> Result<(), NotebookError> {
        self.inside.flush()
    }
}

fn filling(full: &Arc<AtomicBool>) -> Opener {
    let full = full.clone();
    Box::new(move |path: &Path| {
        if full.load(Ordering::SeqCst) {
            return Err(NotebookError::Full);
        }
        Ok(Box::new(Filling { inside: sled_notebook::open(path)?, full: full.clone() }) as Box<dyn Notebook>)
    })
}

#[tokio::test]
async fn d2_a_notebook_that_cannot_write_is_stood_in_for_by_the_export() {
    on_a_simulated_full_volume().await;
}

async fn on_a_simulated_full_volume() {
    let place = Place::new();
    let full = Arc::new(AtomicBool::new(false));
    let control = place.open_with(filling(&full), quick());
    control.set_paused(&lane("agent"), true).expect("room");
    control.kept().await.expect("durable");
    full.store(true, Ordering::SeqCst);
    control.set_paused(&lane("office"), true).expect("room");
    control.kept().await.expect("durable in the export");
    until("a remark", || control.remarks().iter().any(|remark| remark.contains("in its export only"))).await;

    // The export cannot be written either: a folder is in its place.
    let export = place.folder().join("control.export");
    fs::remove_file(&export).and_then(|()| fs::create_dir(&export)).expect("in the way");
    control.set_paused(&lane("batch"), true).expect("in force");
    assert!(control.kept().await.is_err());
    fs::remove_dir(&export).expect("out of the way");
    until("kept by itself", || export.is_file()).await;
    // What failed is told until it is known that the next try has not.
    while control.kept().await.is_err() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    full.store(false, Ordering::SeqCst);
    until("the notebook is back", || control.remarks().is_empty()).await;
    control.close();
    let expected = control.paused();
    fs::remove_file(&export).expect("only the notebook is left");
    let again = place.open();
    assert_eq!((again.paused().len(), again.paused()), (3, expected));
}

#[tokio::test]
async fn a_start_that_was_broken_off_is_no_damage() {
    let place = Place::new();
    let control = place.open();
    control.set_paused(&lane("agent"), true).expect("room");
    control.kept().await.expect("durable");
    control.close();
    // What a kill leaves between the two steps of sled's own snapshot; sled takes it for the newest one.
    fs::write(place.folder().join("sled/snap.7FFFFFFFFFFFFFFF.generating"), b"").expect("written");
    fs::remove_file(place.folder().join("control.export")).expect("only the notebook is left");
    let control = place.open();
    assert_eq!(control.paused(), [lane("agent")]);
    assert!(control.remarks().is_empty(), "{:?}", control.remarks());
}

#[tokio::test]
async fn records_of_a_later_version_are_kept_and_reported() {
    let place = Place::new();
    let mut later = Records::default();
    for (key, version, body) in [
        ("paused/bookings/agent", 9, &b"\x01\x02"[..]),
        ("lease/x", 1, b"{}"),
        ("paused/bookings/office", 1, br#"{"queue":"bookings","tenant":"office"}"#),
    ] {
        later.put(key.to_owned(), Record { version, body: body.into() }, 1 << 20).expect("room");
    }
    fs::create_dir_all(place.folder()).expect("a folder");
    lines::write(&place.folder().join("control.export"), &later, 0).expect("written");
    for _ in 0..2 {
        let control = place.open();
        assert_eq!(control.paused(), [lane("office")], "what is understood is in force");
        assert!(control.remarks()[0].starts_with("2 records") && control.remarks().len() == 1, "{:?}", control.remarks());
        control.record(entry("pause")).expect("room");
        control.kept().await.expect("durable");
        control.close();
    }
    let text = crate::export(&place.folder()).expect("exported");
    assert_eq!(text.records, 5);
    let kept = lines::decode(&text.text).expect("whole").records;
    assert_eq!(kept.get("paused/bookings/agent"), later.get("paused/bookings/agent"));
    assert_eq!(kept.get("lease/x"), later.get("lease/x"));
}

#[tokio::test]
async fn an_export_is_imported_elsewhere_and_believed_there() {
    let (here, there) = (Place::new(), Place::new());
    let control = here.open();
    control.set_paused(&lane("agent"), true).expect("room");
    control.record(entry("pause")).expect("room");
    control.close();
    let other = there.open();
    for _ in 0..50 {
        other.record(entry("purge")).expect("room");
    }
    other.close();

    let exported = crate::export(&here.folder()).expect("exported");
    assert_eq!((exported.records, exported.remarks.len()), (2, 0));
    let imported = crate::import(&there.folder(), &exported.text).expect("imported");
    assert_eq!((imported.before, imported.records), (50, 2));
    let control = there.open();
    assert_eq!((control.paused().len(), control.audit(0, 100).len()), (1, 1));
    assert!(control.remarks().is_empty(), "{:?}", control.remarks());
    assert!(matches!(crate::import(&there.folder(), &exported.text[1..]), Err(crate::OfflineError::NotAnExport(_))));
    assert!(matches!(crate::export(&there.path.join("nowhere")), Err(crate::OfflineError::Nothing(_))));
}

#[tokio::test]
async fn nothing_grows_past_its_share() {
    let place = Place::new();
    let control = place.open();
    let mut most = 0;
    for number in 0..6_000u64 {
        control
            .record(AuditEntry { from: Some("x".repeat(usize::try_from(number % 700).expect("small"))), ..entry("purge") })
            .expect("room");
        if number % 30 == 0 {
            control.kept().await.expect("durable");
            most = most.max(place.bytes());
        }
    }
    assert!(most <= SHARE, "{most} of {SHARE}");
    let audit = control.audit(0, usize::MAX);
    assert_eq!(audit.last().map(|entry| entry.number), Some(6_000), "the newest is there");
    assert!(audit.len() > 300 && audit.iter().all(|entry| entry.from.as_ref().is_none_or(|from| from.len() <= TEXT_BYTES + 3)));
    assert!(control.put(Kind::Override, "agent", &"x".repeat(1 << 20)).is_err(), "there is no room for that");
    control.close();
    let again = place.open();
    assert_eq!(again.audit(0, usize::MAX), audit);
    assert_eq!(operator_share(16 << 20), SHARE);
}

/// As it was written by format 1: every later version reads it.
const EXPORT_1: &str = include_str!("frozen/export-1.jsonl");

#[tokio::test]
async fn promise_8_an_export_of_every_format_there_ever_was_comes_into_force_as_it_was_meant() {
    let export = lines::decode(EXPORT_1.as_bytes()).expect("a whole export");
    assert_eq!(export.noted, 42);
    assert_eq!(lines::encode(&export.records, 42).expect("it is written").as_slice(), EXPORT_1.as_bytes(), "and today's is format 1");
    let place = Place::new();
    crate::import(&place.folder(), EXPORT_1.as_bytes()).expect("it is imported");
    assert!(crate::remembers(&place.folder(), Kind::Store) && crate::remembers(&place.folder(), Kind::Override));
    let control = place.open();
    assert_eq!(control.paused(), [PausedLane { queue: "bookings".into(), tenant: "anna".into() }]);
    let audit = control.audit(0, 10);
    let shown: Vec<_> = audit.iter().map(|entry| (entry.number, &*entry.who, &*entry.action, entry.from.as_deref())).collect();
    assert_eq!(shown, [(7, "root", "pause", Some("running")), (8, "root", "set", None)]);
    let body = |kind| control.all(kind).pop().expect("there is one").1;
    assert_eq!(body(Kind::Override)["rate"], "5/s");
    assert_eq!(body(Kind::Breaker)["until_ms"], 1_767_225_630_000_u64);
    assert_eq!(body(Kind::Store)["numbers_below"], 1_099_511_627_781_u64);
    assert!(control.remarks().iter().any(|remark| remark.contains("1 records of the operator state are of a later version")));
    assert_eq!(control.record(AuditEntry::default()).expect("there is room"), 9);
}
