//! A queue that is full, with every worker busy that may be: a direct call of another tenant at the same database does not notice.

use std::time::Duration;

use spillgate_test_support::client::post;
use spillgate_test_support::durable::STORE;
use spillgate_test_support::rig::{LATER, Rig};
use spillgate_test_support::server::folder;

use crate::beside::{agents, assert_unmoved};
use crate::crowds::interactive;
use crate::scene::{key, play, serve, tenant, turn};

const SLOW: Duration = Duration::from_secs(1);

fn full_queue(rig: &Rig) {
    let _turn = turn();
    let sections = [
        STORE.to_owned(),
        "[queue.work]\nitems = 1_000\nworkers = 16\n".to_owned(),
        rig.database("main", "pool = { max = 8 }"),
        tenant("agents", "agent", "queued = { items = 64 }"),
        tenant("office", "interactive", ""),
    ];
    let [quick, _] = rig.flows("main");
    let server = serve(&sections, &[quick, rig.queued("main", "work")]);
    server.wait_for_durable();
    let agents = agents(&server, post(LATER, &key("agents"), "{}"), 16);
    server.wait_for("a full queue", |server| (server.post(&key("agents"), LATER, "{}").status == 429).then_some(()));
    let office = interactive(&server, "office", 20.0);
    play(Duration::from_secs(3));
    let (office, agents) = (office.end(), agents.end());
    println!("{}: office {office}; agents {agents}", rig.name);
    assert!(agents.refused("queue_full") > 0, "{agents}");
    assert_unmoved(&server, &office);
}

#[test]
fn promise_5_a_full_queue_before_postgres_moves_no_direct_call() {
    full_queue(&Rig::postgres(SLOW));
}

#[test]
fn promise_5_a_full_queue_before_sqlite_moves_no_direct_call() {
    let folder = folder("full-queue");
    // Slower, so that writes end seldom enough for a wait behind one to show.
    full_queue(&Rig::sqlite(&folder, SLOW * 2, 6));
    let _left_behind = std::fs::remove_dir_all(&folder);
}

#[test]
fn promise_5_a_full_queue_before_ibms_driver_moves_no_direct_call() {
    full_queue(&Rig::db2(SLOW));
}
