use std::time::Duration;

use super::*;
use crate::breaker::LONGEST_COOL_DOWN;

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

fn call(breakers: &TenantBreakers, tenant: &str, said: Said, now: Duration) -> Option<BreakerState> {
    let pass = breakers.enter(tenant, &LIMITS, now).expect("it lets the call pass");
    breakers.told(&tenant.into(), pass, said, &LIMITS, now).map(|moved| moved.to)
}

fn named(breakers: &TenantBreakers) -> Vec<String> {
    breakers.all().into_iter().map(|(tenant, _)| tenant.to_string()).collect()
}

/// Of tenant `a`, opened at `at(0)`.
fn open() -> TenantBreakers {
    let breakers = TenantBreakers::default();
    for failure in 1..=20 {
        let moved = call(&breakers, "a", Said::Ill, at(0));
        assert_eq!(moved, (failure == 20).then_some(BreakerState::Open), "failure {failure}");
    }
    breakers
}

#[test]
fn e2_one_tenants_failures_shut_out_no_other_and_its_calls_are_the_only_probes() {
    let breakers = open();
    for wait in [0, 999, 1_000, 60_000, 3_600_000] {
        let pass = breakers.enter("b", &LIMITS, at(wait)).expect("b is let through");
        assert!(!pass.is_probe(), "nothing hangs on it");
        assert_eq!(breakers.told(&"b".into(), pass, Said::Well, &LIMITS, at(wait)), None, "and it closes nobody's breaker");
        assert_eq!(breakers.refuses("b", &LIMITS, at(wait)), None);
    }
    assert_eq!(breakers.enter("a", &LIMITS, at(400)), Err(Shut { retry_after: Duration::from_millis(600) }));
    let probe = breakers.enter("a", &LIMITS, at(1_000)).expect("half open");
    assert!(probe.is_probe());
    assert!(breakers.enter("a", &LIMITS, at(1_000)).is_err(), "one at a time");
    assert_eq!(breakers.told(&"a".into(), probe, Said::Well, &LIMITS, at(1_100)).map(|moved| moved.to), Some(BreakerState::Closed));
}

#[test]
fn where_nothing_fails_there_is_no_breaker() {
    let breakers = TenantBreakers::default();
    for said in [Said::Well, Said::Nothing, Said::Well] {
        assert_eq!(call(&breakers, "a", said, at(0)), None);
    }
    assert!(named(&breakers).is_empty());
    assert_eq!(breakers.others(&LIMITS, at(0)).calls, 2);
    call(&breakers, "a", Said::Ill, at(0));
    assert_eq!(named(&breakers), ["a"]);
    call(&breakers, "b", Said::Well, at(0));
    assert_eq!(named(&breakers), ["a"]);
}

#[test]
fn a_breaker_is_forgotten_a_window_after_its_last_failure_or_move() {
    let breakers = TenantBreakers::default();
    call(&breakers, "a", Said::Ill, at(0));
    breakers.forget(&LIMITS, at(17_000));
    assert_eq!(named(&breakers), ["a"]);
    breakers.forget(&LIMITS, at(20_000));
    assert!(named(&breakers).is_empty());

    let breakers = open();
    breakers.forget(&LIMITS, at(20_999));
    assert_eq!(named(&breakers), ["a"], "it waits for a probe");
    let slow = breakers.enter("a", &LIMITS, at(20_999)).expect("half open");
    assert_eq!(breakers.told(&"a".into(), slow, Said::Well, &LIMITS, at(21_100)).map(|moved| moved.to), Some(BreakerState::Closed));
    breakers.forget(&LIMITS, at(41_099));
    assert_eq!(named(&breakers), ["a"], "what began before the closing is still told to it");
    breakers.forget(&LIMITS, at(41_100));
    assert!(named(&breakers).is_empty());
    assert_eq!(call(&breakers, "a", Said::Well, at(41_100)), None);

    let breakers = open();
    breakers.forget(&LIMITS, at(21_000));
    assert!(named(&breakers).is_empty(), "nobody came for a window after its cool-down");
}

#[test]
fn what_began_before_the_first_failure_tells_nothing_after_an_opening() {
    let breakers = TenantBreakers::default();
    let early: Vec<_> = (0..60).map(|_| breakers.enter("a", &LIMITS, at(0)).expect("closed")).collect();
    for _ in 0..20 {
        call(&breakers, "a", Said::Ill, at(0));
    }
    assert_eq!(call(&breakers, "a", Said::Well, at(1_000)), Some(BreakerState::Closed));
    for pass in early {
        assert_eq!(breakers.told(&"a".into(), pass, Said::Ill, &LIMITS, at(1_100)), None);
    }
    assert_eq!(breakers.refuses("a", &LIMITS, at(1_100)), None);
}

#[test]
fn who_was_answered_well_is_not_shut_out_by_a_handful_of_failures() {
    let breakers = TenantBreakers::default();
    for _ in 0..1_000 {
        assert_eq!(call(&breakers, "a", Said::Well, at(0)), None);
    }
    for _ in 0..40 {
        assert_eq!(call(&breakers, "a", Said::Ill, at(10)), None);
    }
    // A window later those answers are forgotten, whoever got them, and whatever others get.
    for _ in 0..1_000 {
        assert_eq!(call(&breakers, "b", Said::Well, at(22_000)), None);
    }
    let opened = (0..20).find_map(|_| call(&breakers, "a", Said::Ill, at(22_000)));
    assert_eq!(opened, Some(BreakerState::Open));
}

#[test]
fn a_flow_that_fails_for_many_who_call_it_seldom_is_left_alone_by_each_after_one_failure() {
    let breakers = TenantBreakers::default();
    let seldom = |number: usize, said| call(&breakers, &format!("tenant-{number}"), said, at(0));
    for number in 1..20 {
        assert_eq!(seldom(number, Said::Ill), None, "number {number}");
    }
    for number in 20..60 {
        assert_eq!(seldom(number, Said::Ill), Some(BreakerState::Open), "number {number}");
    }
    assert_eq!(seldom(1, Said::Ill), Some(BreakerState::Open), "and by the first ones after the next");
    assert_eq!(breakers.refuses("never-failed", &LIMITS, at(0)), None);
    // The first good answer ends the time that was counted: it takes as many failures again.
    assert_eq!(call(&breakers, "tenant-30", Said::Well, at(1_000)), Some(BreakerState::Closed));
    assert_eq!(call(&breakers, "tenant-30", Said::Ill, at(1_100)), None);
}

#[test]
fn e2_however_often_one_tenant_fails_every_other_has_its_own_min_calls() {
    let breakers = TenantBreakers::default();
    let passes: Vec<_> = (0..1_000).map(|_| breakers.enter("loud", &LIMITS, at(0)).expect("closed")).collect();
    for pass in passes {
        breakers.told(&"loud".into(), pass, Said::Ill, &LIMITS, at(0));
    }
    // It goes on, with a failing probe after each cool-down.
    for (moment, other) in (1..=6u64).map(|number| (number * 20_500, format!("other-{number}"))) {
        assert_eq!(call(&breakers, "loud", Said::Ill, at(moment)), Some(BreakerState::Open));
        for failure in 1..=20 {
            assert_eq!(call(&breakers, &other, Said::Ill, at(moment + failure)), (failure == 20).then_some(BreakerState::Open), "{other}");
        }
        assert_eq!(breakers.others(&LIMITS, at(moment + 20)).failures, 2, "one of each");
    }
}

#[test]
fn a_tenant_counts_for_all_once_a_window_and_again_after_an_outage() {
    let breakers = TenantBreakers::default();
    let failures = |moment| breakers.others(&LIMITS, at(moment)).failures;
    for moment in [0, 100, 15_000, 19_999] {
        call(&breakers, "a", Said::Ill, at(moment));
        assert_eq!(failures(moment), 1, "at {moment}");
    }
    // It never was without a failure for a window, and is a witness all the same.
    call(&breakers, "a", Said::Ill, at(20_000));
    assert_eq!(failures(20_000), 1);
    assert_eq!(failures(37_000), 1, "the second one");
    let opened = (0..20).filter_map(|_| call(&breakers, "b", Said::Ill, at(37_000))).count();
    assert_eq!((opened, failures(37_000)), (1, 2));
    assert_eq!(call(&breakers, "b", Said::Well, at(38_000)), Some(BreakerState::Closed));
    assert_eq!(failures(38_000), 0);
    call(&breakers, "a", Said::Ill, at(38_100));
    call(&breakers, "a", Said::Ill, at(38_200));
    assert_eq!(failures(38_200), 1, "another outage begins");
}

#[test]
fn an_outage_outlives_a_restart_for_its_tenant_alone() {
    let outage = Outage { lasted: Duration::from_secs(160), failing: Duration::from_secs(160), cool_down: Duration::from_secs(5) };
    let breakers = TenantBreakers::default();
    breakers.restore(&"a".into(), outage, &LIMITS, at(0));
    assert!(breakers.refuses("a", &LIMITS, at(4_999)).is_some());
    assert_eq!(breakers.refuses("b", &LIMITS, at(0)), None);
    assert!(breakers.enter("a", &LIMITS, at(5_000)).expect("half open").is_probe());
    breakers.keep(|tenant| tenant != "a");
    assert!(named(&breakers).is_empty(), "a tenant that is no more has no breaker");

    let in_use = TenantBreakers::default();
    call(&in_use, "b", Said::Well, at(0));
    in_use.restore(&"a".into(), outage, &LIMITS, at(0));
    assert!(named(&in_use).is_empty(), "a good answer since is worth more");
}

/// Tenants that come and go at any time over a flow that answers some of them: what is promised holds whatever happens.
mod model {
    use proptest::prelude::*;

    use super::*;

    const TENANTS: [&str; 4] = ["a", "b", "c", "well"];

    #[derive(Clone, Debug)]
    enum Deed {
        Comes { tenant: usize },
        Ends { which: usize, said: Said },
        Passes { milliseconds: u64 },
        Forgets,
    }

    fn deed() -> impl Strategy<Value = Deed> {
        let said = prop_oneof![1 => Just(Said::Well), 3 => Just(Said::Ill), 1 => Just(Said::Nothing)];
        prop_oneof![
            4 => (0..TENANTS.len()).prop_map(|tenant| Deed::Comes { tenant }),
            4 => (any::<usize>(), said).prop_map(|(which, said)| Deed::Ends { which, said }),
            1 => (0u64..4_000).prop_map(|milliseconds| Deed::Passes { milliseconds }),
            1 => Just(Deed::Forgets),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

        #[test]
        fn who_never_fails_is_never_refused_and_nobody_is_stuck(deeds in prop::collection::vec(deed(), 1..400)) {
            let limits = BreakerLimits { min_calls: 3, ..LIMITS };
            let (breakers, mut now, mut out) = (TenantBreakers::default(), at(0), Vec::<(usize, Pass)>::new());
            for deed in deeds {
                match deed {
                    Deed::Comes { tenant } => {
                        let refused = breakers.refuses(TENANTS[tenant], &limits, now);
                        let entered = breakers.enter(TENANTS[tenant], &limits, now);
                        prop_assert_eq!(refused, entered.as_ref().err().copied());
                        prop_assert!(entered.is_ok() || TENANTS[tenant] != "well");
                        out.extend(entered.ok().map(|pass| (tenant, pass)));
                    }
                    Deed::Ends { which, said } if !out.is_empty() => {
                        let (tenant, pass) = out.swap_remove(which % out.len());
                        let said = if TENANTS[tenant] == "well" && said == Said::Ill { Said::Nothing } else { said };
                        breakers.told(&TENANTS[tenant].into(), pass, said, &limits, now);
                    }
                    Deed::Ends { .. } => {}
                    Deed::Passes { milliseconds } => now += Duration::from_millis(milliseconds),
                    Deed::Forgets => breakers.forget(&limits, now),
                }
                for (tenant, breaker) in breakers.all() {
                    prop_assert!(&*tenant != "well" && breaker.status(&limits, now).probes <= 1);
                }
            }
            // The other side is well again; callers of every tenant come all the time.
            let healed = now;
            for tenant in TENANTS {
                now = healed;
                while breakers.refuses(tenant, &limits, now).is_some() {
                    now += Duration::from_millis(10);
                    prop_assert!(now - healed <= limits.probe_limit + LONGEST_COOL_DOWN, "stuck");
                }
            }
            breakers.forget(&limits, now);
            prop_assert!(breakers.all().len() < TENANTS.len());
        }
    }
}
