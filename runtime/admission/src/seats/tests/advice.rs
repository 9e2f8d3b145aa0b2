//! When a refused call is told to come back: whoever obeys is served soon after, and nobody is told to ask again and again in vain.

use super::world::{Callers, Pace, World, ms, pool, s, share};
use crate::seats::{Class, Pool};

/// Forty who write the same rows and do as they are told, for as long as it takes.
fn writers(pool: &Pool) -> Callers {
    Callers {
        tenant: "writers",
        tenants: 1,
        share: share(pool),
        class: Class::Agent,
        hold: s(2),
        varies: true,
        deadline: s(5),
        patience: s(60),
        pace: Pace::Callers(40),
        attempts: u32::MAX,
        pause: ms(500),
        obeys: true,
        from: s(1),
        until: s(1_000_000),
    }
}

/// Refusals for each answer, and answers a second.
fn told(pool: Pool, callers: Callers) -> (f64, f64) {
    let world = World::new(pool, vec![callers]).measured().play(s(60));
    let count = |calls: u64| f64::from(u32::try_from(calls).expect("few"));
    let answered = world.told[0].answered.len() as u64;
    (count(world.told[0].refusals()) / count(answered), world.told[0].goodput(s(10), s(60)))
}

#[test]
fn whoever_comes_back_when_told_is_soon_served() {
    let pool = pool(8);
    // Six seats, two seconds each: forty writers have their turn every 13 s, of which they may wait for 5 s.
    let (refused, goodput) = told(pool, writers(&pool));
    assert!(refused < 3.0 && goodput > 2.5, "{refused} refusals for each of {goodput} answers a second");
    // Eighty of four tenants: every 27 s.
    let (refused, goodput) = told(pool, Callers { tenants: 4, pace: Pace::Callers(20), ..writers(&pool) });
    assert!(refused < 6.0 && goodput > 2.5, "{refused} refusals for each of {goodput} answers a second");
    // Two hundred with quick calls: every 0.67 s, of which they may wait for 0.1 s.
    let (refused, goodput) = told(pool, Callers { hold: ms(20), deadline: ms(100), pace: Pace::Callers(200), ..writers(&pool) });
    assert!(refused < 1.5 && goodput > 290.0, "{refused} refusals for each of {goodput} answers a second");
}

#[test]
fn while_a_lock_is_held_those_who_obey_ask_every_few_seconds_and_go_on_when_it_is_gone() {
    let pool = pool(8);
    let locked = |_, now, _| if (s(20)..s(80)).contains(&now) { (s(80) - now).as_secs_f64() / 2.0 } else { 0.05 };
    let told = |until| World::new(pool, vec![writers(&pool)]).measured().slowed(locked).play(until).told.remove(0);
    let (before, locked, after) = (told(s(20)), told(s(80)), told(s(85)));
    let refused = locked.refusals() - before.refusals();
    assert!(refused < 40 * 16, "{refused} in a minute, of forty");
    let goodput = after.goodput(s(80), s(85));
    assert!(goodput > 50.0, "{goodput} of the 60 that they do in a second");
}
