//! Promises about links: a dead one is a typed failure, and no failure tells a secret.

use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::{Fixture, WIDE, answers, statement};
use crate::{Access, DatabaseError, Ended, Failure};

fn is_link_failure(error: &DatabaseError) -> bool {
    matches!(error.failure, Failure::LinkLost | Failure::Unreachable)
}

/// B8: after the link is cut every call is a failure, never an empty success, and the session says it is of no more use.
pub async fn b8_lost_link_is_a_failure(fixture: &impl Fixture) {
    let Some(fragile) = fixture.fragile().await else { return };
    let mut session = fragile.database.connect(Access::ReadOnly).await.expect("a session through the link");
    answers(fixture, &mut session).await;
    let asked = statement(format!("SELECT 1 AS \"C\"{}", fixture.from_nothing()));
    fragile.link.cut();
    for _three_times in 0..3 {
        let error = timeout(Duration::from_secs(10), session.read(&asked, &[], WIDE)).await.expect("no hang").expect_err("the link is cut");
        assert!(is_link_failure(&error), "{error:?}");
        assert!(!session.usable());
    }
    let ended = timeout(Duration::from_secs(10), session.end()).await.expect("no hang");
    assert!(!matches!(ended, Ended::Clean(_)), "a dead session is not clean");
    let Err(error) = fragile.database.connect(Access::ReadOnly).await else { panic!("the link is still cut") };
    assert!(is_link_failure(&error), "{error:?}");
    fragile.link.heal();
    let mut session = fragile.database.connect(Access::ReadOnly).await.expect("a session after the link healed");
    answers(fixture, &mut session).await;

    // In the middle of a statement.
    let mark = super::unique("mark");
    let slow = statement(fixture.slow_read(&mark));
    let cut = async {
        assert!(super::until(Duration::from_secs(20), true, fixture, &mark).await, "the statement runs");
        fragile.link.cut();
    };
    let (result, ()) =
        timeout(Duration::from_secs(30), async { tokio::join!(session.read(&slow, &[], WIDE), cut) }).await.expect("no hang");
    let error = result.expect_err("the link is cut");
    assert!(is_link_failure(&error), "{error:?}");
    assert!(!session.usable());
}

/// C10: a closed port is `Unreachable` at once; no secret stands in the failure, nor a host in what the caller sees.
pub async fn c10_closed_port_is_unreachable_and_tells_no_secret(fixture: &impl Fixture) {
    let start = Instant::now();
    let (database, secrets) = fixture.unreachable();
    assert!(start.elapsed() < Duration::from_millis(500), "making a database touches nothing");
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let Err(error) = timeout(Duration::from_secs(10), database.connect(access)).await.expect("fast") else { panic!("nobody is there") };
        assert_eq!(error.failure, Failure::Unreachable, "{error:?}");
        assert!(!error.detail.is_empty() && !error.detail.contains("127.0.0.1"), "{}", error.detail);
        for secret in &secrets {
            assert!(!format!("{error:?}{error}").contains(secret), "a secret is told");
        }
    }
}
