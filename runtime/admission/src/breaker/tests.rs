use std::time::Duration;

use super::*;

const LIMITS: BreakerLimits = BreakerLimits {
    window: Duration::from_secs(20),
    min_calls: 20,
    open_below: 0.5,
    probes: 1,
    probe_limit: Duration::from_secs(10),
    cool_down: Duration::from_secs(1),
};

fn at(milliseconds: u64) -> Duration {
    Duration::from_millis(100_000 + milliseconds)
}

fn call(breaker: &Breaker, said: Said, now: Duration) -> Option<BreakerState> {
    let pass = breaker.enter(&LIMITS, now).expect("it lets the call pass");
    breaker.told(pass, said, &LIMITS, now).map(|moved| moved.to)
}

/// Opened at `at(0)`.
fn open() -> Breaker {
    let breaker = Breaker::default();
    for failure in 1..=20 {
        let changed = call(&breaker, Said::Ill, at(0));
        assert_eq!(changed, (failure == 20).then_some(BreakerState::Open), "failure {failure}");
    }
    breaker
}

/// How many of 100 callers pass; what they hold.
fn crowd(breaker: &Breaker, now: Duration) -> Vec<Pass> {
    (0..100).filter_map(|_| breaker.enter(&LIMITS, now).ok()).collect()
}

#[test]
fn it_opens_below_the_share_and_not_below_the_number() {
    let breaker = Breaker::default();
    for _ in 0..19 {
        assert_eq!(call(&breaker, Said::Ill, at(0)), None);
    }
    for _ in 0..20 {
        assert_eq!(call(&breaker, Said::Well, at(10)), None);
    }
    assert_eq!(call(&breaker, Said::Ill, at(20)), None, "a half is not below a half");
    let status = breaker.status(&LIMITS, at(20));
    assert_eq!((status.state, status.calls, status.failures), (BreakerState::Closed, 40, 20));
    assert_eq!(call(&breaker, Said::Ill, at(30)), Some(BreakerState::Open), "20 of 41 is");
}

#[test]
fn failures_that_are_old_are_forgotten() {
    let breaker = Breaker::default();
    for second in 0..600 {
        // One a second: never 20 within a window, give or take its last slot.
        assert_eq!(call(&breaker, Said::Ill, at(second * 1_200)), None, "second {second}");
    }
}

#[test]
fn what_says_nothing_never_counts() {
    let breaker = Breaker::default();
    for _ in 0..1_000 {
        assert_eq!(call(&breaker, Said::Nothing, at(0)), None);
    }
    assert_eq!(breaker.status(&LIMITS, at(0)).calls, 0);
    for _ in 0..19 {
        assert_eq!(call(&breaker, Said::Ill, at(0)), None, "and makes up no number");
    }
}

#[test]
fn open_it_lets_nobody_pass_and_says_for_how_long() {
    let breaker = open();
    assert_eq!(breaker.enter(&LIMITS, at(400)), Err(Shut { retry_after: Duration::from_millis(600) }));
    assert_eq!(breaker.refuses(&LIMITS, at(400)), Some(Shut { retry_after: Duration::from_millis(600) }));
    assert_eq!(breaker.refuses(&LIMITS, at(1_000)), None, "a probe is wanted");
    assert_eq!(breaker.status(&LIMITS, at(999)).state, BreakerState::Open);
    assert_eq!(breaker.status(&LIMITS, at(1_000)).state, BreakerState::HalfOpen);
}

#[test]
fn e2_a_probe_that_ends_in_a_callers_error_frees_its_place() {
    let breaker = open();
    let mut passes = crowd(&breaker, at(1_000));
    assert_eq!(passes.len(), 1, "exactly one probe of 100 callers");
    let probe = passes.pop().expect("one");
    assert!(probe.is_probe() && probe.moved.is_some_and(|moved| moved.to == BreakerState::HalfOpen));
    assert_eq!(breaker.told(probe, Said::Nothing, &LIMITS, at(1_100)), None);
    let mut passes = crowd(&breaker, at(1_100));
    assert_eq!(passes.len(), 1, "the next one is asked at once");
    let probe = passes.pop().expect("one");
    assert!(probe.is_probe() && probe.moved.is_none());
    assert_eq!(breaker.told(probe, Said::Well, &LIMITS, at(1_200)).map(|moved| moved.to), Some(BreakerState::Closed));
    assert_eq!(crowd(&breaker, at(1_200)).len(), 100);
}

#[test]
fn e2_a_probe_that_hangs_frees_its_place_after_its_limit_and_is_not_listened_to_then() {
    let breaker = open();
    let lost = crowd(&breaker, at(1_000)).pop().expect("one");
    for wait in [1, 1_000, 9_999] {
        assert!(crowd(&breaker, at(1_000 + wait)).is_empty(), "after {wait} ms");
        let shut = breaker.refuses(&LIMITS, at(1_000 + wait)).expect("its place is taken");
        assert!(shut.retry_after <= LIMITS.cool_down && !shut.retry_after.is_zero());
    }
    let mut passes = crowd(&breaker, at(11_000));
    assert_eq!(passes.len(), 1);
    assert_eq!(breaker.told(lost, Said::Ill, &LIMITS, at(11_001)), None, "it is told too late");
    assert_eq!(breaker.status(&LIMITS, at(11_001)).probes, 1, "and takes nobody else's place");
    let probe = passes.pop().expect("one");
    assert_eq!(breaker.told(probe, Said::Well, &LIMITS, at(11_100)).map(|moved| moved.to), Some(BreakerState::Closed));
}

#[test]
fn e2_a_failed_probe_opens_it_again() {
    let breaker = open();
    assert_eq!(call(&breaker, Said::Ill, at(1_000)), Some(BreakerState::Open));
    assert!(crowd(&breaker, at(1_999)).is_empty());
    assert_eq!(call(&breaker, Said::Well, at(2_000)), Some(BreakerState::Closed));
    assert_eq!(breaker.status(&LIMITS, at(2_000)).calls, 0, "what was counted before is of another time");
}

#[test]
fn a_probe_that_could_not_ask_leaves_its_place_to_the_next() {
    let breaker = open();
    assert_eq!(call(&breaker, Said::Nothing, at(1_000)), None);
    assert_eq!(crowd(&breaker, at(1_000)).len(), 1);
}

#[test]
fn what_began_before_an_opening_tells_nothing_after_it() {
    let breaker = Breaker::default();
    let early: Vec<_> = (0..50).map(|_| breaker.enter(&LIMITS, at(0)).expect("closed")).collect();
    for _ in 0..20 {
        call(&breaker, Said::Ill, at(0));
    }
    let mut early = early.into_iter();
    assert_eq!(breaker.told(early.next().expect("50"), Said::Well, &LIMITS, at(10)), None);
    assert_eq!(breaker.status(&LIMITS, at(10)).state, BreakerState::Open, "it is not closed by it");
    assert_eq!(call(&breaker, Said::Well, at(1_000)), Some(BreakerState::Closed));
    for pass in early {
        assert_eq!(breaker.told(pass, Said::Ill, &LIMITS, at(1_100)), None);
    }
    assert_eq!(breaker.status(&LIMITS, at(1_100)).calls, 0);
}

#[test]
fn several_probes_are_out_at_once_and_all_must_be_good() {
    let limits = BreakerLimits { probes: 3, ..LIMITS };
    let breaker = open();
    let mut probes: Vec<_> = (0..100).filter_map(|_| breaker.enter(&limits, at(1_000)).ok()).collect();
    assert_eq!(probes.len(), 3);
    let mut tell = |said| breaker.told(probes.pop().expect("three"), said, &limits, at(1_100)).map(|moved| moved.to);
    assert_eq!((tell(Said::Well), tell(Said::Well), tell(Said::Well)), (None, None, Some(BreakerState::Closed)));
}

#[test]
fn the_longer_an_outage_the_rarer_the_probes() {
    let breaker = open();
    let (mut now, mut rests) = (at(0), Vec::new());
    while now < at(3_600_000) {
        let Some(shut) = breaker.refuses(&LIMITS, now) else {
            assert_eq!(call(&breaker, Said::Ill, now), Some(BreakerState::Open));
            continue;
        };
        let outage = now - at(0);
        let most = (outage / 16).clamp(LIMITS.cool_down, LONGEST_COOL_DOWN);
        assert!(shut.retry_after <= most, "{:?} after {outage:?}", shut.retry_after);
        rests.push(shut.retry_after);
        now += shut.retry_after;
    }
    assert_eq!(rests.first(), Some(&LIMITS.cool_down));
    assert_eq!(rests.last(), Some(&LONGEST_COOL_DOWN));
    assert!(rests.is_sorted(), "they only grow");
    assert!(rests.len() < 250, "an hour of an outage costs {} calls", rests.len());
}

#[test]
fn an_outage_outlives_a_restart() {
    let outage = Outage { lasted: Duration::from_secs(160), failing: Duration::from_secs(160), cool_down: Duration::from_secs(5) };
    let soon = Duration::from_millis(10);
    let breaker = Breaker::default();
    breaker.restore(outage, &LIMITS, soon);
    assert_eq!(breaker.status(&LIMITS, soon).outage, Some(outage));
    assert!(breaker.enter(&LIMITS, soon + Duration::from_millis(4_999)).is_err());
    let probe = breaker.enter(&LIMITS, soon + Duration::from_secs(5)).expect("half open");
    assert_eq!(breaker.told(probe, Said::Ill, &LIMITS, soon + Duration::from_secs(5)).map(|moved| moved.to), Some(BreakerState::Open));
    let next = breaker.status(&LIMITS, soon + Duration::from_secs(5)).outage.expect("open");
    assert_eq!(next.cool_down, Duration::from_secs(165) / 16, "the time before the restart counts");

    let strange = Breaker::default();
    strange.restore(Outage { lasted: Duration::ZERO, failing: Duration::ZERO, cool_down: Duration::from_secs(86_400) }, &LIMITS, soon);
    assert!(strange.enter(&LIMITS, soon + LIMITS.cool_down).is_ok(), "whatever was kept, no cool-down is longer than one of ours");

    let in_use = Breaker::default();
    assert_eq!(call(&in_use, Said::Well, soon), None);
    in_use.restore(outage, &LIMITS, soon);
    assert_eq!(in_use.status(&LIMITS, soon).state, BreakerState::Closed, "a good answer since is worth more");
}

#[test]
fn what_nobody_asks_for_a_window_is_closed_again() {
    let night = 8 * 3_600_000;
    for later in [21_000, 140_000, night] {
        let breaker = open();
        assert_eq!(breaker.status(&LIMITS, at(20_999)).state, BreakerState::HalfOpen, "a window after its cool-down");
        let status = breaker.status(&LIMITS, at(later));
        assert_eq!((status.state, status.outage), (BreakerState::Closed, None));
        assert_eq!(breaker.refuses(&LIMITS, at(later)), None);
        assert!(later < night || breaker.is_idle(&LIMITS, at(later)));
        let mut passes = crowd(&breaker, at(later));
        assert_eq!(passes.len(), 100, "nobody waits for another's probe");
        assert_eq!(passes.remove(0).moved.map(|moved| moved.to), Some(BreakerState::Closed), "it is told once");
        assert!(passes.iter().all(|pass| pass.moved.is_none() && !pass.is_probe()));
        for _ in 0..19 {
            assert_eq!(call(&breaker, Said::Ill, at(later)), None, "a first failure, and others, open nothing");
        }
        assert_eq!(call(&breaker, Said::Ill, at(later)), Some(BreakerState::Open));
        let shut = Shut { retry_after: LIMITS.cool_down };
        assert_eq!(breaker.enter(&LIMITS, at(later)), Err(shut), "the outage of then is over");
    }
    let breaker = open();
    assert_eq!(breaker.rest(&LIMITS, at(20_999)), None);
    assert_eq!(breaker.rest(&LIMITS, at(21_000)).map(|moved| moved.to), Some(BreakerState::Closed));
    assert_eq!(breaker.rest(&LIMITS, at(21_000)), None);
}

#[test]
fn a_probe_that_is_out_keeps_it_from_resting() {
    let limits = BreakerLimits { probe_limit: Duration::from_secs(60), ..LIMITS };
    let breaker = open();
    let probe = breaker.enter(&limits, at(1_000)).expect("half open");
    assert_eq!(breaker.status(&limits, at(50_000)).state, BreakerState::HalfOpen);
    assert_eq!(breaker.told(probe, Said::Nothing, &limits, at(50_000)), None);
    assert_eq!(breaker.status(&limits, at(69_999)).state, BreakerState::HalfOpen, "somebody came");
    assert_eq!(breaker.status(&limits, at(70_000)).state, BreakerState::Closed);
}

#[test]
fn an_outage_lasts_to_its_last_failure() {
    let breaker = open();
    assert_eq!(call(&breaker, Said::Ill, at(1_000)), Some(BreakerState::Open));
    let outage = breaker.status(&LIMITS, at(15_000)).outage.expect("half open");
    assert_eq!((outage.failing, outage.lasted), (Duration::from_secs(1), Duration::from_secs(15)));
    let restored = Breaker::default();
    restored.restore(Outage { cool_down: Duration::from_secs(30), lasted: Duration::from_secs(480), ..outage }, &LIMITS, at(0));
    assert_eq!(restored.refuses(&LIMITS, at(0)).map(|shut| shut.retry_after), Some(LIMITS.cool_down), "it failed for a second");
    assert_eq!(call(&restored, Said::Ill, at(1_000)), Some(BreakerState::Open));
    assert_eq!(restored.refuses(&LIMITS, at(1_000)).map(|shut| shut.retry_after), Some(LONGEST_COOL_DOWN), "and fails yet");
}

#[test]
fn limits_act_on_the_next_question() {
    let breaker = open();
    let patient = BreakerLimits { cool_down: Duration::from_secs(5), ..LIMITS };
    assert_eq!(call(&breaker, Said::Ill, at(1_000)), Some(BreakerState::Open));
    let probe = breaker.enter(&patient, at(2_000)).expect("half open");
    assert_eq!(breaker.told(probe, Said::Ill, &patient, at(2_000)).map(|moved| moved.to), Some(BreakerState::Open));
    assert_eq!(breaker.refuses(&LIMITS, at(2_000)).map(|shut| shut.retry_after), Some(patient.cool_down));
}

/// A database of which each call says what a script says, callers that come and go at any time: what is promised holds whatever happens.
mod model {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Deed {
        Comes,
        Ends { which: usize, said: Said },
        Passes { milliseconds: u64 },
    }

    fn deed() -> impl Strategy<Value = Deed> {
        let said = prop_oneof![Just(Said::Well), Just(Said::Ill), Just(Said::Nothing)];
        prop_oneof![
            4 => Just(Deed::Comes),
            4 => (any::<usize>(), said).prop_map(|(which, said)| Deed::Ends { which, said }),
            1 => (0u64..4_000).prop_map(|milliseconds| Deed::Passes { milliseconds }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

        #[test]
        fn probes_never_pass_their_number_and_it_is_never_stuck(deeds in prop::collection::vec(deed(), 1..300), probes in 1u32..4) {
            let limits = BreakerLimits { probes, min_calls: 5, ..LIMITS };
            let (breaker, mut now, mut out) = (Breaker::default(), at(0), Vec::<(Pass, Duration)>::new());
            for deed in deeds {
                match deed {
                    Deed::Comes => {
                        let refused = breaker.refuses(&limits, now);
                        match breaker.enter(&limits, now) {
                            Ok(pass) => {
                                prop_assert_eq!(refused, None);
                                out.push((pass, now));
                            }
                            Err(shut) => {
                                prop_assert_eq!(refused, Some(shut));
                                prop_assert!(!shut.retry_after.is_zero() && shut.retry_after <= LONGEST_COOL_DOWN);
                            }
                        }
                    }
                    Deed::Ends { which, said } if !out.is_empty() => {
                        let (pass, _) = out.swap_remove(which % out.len());
                        breaker.told(pass, said, &limits, now);
                    }
                    Deed::Ends { .. } => {}
                    Deed::Passes { milliseconds } => now += Duration::from_millis(milliseconds),
                }
                let status = breaker.status(&limits, now);
                prop_assert!(status.probes <= probes as usize);
                let young = out.iter().filter(|(pass, since)| pass.is_probe() && *since + limits.probe_limit > now).count();
                prop_assert!(status.probes <= young, "no place is taken by a probe that is over");
            }
            // Whatever is out is never told. Callers come all the time, and the other side is well again.
            let healed = now;
            while breaker.status(&limits, now).state != BreakerState::Closed {
                if let Ok(pass) = breaker.enter(&limits, now) {
                    breaker.told(pass, Said::Well, &limits, now);
                }
                now += Duration::from_millis(10);
                prop_assert!(now - healed <= limits.probe_limit + LONGEST_COOL_DOWN, "stuck");
            }
        }
    }
}
