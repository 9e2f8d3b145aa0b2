use super::*;

fn turns(lanes: &[(&str, u64)]) -> Turns {
    let mut turns = Turns::default();
    tell(&mut turns, lanes);
    turns
}

fn tell(turns: &mut Turns, lanes: &[(&str, u64)]) {
    turns.tell(lanes.iter().map(|(tenant, waiting)| (Arc::from(*tenant), *waiting, 1)));
}

fn given(turns: &mut Turns, workers: usize, now: Instant) -> Vec<Turn> {
    let mut running = 0;
    std::iter::from_fn(|| {
        running += 1;
        if running > workers { None } else { turns.next(workers, now) }
    })
    .collect()
}

fn names(turns: &[Turn]) -> Vec<&str> {
    turns.iter().map(|turn| &*turn.tenant).collect()
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn lanes_are_served_in_turn() {
    let (mut turns, now) = (turns(&[("a", 9), ("b", 9), ("c", 9)]), Instant::now());
    let mut served = String::new();
    for _ in 0..7 {
        let turn = turns.next(4, now).expect("there is work");
        served.push_str(&turn.tenant);
        turns.ended(&turn, After::Served, now);
    }
    assert_eq!(served, "abcabca");
}

#[test]
fn promise_5_lanes_have_turns_by_the_weights_of_their_tenants() {
    let (mut turns, now) = (Turns::default(), Instant::now());
    turns.tell([("heavy", 3), ("light", 1), ("twice", 2)].map(|(tenant, weight)| (Arc::from(tenant), 1_000, weight)));
    let served = |turns: &mut Turns, count: usize| {
        let mut served = Vec::new();
        for _ in 0..count {
            let turn = turns.next(4, now).expect("there is work");
            turns.ended(&turn, After::Served, now);
            served.push(turn.tenant.to_string());
        }
        served
    };
    let first = served(&mut turns, 600);
    let of = |served: &[String], name: &str| served.iter().filter(|tenant| *tenant == name).count();
    for (name, wanted) in [("heavy", 300_usize), ("light", 100), ("twice", 200)] {
        assert!(of(&first, name).abs_diff(wanted) <= 2, "{name}: {}", of(&first, name));
    }
    assert!(first.windows(9).all(|window| window.iter().any(|tenant| tenant == "light")), "none waits longer than its share is");
    // Who had nothing for long comes next, once, and has no turns saved up.
    turns.tell([("heavy", 3), ("light", 1), ("new", 1)].map(|(tenant, weight)| (Arc::from(tenant), 1_000, weight)));
    let then = served(&mut turns, 50);
    assert!(then[..5].iter().any(|tenant| tenant == "new"), "{then:?}");
    assert!((9..=11).contains(&of(&then, "new")), "{then:?}");
}

/// Who served how many of `count` turns, all lanes full and all workers at work, where the one that began first ends next.
fn served_by_full_workers(workers: usize, lanes: &[(&str, u32)], count: usize) -> Vec<usize> {
    let (mut turns, now) = (Turns::default(), Instant::now());
    turns.tell(lanes.iter().map(|(tenant, weight)| (Arc::from(*tenant), 1_000_000, *weight)));
    let (mut running, mut served) = (std::collections::VecDeque::new(), vec![0; lanes.len()]);
    for _ in 0..count {
        while running.len() < workers {
            running.push_back(turns.next(workers, now).expect("no worker is idle where lanes are full"));
        }
        let turn = running.pop_front().expect("all are at work");
        let of = lanes.iter().position(|(tenant, _)| *turn.tenant == **tenant).expect("it was told");
        served[of] += 1;
        turns.ended(&turn, After::Served, now);
    }
    served
}

#[test]
fn promise_5_weights_hold_while_every_worker_is_at_work() {
    for (workers, lanes, wanted) in [
        (1, &[("heavy", 3), ("light", 1)][..], &[2_250, 750][..]),
        (4, &[("heavy", 3), ("light", 1)], &[2_250, 750]),
        (4, &[("one", 5), ("two", 5)], &[1_500, 1_500]),
        (12, &[("heavy", 3), ("light", 1), ("twice", 2)], &[1_500, 500, 1_000]),
        (16, &[("heavy", 10), ("light", 1)], &[2_727, 273]),
        // A lane never has all workers, so no weight is worth more than all but one.
        (4, &[("heavy", 1_000), ("light", 1)], &[2_250, 750]),
        (2, &[("heavy", 3), ("light", 1)], &[1_500, 1_500]),
    ] {
        let served = served_by_full_workers(workers, lanes, 3_000);
        let near = served.iter().zip(wanted).all(|(served, wanted)| served.abs_diff(*wanted) <= 15);
        assert!(near, "{workers} workers, {lanes:?}: {served:?}, not {wanted:?}");
    }
}

#[test]
fn promise_5_a_heavy_lane_with_little_to_do_takes_no_workers_from_a_light_one() {
    let (mut turns, now) = (Turns::default(), Instant::now());
    let lanes =
        |heavy: u64| [("heavy", heavy, 1_000), ("light", 100, 1)].map(|(tenant, waiting, weight)| (Arc::from(tenant), waiting, weight));
    turns.tell(lanes(1));
    let running = given(&mut turns, 8, now);
    assert_eq!(names(&running).iter().filter(|name| **name == "light").count(), 4, "half, as if they weighed the same: {running:?}");
    // Held back, it counts no more than that either.
    let heavy = running.iter().find(|turn| &*turn.tenant == "heavy").expect("it had a turn");
    turns.ended(heavy, After::Held { by: HeldBy::Database, pause: SECOND }, now);
    turns.tell(lanes(9));
    assert_eq!(names(&given(&mut turns, 8, now)), ["light"; 3], "all but one while it is in its pause");
}

#[test]
fn promise_5_weights_hold_after_years_of_turns() {
    let (mut turns, now) = (Turns::default(), Instant::now());
    turns.clock = TURN.saturating_mul(1 << 40);
    turns.tell([("heavy", 3), ("light", 1)].map(|(tenant, weight)| (Arc::from(tenant), 1_000, weight)));
    let mut heavy = 0;
    for _ in 0..400 {
        let turn = turns.next(1, now).expect("there is work");
        heavy += usize::from(&*turn.tenant == "heavy");
        turns.ended(&turn, After::Served, now);
    }
    assert!((298..=302).contains(&heavy), "{heavy}");
}

#[test]
fn promise_5_a_lane_that_hangs_leaves_workers_to_the_others() {
    let (mut turns, now) = (turns(&[("sick", 100), ("well", 0)]), Instant::now());
    // Nothing waits elsewhere: it may have all but one.
    assert_eq!(names(&given(&mut turns, 4, now)), ["sick"; 3]);
    tell(&mut turns, &[("sick", 97), ("well", 5)]);
    let next = turns.next(4, now).expect("one is free");
    assert_eq!(&*next.tenant, "well");
    turns.ended(&next, After::Served, now);
    // While others have something it gets no more than its share, whoever's turn it is.
    assert_eq!(turns.next(4, now).map(|turn| turn.tenant).as_deref(), Some("well"));
}

#[test]
fn a_lane_that_is_alone_has_all_workers_and_no_more_turns_than_items() {
    let (mut turns, now) = (turns(&[("a", 3)]), Instant::now());
    assert_eq!(given(&mut turns, 8, now).len(), 3);
    tell(&mut turns, &[("a", 100)]);
    assert_eq!(given(&mut turns, 8, now).len(), 5, "three are at work");
}

#[test]
fn one_worker_serves_every_lane() {
    let (mut turns, now) = (turns(&[("a", 2), ("b", 2)]), Instant::now());
    let turn = turns.next(1, now).expect("a turn");
    turns.ended(&turn, After::Served, now);
    assert_eq!(turns.next(1, now).map(|turn| turn.tenant).as_deref(), Some("b"));
}

#[test]
fn a_lane_held_back_waits_is_tried_with_one_and_goes_on() {
    let (mut turns, now) = (turns(&[("a", 10)]), Instant::now());
    let both = given(&mut turns, 2, now);
    turns.ended(&both[0], After::Held { by: HeldBy::Database, pause: SECOND }, now);
    turns.ended(&both[1], After::Held { by: HeldBy::Database, pause: SECOND }, now + SECOND / 2);
    // They failed together: one pause.
    assert_eq!((turns.next(2, now), turns.wakes_at()), (None, Some(now + SECOND)));
    let shown = turns.held(now).next().map(|(_, by, since)| (by, since));
    assert_eq!(shown, Some((HeldBy::Database, now)));
    let later = now + SECOND;
    let tried = given(&mut turns, 2, later);
    assert_eq!(tried.len(), 1, "one item finds out");
    turns.ended(&tried[0], After::Served, later);
    assert_eq!((turns.held(later).count(), given(&mut turns, 2, later).len()), (0, 2));
}

/// E5: one worker, 800 items of one tenant and one of another.
#[test]
fn e5_a_tenants_only_item_has_its_turn_within_a_few_whatever_anothers_burst() {
    let (mut turns, now) = (turns(&[("a", 800)]), Instant::now());
    let mut running = turns.next(1, now).expect("a turn");
    for _ in 0..10 {
        turns.ended(&running, After::Served, now);
        running = turns.next(1, now).expect("a turn");
    }
    tell(&mut turns, &[("a", 789), ("b", 1)]);
    turns.ended(&running, After::Served, now);
    let next: Vec<_> = (0..2)
        .map(|_| {
            let turn = turns.next(1, now).expect("a turn");
            turns.ended(&turn, After::Served, now);
            turn
        })
        .collect();
    assert!(names(&next).contains(&"b"), "{next:?}");
}

#[test]
fn promise_5_many_lanes_of_a_sick_database_leave_half_of_the_workers_to_the_others() {
    let names_of_sick: Vec<String> = (0..20).map(|index| format!("sick-{index:02}")).collect();
    let lanes: Vec<(&str, u64)> = names_of_sick.iter().map(|name| (&**name, 9)).chain([("well", 9)]).collect();
    let (mut turns, now) = (turns(&lanes), Instant::now());
    for _ in 0..names_of_sick.len() {
        let turn = turns.next(4, now).expect("a turn");
        turns.ended(&turn, After::Held { by: HeldBy::Database, pause: SECOND }, now);
    }
    // All pauses are over; each try hangs until its deadline.
    let later = now + 2 * SECOND;
    let hang: Vec<_> = std::iter::from_fn(|| turns.next(4, later)).take(4).collect();
    assert_eq!(hang.iter().filter(|turn| &*turn.tenant != "well").count(), 2, "{hang:?}");
    assert_eq!(hang.len(), 4, "the well lane has what they leave");
    turns.ended(hang.iter().find(|turn| &*turn.tenant == "well").expect("it runs"), After::Served, later);
    assert_eq!(turns.next(4, later).map(|turn| turn.tenant).as_deref(), Some("well"));
    let failed = hang.iter().find(|turn| &*turn.tenant != "well").expect("it runs");
    turns.ended(failed, After::Held { by: HeldBy::Database, pause: SECOND }, later);
    assert!(turns.next(4, later).is_some_and(|turn| &*turn.tenant != "well"), "the next one is tried");
}

#[test]
fn items_that_wait_for_another_plan_do_not_hold_their_lane_and_are_shown_until_there_is_one() {
    let (mut turns, now) = (turns(&[("a", 10)]), Instant::now());
    let both = given(&mut turns, 2, now);
    turns.ended(&both[0], After::Passed { rest: SECOND }, now);
    turns.ended(&both[1], After::Served, now);
    assert_eq!(given(&mut turns, 2, now).len(), 2, "others go on");
    let shown = |turns: &Turns, at| turns.held(at).map(|(_, by, since)| (by, since)).next();
    assert_eq!(shown(&turns, now + SECOND), Some((HeldBy::Configuration, now)));
    assert_eq!(shown(&turns, now + 2 * SECOND), None, "it was looked at again and is gone");
    turns.replanned();
    assert_eq!(shown(&turns, now), None);
}

#[test]
fn pauses_grow_to_a_bound_and_end_when_the_database_answers() {
    let (mut turns, mut now) = (turns(&[("a", 10)]), Instant::now());
    let mut pauses = Vec::new();
    for _ in 0..12 {
        let turn = turns.next(1, now).expect("its pause is over");
        turns.ended(&turn, After::Held { by: HeldBy::Database, pause: Duration::ZERO }, now);
        let end = turns.wakes_at().expect("it is tried again");
        pauses.push(end - now);
        now = end;
    }
    assert_eq!((pauses[0], pauses[1], pauses[11]), (FIRST_PAUSE, FIRST_PAUSE * 2, LONGEST_PAUSE));
    let turn = turns.next(1, now).expect("its pause is over");
    turns.ended(&turn, After::Held { by: HeldBy::Database, pause: Duration::ZERO }, now);
    assert_eq!(turns.next(1, now), None);
    turns.release(HeldBy::Target, now);
    assert_eq!(turns.next(1, now), None);
    turns.release(HeldBy::Database, now);
    assert!(turns.next(1, now).is_some());
}

#[test]
fn a_wake_up_between_a_look_and_its_end_is_not_lost() {
    let (mut turns, now) = (turns(&[("a", 1)]), Instant::now());
    let early = turns.next(2, now).expect("a turn");
    tell(&mut turns, &[("a", 1)]);
    turns.ended(&early, After::Nothing { ready_in: None }, now);
    let again = turns.next(2, now).expect("what was told later counts");
    turns.ended(&again, After::Nothing { ready_in: Some(SECOND) }, now);
    assert_eq!((turns.next(2, now), turns.wakes_at()), (None, Some(now + SECOND)));
    assert!(turns.next(2, now + SECOND).is_some());
}

#[test]
fn lanes_that_are_gone_are_forgotten_once_nothing_is_at_work() {
    let (mut turns, now) = (turns(&[("a", 2), ("b", 2)]), Instant::now());
    let turn = turns.next(4, now).expect("a turn");
    tell(&mut turns, &[("b", 1)]);
    assert_eq!(turns.lanes.len(), 2);
    turns.ended(&turn, After::Nothing { ready_in: None }, now);
    tell(&mut turns, &[("b", 1)]);
    assert_eq!(turns.lanes.len(), 1);
}
