//! Who calls while something is sick, and what it means not to notice.

use std::time::Duration;

use spillgate_test_support::load::{Agents, Crowd, Pause, Samples, address};
use spillgate_test_support::server::Server;

/// Nobody waits for somebody else's trouble: far below the deadlines of what is stuck, far above what a quick call takes.
const UNMOVED: Duration = Duration::from_millis(300);

/// Agents that call something over and over.
pub(crate) fn agents(server: &Server, request: Vec<u8>, count: usize) -> Crowd<Samples> {
    let pause = Pause::AsTold(Duration::from_millis(200));
    Agents { address: address(&server.flows), requests: vec![request], count, patience: Duration::from_secs(30), pause }.start()
}

/// The tenant beside it got all it asked for, at once.
pub(crate) fn assert_unmoved(office: &Samples) {
    assert_eq!(office.well(), office.len(), "no refusal, no error: {office}");
    assert!(office.latency(950) < UNMOVED, "nobody waited for it: {office}");
}
