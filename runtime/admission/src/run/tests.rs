use std::collections::BTreeMap;

use super::*;

const NOW: Duration = Duration::from_secs(1_000);

fn name(run: &str) -> Arc<str> {
    run.into()
}

fn limits() -> RunLimits {
    RunLimits { live: 3, calls: 5, in_flight: 2, retries: 2, depth: 4, ttl: Duration::from_secs(60) }
}

fn enter(runs: &Arc<Runs>, run: &str, now: Duration) -> Result<RunPlace, Refusal> {
    runs.enter(&name(run), &limits(), now)
}

fn policy(refusal: &Refusal) -> (&'static str, &'static str, u64, u64) {
    let policy = refusal.policy.as_ref().expect("a limit spoke");
    (refusal.code.name(), policy.name, policy.limit, policy.used)
}

#[test]
fn a_run_ends_by_its_calls_and_the_answer_says_so() {
    let runs = Arc::new(Runs::default());
    for _ in 0..5 {
        drop(enter(&runs, "loop", NOW).expect("within its budget"));
    }
    let refusal = enter(&runs, "loop", NOW).expect_err("its budget is used up");
    assert_eq!(policy(&refusal), ("run_exhausted", "run.calls", 5, 5));
    assert!(!refusal.retryable && refusal.scope == Scope::Run && refusal.retry_after.is_none());
    assert!(enter(&runs, "another", NOW).is_ok(), "another run is not touched");
    assert_eq!(runs.used("loop"), Some((5, 0, 0)), "a refusal takes nothing");
}

#[test]
fn two_agents_that_call_each_other_in_a_ring_end_by_depth_or_by_calls() {
    let hops = (0..).take_while(|depth| check_depth(*depth, &limits()).is_ok()).count();
    assert_eq!(hops, 5, "no hop and up to four");
    let refusal = check_depth(5, &limits()).expect_err("one hop too many");
    assert_eq!(policy(&refusal), ("run_exhausted", "run.depth", 4, 5));
    // A ring that does not count its hops, each call held by the one before.
    let (runs, wide) = (Arc::new(Runs::default()), RunLimits { in_flight: u64::MAX, ..limits() });
    let mut ring = Vec::new();
    let last = loop {
        match runs.enter(&name("ring"), &wide, NOW) {
            Ok(place) => ring.push(place),
            Err(refusal) => break refusal,
        }
    };
    assert_eq!((ring.len(), last.code), (5, Code::RunExhausted));
}

#[test]
fn a_run_has_so_many_calls_at_once_and_may_come_back() {
    let runs = Arc::new(Runs::default());
    let held = [enter(&runs, "wide", NOW).expect("one"), enter(&runs, "wide", NOW).expect("two")];
    let refusal = enter(&runs, "wide", NOW).expect_err("the third at once");
    assert_eq!(policy(&refusal), ("in_flight_exceeded", "run.in_flight", 2, 2));
    assert!(refusal.retryable && refusal.scope == Scope::Run);
    drop(held);
    assert!(enter(&runs, "wide", NOW).is_ok());
}

#[test]
fn e1_a_call_that_is_refused_later_costs_the_run_nothing() {
    let runs = Arc::new(Runs::default());
    for _ in 0..100 {
        let place = enter(&runs, "run", NOW).expect("nothing was used up");
        place.give_back();
        place.give_back();
    }
    assert_eq!(runs.live(), 0, "a run that did nothing leaves nothing");
    drop(enter(&runs, "run", NOW).expect("the first"));
    let (kept, refused) = (enter(&runs, "run", NOW).expect("the second"), enter(&runs, "run", NOW).expect("refused later"));
    refused.give_back();
    drop((kept, refused));
    assert_eq!(runs.used("run"), Some((2, 0, 0)));
}

#[test]
fn repeats_draw_on_the_runs_retries() {
    let runs = Arc::new(Runs::default());
    let place = enter(&runs, "run", NOW).expect("a call");
    place.retry(&limits()).and_then(|()| place.retry(&limits())).expect("two");
    assert_eq!(policy(&place.retry(&limits()).expect_err("the third")), ("run_exhausted", "run.retries", 2, 2));
    place.give_back_retry();
    assert!(place.retry(&limits()).is_ok());
}

#[test]
fn the_oldest_run_at_rest_gives_way_and_none_with_a_call_in_flight() {
    let runs = Arc::new(Runs::default());
    let at = |seconds| NOW + Duration::from_secs(seconds);
    let busy = enter(&runs, "busy", at(0)).expect("first");
    drop(enter(&runs, "old", at(1)).expect("second"));
    drop(enter(&runs, "young", at(2)).expect("third"));
    drop(enter(&runs, "old", at(3)).expect("used again: no longer the oldest"));
    drop(enter(&runs, "new", at(4)).expect("`young` gives way"));
    assert_eq!(["busy", "old", "young", "new"].map(|run| runs.used(run).is_some()), [true, true, false, true]);
    let held = [enter(&runs, "old", at(5)).expect("known"), enter(&runs, "new", at(5)).expect("known")];
    let refusal = enter(&runs, "one too many", at(6)).expect_err("all are at work");
    assert_eq!(policy(&refusal), ("in_flight_exceeded", "run.live", 3, 3));
    assert!(refusal.retryable);
    drop((busy, held));
    assert!(enter(&runs, "one too many", at(7)).is_ok());
    assert_eq!((runs.live(), runs.used("busy")), (3, None), "the one whose last call came first gave way");
}

#[test]
fn a_run_is_over_when_nobody_calls_for_it_any_more() {
    let runs = Arc::new(Runs::default());
    for _ in 0..5 {
        drop(enter(&runs, "run", NOW).expect("within its budget"));
    }
    let later = |seconds| NOW + Duration::from_secs(seconds);
    assert!(enter(&runs, "run", later(59)).is_err());
    let place = enter(&runs, "run", later(60)).expect("refused calls do not keep it alive");
    assert!(enter(&runs, "run", later(200)).is_ok(), "a run with a call in flight is not ended");
    drop(place);
    assert_eq!(runs.used("run"), Some((2, 0, 0)));
    drop(enter(&runs, "other", later(260)).expect("another"));
    assert_eq!(runs.used("run"), None);
}

#[test]
fn limits_that_are_lowered_refuse_new_calls_and_end_nothing() {
    let runs = Arc::new(Runs::default());
    let held: Vec<_> = (0..2).map(|_| enter(&runs, "run", NOW).expect("below the limit")).collect();
    let lowered = RunLimits { in_flight: 1, calls: 1, live: 0, ..limits() };
    assert!(runs.enter(&name("run"), &lowered, NOW).is_err());
    assert!(runs.enter(&name("other"), &lowered, NOW).is_err());
    assert_eq!(runs.used("run"), Some((2, 2, 0)));
    drop(held);
}

#[test]
fn what_a_run_met_is_told_once_and_forgotten_with_it() {
    let runs = Arc::new(Runs::default());
    let cause = |code| Cause { code, place: None, since: 7 };
    runs.met("nobody", cause(Code::Overloaded));
    drop(enter(&runs, "run", NOW).expect("a call"));
    runs.met("run", cause(Code::Overloaded));
    assert!(runs.passed("run", |_| false).is_empty() && runs.passed("other", |_| true).is_empty());
    assert_eq!(runs.passed("run", |_| true), [cause(Code::Overloaded)]);
    assert_eq!(runs.failing.load(Ordering::Relaxed), 0);
    runs.met("run", cause(Code::Overloaded));
    drop(enter(&runs, "other", NOW + Duration::from_secs(120)).expect("`run` is over"));
    assert_eq!(runs.failing.load(Ordering::Relaxed), 0);
}

/// Promise: whatever the order of calls, ends and refusals, no counter passes its limit and everything is given back.
#[test]
fn whatever_the_interleaving_no_limit_is_passed_and_everything_comes_back() {
    for seed in 1..=200u64 {
        let (runs, mut random) = (Arc::new(Runs::default()), seed);
        let mut next = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let (mut held, mut now): (Vec<RunPlace>, _) = (Vec::new(), NOW);
        for _ in 0..400 {
            now += Duration::from_secs(next(4));
            match next(5) {
                0 if !held.is_empty() => {
                    let at = usize::try_from(next(held.len() as u64)).expect("small");
                    drop(held.swap_remove(at));
                }
                1 if !held.is_empty() => {
                    let at = usize::try_from(next(held.len() as u64)).expect("small");
                    held.swap_remove(at).give_back();
                }
                _ => held.extend(runs.enter(&name(&format!("run-{}", next(6))), &limits(), now)),
            }
            let mut at_work: BTreeMap<Arc<str>, u64> = BTreeMap::new();
            for place in &held {
                *at_work.entry(place.run.clone()).or_default() += 1;
            }
            assert!(runs.live() <= limits().live, "seed {seed}");
            for (run, count) in at_work {
                let (calls, in_flight, _) = runs.used(&run).expect("a run with a call in flight is known");
                assert!(in_flight == count && count <= limits().in_flight && calls <= limits().calls, "seed {seed}");
            }
        }
        held.clear();
        let table = runs.lock();
        assert_eq!(table.resting.len(), table.runs.len(), "seed {seed}: all are at rest");
        assert!(table.runs.values().all(|run| run.in_flight == 0), "seed {seed}");
    }
}
