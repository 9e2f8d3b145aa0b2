//! What a key is, and what it stands for.

use spillgate_engine::Outcome;
use spillgate_model::Code;
use spillgate_queue::disk::simulated::SimulatedDisk;

use super::life::{Asked, Ground, booking};

const REQUIRED: &str = r#"idempotency = { key = "required" }"#;
const OPTIONAL: &str = r#"idempotency = { key = "optional" }"#;
const DERIVED: &str = r#"idempotency = { key = "derived" }"#;
const WITHIN: &str = r#"idempotency = { key = "optional", derive_within = "10min" }"#;
const SEVEN: &str = r#"{"trip": 7, "amount": 70}"#;

#[test]
fn e6_a_repeat_gets_the_first_reply_byte_for_byte() {
    let ground = Ground::new(&[&booking("book", REQUIRED)]);
    let life = ground.start();
    let asked = Asked::new("book", SEVEN).key("k-1");
    let first = life.body(asked);
    assert_eq!(first, r#"{"rows":[{"ID":1,"TRIP":7,"AMOUNT":70}],"row_count":1,"truncated":false,"affected":1}"#);
    assert_eq!(life.body(asked), first);
    // The order in which inputs are written is no difference.
    assert_eq!(life.body(Asked { input: r#"{"amount": 70, "trip": 7}"#, ..asked }), first);
    let next = ground.start_on(life.crash());
    assert_eq!(next.body(asked), first, "promise 2: what was acknowledged survives a crash");
    assert_eq!(ground.booked(), 1, "promise 7: a key executes once");
}

#[test]
fn e6_another_input_is_a_conflict_and_another_tenant_is_independent() {
    let ground = Ground::new(&[&booking("book", REQUIRED), &booking("other", REQUIRED)]);
    let life = ground.start();
    let asked = Asked::new("book", SEVEN).key("k-1");
    let first = life.body(asked);
    let reused = life.refusal(Asked { input: r#"{"trip": 7, "amount": 71}"#, ..asked });
    assert_eq!((reused.code, reused.status(), reused.retryable), (Code::KeyReused, 422, false));
    assert_ne!(life.body(asked.tenant("two")), first);
    assert_ne!(life.body(Asked { flow: "other", ..asked }), first);
    assert_eq!(ground.booked(), 3);
}

#[test]
fn keys_are_checked_and_required_ones_asked_for() {
    let ground = Ground::new(&[&booking("book", REQUIRED), &booking("plain", "")]);
    let life = ground.start();
    assert_eq!(life.code(Asked::new("book", SEVEN)), Code::KeyRequired);
    let long = "k".repeat(256);
    for bad in ["", "a b", "ä", "\u{7f}", &long] {
        assert_eq!(life.code(Asked::new("book", SEVEN).key(bad)), Code::Malformed, "{bad:?}");
    }
    assert!(matches!(life.run(Asked::new("book", SEVEN).key(&long[1..])), Outcome::Rows { .. }));
    // Taken and passed over, it would promise what is not there.
    assert_eq!(life.code(Asked::new("plain", SEVEN).key("k-1")), Code::Malformed);
    assert_eq!(ground.booked(), 1);
}

#[test]
fn a_call_without_an_optional_key_needs_no_store_and_one_with_a_key_never_runs_without() {
    let ground = Ground::new(&[&booking("book", OPTIONAL)]);
    let life = ground.start_without_store(SimulatedDisk::new(7));
    assert!(matches!(life.run(Asked::new("book", SEVEN)), Outcome::Rows { .. }));
    assert_eq!(life.code(Asked::new("book", SEVEN).key("k-1")), Code::Recovering);
    life.engine().store_failed("the test says so".into());
    assert_eq!(life.code(Asked::new("book", SEVEN).key("k-1")), Code::StoreFailed);
    assert!(matches!(life.run(Asked::new("book", SEVEN)), Outcome::Rows { .. }));
    assert_eq!(ground.booked(), 2);
}

#[test]
fn a_derived_key_is_made_of_run_and_input() {
    let ground = Ground::new(&[&booking("book", DERIVED)]);
    let life = ground.start();
    let asked = Asked::new("book", SEVEN);
    let first = life.body(asked.run("r-1"));
    assert_eq!(life.body(asked.run("r-1")), first);
    assert_ne!(life.body(asked.run("r-2")), first);
    // Calls that name no run are a run of their own.
    let runless = life.body(asked);
    assert_eq!(life.body(asked), runless);
    assert_ne!(life.body(Asked::new("book", r#"{"trip": 8, "amount": 70}"#).run("r-1")), first);
    assert_eq!(ground.booked(), 4);
    // A key that is sent counts too.
    let keyed = life.body(Asked::new("book", r#"{"trip": 9, "amount": 1}"#).key("k").run("r-1"));
    assert_eq!(life.body(Asked::new("book", r#"{"trip": 9, "amount": 1}"#).key("k").run("r-2")), keyed);
    assert_eq!(ground.booked(), 5);
}

#[test]
fn the_same_input_from_the_same_run_is_a_repeat_under_a_new_key() {
    let ground = Ground::new(&[&booking("book", WITHIN)]);
    let life = ground.start();
    let asked = Asked::new("book", SEVEN).run("r-1");
    let first = life.body(asked.key("k-1"));
    assert_eq!(life.body(asked.key("k-2")), first);
    assert_eq!(life.body(asked), first);
    assert_ne!(life.body(asked.key("k-3").run("r-2")), first);
    assert_eq!(ground.booked(), 2);
}

#[test]
fn a_refusal_frees_the_key() {
    let ground = Ground::new(&[&booking("book", REQUIRED)]);
    let life = ground.start();
    let asked = Asked::new("book", r#"{"trip": 7, "amount": -1}"#).key("k-1");
    assert_eq!(life.code(asked), Code::DatabaseError);
    assert_eq!(life.code(asked), Code::DatabaseError, "it was tried again");
    // Nothing was done under this key: another input may come with it.
    assert!(matches!(life.run(Asked { input: SEVEN, ..asked }), Outcome::Rows { .. }));
    assert_eq!(ground.booked(), 1);
}

#[test]
fn a_result_that_is_too_large_to_keep_is_told_to_its_caller_alone() {
    let large = r#"
name = "large"
http = "POST /large"
effect = "write"
deadline = "10s"
idempotency = { key = "required" }
[[step]]
name = "stock"
database = "main"
sql = "UPDATE STOCK SET AMOUNT = AMOUNT + 1 WHERE ID = 1"
max_affected = 1
[[step]]
name = "read"
database = "main"
sql = "SELECT hex(zeroblob(200000)) AS BIG"
"#;
    let ground = Ground::new(&[large]);
    let life = ground.start();
    let asked = Asked::new("large", "{}").key("k-1");
    assert!(life.body(asked).len() > 400_000);
    let gone = life.refusal(asked);
    assert_eq!((gone.code, gone.retryable), (Code::ResultGone, false));
    assert_eq!(ground.count("SELECT AMOUNT FROM STOCK"), 1);
}
