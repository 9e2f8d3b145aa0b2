//! A database that falls ill and heals; a database that is only slow; a flood of ten times what can be served.

use std::time::Duration;

use super::world::{Callers, Pace, World, ms, pool, s, share};
use crate::seats::{Class, Pool, Share};

const FOREVER: Duration = Duration::from_secs(1_000_000);

fn callers(pool: &Pool, tenant: &'static str, hold: Duration, pace: Pace) -> Callers {
    Callers {
        tenant,
        tenants: 1,
        share: share(pool),
        class: Class::Agent,
        hold,
        varies: true,
        deadline: s(2),
        patience: s(60),
        pace,
        attempts: 1,
        pause: ms(100),
        obeys: false,
        from: Duration::ZERO,
        until: FOREVER,
    }
}

/// The limit a moment before then.
fn limit_at(world: &World, at: Duration) -> u32 {
    world.samples.iter().take_while(|(sampled, ..)| *sampled <= at).last().expect("sampled from the start").2
}

/// Ten times slower between 20 s and 50 s.
fn brown_out(now: Duration) -> f64 {
    if (s(20)..s(50)).contains(&now) { 10.0 } else { 1.0 }
}

#[test]
fn a_sick_database_is_known_within_a_second_and_let_go_within_five() {
    for hold in [ms(20), ms(150)] {
        let pool = pool(16);
        let kinds = ["a", "b", "c"].map(|tenant| callers(&pool, tenant, hold, Pace::Callers(6))).to_vec();
        let world = World::new(pool, kinds).slowed(|_, now, _| brown_out(now)).play(s(60));
        assert_eq!(limit_at(&world, s(20)), 16, "well so far");
        assert!(limit_at(&world, s(21)) < 16, "{hold:?}: {:?}", world.samples);
        assert_eq!(limit_at(&world, s(23)), 4, "{hold:?}");
        assert_eq!(limit_at(&world, s(55)), 16, "{hold:?}");
        let status = world.seats.status(s(60));
        assert!(status.transitions >= 2 && status.last_transitions.len() <= 16, "{status:?}");
    }
}

#[test]
fn a_database_that_hangs_is_known_within_a_second_and_let_go_within_five() {
    let pool = pool(16);
    let kinds = ["a", "b", "c"].map(|tenant| callers(&pool, tenant, ms(20), Pace::Callers(6))).to_vec();
    let hangs = |now: Duration| if (s(20)..s(50)).contains(&now) { 1e6 } else { 1.0 };
    let world = World::new(pool, kinds).slowed(move |_, now, _| hangs(now)).play(s(60));
    assert!(limit_at(&world, s(21)) < 16);
    assert_eq!(limit_at(&world, s(55)), 16);
    let (before, after) = (world.told[0].goodput(s(10), s(20)), world.told[0].goodput(s(55), s(60)));
    assert!(after >= 0.95 * before, "{after}/s after, {before}/s before");
}

#[test]
fn a_flow_that_is_slow_by_nature_does_not_lower_the_limit() {
    let pool = pool(16);
    let slow = Callers { deadline: s(20), ..callers(&pool, "slow", s(2), Pace::Callers(40)) };
    let world = World::new(pool, vec![slow, callers(&pool, "office", ms(20), Pace::Every(ms(50)))]).play(s(300));
    assert!(world.samples.iter().all(|(_, _, limit)| *limit == 16), "{:?}", world.seats.status(s(300)).last_transitions);
}

#[test]
fn what_scheduling_adds_to_short_calls_does_not_lower_the_limit() {
    let pool = pool(16);
    let short = callers(&pool, "t", Duration::from_micros(300), Pace::Callers(20));
    let busy = |_, now: Duration, _| if now >= s(1) { 10.0 } else { 1.0 };
    let world = World::new(pool, vec![short]).slowed(busy).play(s(5));
    assert!(world.samples.iter().all(|(_, _, limit)| *limit == 16));
}

#[test]
fn promise_5_a_tenant_whose_own_statements_hang_takes_no_seats_from_those_who_are_well() {
    let pool = pool(16);
    let stuck = callers(&pool, "stuck", ms(20), Pace::Callers(40));
    let well = callers(&pool, "well", ms(20), Pace::Every(ms(100)));
    let kinds = vec![well.clone(), Callers { tenant: "also", ..well }, stuck];
    // Of one tenant alone, as where it waits for a lock.
    let slowness = |kind: usize, now: Duration, _| if kind == 2 && now >= s(20) { 1e6 } else { 1.0 };
    let world = World::new(pool, kinds).slowed(slowness).play(s(120));
    assert!(world.samples.iter().all(|(_, _, limit)| *limit == 16));
    assert_eq!((world.told[0].refusals(), world.told[0].timed_out), (0, 0));
    assert!(world.told[0].p99() <= ms(45), "{:?}", world.told[0].p99());
}

#[test]
fn promise_5_one_quick_tenant_is_witness_enough_against_one_whose_statements_wait_for_each_other() {
    let pool = pool(8);
    let stuck = callers(&pool, "stuck", ms(150), Pace::Callers(40));
    let quick = callers(&pool, "quick", ms(1), Pace::Every(ms(50)));
    let slowness = |kind: usize, now: Duration, _| if kind == 0 && now >= s(20) { 8.0 } else { 1.0 };
    let world = World::new(pool, vec![stuck, quick]).slowed(slowness).play(s(60));
    assert!(world.samples.iter().all(|(_, _, limit)| *limit == 8));
    assert_eq!((world.told[1].refusals(), world.told[1].timed_out), (0, 0));
    assert!(world.told[1].longest_wait() <= ms(5), "{:?}", world.told[1].longest_wait());
}

#[test]
fn promise_6_at_ten_times_the_load_as_much_is_done_as_at_the_best() {
    let pool = pool(16);
    // Eight tenants; 16 seats do 800 such calls a second.
    let goodput = |pause: Duration| {
        let kind = Callers { tenants: 8, ..callers(&pool, "t", ms(20), Pace::Every(pause)) };
        let world = World::new(pool, vec![kind]).measured().play(s(10));
        (world.told[0].goodput(s(2), s(10)), world.told[0].timed_out)
    };
    let ((once, _), (ten, timed_out)) = (goodput(ms(10)), goodput(ms(1)));
    assert!(ten >= 0.95 * once, "{ten}/s at ten times the load, {once}/s at once");
    assert_eq!(timed_out, 0, "nobody waits in vain");
}

#[test]
fn an_expected_wait_is_what_calls_wait_on_the_whole() {
    let pool = pool(16);
    let mean = |times: &[Duration]| times.iter().sum::<Duration>().as_secs_f64() / f64::from(u32::try_from(times.len()).expect("few"));
    for (tenants, hold, pause) in [(1, ms(20), ms(1)), (40, ms(20), ms(20)), (5, s(1), ms(300))] {
        let kind = Callers { tenants, deadline: s(60), ..callers(&pool, "t", hold, Pace::Every(pause)) };
        let world = World::new(pool, vec![kind]).play(s(20));
        let (expected, waited): (Vec<Duration>, Vec<Duration>) = world.told[0].foreseen.iter().copied().unzip();
        let ratio = mean(&expected) / mean(&waited);
        assert!((0.5..2.0).contains(&ratio), "{tenants} tenants, {hold:?}: foreseen {} s, waited {} s", mean(&expected), mean(&waited));
    }
}

/// 70 tasks a second where 100 can be done, by callers that retry three times in three layers, and thirty seconds of brown-out.
fn storm(pool: Pool, share: Share) -> World {
    let kind = Callers { tenants: 7, share, attempts: 27, ..callers(&pool, "t", ms(40), Pace::Every(ms(100))) };
    World::new(pool, vec![kind]).slowed(|_, now, _| brown_out(now)).play(s(90))
}

#[test]
fn a_retry_storm_is_over_within_five_seconds_of_healing() {
    let pool = Pool { max: 4, fast_only: 0, floor: 4, adaptive: true };
    let world = storm(pool, Share { weight: 1, reserved: 0, limit: 4, line: 16 });
    let told = &world.told[0];
    let (before, after) = (told.goodput(s(5), s(20)), told.goodput(s(55), s(90)));
    assert!(after >= 0.95 * before, "{after}/s after, {before}/s before");
}

#[test]
fn a_storm_of_callers_that_hang_up_just_before_they_are_served_is_over_as_soon() {
    // A full line takes 0.53 s and a statement 0.2 s: oldest first, every call would be given up while its statement runs.
    let impatient = |pool: Pool, share: Share| {
        let paced = callers(&pool, "agents", ms(200), Pace::Every(ms(100)));
        let kind = Callers { share, attempts: 27, deadline: s(10), patience: ms(600), pause: ms(50), varies: false, ..paced };
        let ill = |now: Duration| if (s(20)..s(30)).contains(&now) { 25.0 } else { 1.0 };
        let world = World::new(pool, vec![kind]).slowed(move |_, now, _| ill(now)).play(s(50));
        [(s(5), s(20)), (s(35), s(50))].map(|(from, until)| world.told[0].goodput(from, until))
    };
    let [before, after] = impatient(pool(8), share(&pool(8)));
    assert!(after >= 0.95 * before, "{after}/s after, {before}/s before");
    let unlimited = Share { weight: 1, reserved: 0, limit: u32::MAX, line: u32::MAX };
    let [before, after] = impatient(Pool { fast_only: 0, adaptive: false, ..pool(8) }, unlimited);
    assert!(after < 0.5 * before, "{after}/s after without limits, {before}/s before");
}

#[test]
fn the_same_storm_with_everything_unlimited_stays_down_so_the_scene_proves_something() {
    let pool = Pool { max: 4, fast_only: 0, floor: 4, adaptive: false };
    let world = storm(pool, Share { weight: 1, reserved: 0, limit: u32::MAX, line: u32::MAX });
    let told = &world.told[0];
    let (before, after) = (told.goodput(s(5), s(20)), told.goodput(s(50), s(80)));
    assert!(after < 0.5 * before, "{after}/s after, {before}/s before");
}
