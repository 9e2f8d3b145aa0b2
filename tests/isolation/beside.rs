//! Who calls while something is sick, and what it means not to notice.

use std::time::Duration;

use spillgate_test_support::load::{Agents, Crowd, Pause, Samples, address};
use spillgate_test_support::server::Server;

use crate::records::{Record, records};

/// A seat that was waited for so long was somebody else's. (On a busy machine calls come late and at once, and then wait for each
/// other; that is over sooner.)
const WAITED: Duration = Duration::from_millis(100);
/// Nobody waits for somebody else's trouble: far below the deadlines of what is stuck, far above what a quick call takes.
const UNMOVED: Duration = Duration::from_millis(300);

/// Agents that call something over and over.
pub(crate) fn agents(server: &Server, request: Vec<u8>, count: usize) -> Crowd<Samples> {
    let pause = Pause::AsTold(Duration::from_millis(200));
    Agents { address: address(&server.flows), requests: vec![request], count, patience: Duration::from_secs(30), pause }.start()
}

/// The tenant beside it got all it asked for, at once.
pub(crate) fn assert_unmoved(server: &Server, office: &Samples) {
    assert_unmoved_but(server, office, 0);
}

/// The same, but for so many calls that are somebody else's fault.
pub(crate) fn assert_unmoved_but(server: &Server, office: &Samples, excused: usize) {
    assert_eq!(office.well() + excused, office.len(), "no refusal, no error: {office}");
    assert!(office.latency(950) < UNMOVED, "nobody waited for it: {office}");
    assert_seats_were_free(&records(server));
}

/// By the server's own records, a seat was free whenever the office asked: for all but one call in twenty.
pub(crate) fn assert_seats_were_free(recorded: &[Record]) {
    let waits: Vec<Duration> = recorded.iter().filter(|call| call.tenant == "office").map(|call| call.wait).collect();
    let waited = waits.iter().filter(|wait| **wait > WAITED).count();
    assert!(waits.len() >= 40, "too few to tell: {}", waits.len());
    assert!(waited * 20 <= waits.len(), "its seats are free: {waited} of {} calls waited: {waits:?}", waits.len());
}
