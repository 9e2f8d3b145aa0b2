//! Callers that hang up in mass give everything back, and nobody else notices. (Not over SQLite: there only a write can wait without
//! work, and a write outlives its caller.)

use std::time::Duration;

use spillgate_test_support::client::get;
use spillgate_test_support::load::{Agents, End, Pause, address};
use spillgate_test_support::observer::Observer;
use spillgate_test_support::rig::{QUICK, Rig, SLOW};

use crate::beside::assert_unmoved_but;
use crate::crowds::interactive;
use crate::scene::{OPERATOR, key, play, serve, tenant, turn};

/// They come together and hang up together: whoever waited for one of their seats would wait about so long.
const PATIENCE: Duration = Duration::from_secs(1);

/// A statement whose end the driver cannot prove keeps its seat for `statement_timeout`. `is_active`: whether the database itself shows
/// any of them at work. `takes_all`: it never refuses a connection.
fn hang_ups(rig: &Rig, statement_timeout: &str, takes_all: bool, is_active: &dyn Fn() -> bool) {
    let _turn = turn();
    let database = rig.database("main", "pool = { max = 8 }").replace("\"60s\"", &format!("\"{statement_timeout}\""));
    let sections = [database, tenant("agents", "agent", "in_flight = 256"), tenant("office", "interactive", "")];
    let server = serve(&sections, &rig.flows("main"));
    // It is there before them, as it would be: its connection is open, and its flow known to be quick.
    (0..3).for_each(|_| assert_eq!(server.get(&key("office"), QUICK).status, 200));
    let office = interactive(&server, "office", 20.0);
    let crowd = Agents {
        address: address(&server.flows),
        requests: vec![get(SLOW, &key("agents"))],
        count: 100,
        patience: PATIENCE,
        pause: Pause::Fixed(Duration::from_millis(100)),
    };
    let crowd = crowd.start();
    play(PATIENCE * 3 + PATIENCE / 2);
    let (crowd, office) = (crowd.end(), office.end());
    println!("{}: agents {crowd}; office {office}", rig.name);
    assert_eq!(crowd.well(), 0);
    // Whoever held one of its six seats, and whoever waited in its line.
    assert!(crowd.0.iter().filter(|sample| sample.end == End::HungUp).count() >= 22, "{crowd}");
    // While a database refuses connections, whoever needs a new one is told so at once: that is no want of seats.
    let out_of_reach = if takes_all { 0 } else { office.refused("database_unreachable") };
    assert!(out_of_reach * 20 <= office.len(), "the database is there for nearly all: {office}");
    assert_unmoved_but(&server, &office, out_of_reach);
    server.wait_for("end of what they started", |_| (!is_active()).then_some(()));
    server.wait_for("all seats and places back", |server| {
        let usage = server.admin_get(OPERATOR, "/admin/v1/tenants/agents/usage").json();
        let page = server.admin_get(OPERATOR, "/admin/v1/databases").json();
        let seats = &page["databases"][0]["seats"];
        (usage["in_flight"]["used"] == 0 && seats["in_use"] == 0 && seats["ending"] == 0 && seats["waiting"] == 0).then_some(())
    });
    let reply = server.get(&key("office"), QUICK);
    assert_eq!(reply.status, 200, "{reply:?}");
}

#[test]
fn hang_ups_in_mass_at_postgres_give_everything_back() {
    let observer = Observer::new();
    let rig = Rig::postgres(Duration::from_secs(1)).slow("SELECT pg_sleep(30)::text AS slept, 'mark_hang_up' AS mark".to_owned());
    hang_ups(&rig, "60s", true, &|| observer.active("mark_hang_up") > 0);
}

#[test]
fn hang_ups_in_mass_behind_ibms_driver_give_everything_back() {
    let derby = spillgate_test_support::derby::Derby::shared();
    hang_ups(&Rig::db2(Duration::from_millis(2_345)), "3s", false, &|| derby.running("2345") > 0);
}
