//! Who calls in these scenes.

use std::time::Duration;

use spillgate_test_support::client::get;
use spillgate_test_support::load::{Crowd, Samples, Steady, address};
use spillgate_test_support::rig::QUICK;
use spillgate_test_support::server::Server;

use crate::scene::key;

/// A tenant that calls the quick flow so often, with more patience than anything here takes.
pub(crate) fn interactive(server: &Server, tenant: &str, per_second: f64) -> Crowd<Samples> {
    let requests = vec![get(QUICK, &key(tenant))];
    Steady { address: address(&server.flows), requests, per_second, patience: Duration::from_secs(20) }.start()
}
