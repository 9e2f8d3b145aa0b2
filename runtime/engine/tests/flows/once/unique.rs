//! Business keys.

use spillgate_engine::Outcome;
use spillgate_model::Code;

use super::life::{Asked, Ground, Life, booking};

const UNIQUE: &str = r#"unique = { by = ["trip"], within = "24h" }"#;
const KEYED: &str = "idempotency = { key = \"optional\" }\nunique = { by = [\"trip\"], within = \"24h\" }";
const SEVEN: &str = r#"{"trip": 7, "amount": 70}"#;

#[test]
fn a_business_key_is_taken_once_across_tenants() {
    let ground = Ground::new(&[&booking("book", UNIQUE), &booking("other", UNIQUE)]);
    let life = ground.start();
    assert!(matches!(life.run(Asked::new("book", SEVEN)), Outcome::Rows { .. }));
    let again = Asked::new("book", r#"{"trip": 7, "amount": 71}"#);
    let own = life.refusal(again);
    assert_eq!((own.code, own.status(), own.retryable), (Code::ConflictUnique, 409, false));
    let job = Life::job_in(&own);
    let said = own.to_string() + own.code.title() + own.code.advice();
    assert!(said.contains("Your call changed nothing") && !said.contains("already done"), "other values were asked for: {said}");
    // The first job is shown only to its owner.
    let others = life.refusal(again.tenant("two"));
    assert_eq!(others.code, Code::ConflictUnique);
    assert!(!others.detail.contains(&job.to_string()) && !others.detail.contains("one"), "{}", others.detail);
    // Another value and another flow are free.
    assert!(matches!(life.run(Asked::new("book", r#"{"trip": 8, "amount": 1}"#)), Outcome::Rows { .. }));
    assert!(matches!(life.run(Asked::new("other", SEVEN)), Outcome::Rows { .. }));
    let next = ground.start_on(life.crash());
    assert_eq!(next.code(again), Code::ConflictUnique, "it survives a crash");
    assert_eq!(ground.booked(), 3);
}

#[test]
fn twenty_calls_for_one_business_key_are_one_execution() {
    let ground = Ground::new(&[&booking("book", UNIQUE)]);
    let life = ground.start();
    let sent: Vec<_> =
        (0..20).map(|number| life.send(Asked::new("book", SEVEN).tenant(if number % 2 == 0 { "one" } else { "two" }))).collect();
    let outcomes: Vec<Outcome> = sent.into_iter().map(|sent| life.wait(sent)).collect();
    let refused =
        outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Refused(refusal) if refusal.code == Code::ConflictUnique)).count();
    assert_eq!((refused, ground.booked()), (19, 1), "{outcomes:?}");
}

#[test]
fn a_proven_failure_frees_the_business_key() {
    let ground = Ground::new(&[&booking("book", UNIQUE)]);
    let life = ground.start();
    assert_eq!(life.code(Asked::new("book", r#"{"trip": 7, "amount": -1}"#)), Code::DatabaseError);
    assert!(matches!(life.run(Asked::new("book", SEVEN).tenant("two")), Outcome::Rows { .. }));
    assert_eq!(ground.booked(), 1);
}

#[test]
fn a_repeat_under_its_key_is_no_second_call_for_the_business_key() {
    let ground = Ground::new(&[&booking("book", KEYED)]);
    let life = ground.start();
    let first = life.body(Asked::new("book", SEVEN).key("k-1"));
    assert_eq!(life.body(Asked::new("book", SEVEN).key("k-1")), first);
    assert_eq!(life.code(Asked::new("book", SEVEN).key("k-2")), Code::ConflictUnique);
    assert_eq!(life.code(Asked::new("book", SEVEN)), Code::ConflictUnique);
    assert_eq!(ground.booked(), 1);
}
