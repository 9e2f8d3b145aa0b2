//! Promise 5: one tenant's flood does not move another. By class, by tenant, by speed.

use std::time::Duration;

use super::world::{Callers, Pace, World, ms, pool, s, share};
use crate::seats::{Class, Pool};

fn agents(pool: &Pool) -> Callers {
    Callers {
        tenant: "agents",
        tenants: 1,
        share: share(pool),
        class: Class::Agent,
        hold: s(2),
        varies: false,
        deadline: s(10),
        patience: s(60),
        pace: Pace::Callers(200),
        attempts: 1,
        pause: ms(500),
        obeys: false,
        from: s(1),
        until: s(1_000_000),
    }
}

fn office(pool: &Pool) -> Callers {
    Callers {
        tenant: "office",
        class: Class::Interactive,
        hold: ms(20),
        varies: true,
        deadline: s(2),
        pace: Pace::Every(ms(50)),
        from: Duration::ZERO,
        ..agents(pool)
    }
}

#[test]
fn promise_5_a_pile_up_of_slow_statements_moves_no_other_tenant() {
    let pool = pool(16);
    let alone = World::new(pool, vec![office(&pool)]).play(s(300));
    let world = World::new(pool, vec![office(&pool), agents(&pool)]).play(s(300));
    let (alone, beside) = (alone.told[0].p99(), world.told[0].p99());
    assert!(beside <= alone.mul_f64(1.5), "{beside:?} beside the agents, {alone:?} alone");
    assert_eq!((world.told[0].refusals(), world.told[0].timed_out), (0, 0));
    let seconds: f64 = world.told[1].used.values().sum();
    let kept = seconds / (14.0 * 299.0);
    assert!(kept >= 0.95, "agents used {kept} of the seats they may hold");
}

#[test]
fn promise_5_a_flood_of_the_same_class_moves_no_other_tenant() {
    let pool = pool(16);
    // Ten times what the pool can serve, of statements as short as everybody's.
    let flood = Callers {
        tenant: "flood",
        hold: ms(20),
        class: Class::Interactive,
        deadline: s(2),
        pace: Pace::Every(Duration::from_micros(125)),
        ..agents(&pool)
    };
    let alone = World::new(pool, vec![office(&pool)]).measured().play(s(20));
    let world = World::new(pool, vec![office(&pool), flood]).measured().play(s(20));
    let (alone, beside) = (alone.told[0].p99(), world.told[0].p99());
    assert!(beside <= alone.mul_f64(1.5), "{beside:?} beside the flood, {alone:?} alone");
    assert_eq!((world.told[0].refusals(), world.told[0].timed_out), (0, 0));
    let goodput = world.told[1].goodput(s(5), s(20));
    assert!(goodput >= 0.95 * 14.0 / 0.02, "the flood still gets what is left: {goodput}/s");
}

/// The limit goes down to four of eight, of which one is for fast calls: the flood holds two, and not all that slow calls may have.
#[test]
fn promise_5_a_flood_leaves_seats_to_others_of_a_sick_database_too() {
    let pool = pool(8);
    let flood = Callers { tenant: "flood", hold: ms(150), pace: Pace::Callers(40), ..agents(&pool) };
    let other = Callers { tenant: "other", pace: Pace::Callers(1), ..flood.clone() };
    let sick = |_, now: Duration, _| if now >= s(20) { 10.0 } else { 1.0 };
    let world = World::new(pool, vec![other, flood]).measured().slowed(sick).play(s(60));
    assert!(world.samples.iter().filter(|(at, ..)| *at > s(25)).all(|(_, _, limit)| *limit == 4));
    let waits = world.told[0].answered.iter().filter(|(asked, ..)| *asked > s(25)).map(|(_, wait, _)| *wait);
    assert_eq!(waits.max(), Some(Duration::ZERO));
}

/// At the default pool the limit goes down to four of sixteen, of which two are for fast calls and two all that slow calls may have. A
/// flood of slow ones may hold those two, as it may hold all fourteen on a good day: what others find at once are the fast ones, and slow
/// calls of theirs get the next seat that comes free.
#[test]
fn promise_5_beside_a_flood_a_sick_database_of_sixteen_has_fast_seats_at_once_and_the_next_slow_one() {
    let pool = pool(16);
    let slowed = 10;
    let flood = Callers { tenant: "flood", hold: ms(150), pace: Pace::Callers(40), ..agents(&pool) };
    let slow = Callers { tenant: "slow", pace: Pace::Every(ms(3_100)), ..flood.clone() };
    let quick = Callers { tenant: "quick", hold: ms(10), pace: Pace::Every(ms(370)), ..flood.clone() };
    let one_hold = flood.hold * slowed;
    let sick = move |_, now: Duration, _| if now >= s(20) { f64::from(slowed) } else { 1.0 };
    let world = World::new(pool, vec![slow, quick, flood]).measured().slowed(sick).play(s(48));
    assert!(world.samples.iter().filter(|(at, ..)| *at > s(22)).all(|(_, _, limit)| *limit == 4));
    let longest = |told: &super::world::Told| {
        let waits = told.answered.iter().filter(|(asked, ..)| *asked > s(22)).map(|(_, wait, _)| *wait);
        waits.max().expect("calls were answered")
    };
    let [slow, quick, flood] = &world.told[..] else { panic!("three kinds of callers") };
    assert_eq!((slow.refusals(), slow.timed_out, quick.refusals(), quick.timed_out), (0, 0, 0, 0));
    assert_eq!(longest(quick), Duration::ZERO);
    assert!(longest(slow) <= one_hold, "{:?}, the next that comes free: {one_hold:?} at the most", longest(slow));
    assert!(longest(flood) > one_hold * 2, "it has more than the database can do");
}

#[test]
fn hundred_equal_tenants_that_flood_share_alike_and_a_newcomer_waits_two_statements() {
    let pool = pool(16);
    let tenants = Callers { tenant: "t", tenants: 100, hold: ms(50), varies: true, pace: Pace::Callers(20), ..agents(&pool) };
    let newcomer = Callers { tenant: "new", tenants: 50, pace: Pace::Every(s(1_000)), ..office(&pool) };
    let newcomer = Callers { class: Class::Agent, hold: ms(50), ..newcomer };
    // They come one by one.
    let newcomers: Vec<Callers> = (0..50).map(|number| Callers { tenants: 1, from: s(5) + ms(77 * number), ..newcomer.clone() }).collect();
    let world = World::new(pool, [vec![tenants], newcomers].concat()).measured().play(s(10));
    let jain = world.told[0].jain();
    assert!(jain >= 0.98, "{jain}");
    for told in &world.told[1..] {
        assert_eq!((told.answered.len(), told.refusals()), (1, 0));
        assert!(told.longest_wait() <= ms(100), "{:?}", told.longest_wait());
    }
}

/// Two tenants prepare a flow with quick calls, then send slow ones of it; between them they may hold all there is. Nobody can tell that
/// of the first of them. A third tenant's quick calls find a seat ever after, however many quick ones the two mix in.
#[test]
fn promise_5_a_flow_that_seemed_quick_takes_the_fast_seats_once() {
    let pool = pool(8);
    let two = Callers { tenants: 2, hold: ms(5), deadline: s(4), pace: Pace::Callers(30), attempts: u32::MAX, ..agents(&pool) };
    let quick = Callers { tenant: "quick", tenants: 1, pace: Pace::Every(ms(100)), deadline: s(5), attempts: 1, ..two.clone() };
    // From the 4th second on: for 4 s in every 4.3 s they are slow.
    let turns = |kind: usize, now: Duration, _| {
        let slow = kind == 0 && now > s(4) && (now - s(4)).as_millis() % 4_300 < 4_000;
        if slow { 780.0 } else { 1.0 }
    };
    let world = World::new(pool, vec![two, quick]).measured().slowed(turns).play(s(60));
    let quick = &world.told[1];
    let waits = quick.answered.iter().filter(|(asked, ..)| *asked > s(8)).map(|(_, wait, _)| *wait);
    assert!(quick.refusals() + quick.timed_out <= 40, "{:?}: only the first burst", quick.refused);
    assert_eq!(waits.max(), Some(Duration::ZERO));
}
