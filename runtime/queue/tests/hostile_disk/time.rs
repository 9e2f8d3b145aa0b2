//! Clocks that jump.

use std::time::Duration;

use spillgate_queue::clock::Clock;
use spillgate_queue::{JobState, NewItem};

use crate::rig::{FILE, Rig, UNLIMITED, content, end, lane, plain, wait};

const HOUR: u64 = 3_600_000;

#[test]
fn e7_the_wall_clock_jumps_and_nothing_notices() {
    let rig = Rig::new(1, 2 * FILE);
    let name = lane("bookings", "anna");
    let item = |number| NewItem { expires_in: Some(Duration::from_secs(600)), ..plain(content(number, 100)) };
    for number in 0..5 {
        rig.append(&name, item(number), &UNLIMITED).expect("there is room");
        let wall = rig.clock.wall_milliseconds();
        rig.clock.set_wall(if number % 2 == 0 { wall - HOUR } else { wall + 2 * HOUR });
    }
    let first = rig.take(&name, 1).pop().expect("it waits");
    rig.clock.pass(Duration::from_secs(59));
    rig.clock.set_wall(rig.clock.wall_milliseconds() + HOUR);
    wait(rig.store.start(&first.lease)).expect("its lease runs on the steady clock");
    wait(rig.store.finish(first.lease, end(JobState::Succeeded, None))).expect("it still holds");
    assert_eq!(rig.drain(&name), (1..5).map(|number| content(number, 100)).collect::<Vec<_>>(), "none expired, in order");
}

#[test]
fn e7_set_back_before_a_restart_time_stands_still_and_set_forward_it_has_passed() {
    let name = lane("bookings", "anna");
    for (back, expected) in [(true, 1), (false, 0)] {
        let rig = Rig::new(1, 2 * FILE);
        let item = NewItem { expires_in: Some(Duration::from_secs(600)), ..plain(content(1, 100)) };
        let job = rig.append(&name, item, &UNLIMITED).expect("there is room");
        let wall = rig.clock.wall_milliseconds();
        rig.clock.set_wall(if back { wall - HOUR } else { wall + HOUR });
        let rig = rig.kill();
        assert_eq!(rig.drain(&name).len(), expected, "set back: {back}");
        let state = if back { JobState::Succeeded } else { JobState::Expired };
        assert_eq!(rig.store.job(job).map(|job| job.state), Some(state));
        // From there it goes on: nothing waits for the wall clock to catch up.
        let item = NewItem { expires_in: Some(Duration::from_secs(10)), ..plain(content(2, 100)) };
        let job = rig.append(&name, item, &UNLIMITED).expect("there is room");
        rig.clock.pass(Duration::from_secs(11));
        assert!(rig.take(&name, 1).is_empty(), "it has expired");
        assert_eq!(rig.store.job(job).map(|job| job.state), Some(JobState::Expired));
    }
}
